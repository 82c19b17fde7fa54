package onlyonce

import (
	"context"
	"sync"
	"time"
)

// Attempt is one run of a handler: the owner of a key while it lasts. Handlers
// reach theirs by AttemptFrom.
type Attempt struct {
	e     *Engine
	owner Owner
	op    Op
	mode  mode
	// resumed: an earlier attempt of the same life may have begun steps.
	resumed bool
	// hold gives the reason for a key that must not be let go; nil: it may be.
	hold func(err error) string

	mu       sync.Mutex
	declared Outcome
	inTx     bool
	// until is the moment, on this process's monotonic clock, at which the
	// lease must be taken for lost.
	until time.Time
	// log is what is recorded of its steps.
	log stepLog
	// read is a moment before the log was read.
	read time.Time
	// finished is set once Finish has committed.
	finished *Answer
	settled  Settled
}

type attemptKey struct{}

// AttemptFrom is the attempt a handler's context belongs to; nil outside one.
func AttemptFrom(ctx context.Context) *Attempt {
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

// within is the context of the attempt's handler. An operation that is begun in a
// send of another one has no part in that send.
func (a *Attempt) within(ctx context.Context) context.Context {
	return context.WithValue(context.WithValue(ctx, sendingKey{}, nil), attemptKey{}, a)
}

// Owner names the attempt: key, fence and token. The fence may guard writes of
// the handler's own; in atomic mode, where the transaction guards them, it is 0.
func (a *Attempt) Owner() Owner { return a.owner }

// Operation is a reference to the key that is safe to log.
func (a *Attempt) Operation() string { return a.owner.Key.Operation() }

// InTx tells whether a transaction of the attempt is open: no network inside.
func (a *Attempt) InTx() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inTx
}

// Declare says what the run leaves behind, for handlers that have no Answer to
// say it with. The last word counts. Outside a protected run it does nothing.
func Declare(ctx context.Context, outcome Outcome) {
	if a := AttemptFrom(ctx); a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.declared = outcome
	}
}

// leaseMargin is how long before its end a lease is taken for lost.
func leaseMargin(lease time.Duration) time.Duration {
	return min(max(lease/10, 10*time.Millisecond), 2*time.Second)
}

// trust notes that the lease runs for d from asked on.
func (a *Attempt) trust(asked time.Time, d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = asked.Add(d - leaseMargin(a.op.Lease))
}

func (a *Attempt) leaseLeft() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.until.Sub(now())
}

// keepLease renews the lease until ctx ends, and cancels the handler with
// ErrLeaseLost as soon as the lease can no longer be trusted, even while the
// store does not answer. It never renews past the run's deadline, which ends
// ctx.
func (a *Attempt) keepLease(ctx context.Context, lost context.CancelCauseFunc) {
	end := time.AfterFunc(a.leaseLeft(), func() { lost(a.leaseLost("the store did not renew it in time")) })
	defer end.Stop()
	for wait(ctx, max(min(a.op.Lease/3, a.leaseLeft()), a.op.Lease/20)) {
		held, err := a.renew(ctx)
		switch {
		case err != nil: // the timer decides for how long to try again
		case !held:
			lost(a.leaseLost("another attempt took the key over"))
			return
		default:
			end.Reset(a.leaseLeft())
		}
	}
}

func (a *Attempt) leaseLost(hint string) *Error {
	return &Error{Code: CodeLeaseLost, Op: "renew lease", Hint: hint, Operation: a.Operation()}
}

// renew asks for another lease, no longer than the run may still take.
func (a *Attempt) renew(ctx context.Context) (bool, error) {
	lease := a.op.Lease
	if end, ok := ctx.Deadline(); ok {
		lease = min(lease, end.Sub(now())+leaseMargin(lease))
	}
	left := a.leaseLeft()
	if lease <= left {
		return true, nil // what is left already covers the rest of the run
	}
	ctx, cancel := context.WithTimeout(ctx, max(left, time.Millisecond))
	defer cancel()
	asked := now()
	held, err := a.e.store.Renew(ctx, a.owner, lease)
	if err == nil && held {
		a.trust(asked, lease)
	}
	return held, err
}

// prolong keeps the key while what the attempt left is being settled: a
// takeover meanwhile would run the operation again. A failure is no matter here,
// the settling write decides.
func (a *Attempt) prolong(ctx context.Context) {
	if a.leaseLeft() > a.op.Lease/2 {
		return
	}
	asked := now()
	if held, err := a.e.store.Renew(ctx, a.owner, a.op.Lease); err == nil && held {
		a.trust(asked, a.op.Lease)
	}
}
