package pgstore

import (
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

// inFlight knows the keys that transactions of this process have claimed and
// not yet committed, so that a storm of duplicates does not reach the database,
// nor wait for a connection.
type inFlight struct {
	mu   *sync.Mutex
	keys map[onlyonce.Digest]struct{}
}

func newInFlight() inFlight {
	return inFlight{mu: &sync.Mutex{}, keys: map[onlyonce.Digest]struct{}{}}
}

// enter adds a key; false: it is there already.
func (f inFlight) enter(d onlyonce.Digest) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.keys[d]; ok {
		return false
	}
	f.keys[d] = struct{}{}
	return true
}

func (f inFlight) leave(d onlyonce.Digest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.keys, d)
}

func (f inFlight) has(d onlyonce.Digest) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.keys[d]
	return ok
}
