package portable

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/watch"
)

// sendOf is what a watch sees of a step's last send: one of an epoch, of a life of the
// key. It has no lease; for how long it stands unchanged is what is asked for.
func sendOf(r *row, st *step) watch.Sight {
	h := sha256.New()
	d := r.Key.Digest()
	h.Write(d[:])
	for _, n := range []int64{r.Origin, int64(st.Occurrence), int64(st.Epoch)} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
	}
	h.Write([]byte(st.Name))
	return watch.Sight{Digest: onlyonce.Digest(h.Sum(nil)), Renewal: int64(st.Sends)}
}

// idle is how long ago the step's last send was recorded. Where leases are watched it
// is how long this handle has known of it, by its own monotonic clock, 0 when it is
// told of it for the first time: the clock of the node that recorded it may be ahead or
// behind. Nobody waits for a send of a step that has ended: there it is by the clocks,
// and the watch is over. Call it after the reply.
func (s *Store) idle(r *row, st *step, now time.Time) time.Duration {
	switch {
	case s.sends == nil:
	case st.State == onlyonce.StepBegun:
		return -s.sends.Remaining(sendOf(r, st))
	default:
		s.sends.Forget(sendOf(r, st).Digest)
	}
	return now.Sub(st.sent)
}

// noted begins or ends the watch of a step that has just been written.
func (s *Store) noted(r *row, st *step) { s.idle(r, st, st.sent) }

// age is how long ago the epoch's first send was recorded, or longer: by what clocks
// may differ, and never less than its Idle.
func (s *Store) age(st *step, now time.Time) time.Duration {
	age := now.Sub(st.begun)
	if s.sends == nil {
		return age
	}
	return max(st.Idle, age+max(0, s.cfg.MaxClockSkew))
}
