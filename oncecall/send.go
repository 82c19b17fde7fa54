package oncecall

import (
	"context"
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

// send is what is known of one Effect.Send: client libraries may make several
// requests in it. It is safe for concurrent use.
type send struct {
	mu sync.Mutex
	// target is method and URL of the request that the derived key stands for.
	target string
	// left counts the requests of which it is not proved that they did not leave.
	left int
}

// begin takes c's request on as one that may leave.
func (s *send) begin(c *call) error {
	target := c.req.Method + " "
	if c.req.URL != nil {
		target += c.req.URL.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.t.Keyless && s.left > 0:
		return c.refusal(CodeSentBefore,
			"a request of this Effect.Send may have left, and the provider knows no keys; return the first error, and let Effect.Check find out")
	case s.target != "" && s.target != target:
		return c.refusal(CodeOtherKey,
			"the derived key stands for another request of this Effect.Send; give each effect an onlyonce.Call of its own")
	}
	s.target = target
	s.left++
	return nil
}

// unsent notes the proof that a request which begin took on did not leave.
func (s *send) unsent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left--; s.left == 0 {
		s.target = "" // another host may be tried
	}
}

// none tells whether it is proved that nothing has left.
func (s *send) none() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left == 0
}

// sendNote is where the send of a context is noted: all transports that are used in
// one Effect.Send share it.
type sendNote struct{}

// sendOf is what is known of the Effect.Send that a context belongs to.
func sendOf(ctx context.Context) *send {
	notes := onlyonce.SendNotes(ctx)
	if notes == nil {
		return &send{}
	}
	s, _ := notes.LoadOrStore(sendNote{}, &send{})
	return s.(*send) //nolint:forcetypeassert // the key is this package's own
}
