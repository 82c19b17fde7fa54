package onlyonce

import (
	"context"
	"time"
)

// resourceBusy deals with another key that holds the resource (rule C12). An
// attempt that was abandoned is decided first: nobody may come for it any more,
// and the resource must not wait for a sweeper. nil: claim again.
func (c *claimant) resourceBusy(ctx context.Context, claim Claim) error {
	if claim.Record.State != InProgress || claim.Remaining > 0 {
		return c.heldByAnother(claim)
	}
	ctx, cancel := context.WithTimeout(ctx, c.e.cfg.StoreTimeout)
	defer cancel()
	return c.e.decideAbandoned(ctx, claim.Record)
}

// heldByAnother refuses. The caller learns which operation to look at, and
// nothing else of it.
func (c *claimant) heldByAnother(claim Claim) *Error {
	e := &Error{
		Code: CodeResourceBusy, Op: "claim key", Operation: claim.Record.Key.Operation(), RetryAfter: doubtRetryAfter,
		Hint: "an operation under another key has this resource, and whether it took effect is not known yet; find out what became of that one before anything else",
	}
	switch {
	case claim.Record.State == InProgress && claim.Remaining > 0:
		e.RetryAfter = max(min(claim.Remaining/4, doubtRetryAfter), time.Second)
		e.Hint = "an operation under another key is working on this resource; send the same request again later"
	case claim.Record.State == FailedRetryable:
		e.Hint = "an operation under another key has had an effect on this resource and is not finished; send that one again, it goes on from there"
	}
	return e
}

// decideAbandoned does with an attempt whose lease is over what a sweeper would,
// through a claim of its own: the fence rises first, so that an attempt which
// wakes up meanwhile begins and ends nothing. Whoever else has taken the key over
// by then decides instead.
func (e *Engine) decideAbandoned(ctx context.Context, rec Record) error {
	if rec.Abandon == AbandonHold {
		park := ParkRequest{Owner: rec.Owner(), Reason: ReasonAbandoned, LeaseOver: true}
		return e.parkAbandoned(ctx, rec, park)
	}
	req := ClaimRequest{
		Key: rec.Key, Operation: rec.Operation, Fingerprint: rec.Fingerprint, Attempt: NewToken(),
		Lease: settleLease, Retention: rec.Retention, Abandon: rec.Abandon, Resource: rec.Resource,
	}
	var claim Claim
	_, err := e.repeat(ctx, func(ctx context.Context) error {
		var err error
		claim, err = e.store.Claim(ctx, req)
		return err
	})
	switch {
	case err != nil:
		return unavailable("claim abandoned key", err)
	case !claim.Verdict.Owns():
		return nil
	case claim.From != InProgress: // it was settled meanwhile, and stays so
		if err := e.giveBack(ctx, claim, ""); err != nil {
			return unavailable("give claim back", err)
		}
		return nil
	}
	trace, err := e.traceOf(ctx, claim.Record)
	if err != nil {
		return unavailable("read steps", err)
	}
	owner := claim.Record.Owner()
	if trace != "" {
		return e.parkAbandoned(ctx, claim.Record, ParkRequest{Owner: owner, Reason: trace})
	}
	held, err := e.store.Release(ctx, owner, ReasonSweptFree)
	if err != nil {
		return unavailable("release abandoned key", err)
	}
	if held {
		e.decided(ctx, claim.Record, EventReleased, ReasonSweptFree)
	}
	return nil
}

// traceOf says which effect an abandoned attempt may have had; empty: none, or
// running it again does no harm.
func (e *Engine) traceOf(ctx context.Context, rec Record) (trace string, err error) {
	store, ok := StepsOf(e.store)
	if rec.Abandon != AbandonResume || !ok {
		return "", nil
	}
	steps, err := store.Steps(ctx, rec.Key)
	for _, s := range steps {
		switch s.State {
		case StepBegun:
			return ReasonUnfinishedStep, nil
		case StepDone:
			trace = ReasonUnansweredStep
		case StepNotApplied:
		}
	}
	return trace, err
}

// parkAbandoned puts somebody else's attempt in doubt, unless somebody was first.
func (e *Engine) parkAbandoned(ctx context.Context, rec Record, park ParkRequest) error {
	held, err := e.store.Park(ctx, park)
	if err != nil {
		return unavailable("park abandoned key", err)
	}
	if held {
		e.decided(ctx, rec, EventParked, park.Reason)
	}
	return nil
}

// decided tells of another key's attempt that was decided.
func (e *Engine) decided(ctx context.Context, rec Record, kind EventKind, reason string) {
	e.cfg.Observer.Observe(ctx, Event{
		Kind: kind, Op: rec.Operation, Operation: rec.Key.Operation(), Fence: rec.Fence, Attempt: rec.Attempt, Reason: reason,
	})
}
