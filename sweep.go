package onlyonce

import (
	"context"
	"time"
)

// Sweeper deletes expired records and decides abandoned ones, in bounded
// batches with a pause, off the request path. Expiry itself is decided when a
// key is read: a sweep that comes early or late changes no answer (rule T2).
type Sweeper struct {
	// Store is swept. Required.
	Store Store
	// Batch is how many rows of each kind one step touches. Default 5,000.
	Batch int
	// Pause is between batches. Default 100 ms.
	Pause time.Duration
	// Every is between runs. Default 1 min.
	Every time.Duration
	// Grace is how long a lease must have been over before an attempt that
	// nobody retries is decided. Default 5 min.
	Grace time.Duration
	// StepRetention is how long steps are kept after their last change.
	// Default 90 days.
	StepRetention time.Duration
	// Swept is told of every batch that did something, and of errors; nil:
	// nobody is.
	Swept func(result SweepResult, err error)
}

// WithDefaults returns a copy with the defaults filled in.
func (s Sweeper) WithDefaults() Sweeper {
	s.Batch = defaulted(s.Batch, 5000)
	s.Pause = defaulted(s.Pause, 100*time.Millisecond)
	s.Every = defaulted(s.Every, time.Minute)
	s.Grace = defaulted(s.Grace, 5*time.Minute)
	s.StepRetention = defaulted(s.StepRetention, FreedStepRetention)
	if s.Swept == nil {
		s.Swept = func(SweepResult, error) {}
	}
	return s
}

func defaulted[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Run sweeps every so often until ctx ends. The caller owns the goroutine.
func (s Sweeper) Run(ctx context.Context) {
	s = s.WithDefaults()
	for {
		if _, err := s.Once(ctx); err != nil && ctx.Err() == nil {
			s.Swept(SweepResult{}, err)
		}
		if !wait(ctx, s.Every) {
			return
		}
	}
}

// Once sweeps until nothing is left to do, another sweeper is at work, or ctx
// ends. It returns the sum of its batches.
func (s Sweeper) Once(ctx context.Context) (SweepResult, error) {
	s = s.WithDefaults()
	var sum SweepResult
	for {
		r, err := s.Store.Sweep(ctx, SweepRequest{Limit: s.Batch, Grace: s.Grace, StepRetention: s.StepRetention})
		if err != nil {
			return sum, &Error{Code: CodeStoreUnavailable, Op: "sweep", Hint: "nothing is lost: the next run goes on", Err: err}
		}
		sum.Busy = r.Busy
		sum.Deleted += r.Deleted
		sum.Freed += r.Freed
		sum.Parked += r.Parked
		sum.Steps += r.Steps
		if r.Deleted+r.Freed+r.Parked+r.Steps > 0 {
			s.Swept(r, nil)
		}
		if r.Busy || !r.More || !wait(ctx, s.Pause) {
			return sum, nil
		}
	}
}
