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
// jitter keeps contenders apart. uncertain tells whether any of the calls may
// have happened without its reply, whatever the last one said.
func (e *Engine) repeat(ctx context.Context, fn func(context.Context) error) (uncertain bool, err error) {
	for try := 0; ; try++ {
		err := fn(ctx)
		uncertain = uncertain || errors.Is(err, ErrUncertain)
		if err == nil || try+1 >= maxTries || !repeatable(err) {
			return uncertain, err
		}
		e.cfg.Observer.Observe(ctx, Event{Kind: EventStoreRetried, Err: err})
		if !wait(ctx, backoff(try, 2*time.Millisecond, 250*time.Millisecond)) {
			return uncertain, errors.Join(err, context.Cause(ctx))
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

// behind repeats fn behind the operation it is called by until it succeeds or the engine closes.
// Every error is taken for passing: a store that is down comes back. limit is
// the longest pause between two tries.
func (e *Engine) behind(ctx context.Context, limit time.Duration, fn func(context.Context) error) {
	e.pending.Add(1) // while the operation itself is counted: never from zero
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(e.closing, cancel) //nolint:contextcheck // Close ends what goes on behind requests
	go func() {
		defer e.pending.Done()
		defer cancel()
		defer stop()
		for try := 0; ; try++ {
			err := e.limited(ctx, fn)
			if err == nil {
				return
			}
			e.cfg.Observer.Observe(ctx, Event{Kind: EventStoreRetried, Err: err})
			if !wait(ctx, backoff(try, 100*time.Millisecond, limit)) {
				return
			}
		}
	}()
}

// limited runs fn within the time one attempt at settling may take.
func (e *Engine) limited(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.SettleTimeout)
	defer cancel()
	return fn(ctx)
}

// insist repeats a settling write until it succeeds or its time is over,
// whatever the error: the handler has run, so nothing is lost by asking again.
func (e *Engine) insist(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.SettleTimeout)
	defer cancel()
	for try := 0; ; try++ {
		err := fn(ctx)
		if err == nil {
			return nil
		}
		e.cfg.Observer.Observe(ctx, Event{Kind: EventStoreRetried, Err: err})
		if !wait(ctx, backoff(try, 5*time.Millisecond, time.Second)) {
			return err
		}
	}
}
