package onlyonce

import (
	"context"
	"errors"
	"time"
)

// Settlement is an operator's word on a key in doubt (rule X3).
type Settlement struct {
	Key Key
	// Applied is the answer, when the effect has happened. nil: it is proved
	// that it has not, and the operation may run again.
	Applied *Answer
	// Actor and Reason are required and kept for good.
	Actor, Reason string
}

// validate refuses what would stand for good and be wrong.
func (s Settlement) validate() error {
	if s.Actor == "" || s.Reason == "" {
		return configError("Settlement", "needs an actor and a reason")
	}
	if s.Applied == nil {
		return nil
	}
	if act, _ := decide(run{mode: modeSteps, answer: *s.Applied}); act != actComplete {
		return configError("Settlement.Applied", "has the status %d, which is never stored: give the answer that the operation has when it took effect", s.Applied.Status)
	}
	for name, values := range s.Applied.Header {
		for _, v := range values {
			if !isToken(name) || v != fieldValue(v) {
				return configError("Settlement.Applied", "has the header %q, which cannot be sent", name)
			}
		}
	}
	return nil
}

// settleLease is how long an operator's claim holds a key it is settling.
const settleLease = 30 * time.Second

// Settle settles a key in doubt, as its one owner meanwhile. It returns an
// *Error with CodeNotFound when there is no such key, CodeNotInDoubt when an
// attempt is still under way or the key is settled already (completed keys never
// change), CodeConfig for a settlement that makes no sense, such as an answer
// that no handler would have had stored, CodeStoreUnavailable otherwise. When it fails, or crashes, on the
// way, the key is in doubt as before, at the latest when the operator's claim
// has run out; an audit entry may be there already.
func (e *Engine) Settle(ctx context.Context, s Settlement) (Record, error) {
	ops, ok := e.store.(OperatorStore)
	if !ok {
		return Record{}, configError("store", "%s keeps no audit", e.store.Features().Name)
	}
	if err := s.validate(); err != nil {
		return Record{}, err
	}
	if !e.enter() {
		return Record{}, errClosed()
	}
	defer e.pending.Done()
	rec, found, err := e.store.Get(ctx, s.Key)
	switch {
	case err != nil:
		return Record{}, notSettled("read key", err)
	case !found:
		return Record{}, &Error{Code: CodeNotFound, Op: "settle key", Hint: "there is no record under this scope and key"}
	}
	claim, err := e.claimToSettle(ctx, rec)
	if err != nil {
		return rec, err
	}
	entry := AuditEntry{Key: s.Key, Action: "settle not applied", Actor: s.Actor, Reason: s.Reason, Fence: claim.Record.Fence}
	if s.Applied != nil {
		entry.Action = "settle applied"
	}
	owner := claim.Record.Owner()
	if err := ops.AddAudit(ctx, entry); err != nil {
		return rec, e.leaveInDoubt(ctx, owner, rec, notSettled("write audit", err))
	}
	if err := e.applySettlement(ctx, owner, s); err != nil {
		return rec, e.leaveInDoubt(ctx, owner, rec, err)
	}
	settled, _, err := e.store.Get(ctx, s.Key)
	if err != nil {
		return rec, &Error{Code: CodeStoreUnavailable, Op: "read settled key", Hint: "it is settled; only reading it back failed", Err: err}
	}
	return settled, nil
}

// leaveInDoubt gives an operator's claim back after a failure.
func (e *Engine) leaveInDoubt(ctx context.Context, owner Owner, rec Record, failure error) error {
	reason := rec.Reason
	if rec.State == InProgress {
		reason = ReasonAbandoned
	}
	_, err := e.store.Park(context.WithoutCancel(ctx), ParkRequest{Owner: owner, Reason: reason})
	return errors.Join(failure, err)
}

// notSettled says that the store failed an operator.
func notSettled(op string, err error) *Error {
	return &Error{
		Code: CodeStoreUnavailable, Op: op, RetryAfter: time.Second, Err: err,
		Hint: "the key is as it was, or will be when the settlement's claim has run out; look at it, then settle it again",
	}
}

// claimToSettle makes the operator the owner of a key in doubt. An abandoned
// attempt is parked first, as a retry would.
func (e *Engine) claimToSettle(ctx context.Context, rec Record) (Claim, error) {
	req := ClaimRequest{
		Key: rec.Key, Operation: rec.Operation, Fingerprint: rec.Fingerprint, Attempt: NewToken(),
		Lease: settleLease, Retention: rec.Retention, Resolve: true,
		Abandon: AbandonHold, // a settlement that dies on the way leaves doubt, whatever the operation
	}
	if rec.State == InProgress {
		_, err := e.store.Park(ctx, ParkRequest{Owner: rec.Owner(), Reason: ReasonAbandoned, LeaseOver: true})
		if err != nil {
			return Claim{}, notSettled("park key", err)
		}
	}
	if rec.State == FailedRetryable {
		return Claim{}, notInDoubt(rec)
	}
	var claim Claim
	_, err := e.repeat(ctx, func(ctx context.Context) error {
		var err error
		claim, err = e.store.Claim(ctx, req)
		return err
	})
	if err != nil {
		return Claim{}, notSettled("claim key", err)
	}
	switch {
	case !claim.Verdict.Owns():
		return Claim{}, notInDoubt(claim.Record)
	case claim.From != InDoubt && claim.From != InProgress:
		return Claim{}, errors.Join(notInDoubt(rec), e.giveBack(ctx, claim))
	}
	return claim, nil
}

func notInDoubt(rec Record) *Error {
	hint := "the key is " + string(rec.State) + ": there is nothing to settle"
	if rec.State == InProgress {
		hint = "an attempt is under way: it settles the key itself, or can be settled when its lease is over, at " + rec.LeaseEnd.Format(time.RFC3339)
	}
	return &Error{Code: CodeNotInDoubt, Op: "settle key", Operation: rec.Key.Operation(), Hint: hint}
}

func (e *Engine) applySettlement(ctx context.Context, owner Owner, s Settlement) error {
	if s.Applied == nil {
		if steps, ok := e.store.(StepStore); ok {
			if err := e.endUnfinished(ctx, steps, owner); err != nil {
				return err
			}
		}
	}
	var held bool
	err := e.insist(ctx, func(ctx context.Context) error {
		var err error
		if s.Applied == nil {
			held, err = e.store.Release(ctx, owner, "settled as not applied: "+s.Reason)
			return err
		}
		settled, err := e.store.Complete(ctx, owner, *s.Applied)
		held = settled.Held
		return err
	})
	return mustHold(held, err)
}

// endUnfinished records the operator's proof on every unfinished step, so that
// the next attempt sends under a new derived key.
func (e *Engine) endUnfinished(ctx context.Context, store StepStore, owner Owner) error {
	steps, err := store.Steps(ctx, owner.Key)
	if err != nil {
		return notSettled("read steps", err)
	}
	for _, s := range steps {
		if s.State != StepBegun {
			continue
		}
		held, err := store.EndStep(ctx, owner, StepEnd{Name: s.Name, Occurrence: s.Occurrence, State: StepNotApplied})
		if err := mustHold(held, err); err != nil {
			return err
		}
	}
	return nil
}

func mustHold(held bool, err error) error {
	if err != nil {
		return notSettled("settle key", err)
	}
	if !held {
		return &Error{Code: CodeLeaseLost, Op: "settle key", Hint: "somebody else took the key meanwhile; look at it again"}
	}
	return nil
}
