package dynamostore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/watch"
)

// sendOf is what this handle sees of a step's last send: one of this epoch, of this
// life of the key. It has no lease; that it stands unchanged is its idleness.
func (r row) sendOf(st step) watch.Sight {
	h := sha256.New()
	d := r.Key.Digest()
	h.Write(d[:])
	for _, n := range []int64{r.Origin, int64(st.Occurrence), int64(st.Epoch)} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
	}
	h.Write([]byte(st.Name))
	return watch.Sight{Digest: onlyonce.Digest(h.Sum(nil)), Renewal: int64(st.Sends)}
}

// idle is how long this handle has known of the step's last send, by its own monotonic
// clock; 0 when it is told of it for the first time. The clock of the process that
// recorded the send may be ahead or behind, and says nothing. Of a completed key nothing
// is sent again, and its steps are not watched: clocks tell, less what they may differ by.
func (s *Store) idle(r row, st step) time.Duration {
	if r.State == onlyonce.Completed {
		return max(0, s.now().Sub(timeOf(st.Sent))-s.skew)
	}
	return -s.sends.Remaining(r.sendOf(st))
}

// age is how long ago the epoch's first send was recorded, or longer: by the clocks of
// two processes, and by what these may differ.
func (s *Store) age(st step, idle time.Duration, now time.Time) time.Duration {
	return max(idle, now.Sub(timeOf(st.Begun))+s.skew)
}

// seenSteps notes the sends of a row that was just written, or makes room for others.
func (s *Store) seenSteps(r row) {
	for _, st := range r.steps {
		if r.State == onlyonce.Completed {
			s.sends.Forget(r.sendOf(st).Digest)
		} else {
			s.idle(r, st)
		}
	}
}

// expireSteps has the large requests and results of a completed key go when its record
// does.
func (s *Store) expireSteps(ctx context.Context, r row) {
	if large := r.stepValues(); len(large) > 0 {
		s.expire(ctx, r.Key, r.ttl(), large)
	}
}
