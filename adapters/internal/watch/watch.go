// Package watch judges leases where the store has no clock, or several (rule C4):
// a key is taken over only by a handle that has itself seen the same claim, with
// the same renewal, for a whole lease on its own monotonic clock. What was seen is
// in this process alone; forgetting it costs no more than another lease of waiting.
package watch

import (
	"container/list"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// DefaultLimit is how many keys are watched at once: those seen in progress, those
// seen last.
const DefaultLimit = 100_000

// Sight is what a handle sees of a key that is in progress.
type Sight struct {
	Digest onlyonce.Digest
	Fence  int64
	// Renewal changes with every renewal of the lease.
	Renewal int64
	// Lease is how long the owner may trust its lease from when it asked.
	Lease time.Duration
}

// Watch remembers since when each key has been seen unchanged. It is safe for
// concurrent use.
type Watch struct {
	now   func() time.Time
	limit int

	mu   sync.Mutex
	seen map[onlyonce.Digest]*list.Element
	// order is from the sighting that began longest ago to the latest.
	order list.List
}

type sighting struct {
	Sight
	since time.Time
}

// New makes a Watch of at most limit keys; 0 means DefaultLimit. now must be
// monotonic; nil means time.Now, whose monotonic part is used.
func New(now func() time.Time, limit int) *Watch {
	if now == nil {
		now = time.Now
	}
	if limit <= 0 {
		limit = DefaultLimit
	}
	return &Watch{now: now, limit: limit, seen: map[onlyonce.Digest]*list.Element{}}
}

// Remaining notes what was seen, and tells how much of the lease this handle has
// yet to watch; 0 or less: it has been watched for all of it, and over by that
// much. Call it after the store's reply: the sighting begins now, which is not
// before the owner asked for what is seen. A takeover must still be conditional on
// fence and renewal being those that were seen.
func (w *Watch) Remaining(s Sight) time.Duration {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.seen[s.Digest]
	if ok {
		old := e.Value.(*sighting) //nolint:forcetypeassert // nothing else is in the list
		if old.Fence == s.Fence && old.Renewal == s.Renewal {
			return s.Lease - now.Sub(old.since)
		}
		w.order.Remove(e)
	}
	w.seen[s.Digest] = w.order.PushBack(&sighting{Sight: s, since: now})
	for w.order.Len() > w.limit {
		w.drop(w.order.Front())
	}
	return s.Lease
}

// Forget ends the watch over a key that is not in progress any more.
func (w *Watch) Forget(d onlyonce.Digest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := w.seen[d]; ok {
		w.drop(e)
	}
}

func (w *Watch) drop(e *list.Element) {
	w.order.Remove(e)
	delete(w.seen, e.Value.(*sighting).Digest) //nolint:forcetypeassert // nothing else is in the list
}

// Len is how many keys are watched.
func (w *Watch) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.order.Len()
}
