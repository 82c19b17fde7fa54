// Package local is what one process knows of keys, beside the database: hints that
// spare it round trips. None of them decides who owns a key.
package local

import (
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

// Open knows the keys that transactions of this process own and have not
// yet committed, so that a storm of duplicates does not reach the database,
// nor wait for a connection.
type Open struct {
	mu   *sync.Mutex
	keys map[onlyonce.Digest]struct{}
	// lost are attempts whose COMMIT was not answered: their sessions may still
	// be at it, and hold the lock that they themselves will ask for again.
	lost map[onlyonce.Token]struct{}
}

// mostLost bounds lost. What is forgotten may be told that its key is busy.
const mostLost = 1024

// NewOpen makes an Open. Its copies share what they know, and are safe for
// concurrent use.
func NewOpen() Open {
	return Open{mu: &sync.Mutex{}, keys: map[onlyonce.Digest]struct{}{}, lost: map[onlyonce.Token]struct{}{}}
}

// Enter adds a key; false: it is there already.
func (o Open) Enter(d onlyonce.Digest) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.keys[d]; ok {
		return false
	}
	o.keys[d] = struct{}{}
	return true
}

// Leave takes a key out, when its transaction has ended.
func (o Open) Leave(d onlyonce.Digest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.keys, d)
}

// Has tells whether a transaction of this process has the key.
func (o Open) Has(d onlyonce.Digest) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.keys[d]
	return ok
}

// Lose notes an attempt whose COMMIT was not answered.
func (o Open) Lose(t onlyonce.Token) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.lost) >= mostLost {
		clear(o.lost)
	}
	o.lost[t] = struct{}{}
}

// WasLost tells whether an attempt was noted, and forgets it.
func (o Open) WasLost(t onlyonce.Token) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.lost[t]
	delete(o.lost, t)
	return ok
}
