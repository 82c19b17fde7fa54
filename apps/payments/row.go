package payments

import (
	"encoding/hex"
	"time"

	"github.com/google/uuid"
)

// newID makes an id that sorts by time and that nobody can guess.
func newID(prefix string) string {
	id := uuid.Must(uuid.NewV7())
	return prefix + hex.EncodeToString(id[:])
}

// now is the time as the database keeps it.
func (s *Service) now() time.Time { return s.cfg.Now().UTC().Truncate(time.Microsecond) }

func timeOf(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// orNull is for columns in which nothing is NULL.
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}
