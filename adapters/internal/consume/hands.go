package consume

import (
	"context"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/inbox"
)

// Hands are the messages that a consumer has in hand, and the places of those that are
// handled at once. They may outlive the connection that they came by.
type Hands struct {
	// Context is that of the handlers. It outlives the consumer's, until Drain cancels it.
	Context context.Context

	cancel context.CancelFunc
	drain  time.Duration
	places chan struct{}
	group  sync.WaitGroup
}

// NewHands makes the hands of a consumer that runs in ctx. So many messages are handled at
// once, and drain is how long they may take to end when the consumer does.
func NewHands(ctx context.Context, concurrency int, drain time.Duration) *Hands {
	h := &Hands{drain: drain, places: make(chan struct{}, concurrency)}
	h.Context, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return h
}

// Go does what is to be done with a message in hand, on a goroutine that Drain waits for.
func (h *Hands) Go(f func()) { h.group.Go(f) }

// Place takes one of the places; false when ctx is done first.
func (h *Hands) Place(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false // select would choose by chance
	}
	select {
	case h.places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Process handles a message at the place that the caller has taken, and gives it back.
func (h *Hands) Process(process inbox.ProcessFunc, msg inbox.Message) (inbox.Verdict, error) {
	defer func() { <-h.places }()
	return Process(h.Context, process, msg)
}

// Drain waits until no message is in hand. Handlers that take longer than they may have
// their context cancelled.
func (h *Hands) Drain() {
	limit := time.AfterFunc(h.drain, h.cancel)
	defer limit.Stop()
	h.group.Wait()
}

// Close drains, and ends the handlers' context.
func (h *Hands) Close() {
	defer h.cancel()
	h.Drain()
}
