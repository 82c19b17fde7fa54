package onceclient

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Resume goes on with all operations that are open in the journal, oldest first, some
// at a time (Config.Concurrency), and tells fn what became of each, as Do would. Those
// that somebody else works on are left alone. Two processes may do it at a time. fn is
// called by one goroutine at a time, and may be nil.
//
// It returns when it has been through all that was open when it was called; the error
// says that the journal has failed, wholly or for some of them, or that ctx has ended.
// Operations that are still open afterwards are for the next Resume, and so are those of
// which nothing has left yet ([Client.Entry]), until their key is too old: then they end as
// NotSentError. Each is bound by Config.Timeout, and every attempt counts as
// a retry for the budget. Credentials come from Config.Authorize: the journal has none.
func (c *Client) Resume(ctx context.Context, fn func(Outcome, error)) error {
	intents, failed := c.pending(ctx)
	var (
		mu    sync.Mutex // of fn and failed
		work  sync.WaitGroup
		slots = make(chan struct{}, c.cfg.Concurrency)
	)
	for _, intent := range intents {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		work.Go(func() {
			defer func() { <-slots }()
			out, did, err := c.resume(ctx, intent)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case !did:
				failed = errors.Join(failed, err)
			case fn != nil:
				fn(out, err)
			}
		})
	}
	work.Wait()
	if ctx.Err() != nil {
		return errors.Join(failed, context.Cause(ctx))
	}
	return failed
}

// resume goes on with one operation. did is false if there was nothing to do for us.
func (c *Client) resume(ctx context.Context, intent string) (out Outcome, did bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errTimeout)
	defer cancel()
	lock, entry, err := c.cfg.Journal.Lock(ctx, intent)
	switch {
	case errors.Is(err, ErrLocked), errors.Is(err, ErrNoEntry):
		return Outcome{}, false, nil
	case err != nil:
		return Outcome{}, false, fmt.Errorf("lock operation %q: %w", intent, err)
	}
	defer unlock(lock)
	if err := sound(entry, intent); err != nil {
		return Outcome{}, false, fmt.Errorf("lock operation %q: %w", intent, journalError("read entry", err))
	}
	if entry.State != Open {
		return Outcome{}, false, nil
	}
	r := newRun(c, lock, entry)
	r.resumed, r.unattended = true, true
	out, err = r.do(ctx)
	return out, true, err
}
