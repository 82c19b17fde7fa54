package onlyonce

import (
	"context"
	"fmt"
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
	// left alone, and reported each time its turn comes.
	Resume map[string]ResumeFunc
	// Every is between looks for keys that are due. Default 10 s.
	Every time.Duration
	// Grace is how long a lease must have been over, or a key in doubt, before
	// its first turn: clients come first. Default 1 min.
	Grace time.Duration
	// Pause is between a key's first two turns, doubled each time up to
	// MaxPause. Defaults 1 min and 6 h.
	Pause, MaxPause time.Duration
	// Attempts is how many turns a key gets. Default 10. After that it is looked
	// at every MaxPause, and reported, but not run.
	Attempts int
	// Workers is how many operations one look runs at a time. Default 4.
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
	// GivenUp: nothing was run, because the key has had all its turns or its
	// operation is not known here. A person has to look.
	GivenUp bool
}

// RecoverySum counts the turns of a look.
type RecoverySum struct {
	// Completed operations have an answer now; Pending ones get another turn;
	// GivenUp ones were not run.
	Completed, Pending, GivenUp int
}

// recoverBatch is how many keys are asked for at once.
const recoverBatch = 100

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
	rs, ok := r.Engine.store.(RecoveryStore)
	if !ok || !r.Engine.store.Features().Recovery {
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
	var sum RecoverySum
	for ctx.Err() == nil {
		var due []Due
		_, err := r.Engine.repeat(ctx, func(ctx context.Context) error {
			var err error
			due, err = store.Due(ctx, DueRequest{Limit: recoverBatch, Grace: r.Grace, Pause: r.Pause, MaxPause: r.MaxPause})
			return err
		})
		if err != nil {
			return sum, &Error{Code: CodeStoreUnavailable, Op: "look for operations to recover", Hint: "nothing is lost: the next look finds them", Err: err}
		}
		sum.add(r.all(ctx, due))
		if len(due) < recoverBatch {
			return sum, nil
		}
	}
	return sum, ctx.Err()
}

func (s *RecoverySum) add(o RecoverySum) {
	s.Completed += o.Completed
	s.Pending += o.Pending
	s.GivenUp += o.GivenUp
}

// all runs the turns, some at a time. Those that ctx cuts off have their next
// turn later.
func (r Recoverer) all(ctx context.Context, due []Due) RecoverySum {
	turns := make(chan Due)
	var mu sync.Mutex
	var sum RecoverySum
	var running sync.WaitGroup
	for range min(r.Workers, len(due)) {
		running.Go(func() {
			for d := range turns {
				one := r.turn(ctx, d)
				mu.Lock()
				sum.add(one)
				mu.Unlock()
			}
		})
	}
	for _, d := range due {
		select {
		case turns <- d:
		case <-ctx.Done():
		}
	}
	close(turns)
	running.Wait()
	return sum
}

// turn runs one operation, or gives it up.
func (r Recoverer) turn(ctx context.Context, d Due) RecoverySum {
	resume := r.Resume[d.Record.Operation]
	if resume == nil || d.Turn > r.Attempts {
		r.Recovered(ctx, Recovery{Due: d, GivenUp: true, Err: r.giveUp(ctx, d, resume != nil)})
		return RecoverySum{GivenUp: 1}
	}
	res, err := guard(func() (Result, error) { return resume(ctx, d) })
	r.Recovered(ctx, Recovery{Due: d, Result: res, Err: err})
	if err == nil && res.State == Completed {
		return RecoverySum{Completed: 1}
	}
	return RecoverySum{Pending: 1}
}

// giveUp leaves an abandoned key in doubt, where a person finds it. One of an
// operation that is not known here is left alone: another program may know it.
func (r Recoverer) giveUp(ctx context.Context, d Due, known bool) error {
	if !known {
		return configError("Recoverer.Resume", "has no operation %q", d.Record.Operation)
	}
	if d.Record.State == InProgress {
		_, err := r.Engine.store.Park(ctx, ParkRequest{Owner: d.Record.Owner(), Reason: ReasonGivenUp, LeaseOver: true})
		if err != nil {
			return unavailable("park key", err)
		}
	}
	return &Error{
		Code: CodeOutcomeUnknown, Op: "recover operation", Operation: d.Record.Key.Operation(),
		Hint: fmt.Sprintf("it was tried %d times; find out what became of it, and settle the key", r.Attempts),
	}
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
	rec, found, err := r.Engine.store.Get(ctx, key)
	if err != nil {
		return Result{}, unavailable("read key", err)
	}
	kept, has, err := store.Kept(ctx, key)
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
