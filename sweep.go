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
	// MaxBackoff bounds the time between runs after errors in a row: it is
	// Every after the first, and doubles with each further one. Default ten
	// times Every; never less than Every.
	MaxBackoff time.Duration
	// Timeout is how long one batch may take. A store that hangs is given up
	// then, which is an error like any other: whether the batch was carried out
	// does not matter, since the next one looks again. Default 1 min; negative:
	// no limit.
	Timeout time.Duration
	// Quiet is how many batches in a row must leave nothing to do before a run
	// is over. Default 1. A store that looks at a part of its table at a time
	// needs as many as there are parts before nothing is left for sure; a
	// sweeper that runs every minute gets round all the same.
	Quiet int
	// Grace is how long a lease must have been over before an attempt that
	// nobody retries is decided. Default 5 min.
	Grace time.Duration
	// StepRetention is how long steps are kept after their last change.
	// Default 90 days.
	StepRetention time.Duration
	// Swept is told of every batch that did something, and of errors; nil:
	// nobody is.
	Swept func(result SweepResult, err error)
	// Observe is told of every batch, those that found nothing and those that
	// failed too, for metrics and progress; nil: nobody is. It is called between
	// batches on the sweeper's goroutine, never two at a time by one Run.
	// SweepCounter.Observe is one.
	Observe func(ctx context.Context, event SweepEvent)
}

// SweepEvent is one batch of a Sweeper.
type SweepEvent struct {
	// Result is what the batch did, also when it failed on the way.
	Result SweepResult
	// Err is why it failed; nil when it did not.
	Err error
	// Took is how long the batch took.
	Took time.Duration
	// Failures counts the batches that failed in a row, this one included.
	Failures int
	// Lag is how long ago a run last ended with nothing left to do, or, if none
	// has, how long ago this sweeper began: 0 if it is this batch that ended so.
	// While another sweeper is at work, it grows: that one does what is due.
	Lag time.Duration
}

// did tells whether a batch changed anything.
func (r SweepResult) did() bool { return r.Deleted+r.Freed+r.Parked+r.Steps > 0 }

// add sums up what batches did.
func (r *SweepResult) add(b SweepResult) {
	r.Busy, r.More = b.Busy, b.More
	r.Deleted += b.Deleted
	r.Freed += b.Freed
	r.Parked += b.Parked
	r.Steps += b.Steps
}

// WithDefaults returns a copy with the defaults filled in, also for a time between
// batches or runs that is negative: a sweeper without pauses would be a storm.
func (s Sweeper) WithDefaults() Sweeper {
	s.Batch = defaulted(s.Batch, 5000)
	s.Pause = defaulted(max(s.Pause, 0), 100*time.Millisecond)
	s.Every = defaulted(max(s.Every, 0), time.Minute)
	s.MaxBackoff = max(defaulted(s.MaxBackoff, 10*s.Every), s.Every)
	s.Timeout = defaulted(s.Timeout, time.Minute)
	s.Quiet = defaulted(s.Quiet, 1)
	s.Grace = defaulted(s.Grace, 5*time.Minute)
	s.StepRetention = defaulted(s.StepRetention, FreedStepRetention)
	if s.Swept == nil {
		s.Swept = func(SweepResult, error) {}
	}
	if s.Observe == nil {
		s.Observe = func(context.Context, SweepEvent) {}
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
	r := newSweepRun(s)
	for {
		pause := r.s.Every
		if _, err := r.once(ctx); err != nil && ctx.Err() == nil {
			r.s.Swept(SweepResult{}, err)
			pause = r.backoff()
		}
		if !wait(ctx, pause) {
			return
		}
	}
}

// Once sweeps until nothing is left to do, another sweeper is at work, or ctx
// ends. It returns the sum of its batches; More tells that it ended while
// something may be left.
func (s Sweeper) Once(ctx context.Context) (SweepResult, error) {
	return newSweepRun(s).once(ctx)
}

// sweepRun is a Sweeper at work.
type sweepRun struct {
	s        Sweeper
	clean    time.Time // when nothing was left, or the beginning
	failures int       // in a row
}

func newSweepRun(s Sweeper) *sweepRun {
	return &sweepRun{s: s.WithDefaults(), clean: now()}
}

// backoff is the time until the run after one that failed.
func (r *sweepRun) backoff() time.Duration {
	pause := r.s.Every
	for n := 1; n < r.failures && pause < r.s.MaxBackoff; n++ {
		pause *= 2
	}
	return min(pause, r.s.MaxBackoff)
}

func (r *sweepRun) once(ctx context.Context) (SweepResult, error) {
	var sum SweepResult
	for quiet := 0; ; {
		begun := now()
		b, err := r.batch(ctx)
		sum.add(b) // what was done counts beside an error
		if err != nil {
			sum.More = true
			return sum, r.failed(ctx, begun, b, err)
		}
		if quiet++; b.More {
			quiet = 0
		}
		done := quiet >= r.s.Quiet && !b.Busy
		r.tell(ctx, begun, b, done)
		if done || b.Busy {
			return sum, nil
		}
		if !wait(ctx, r.s.Pause) || ctx.Err() != nil {
			sum.More = true
			return sum, nil
		}
	}
}

// batch is one call of the store, which may hang.
func (r *sweepRun) batch(ctx context.Context) (SweepResult, error) {
	if r.s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.s.Timeout)
		defer cancel()
	}
	return r.s.Store.Sweep(ctx, SweepRequest{Limit: r.s.Batch, Grace: r.s.Grace, StepRetention: r.s.StepRetention})
}

// failed makes the error of a batch, and tells of it unless ctx's end is what
// ended it.
func (r *sweepRun) failed(ctx context.Context, begun time.Time, b SweepResult, cause error) error {
	at := now()
	hint := "nothing is lost: the next run goes on"
	if took := at.Sub(begun); r.s.Timeout > 0 && took >= r.s.Timeout {
		hint = "a batch was given up after " + r.s.Timeout.String() + ": the store hangs, or Sweeper.Batch is too large for it; nothing is lost"
	}
	err := &Error{Code: CodeStoreUnavailable, Op: "sweep", Hint: hint, Err: cause}
	if ctx.Err() == nil {
		r.failures++
		r.s.Observe(ctx, SweepEvent{Result: b, Err: err, Took: at.Sub(begun), Failures: r.failures, Lag: at.Sub(r.clean)})
	}
	return err
}

// tell passes on what a batch did.
func (r *sweepRun) tell(ctx context.Context, begun time.Time, b SweepResult, done bool) {
	at := now()
	r.failures = 0
	if done {
		r.clean = at
	}
	r.s.Observe(ctx, SweepEvent{Result: b, Took: at.Sub(begun), Lag: at.Sub(r.clean)})
	if b.did() {
		r.s.Swept(b, nil)
	}
}
