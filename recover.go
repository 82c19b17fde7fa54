package onlyonce

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// ResumeFunc runs the operation of a key again, from what was kept with its
// claim, by Engine.Steps: through the same claim and fence as a retry of its
// caller. A panic in it ends its turn and is a *PanicError.
type ResumeFunc func(ctx context.Context, due Due) (Result, error)

// Recoverer resumes operations that nobody retries: the client is gone, and money
// may have moved (rule X1). It takes turns with its like on other machines: any
// number of them may run on one store. An operation is tried a bounded number of
// times, with growing pauses; then it is left in doubt, and Recovered says so.
type Recoverer struct {
	// Engine runs the operations. Required; its store must be a RecoveryStore.
	Engine *Engine
	// Resume runs an operation again by its Op.Name. What is not named here is
	// left alone: another program may know it.
	Resume map[string]ResumeFunc
	// Every is between looks for keys that are due. Default 10 s.
	Every time.Duration
	// Grace is how long the lease that a key was last claimed with must have been
	// over before its first turn: clients come first. Default 1 min.
	Grace time.Duration
	// Pause is between a key's first two turns, doubled each time up to
	// MaxPause. Defaults 1 min and 6 h.
	Pause, MaxPause time.Duration
	// Attempts is how many turns a key gets. Default 10. After that it is looked
	// at every MaxPause, and reported, but not run.
	Attempts int
	// Workers is how many operations one look runs at a time, and asks the store for.
	// Default 4.
	Workers int
	// Recovered is told of each turn; nil: nobody is. It is called by several
	// goroutines.
	Recovered func(ctx context.Context, turn Recovery)
}

// Recovery is what became of one turn.
type Recovery struct {
	Due Due
	// Result and Err are the run's. An Err with CodeInProgress or
	// CodeOutcomeUnknown is an ordinary end of a turn.
	Result Result
	Err    error
	// GivenUp: nothing was run, because the key has had all its turns. It is in
	// doubt, and a person has to settle it.
	GivenUp bool
}

// RecoverySum counts the turns of a look.
type RecoverySum struct {
	// Completed operations have an answer now; Pending ones get another turn;
	// GivenUp ones were not run.
	Completed, Pending, GivenUp int
}

// WithDefaults returns a copy with the defaults filled in.
func (r Recoverer) WithDefaults() Recoverer {
	r.Every = defaulted(r.Every, 10*time.Second)
	r.Grace = defaulted(r.Grace, time.Minute)
	r.Pause = defaulted(r.Pause, time.Minute)
	r.MaxPause = defaulted(r.MaxPause, 6*time.Hour)
	r.Attempts = defaulted(r.Attempts, 10)
	r.Workers = defaulted(r.Workers, 4)
	if r.Recovered == nil {
		r.Recovered = func(context.Context, Recovery) {}
	}
	return r
}

// store is the engine's, if it can find what is due.
func (r Recoverer) store() (RecoveryStore, error) {
	if r.Engine == nil {
		return nil, configError("Recoverer.Engine", "must not be nil")
	}
	rs, ok := RecoveryOf(r.Engine.store)
	if !ok {
		return nil, configError("Recoverer.Engine", "needs a store that keeps requests: %s does not", r.Engine.store.Features().Name)
	}
	return rs, nil
}

// Run looks every so often until ctx ends, and returns when the last operation
// has. The caller owns the goroutine. A look that fails is repeated: failed is
// told, if it is not nil.
func (r Recoverer) Run(ctx context.Context, failed func(error)) {
	r = r.WithDefaults()
	for {
		if _, err := r.Once(ctx); err != nil && ctx.Err() == nil && failed != nil {
			failed(err)
		}
		if !wait(ctx, r.Every) {
			return
		}
	}
}

// Once gives every key that is due its turn, and returns when the last operation
// has ended. What is under way when ctx ends is ended first.
func (r Recoverer) Once(ctx context.Context) (RecoverySum, error) {
	return r.WithDefaults().look(ctx)
}

// Start is Once without the grace, for the start of a service: what a crash has
// left is looked at before new work is taken. Keys whose lease is not over may
// belong to another process, and are left for later looks.
func (r Recoverer) Start(ctx context.Context) (RecoverySum, error) {
	r = r.WithDefaults()
	r.Grace = 0
	return r.look(ctx)
}

func (r Recoverer) look(ctx context.Context) (RecoverySum, error) {
	store, err := r.store()
	if err != nil {
		return RecoverySum{}, err
	}
	req := DueRequest{
		// No more than are run at once: a turn that is given is spent.
		Limit: r.Workers, Grace: r.Grace, Pause: r.Pause, MaxPause: r.MaxPause,
		Operations: slices.Sorted(maps.Keys(r.Resume)),
	}
	var sum RecoverySum
	for ctx.Err() == nil {
		due, err := r.due(ctx, store, req)
		if err != nil {
			return sum, &Error{Code: CodeStoreUnavailable, Op: "look for operations to recover", Hint: "nothing is lost: the next look finds them", Err: err}
		}
		if len(due) == 0 {
			return sum, nil
		}
		sum.add(r.all(ctx, due))
	}
	return sum, ctx.Err()
}

// due asks the store, no longer than it may take.
func (r Recoverer) due(ctx context.Context, store RecoveryStore, req DueRequest) (due []Due, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Engine.cfg.StoreTimeout)
	defer cancel()
	_, err = r.Engine.repeat(ctx, func(ctx context.Context) error {
		var err error
		due, err = store.Due(ctx, req)
		return err
	})
	return due, err
}

func (s *RecoverySum) add(o RecoverySum) {
	s.Completed += o.Completed
	s.Pending += o.Pending
	s.GivenUp += o.GivenUp
}

// all runs the turns beside each other.
func (r Recoverer) all(ctx context.Context, due []Due) RecoverySum {
	var mu sync.Mutex
	var sum RecoverySum
	var running sync.WaitGroup
	for _, d := range due {
		running.Go(func() {
			one := r.turn(ctx, d)
			mu.Lock()
			defer mu.Unlock()
			sum.add(one)
		})
	}
	running.Wait()
	return sum
}

// turn runs one operation, or gives it up.
func (r Recoverer) turn(ctx context.Context, d Due) RecoverySum {
	if d.Turn > r.Attempts {
		r.Recovered(ctx, Recovery{Due: d, GivenUp: true, Err: r.giveUp(ctx, d)})
		return RecoverySum{GivenUp: 1}
	}
	res, err := guard(func() (Result, error) { return r.Resume[d.Record.Operation](ctx, d) })
	r.Recovered(ctx, Recovery{Due: d, Result: res, Err: err})
	if err == nil && res.State == Completed {
		return RecoverySum{Completed: 1}
	}
	return RecoverySum{Pending: 1}
}

// giveUp leaves the key in doubt, where a person finds it and can settle it.
func (r Recoverer) giveUp(ctx context.Context, d Due) error {
	ctx, cancel := context.WithTimeout(ctx, r.Engine.cfg.StoreTimeout)
	defer cancel()
	if err := r.Engine.parkGivenUp(ctx, d.Record); err != nil {
		return unavailable("park key", err)
	}
	return &Error{
		Code: CodeOutcomeUnknown, Op: "recover operation", Operation: d.Record.Key.Operation(),
		Hint: fmt.Sprintf("it was tried %d times; find out what became of it, and settle the key", r.Attempts),
	}
}

// parkGivenUp puts a key in doubt that nobody has finished. One that is free behind
// its steps is claimed for it.
func (e *Engine) parkGivenUp(ctx context.Context, rec Record) error {
	park := ParkRequest{Owner: rec.Owner(), Reason: ReasonGivenUp, LeaseOver: true}
	if rec.State == FailedRetryable {
		claim, err := e.store.Claim(ctx, ClaimRequest{
			Key: rec.Key, Operation: rec.Operation, Fingerprint: rec.Fingerprint, Attempt: NewToken(),
			Lease: settleLease, Retention: rec.Retention, Abandon: rec.Abandon, Resource: rec.Resource,
		})
		switch {
		case err != nil || !claim.Verdict.Owns():
			return err // somebody is at it
		case claim.From != FailedRetryable:
			return e.giveBack(ctx, claim, "")
		}
		park = ParkRequest{Owner: claim.Record.Owner(), Reason: ReasonGivenUp}
	} else if rec.State != InProgress {
		return nil
	}
	_, err := e.store.Park(ctx, park)
	return err
}

// Key gives one key a turn now, whatever turns it has had: an operator asks for
// it, or what was missing is known now. It returns CodeNotFound when nothing is
// kept of the key's request.
func (r Recoverer) Key(ctx context.Context, key Key) (Result, error) {
	r = r.WithDefaults()
	store, err := r.store()
	if err != nil {
		return Result{}, err
	}
	rec, found, err := r.Engine.Record(ctx, key)
	if err != nil {
		return Result{}, unavailable("read key", err)
	}
	limited, cancel := context.WithTimeout(ctx, r.Engine.cfg.StoreTimeout)
	defer cancel()
	kept, has, err := store.Kept(limited, key)
	if err != nil {
		return Result{}, unavailable("read what was kept", err)
	}
	if !found || !has {
		return Result{}, &Error{Code: CodeNotFound, Op: "recover operation", Operation: key.Operation(), Hint: "its request is not kept: only a retry by its caller resumes it"}
	}
	resume := r.Resume[rec.Operation]
	if resume == nil {
		return Result{}, configError("Recoverer.Resume", "has no operation %q", rec.Operation)
	}
	return guard(func() (Result, error) { return resume(ctx, Due{Record: rec, Keep: kept}) })
}
