package singlesend

import (
	"io"
	"sync"
)

// body is a request's body that can be had once.
type body struct {
	source io.ReadCloser // nil: an empty one
	guard  *Guard

	closing sync.Once
	mu      sync.Mutex
	closed  bool
}

// Read fails when the body was closed, which whoever sends it does in the end, and
// when its time is over: looked at last, since what it returns is written next.
func (b *body) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return 0, b.guard.rules.Reread()
	}
	b.guard.reading()
	err = io.EOF
	if b.source != nil {
		n, err = b.source.Read(p)
	}
	if late := b.guard.mayWrite(); late != nil {
		return 0, late
	}
	return n, err
}

func (b *body) Close() (err error) {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.closing.Do(func() {
		if b.source != nil {
			err = b.source.Close()
		}
	})
	return err
}
