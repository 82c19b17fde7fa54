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

// DefaultLimit is how many keys are watched at once.
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

// lookedAtWithin is for how long a key is kept that nobody looks at while others wait
// for its place.
const lookedAtWithin = time.Hour

// Watch remembers since when each key has been seen unchanged. It is safe for
// concurrent use.
type Watch struct {
	now   func() time.Time
	limit int

	mu   sync.Mutex
	seen map[onlyonce.Digest]*list.Element
	// order is from the key that was looked at longest ago to the latest.
	order list.List
}

type sighting struct {
	Sight
	since, looked time.Time
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
//
// When the Watch is full, a key that is new to it waits for a place, rather than
// take that of one that has been watched for a while: else, of one key too many,
// none would ever have been watched for a lease.
func (w *Watch) Remaining(s Sight) time.Duration {
	now := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	e, ok := w.seen[s.Digest]
	if !ok {
		if w.room(now) {
			w.seen[s.Digest] = w.order.PushBack(&sighting{Sight: s, since: now, looked: now})
		}
		return s.Lease
	}
	old := e.Value.(*sighting) //nolint:forcetypeassert // nothing else is in the list
	w.order.MoveToBack(e)
	if old.Fence != s.Fence || old.Renewal != s.Renewal {
		old.since = now
	}
	old.Sight, old.looked = s, now
	return s.Lease - now.Sub(old.since)
}

// room makes a place, if need be that of a key that nobody has looked at for long.
func (w *Watch) room(now time.Time) bool {
	if w.order.Len() < w.limit {
		return true
	}
	first := w.order.Front()
	if now.Sub(first.Value.(*sighting).looked) < lookedAtWithin { //nolint:forcetypeassert // nothing else is in the list
		return false
	}
	w.drop(first)
	return true
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
