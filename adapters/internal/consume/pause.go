// Package consume is what the consumers of brokers have in common, whatever they ask
// of their broker: how long they wait, and how they call what handles messages.
package consume

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Backoff bounds the pause before something is tried again. Min must be above zero, and
// Max not below it.
type Backoff struct{ Min, Max time.Duration }

// Pause is how long to wait after the given number of tries: it doubles with each, up to
// Max, and has jitter. The RetryAfter of an *onlyonce.Error takes its place where that is
// longer, up to Max.
func (b Backoff) Pause(tries int, err error) time.Duration {
	ceiling := b.Max
	if doublings := max(tries, 1) - 1; b.Min <= b.Max>>doublings { // or it would overflow
		ceiling = b.Min << doublings
	}
	wait := ceiling/2 + rand.N(ceiling/2+1)
	e, ok := errors.AsType[*onlyonce.Error](err)
	if !ok || e.RetryAfter <= wait {
		return wait
	}
	if e.RetryAfter >= b.Max {
		return b.Max
	}
	return e.RetryAfter + min(rand.N(b.Min), b.Max-e.RetryAfter)
}

// Sleep waits; false when ctx is done first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
