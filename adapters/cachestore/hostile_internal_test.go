package cachestore

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
)

var errTier = errors.New("the tier is down")

// hostile is a shared tier that keeps everything for ever, whatever its time to
// live, and gives what it was never asked for.
type hostile struct {
	mu sync.Mutex
	// written is all that was ever written under each name, oldest first.
	written map[string][][]byte
	// late are writes that are still on their way.
	late []write
	// pick chooses among n ways of behaving; 0 is to behave.
	pick func(n int) int
	// served counts values that were given as they were last written.
	served int
}

type write struct {
	name  string
	value []byte
}

func newHostile() *hostile {
	return &hostile{written: map[string][][]byte{}, pick: func(int) int { return 0 }}
}

// arrive lets all late writes come.
func (h *hostile) arrive() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.late {
		h.written[w.name] = append(h.written[w.name], w.value)
	}
	h.late = nil
}

func (h *hostile) get(ctx context.Context, name string) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	values := h.written[name]
	last := []byte(nil)
	if len(values) > 0 {
		last = values[len(values)-1]
	}
	switch h.pick(20) {
	case 1:
		return nil, errTier
	case 2: // slower than anybody waits
		<-ctx.Done()
		return nil, ctx.Err()
	case 3: // stale
		if len(values) > 0 {
			return values[0], nil
		}
		return nil, nil
	case 4: // another key's
		for other, values := range h.written {
			if other != name {
				return values[len(values)-1], nil
			}
		}
		return nil, nil
	case 5:
		return last[:h.pick(len(last)+1)], nil
	case 6:
		flipped := bytes.Clone(last)
		if len(flipped) > 0 {
			flipped[h.pick(len(flipped))] ^= 1 << h.pick(8)
		}
		return flipped, nil
	default:
		h.served++
		return last, nil
	}
}

func (h *hostile) set(_ context.Context, name string, value []byte, _ time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := write{name, bytes.Clone(value)}
	switch h.pick(8) {
	case 1:
		return errTier
	case 2: // done, and the reply lost
		h.written[name] = append(h.written[name], w.value)
		return errTier
	case 3: // the sender is paused
		h.late = append(h.late, w)
		return nil
	default:
		h.written[name] = append(h.written[name], w.value)
		return nil
	}
}

func (h *hostile) del(_ context.Context, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pick(2) == 1 {
		return errTier
	}
	delete(h.written, name)
	return nil
}

func (h *hostile) close() error { return nil }

// behind puts a cache with a tier before a store.
func behind(t fataler, store onlyonce.Store, cfg Config, in tier) *Store {
	t.Helper()
	s, err := New(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Shared = &Shared{Timeout: time.Millisecond}
	s.shared = newShared(in, store, cfg.WithDefaults())
	return s
}

type fataler interface {
	Helper()
	Fatal(args ...any)
}

var (
	_ fataler = (*testing.T)(nil)
	_ fataler = (*rapid.T)(nil)
)
