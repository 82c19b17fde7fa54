package onlyonce

import (
	"context"
	"errors"
)

// TxEngine is an Engine whose store keeps records beside business data, so
// that a handler's writes and its answer can share one transaction.
type TxEngine[Tx any] struct {
	*Engine
	tx TxStore[Tx]
}

// NewTx makes a TxEngine.
func NewTx[Tx any](store TxStore[Tx], cfg Config) (*TxEngine[Tx], error) {
	if store == nil {
		return nil, configError("store", "must not be nil")
	}
	if f := store.Features(); !f.Transactions {
		return nil, configError("store", "%s has no transactions", f.Name)
	}
	e, err := New(store, cfg)
	if err != nil {
		return nil, err
	}
	return &TxEngine[Tx]{Engine: e, tx: store}, nil
}

// TxHandlerFunc is an operation's own code inside a transaction. It must not
// commit, must not keep tx, and must not call anything outside the database.
// It may run more than once; only one run is committed.
type TxHandlerFunc[Tx any] func(ctx context.Context, tx Tx) (Answer, error)

// Atomic runs a handler whose effects all live in the store's own database:
// claim, business write and answer are one transaction. A crash leaves
// nothing; a failure is rolled back and frees the key.
func (e *TxEngine[Tx]) Atomic(ctx context.Context, op Op, req Request, handler TxHandlerFunc[Tx]) (Result, error) {
	if err := op.ValidateAtomic(); err != nil {
		return Result{}, err
	}
	if !e.enter() {
		return Result{}, errClosed()
	}
	defer e.pending.Done()
	c, err := e.newClaimant(ctx, job{op.atomic(), modeAtomic, req})
	if err != nil {
		if c != nil {
			c.observe(ctx, Event{Kind: EventRefused, Code: CodeOf(err)})
		}
		return Result{}, err
	}
	t := &atomicRun[Tx]{claimant: c, store: e.tx, handler: handler}
	defer c.leave()
	for round := 0; round < maxRounds; round++ {
		claim, err := t.try(ctx)
		if errors.Is(err, ErrMisdirected) {
			c.observe(ctx, Event{Kind: EventRefused, Code: CodeMisdirected})
			return Result{}, unavailable("run transaction", err)
		}
		if err != nil {
			c.observe(ctx, Event{Kind: EventStoreFailed, Err: err})
			failure := unavailable("run transaction", err)
			if t.uncertain {
				failure.Hint = "whether it was done could not be learned; the same request with the same key finds out"
			}
			return Result{}, failure
		}
		if claim.Verdict == Busy && c.await(ctx) {
			round = -1
			continue
		}
		done, err := c.consider(ctx, claim)
		if err != nil {
			c.observe(ctx, Event{Kind: EventRefused, Code: CodeOf(err)})
			return Result{}, err
		}
		if done {
			return t.result(ctx, claim)
		}
	}
	c.report()
	return Result{}, c.busy(Claim{})
}

// atomicRun is one Atomic on its way.
type atomicRun[Tx any] struct {
	*claimant
	store   TxStore[Tx]
	handler TxHandlerFunc[Tx]

	// end is what the last run of the handler left.
	end ended
	// uncertain: a commit may stand although its reply was lost.
	uncertain bool
}

// try runs the transaction, repeating it while the store says that this is
// safe. A handler's own failure is no error here: it is in t.end.
func (t *atomicRun[Tx]) try(ctx context.Context) (claim Claim, err error) {
	hctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.op.Deadline)
	defer cancel()
	t.uncertain, err = t.e.repeat(hctx, func(ctx context.Context) error {
		t.end = ended{}
		c, settled, err := t.store.Atomic(ctx, t.claim, t.body)
		claim, t.end.settled = c, settled
		if errors.Is(err, ErrTxEnded) {
			t.end.err = err
			t.end.decide(t.attempt(c.Record.Owner()))
		}
		if err != nil && t.end.err != nil && !repeatable(err) {
			return nil
		}
		return err
	})
	if err == nil && t.end.err != nil {
		claim.Verdict = Won // rolled back; the handler's failure is the result
	}
	return claim, err
}

// body is what runs inside the transaction.
func (t *atomicRun[Tx]) body(ctx context.Context, tx Tx) (*Answer, error) {
	a := t.attempt(Owner{Key: t.req.Key, Attempt: t.claim.Attempt})
	a.inTx = true
	ctx = a.within(ctx)
	begun := now()
	answer, err := guard(func() (Answer, error) { return t.handler(ctx, tx) })
	t.end = ended{answer: answer, err: err, took: now().Sub(begun)}
	t.end.decide(a)
	if t.end.act != actComplete {
		return nil, err
	}
	return &t.end.answer, nil
}

func (t *atomicRun[Tx]) result(ctx context.Context, claim Claim) (Result, error) {
	if claim.Verdict == Replay {
		return t.replay(ctx, claim.Record), nil
	}
	if t.end.act == actComplete {
		return t.completed(ctx, t.attempt(claim.Record.Owner()), t.end)
	}
	return t.rolledBack(ctx)
}

// attempt is an Attempt that has no lease to keep and no steps.
func (t *atomicRun[Tx]) attempt(owner Owner) *Attempt {
	return &Attempt{e: t.e, op: t.op, mode: modeAtomic, owner: owner, log: stepLog{byID: map[stepID]*StepRecord{}}}
}

// rolledBack records what the rolled-back transaction could not: that the key
// was used and is free (or in doubt) again. The record is for telling another
// request apart; where it cannot be written, nothing was written, which is
// just as free.
func (t *atomicRun[Tx]) rolledBack(ctx context.Context) (Result, error) {
	if t.end.act == actPark {
		return t.parked(ctx)
	}
	ctx = context.WithoutCancel(ctx)
	claim, asked, err := t.claimOnce(ctx)
	if err != nil || !claim.Verdict.Owns() {
		return t.attempt(Owner{Key: t.req.Key, Attempt: t.claim.Attempt}).freed(t.end)
	}
	a := t.attempt(claim.Record.Owner())
	a.trust(asked, claim.Remaining)
	return t.release(ctx, a, t.end)
}

// parked puts the key in doubt on the handler's word. That must not be lost: it
// is insisted on, then goes on behind the request.
func (t *atomicRun[Tx]) parked(ctx context.Context) (Result, error) {
	a := t.attempt(Owner{Key: t.req.Key, Attempt: t.claim.Attempt})
	a.trust(now(), a.op.Lease) // nothing to renew before there is a claim
	var fence int64
	held, err := t.settleWith(ctx, a, settling{lost: EventLeaseLost, write: func(ctx context.Context) (bool, error) {
		claim, err := t.e.store.Claim(ctx, t.claim)
		if err != nil || !claim.Verdict.Owns() {
			return claim.Verdict == Doubtful, err
		}
		owner := claim.Record.Owner()
		fence = owner.Fence
		held, err := t.e.store.Park(ctx, ParkRequest{Owner: owner, Reason: t.end.reason})
		if err != nil {
			// Until it is parked nobody may take the key over.
			_, renewErr := t.e.store.Renew(ctx, owner, t.op.Lease)
			err = errors.Join(err, renewErr)
		}
		return held, err
	}})
	if err == nil && !held {
		return t.lost(ctx, a)
	}
	if err == nil {
		a.owner.Fence = fence
		t.observe(ctx, Event{Kind: EventParked, Fence: fence, Attempt: a.owner.Attempt, Reason: t.end.reason, Took: t.end.took})
	}
	return t.doubted(a, t.end)
}

// Finish is the last step of a handler run by Steps or Wrap: its business
// write and its answer in one transaction. It returns the answer, which the
// handler then returns. An answer that would not be stored (5xx, NotApplied)
// rolls the transaction back. When another attempt owns the key, everything is
// rolled back and ErrLeaseLost is returned.
func (e *TxEngine[Tx]) Finish(ctx context.Context, handler TxHandlerFunc[Tx]) (Answer, error) {
	a := AttemptFrom(ctx)
	if a == nil || a.mode == modeAtomic || a.e != e.Engine {
		return Answer{}, configError("Finish", "needs a handler that this engine runs by Steps or Wrap")
	}
	if why := a.unfinished(); why != "" {
		return Answer{}, &Error{Code: CodeOutcomeUnknown, Op: "finish", Operation: a.Operation(), Hint: why}
	}
	if !a.enterTx() {
		return Answer{}, &Error{Code: CodeInTx, Op: "finish", Operation: a.Operation(), Hint: "a transaction of this attempt is open already"}
	}
	defer a.leaveTx()

	f := &finishing[Tx]{a: a, store: e.tx, handler: handler}
	uncertain, err := e.repeat(ctx, f.try)
	switch {
	case err != nil && (f.failed == nil || !errors.Is(err, f.failed)):
		return f.answer, unavailable("finish", err) // the store's failure is not the handler's
	case err != nil:
		return f.answer, err
	case f.settled.Held && (uncertain || !f.ran || f.rolledBack):
		// An earlier commit may stand, and not what this run has answered.
		if err := f.recall(ctx); err != nil {
			return Answer{}, err
		}
	case f.settled.Held:
	case f.rolledBack:
		return f.answer, nil
	default:
		return Answer{}, &Error{Code: CodeLeaseLost, Op: "finish", Operation: a.Operation(), Hint: "another attempt owns the key; everything was rolled back"}
	}
	a.finish(f.stored, f.settled)
	return f.answer, nil
}

// finishing is one Finish on its way.
type finishing[Tx any] struct {
	a       *Attempt
	store   TxStore[Tx]
	handler TxHandlerFunc[Tx]

	ran, rolledBack bool
	failed          error // the handler's own
	answer, stored  Answer
	settled         Settled
}

// try runs the transaction once.
func (f *finishing[Tx]) try(ctx context.Context) (err error) {
	f.rolledBack = false
	f.settled, err = f.store.Finish(ctx, f.a.owner, f.body)
	return err
}

// body is what runs inside the transaction.
func (f *finishing[Tx]) body(ctx context.Context, tx Tx) (*Answer, error) {
	var err error
	f.ran = true
	f.answer, err = f.handler(ctx, tx)
	f.failed = err
	end := ended{answer: f.answer, err: err}
	end.decide(f.a)
	f.rolledBack = end.act != actComplete
	if f.rolledBack {
		return nil, err
	}
	f.stored = end.answer
	return &f.stored, nil
}

// recall reads the answer of an earlier Finish of this attempt, whose commit's
// reply was lost.
func (f *finishing[Tx]) recall(ctx context.Context) error {
	rec, found, err := f.store.Get(ctx, f.a.owner.Key)
	if err != nil || !found || rec.Answer == nil {
		return unavailable("read answer", err)
	}
	f.answer, f.stored = *rec.Answer, *rec.Answer
	return nil
}

func (a *Attempt) enterTx() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.inTx || a.finished != nil {
		return false
	}
	a.inTx = true
	return true
}

func (a *Attempt) leaveTx() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inTx = false
}

func (a *Attempt) finish(answer Answer, settled Settled) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.finished, a.settled = &answer, settled
}
