package consumetest

import (
	"sync"
	"testing"
)

// Events are what a consumer has told. The methods are safe for concurrent use.
type Events[E any] struct {
	mu   sync.Mutex
	all  []E
	more chan struct{} // closed and made anew with each event
}

// NewEvents makes a list without events.
func NewEvents[E any]() *Events[E] { return &Events[E]{more: make(chan struct{})} }

// Add is for a Config's Observe.
func (e *Events[E]) Add(event E) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
	close(e.more)
	e.more = make(chan struct{})
}

// Find returns the events that match, and what is closed with the next event.
func (e *Events[E]) Find(match func(E) bool) ([]E, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []E
	for _, event := range e.all {
		if match(event) {
			found = append(found, event)
		}
	}
	return found, e.more
}

// Wait waits for n events that match, and returns them.
func (e *Events[E]) Wait(t *testing.T, n int, match func(E) bool) []E {
	t.Helper()
	for {
		found, more := e.Find(match)
		if len(found) >= n {
			return found
		}
		select {
		case <-more:
		case <-t.Context().Done():
			t.Fatalf("%d of %d events: %v", len(found), n, found)
		}
	}
}
