package payments

import (
	"encoding/hex"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncehttp"
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

// created is a 201 with the place of what was made.
func created(path string, v any) onlyonce.Answer {
	a := oncehttp.JSON(http.StatusCreated, v)
	http.Header(a.Header).Set("Location", path)
	return a
}
