package local

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce"
)

// seenSlots bounds the memory of a Seen: 128 KiB.
const seenSlots = 1 << 14

// Seen is a hint: which keys this process has lately found or made a row for.
// A claim on one of them reads first, so that a replay costs one round trip;
// any other inserts first, so that a fresh key does. A wrong hint costs a round
// trip and decides nothing.
type Seen struct{ slots []atomic.Uint64 }

// NewSeen makes a Seen. Its copies share what they know, and are safe for concurrent
// use.
func NewSeen() Seen { return Seen{slots: make([]atomic.Uint64, seenSlots)} }

// mark gives the slot of a digest and what stands in it. Digests are hashes:
// two halves of one are independent.
func (s Seen) mark(d onlyonce.Digest) (*atomic.Uint64, uint64) {
	return &s.slots[binary.BigEndian.Uint64(d[:8])%seenSlots], binary.BigEndian.Uint64(d[8:])
}

// Has tells whether the key was met lately.
func (s Seen) Has(d onlyonce.Digest) bool {
	slot, mark := s.mark(d)
	return slot.Load() == mark
}

// Add notes that the key was met.
func (s Seen) Add(d onlyonce.Digest) {
	slot, mark := s.mark(d)
	slot.Store(mark)
}
