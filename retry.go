package onlyonce

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// maxTries bounds how often a store call is repeated within one request.
const maxTries = 6

// repeat calls fn again while the store says that this is safe: nothing
// happened (ErrConflict), or the same token decides (ErrUncertain). Full
// jitter keeps contenders apart.
func (e *Engine) repeat(ctx context.Context, fn func(context.Context) error) error {
	for try := 0; ; try++ {
		err := fn(ctx)
		if err == nil || try+1 >= maxTries || !repeatable(err) {
			return err
		}
		e.cfg.Observer.Observe(ctx, Event{Kind: EventStoreRetried, Err: err})
		if !wait(ctx, backoff(try, 2*time.Millisecond, 250*time.Millisecond)) {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

func repeatable(err error) bool {
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrUncertain)
}

// backoff is a random time up to base doubled with each try, at most limit.
func backoff(try int, base, limit time.Duration) time.Duration {
	most := min(base<<min(try, 20), limit)
	return time.Duration(rand.Int64N(int64(most)) + 1)
}

// wait returns false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// behind repeats fn behind the request until it succeeds or the engine closes.
// Every error is taken for passing: a store that is down comes back.
func (e *Engine) behind(ctx context.Context, fn func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(e.closing, cancel) //nolint:contextcheck // Close ends what goes on behind requests
	e.pending.Go(func() {
		defer cancel()
		defer stop()
		for try := 0; ; try++ {
			err := e.limited(ctx, fn)
			if err == nil {
				return
			}
			e.cfg.Observer.Observe(ctx, Event{Kind: EventStoreRetried, Err: err})
			if !wait(ctx, backoff(try, 100*time.Millisecond, 5*time.Second)) {
				return
			}
		}
	})
}

// limited runs fn within the time one attempt at settling may take.
func (e *Engine) limited(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.SettleTimeout)
	defer cancel()
	return fn(ctx)
}
