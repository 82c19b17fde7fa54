package mysqlstore

import (
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

// inFlight knows the keys that transactions of this process own and have not
// yet committed, so that a storm of duplicates does not reach the database,
// nor wait for a connection.
type inFlight struct {
	mu   *sync.Mutex
	keys map[onlyonce.Digest]struct{}
	// lost are attempts whose COMMIT was not answered: their sessions may still
	// be at it, and hold the lock that they themselves will ask for again.
	lost map[onlyonce.Token]struct{}
}

// mostLost bounds lost. What is forgotten may be told that its key is busy.
const mostLost = 1024

func newInFlight() inFlight {
	return inFlight{mu: &sync.Mutex{}, keys: map[onlyonce.Digest]struct{}{}, lost: map[onlyonce.Token]struct{}{}}
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

// lose notes an attempt whose COMMIT was not answered.
func (f inFlight) lose(t onlyonce.Token) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.lost) >= mostLost {
		clear(f.lost)
	}
	f.lost[t] = struct{}{}
}

// wasLost tells whether an attempt was noted, and forgets it.
func (f inFlight) wasLost(t onlyonce.Token) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.lost[t]
	delete(f.lost, t)
	return ok
}
