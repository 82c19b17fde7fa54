package onlyonce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Settlement is an operator's word on a key in doubt (rule X3).
type Settlement struct {
	Key Key
	// Applied is the answer, when the effect has happened.
	Applied *Answer
	// Results are what the outside world has done for steps whose end was not
	// known: from a report, a console, a telephone call. They are recorded as if
	// the steps had ended so, and the operation's handler makes the answer of
	// them: at the next retry, or by a Recoverer. Where other steps stay
	// unfinished the key stays in doubt.
	//
	// With neither Applied nor Results it is proved that nothing has happened,
	// and the operation may run again. A key that is held with its request
	// (Request.Hold) is not let go by that: it stays in doubt for this reason, since
	// only a request with Resolve runs it again.
	Results []StepResult
	// If is asked, when the settlement owns the key and before it writes anything,
	// whether the record, as it was before, and its steps are still what the
	// settlement was decided on; nil: whatever they are. Its error ends the
	// settlement, is returned as it is, and leaves the key as it was.
	If func(rec Record, steps []StepRecord) error
	// Actor and Reason are required and kept for good.
	Actor, Reason string
}

// StepResult is the result of a step that ended where nobody saw it.
type StepResult struct {
	Name       string
	Occurrence int
	Result     []byte
}

// action names the settlement in the audit.
func (s Settlement) action() string {
	switch {
	case s.Applied != nil:
		return "settle applied"
	case len(s.Results) > 0:
		return "settle step result"
	default:
		return "settle not applied"
	}
}

// validate refuses what would stand for good and be wrong.
func (s Settlement) validate() error {
	if s.Actor == "" || s.Reason == "" {
		return configError("Settlement", "needs an actor and a reason")
	}
	seen := map[stepID]bool{}
	for _, r := range s.Results {
		id := stepID{r.Name, r.Occurrence}
		if seen[id] {
			return configError("Settlement.Results", "names step %v twice", id)
		}
		seen[id] = true
	}
	if s.Applied == nil {
		return nil
	}
	if len(s.Results) > 0 {
		return configError("Settlement", "has an answer and results of steps: the handler makes the answer of the results")
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

// Settle settles a key in doubt, as its one owner meanwhile. A key that was freed
// behind a step that is begun or done can be settled too: money may have moved, and
// whoever should have answered for it has failed. It returns an *Error:
//
//   - CodeNotFound: there is no such key;
//   - CodeNotInDoubt: an attempt is under way, or the key is settled already
//     (completed keys never change);
//   - CodeConfig: the settlement makes no sense, such as an answer that no handler
//     would have had stored;
//   - CodeStepChanged: its results contradict what is recorded, which is an alarm
//     (EventContradiction);
//   - CodeLeaseLost: somebody else took the key meanwhile;
//   - CodeStoreUnavailable: anything else.
//
// When it fails, or crashes, on the way, the key is as before, or in doubt, at the
// latest when the operator's claim has run out; an audit entry may be there already.
func (e *Engine) Settle(ctx context.Context, s Settlement) (Record, error) {
	ops, ok := OperatorsOf(e.store)
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
	rec, found, err := e.Record(ctx, s.Key)
	switch {
	case err != nil:
		return Record{}, notSettled("read key", err)
	case !found:
		return Record{}, &Error{Code: CodeNotFound, Op: "settle key", Hint: "there is no record under this scope and key"}
	}
	claim, err := e.claimToSettle(ctx, rec)
	if err != nil {
		return rec, e.settledBefore(ctx, rec, s, err)
	}
	if err := e.stillSo(ctx, s, rec, claim); err != nil {
		return rec, errors.Join(err, e.restore(ctx, claim, rec))
	}
	entry := AuditEntry{Key: s.Key, Action: s.action(), Actor: s.Actor, Reason: s.Reason, Fence: claim.Record.Fence}
	owner := claim.Record.Owner()
	if err := ops.AddAudit(ctx, entry); err != nil {
		return rec, e.leaveInDoubt(ctx, owner, rec, notSettled("write audit", err))
	}
	if err := e.applySettlement(ctx, claim.Record, s); err != nil {
		return rec, e.leaveInDoubt(ctx, owner, rec, err)
	}
	settled, _, err := e.Record(ctx, s.Key)
	if err != nil {
		return rec, &Error{Code: CodeStoreUnavailable, Op: "read settled key", Hint: "it is settled; only reading it back failed", Err: err}
	}
	return settled, nil
}

// stillSo asks Settlement.If, and whether there is anything that the settlement
// could be about.
func (e *Engine) stillSo(ctx context.Context, s Settlement, rec Record, claim Claim) error {
	steps, err := e.stepsOf(ctx, rec.Key)
	if err != nil {
		return notSettled("read steps", err)
	}
	if s.If != nil {
		before := claim.Record
		before.State = claim.From
		if err := s.If(before, steps); err != nil {
			return err
		}
	}
	if err := e.settleable(ctx, claim.Record.Owner(), s.Results, steps); err != nil {
		return err
	}
	open := slices.ContainsFunc(steps, func(s StepRecord) bool { return s.State == StepBegun })
	done := slices.ContainsFunc(steps, func(s StepRecord) bool { return s.State == StepDone })
	switch {
	case claim.From == FailedRetryable && !open && !done:
		return notInDoubt(rec)
	case claim.From == FailedRetryable && !open && s.Applied == nil && len(s.Results) == 0:
		return configError("Settlement", "says that nothing has happened, but the key's steps are done: recover it, or give its answer")
	}
	return nil
}

// stepsOf reads the steps of the key's present life; none where the store keeps
// none.
func (e *Engine) stepsOf(ctx context.Context, key Key) (steps []StepRecord, err error) {
	store, ok := StepsOf(e.store)
	if !ok {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.StoreTimeout)
	defer cancel()
	_, err = e.repeat(ctx, func(ctx context.Context) error {
		var err error
		steps, err = store.Steps(ctx, key)
		return err
	})
	return steps, err
}

// Record reads a key's record, as long as Config.StoreTimeout at the most. false:
// there is none, or it has expired.
func (e *Engine) Record(ctx context.Context, key Key) (rec Record, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.StoreTimeout)
	defer cancel()
	_, err = e.repeat(ctx, func(ctx context.Context) error {
		var err error
		rec, found, err = e.store.Get(ctx, key)
		return err
	})
	return rec, found, err
}

// restore leaves a key as it was before an operator's claim.
func (e *Engine) restore(ctx context.Context, claim Claim, rec Record) error {
	owner := claim.Record.Owner()
	if claim.From != FailedRetryable {
		return e.leaveInDoubt(ctx, owner, rec, nil)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.StoreTimeout)
	defer cancel()
	_, err := e.store.Release(ctx, owner, rec.Reason)
	return err
}

// leaveInDoubt gives an operator's claim back after a failure.
func (e *Engine) leaveInDoubt(ctx context.Context, owner Owner, rec Record, failure error) error {
	reason := rec.Reason
	if rec.State == InProgress {
		reason = ReasonAbandoned
	}
	if rec.State == FailedRetryable {
		reason = ReasonGivenUp
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.StoreTimeout)
	defer cancel()
	_, err := e.store.Park(ctx, ParkRequest{Owner: owner, Reason: reason})
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
		Resource: rec.Resource,
		Abandon:  AbandonHold, // a settlement that dies on the way leaves doubt
	}
	if rec.Abandon == AbandonResume {
		req.Abandon = AbandonResume // its steps say how far it came
	}
	ctx, cancel := context.WithTimeout(ctx, e.cfg.StoreTimeout)
	defer cancel()
	if rec.State == InProgress {
		_, err := e.store.Park(ctx, ParkRequest{Owner: rec.Owner(), Reason: ReasonAbandoned, LeaseOver: true})
		if err != nil {
			return Claim{}, notSettled("park key", err)
		}
	}
	if rec.State == FailedRetryable && rec.Abandon != AbandonResume {
		// Unless it was held, and was freed behind steps.
		if steps, err := e.stepsOf(ctx, rec.Key); err != nil {
			return Claim{}, notSettled("read steps", err)
		} else if len(steps) == 0 {
			return Claim{}, notInDoubt(rec)
		}
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
	case claim.From != InDoubt && claim.From != InProgress && claim.From != FailedRetryable:
		return Claim{}, errors.Join(notInDoubt(rec), e.giveBack(ctx, claim, ""))
	case claim.From == FailedRetryable && rec.State != FailedRetryable:
		// It was settled since it was read.
		return Claim{}, errors.Join(notInDoubt(claim.Record), e.giveBack(ctx, claim, ""))
	}
	return claim, nil
}

// settledBefore is why a key cannot be settled. Results that contradict how it was
// settled before are an alarm, not merely too late.
func (e *Engine) settledBefore(ctx context.Context, rec Record, s Settlement, refusal error) error {
	if CodeOf(refusal) != CodeNotInDoubt {
		return refusal
	}
	if s.Applied != nil && rec.State == FailedRetryable && strings.HasPrefix(rec.Reason, settledNotApplied) {
		e.cfg.Observer.Observe(ctx, Event{
			Kind: EventContradiction, Op: rec.Operation, Operation: rec.Key.Operation(), Fence: rec.Fence, Attempt: rec.Attempt,
			Reason: "the key was settled as not applied, and is now said to have been applied",
		})
	}
	if len(s.Results) == 0 {
		return refusal
	}
	steps, err := e.stepsOf(ctx, rec.Key)
	if err != nil {
		return notSettled("read steps", err)
	}
	if err := e.settleable(ctx, rec.Owner(), s.Results, steps); CodeOf(err) == CodeStepChanged {
		return err
	}
	return refusal
}

// settledNotApplied begins the reason of a key that an operator has freed.
const settledNotApplied = "settled as not applied: "

func notInDoubt(rec Record) *Error {
	hint := "the key is " + string(rec.State) + ": there is nothing to settle"
	if rec.State == InProgress {
		hint = "an attempt is under way: it settles the key itself, or can be settled when its lease is over, at " + rec.LeaseEnd.Format(time.RFC3339)
	}
	return &Error{Code: CodeNotInDoubt, Op: "settle key", Operation: rec.Key.Operation(), Hint: hint}
}

func (e *Engine) applySettlement(ctx context.Context, rec Record, s Settlement) error {
	owner := rec.Owner()
	if len(s.Results) > 0 {
		return e.applyResults(ctx, owner, s)
	}
	if s.Applied == nil {
		if steps, ok := StepsOf(e.store); ok {
			if err := e.endUnfinished(ctx, steps, owner); err != nil {
				return err
			}
		}
		switch last, err := e.lastOfItsRequest(ctx, rec); {
		case err != nil:
			return err
		case last:
			return e.held(ctx, func(ctx context.Context) (bool, error) {
				return e.store.Park(ctx, ParkRequest{Owner: owner, Reason: ReasonHeld + settledNotApplied + s.Reason})
			})
		}
	}
	var held bool
	err := e.insist(ctx, func(ctx context.Context) error {
		var err error
		if s.Applied == nil {
			held, err = e.store.Release(ctx, owner, settledNotApplied+s.Reason)
			return err
		}
		settled, err := e.store.Complete(ctx, owner, *s.Applied)
		held = settled.Held
		return err
	})
	if err := mustHold(held, err); err != nil {
		return err
	}
	if s.Applied == nil {
		e.requeue(ctx, owner.Key) // other steps may be done
	}
	return nil
}

// lastOfItsRequest tells whether a key is held (Request.Hold) and has what nobody else may
// have, its request, which it would lose if it were freed.
func (e *Engine) lastOfItsRequest(ctx context.Context, rec Record) (bool, error) {
	store, ok := RecoveryOf(e.store)
	if !ok || rec.Abandon != AbandonHold {
		return false, nil
	}
	limited, cancel := context.WithTimeout(ctx, e.cfg.StoreTimeout)
	defer cancel()
	_, kept, err := store.Kept(limited, rec.Key)
	if err != nil {
		return false, notSettled("read what was kept", err)
	}
	steps, err := e.stepsOf(ctx, rec.Key)
	if err != nil {
		return false, notSettled("read steps", err)
	}
	done := slices.ContainsFunc(steps, func(s StepRecord) bool { return s.State == StepDone })
	return kept && !done, nil
}

// applyResults records what the outside world did as the results of begun steps,
// and frees the key for a run that goes on behind them.
func (e *Engine) applyResults(ctx context.Context, owner Owner, s Settlement) error {
	store, ok := StepsOf(e.store)
	if !ok {
		return configError("store", "%s keeps no steps", e.store.Features().Name)
	}
	for _, r := range s.Results {
		err := e.held(ctx, func(ctx context.Context) (bool, error) {
			return store.EndStep(ctx, owner, StepEnd{Name: r.Name, Occurrence: r.Occurrence, State: StepDone, Result: r.Result})
		})
		if err != nil {
			return err
		}
	}
	steps, err := e.stepsOf(ctx, owner.Key)
	if err != nil {
		return notSettled("read steps", err)
	}
	begun := func(s StepRecord) bool { return s.State == StepBegun }
	if slices.ContainsFunc(steps, begun) {
		return e.held(ctx, func(ctx context.Context) (bool, error) {
			return e.store.Park(ctx, ParkRequest{Owner: owner, Reason: ReasonUnfinishedStep})
		})
	}
	err = e.held(ctx, func(ctx context.Context) (bool, error) {
		return e.store.Release(ctx, owner, "settled: "+s.Reason+","+ReasonBehindStep)
	})
	if err != nil {
		return err
	}
	e.requeue(ctx, owner.Key)
	return nil
}

// requeue lets a Recoverer go on with what was settled, however many turns it has
// had. A failure costs no more than time: its turn comes again.
func (e *Engine) requeue(ctx context.Context, key Key) {
	if rs, ok := RecoveryOf(e.store); ok {
		_, _ = rs.Requeue(ctx, key)
	}
}

// settleable refuses results for steps that nobody is waiting for. A result of a
// step that is recorded as not applied contradicts what was proved or settled
// before: that is an alarm.
func (e *Engine) settleable(ctx context.Context, owner Owner, results []StepResult, steps []StepRecord) error {
	for _, r := range results {
		i := slices.IndexFunc(steps, func(s StepRecord) bool { return s.Name == r.Name && s.Occurrence == r.Occurrence })
		switch {
		case i < 0:
			return configError("Settlement.Results", "names step %v, which the key has not begun", stepID{r.Name, r.Occurrence})
		case steps[i].State == StepNotApplied || (steps[i].State == StepDone && !bytes.Equal(steps[i].Result, r.Result)):
			e.cfg.Observer.Observe(ctx, Event{
				Kind: EventContradiction, Operation: owner.Key.Operation(), Fence: owner.Fence, Attempt: owner.Attempt,
				Reason: fmt.Sprintf("step %v is recorded as %s, and has a result that says otherwise", stepID{r.Name, r.Occurrence}, steps[i].State),
			})
			return &Error{
				Code: CodeStepChanged, Op: "settle step", Operation: owner.Key.Operation(),
				Hint: fmt.Sprintf("step %v is recorded as %s already, which contradicts this result: compare both with the provider", stepID{r.Name, r.Occurrence}, steps[i].State),
			}
		}
	}
	return nil
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

// held insists on a settlement's write, which its owner must still be allowed.
func (e *Engine) held(ctx context.Context, write func(ctx context.Context) (bool, error)) error {
	var held bool
	err := e.insist(ctx, func(ctx context.Context) error {
		var err error
		held, err = write(ctx)
		return err
	})
	return mustHold(held, err)
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
