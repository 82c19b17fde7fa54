package onlyonce

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// run runs the handler as the key's owner and settles what it leaves behind.
func (c *claimant) run(ctx context.Context, claim Claim, asked time.Time, handler HandlerFunc) (Result, error) {
	a := &Attempt{
		e: c.e, op: c.op, mode: c.mode, owner: claim.Record.Owner(),
		resumed: claim.Verdict == Resumed, hold: c.req.Hold, log: stepLog{seen: map[string]int{}},
	}
	a.trust(asked, claim.Remaining)
	kind := EventClaimed
	if a.resumed {
		kind = EventResumed
	}
	c.observe(ctx, Event{Kind: kind, Fence: a.owner.Fence, Attempt: a.owner.Attempt})

	begun := now()
	answer, err := a.execute(ctx, handler)
	end := ended{answer: answer, err: err, took: now().Sub(begun)}
	end.run.recovering = c.recovering
	if a.finished != nil {
		end.answer, end.settled = *a.finished, a.settled
		return c.completed(ctx, a, end)
	}
	return c.settle(ctx, a, end)
}

// ended is how a handler came back, and what follows from it.
type ended struct {
	answer  Answer
	err     error
	took    time.Duration
	run     run
	act     action
	reason  string
	settled Settled
}

// execute runs the handler while the lease is renewed. It returns when the
// handler has returned, never before: nothing is released or parked under a
// running handler.
func (a *Attempt) execute(ctx context.Context, handler HandlerFunc) (Answer, error) {
	ctx = a.within(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, a.op.Deadline)
	defer cancel()
	ctx, lost := context.WithCancelCause(ctx)

	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		a.keepLease(ctx, lost)
	}()
	defer func() {
		lost(context.Canceled)
		<-renewing
	}()
	if err := a.loadSteps(ctx); err != nil {
		return Answer{}, err
	}
	return guard(func() (Answer, error) { return handler(ctx) })
}

// settle does with the key what the table of outcomes says.
func (c *claimant) settle(ctx context.Context, a *Attempt, end ended) (Result, error) {
	end.decide(a)
	switch end.act {
	case actComplete:
		var err error
		if end.settled, err = c.complete(ctx, a, end.answer); err != nil {
			return Result{}, err
		}
		return c.completed(ctx, a, end)
	case actRelease:
		return c.release(ctx, a, end)
	default:
		return c.doubtful(ctx, a, end)
	}
}

// decide looks the run up in the table of outcomes.
func (end *ended) decide(a *Attempt) {
	if end.err == nil {
		end.answer = a.op.stored(end.answer)
	}
	end.run = run{
		mode: a.mode, on5xx: a.op.On5xx, answer: end.answer, failed: end.err != nil,
		outcome: end.answer.Outcome, unfinished: a.unfinished(), recovering: end.run.recovering,
	}
	if end.run.outcome == ByStatus {
		end.run.outcome = a.declaredOutcome()
	}
	if errors.Is(end.err, ErrTxEnded) {
		end.run.outcome = Unknown // whatever it says of itself
	}
	end.act, end.reason = decide(end.run)
	if end.act == actComplete && a.answering() != nil {
		end.run.unfinished = cmp.Or(a.unfinished(), reasonUncertainStep)
		end.act, end.reason = decide(end.run)
	}
	if end.act != actComplete && a.hold != nil {
		end.act, end.reason = actPark, ReasonHeld+a.holding(cmp.Or(end.err, errors.New(end.reason)))
	}
}

// holding is the request's own reason for a key that is held. Nothing that is wrong with
// it may let the key go.
func (a *Attempt) holding(why error) string {
	reason, err := guard(func() (string, error) { return a.hold(why), nil })
	if err != nil {
		return why.Error()
	}
	return reason
}

func (a *Attempt) declaredOutcome() Outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.declared
}

// settleWith makes the write that settles a key, in its own time and whatever
// became of the caller. Meanwhile the key stays the attempt's. What cannot be
// written in time is written behind the request: an outcome that is known here
// must not be left to whoever comes when the lease is over.
func (c *claimant) settleWith(ctx context.Context, a *Attempt, s settling) (held bool, err error) {
	ctx = context.WithoutCancel(ctx)
	err = c.e.insist(ctx, func(ctx context.Context) error {
		a.prolong(ctx)
		var err error
		held, err = s.write(ctx)
		return err
	})
	if err == nil {
		return held, nil
	}
	c.observe(ctx, Event{Kind: EventStoreFailed, Fence: a.owner.Fence, Attempt: a.owner.Attempt, Err: err})
	c.e.behind(ctx, min(a.op.Lease/4, 5*time.Second), func(ctx context.Context) error {
		a.prolong(ctx)
		held, err := s.write(ctx)
		if err == nil && !held {
			c.observe(ctx, Event{Kind: s.lost, Fence: a.owner.Fence, Attempt: a.owner.Attempt, Reason: contradicts})
		}
		return err
	})
	return false, err
}

// settling is a write that settles a key.
type settling struct {
	// write makes it; held is false when the attempt has lost the key.
	write func(ctx context.Context) (held bool, err error)
	// lost is what to tell the observer if that is found out behind the request,
	// where nobody waits for an answer any more.
	lost EventKind
}

// complete stores the answer. Nothing is sent before it is stored, and the key
// is never released (rule O6).
func (c *claimant) complete(ctx context.Context, a *Attempt, answer Answer) (Settled, error) {
	var settled Settled
	_, err := c.settleWith(ctx, a, settling{lost: EventContradiction, write: func(ctx context.Context) (bool, error) {
		s, err := c.e.store.Complete(ctx, a.owner, answer)
		settled = s
		return s.Held, err
	}})
	if err == nil {
		return settled, nil
	}
	return Settled{}, &Error{
		Code: CodeStoreUnavailable, Op: "complete key", Operation: a.Operation(), RetryAfter: time.Second, Err: err,
		Hint: "the operation ran and its answer is still being stored; ask again with the same key",
	}
}

// completed answers with what was stored, or, when the attempt had lost its
// key, with what the key's owner left: never with the loser's own answer.
func (c *claimant) completed(ctx context.Context, a *Attempt, end ended) (Result, error) {
	if !end.settled.Held {
		c.contradiction(ctx, a)
		return c.lost(ctx, a)
	}
	c.observe(ctx, Event{Kind: EventCompleted, Fence: a.owner.Fence, Attempt: a.owner.Attempt, Took: end.took})
	return Result{
		Answer: end.answer, Status: Executed, State: Completed,
		ExpiresAt: end.settled.ExpiresAt, Fence: a.owner.Fence, Attempt: a.owner.Attempt,
	}, nil
}

// contradiction raises the alarm: an attempt proved an outcome after its key
// was taken from it.
func (c *claimant) contradiction(ctx context.Context, a *Attempt) {
	c.observe(ctx, Event{Kind: EventContradiction, Fence: a.owner.Fence, Attempt: a.owner.Attempt, Reason: contradicts})
}

// contradicts is what an attempt that lost its key leaves to be looked at.
const contradicts = "an attempt finished after it had lost its key; compare its effects with the key's answer"

// lost answers the caller of an attempt that no longer owns its key.
func (c *claimant) lost(ctx context.Context, a *Attempt) (Result, error) {
	c.observe(ctx, Event{Kind: EventLeaseLost, Fence: a.owner.Fence, Attempt: a.owner.Attempt})
	res, found, err := c.peek(context.WithoutCancel(ctx))
	if err == nil && !found {
		err = c.busy(Claim{})
	}
	return res, err
}

// release frees the key.
func (c *claimant) release(ctx context.Context, a *Attempt, end ended) (Result, error) {
	if a.finishedSteps() {
		end.reason += ReasonBehindStep
	}
	held, err := c.settleWith(ctx, a, settling{lost: EventLeaseLost, write: func(ctx context.Context) (bool, error) {
		return c.e.store.Release(ctx, a.owner, end.reason)
	}})
	if err == nil && !held {
		return c.lost(ctx, a)
	}
	if err == nil {
		c.observe(ctx, Event{Kind: EventReleased, Fence: a.owner.Fence, Attempt: a.owner.Attempt, Reason: end.reason, Took: end.took})
	}
	return a.freed(end)
}

// freed is what the caller of a run without effect gets.
func (a *Attempt) freed(end ended) (Result, error) {
	res := Result{Answer: end.answer, Status: Executed, State: FailedRetryable, Fence: a.owner.Fence, Attempt: a.owner.Attempt}
	if end.err == nil {
		return res, nil
	}
	failed := &Error{
		Code: CodeHandlerFailed, Op: "run handler", Operation: a.Operation(), Err: end.err,
		Hint: "nothing was done; send the same request again with the same key",
	}
	if a.finishedSteps() {
		failed.Hint = "it failed on its way, and what was done is recorded; send the same request again with the same key, and it goes on from there"
	}
	if CodeOf(end.err) == CodeStoreUnavailable {
		failed.Code, failed.RetryAfter = CodeStoreUnavailable, time.Second
	}
	return res, failed
}

// doubtful parks the key. The caller gets the handler's own failure, or is
// told that the outcome is not known; never an unstored success.
func (c *claimant) doubtful(ctx context.Context, a *Attempt, end ended) (Result, error) {
	held, err := c.settleWith(ctx, a, settling{lost: EventLeaseLost, write: func(ctx context.Context) (bool, error) {
		return c.e.store.Park(ctx, ParkRequest{Owner: a.owner, Reason: end.reason})
	}})
	if err == nil && !held {
		return c.lost(ctx, a)
	}
	if err == nil {
		c.observe(ctx, Event{Kind: EventParked, Fence: a.owner.Fence, Attempt: a.owner.Attempt, Reason: end.reason, Took: end.took})
	}
	if err != nil && a.hold != nil {
		return Result{}, c.notHeld(err)
	}
	return c.doubted(a, end)
}

// notHeld says that a key could not be put in doubt, which who holds it counts on.
func (c *claimant) notHeld(err error) *Error {
	return &Error{
		Code: CodeStoreUnavailable, Op: "hold key", Operation: c.req.Key.Operation(), RetryAfter: time.Second, Err: err,
		Hint: "the key is still being put in doubt; send the same request again with the same key",
	}
}

// doubted is what the caller of a run with an unknown outcome gets.
func (c *claimant) doubted(a *Attempt, end ended) (Result, error) {
	res := Result{Answer: end.answer, Status: Executed, State: InDoubt, Fence: a.owner.Fence, Attempt: a.owner.Attempt}
	if end.err == nil && end.run.unfinished == "" && !end.run.recovering && (end.run.outcome == Unknown || end.answer.Status >= 500) {
		return res, nil
	}
	doubt := c.doubt(Record{Reason: end.reason, Abandon: c.claim.Abandon})
	if end.err != nil {
		doubt.Err = end.err
	}
	return res, doubt
}
