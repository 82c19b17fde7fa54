package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/provider"
)

// heal settles a key, and stores what became of it.
func (r *run) heal(ctx context.Context, in intent, p plan) error {
	// What was found so far must be stored before anything is changed.
	if err := r.flush(ctx); err != nil {
		return err
	}
	f := in.healable(p)
	said, err := r.settle(ctx, in, p)
	switch {
	case err == nil:
		r.result.Healed++
		f.Status, f.Detail = Healed, f.Detail+": "+said
		return r.found(ctx, f)
	case errors.Is(err, errMoved):
		// Somebody else was faster: whatever it is now, it is not what was judged.
		r.result.InProgress++
		return nil
	case onlyonce.CodeOf(err) == onlyonce.CodeStepChanged:
		f.Kind, f.Detail = Contradiction, f.Detail+": "+err.Error()
		return r.found(ctx, f)
	case ctx.Err() != nil:
		return err
	case uncertain(err):
		r.result.Uncertain++
	}
	f.Detail += "; it could not be healed: " + err.Error()
	return r.found(ctx, f)
}

// uncertain tells whether an error leaves open what was written.
func uncertain(err error) bool {
	switch onlyonce.CodeOf(err) {
	case onlyonce.CodeUncertain, onlyonce.CodeStoreUnavailable, onlyonce.CodeUnreachable, onlyonce.CodeConflict, onlyonce.CodeLeaseLost:
		return true
	default:
		return false
	}
}

// errMoved says that a key is no longer what was judged.
var errMoved = errors.New("the key was taken on meanwhile")

// settle writes what is proved, and lets the operation's handler answer. It says
// what the key is now.
func (r *run) settle(ctx context.Context, in intent, p plan) (string, error) {
	switch p {
	case planNotApplied:
		if err := r.notApplied(ctx, in); err != nil {
			return "", err
		}
		return "the key is free, and its caller's retry runs again", nil
	case planApply:
		if err := r.apply(ctx, in); err != nil {
			return "", err
		}
	case planAnswer, planNothing, planElsewhere, planUnknown:
	}
	return r.answer(ctx, in.rec.Key)
}

// reason is what the audit keeps.
func (r *run) reason(in intent, p plan) string {
	return fmt.Sprintf("%s: report %s, sha256 %s, %s", r.name(), r.cfg.File, r.reader.Sum(), in.proof(p))
}

// apply records what the report shows as the results of begun steps.
func (r *run) apply(ctx context.Context, in intent) error {
	s := onlyonce.Settlement{Key: in.rec.Key, Actor: r.cfg.Actor, Reason: r.reason(in, planApply)}
	for _, v := range in.verdicts {
		if v.is != applied {
			continue
		}
		out, err := json.Marshal(provider.Outcome{Status: provider.Succeeded, ID: v.row.id, Amount: v.row.amount, Currency: v.row.currency})
		if err != nil {
			return fmt.Errorf("encode outcome: %w", err)
		}
		s.Results = append(s.Results, onlyonce.StepResult{Name: v.step.Name, Occurrence: v.step.Occurrence, Result: out})
	}
	_, err := r.cfg.Engine.Settle(ctx, s)
	switch onlyonce.CodeOf(err) {
	case onlyonce.CodeNotInDoubt, onlyonce.CodeNotFound:
		return errMoved
	default:
		return err
	}
}

// How long an operation that somebody else is just finishing is waited for.
const (
	answerWithin = 15 * time.Second
	answerPause  = 100 * time.Millisecond
)

// answer lets the handler go on behind the recorded steps. A running service may
// be faster: then its end is waited for.
func (r *run) answer(ctx context.Context, key onlyonce.Key) (string, error) {
	_, failed := r.cfg.Recover(ctx, key)
	begun := now()
	for {
		rec, found, err := r.cfg.DB.Keys().Get(ctx, key)
		switch {
		case err != nil:
			return "", fmt.Errorf("read key: %w", err)
		case found && rec.State == onlyonce.Completed:
			return fmt.Sprintf("the key is completed, with status %d", rec.Answer.Status), nil
		case onlyonce.CodeOf(failed) != onlyonce.CodeInProgress || now().Sub(begun) > answerWithin:
			return "", notAnswered(rec, failed)
		}
		if !pause(ctx, answerPause) {
			return "", context.Cause(ctx)
		}
	}
}

// notAnswered says why a key has no answer although its steps are settled.
func notAnswered(rec onlyonce.Record, failed error) error {
	if onlyonce.CodeOf(failed) == onlyonce.CodeNotFound {
		return errors.New("its request was not kept: the retry of its caller goes on behind what is recorded")
	}
	if failed == nil {
		failed = fmt.Errorf("the handler has left it %s: %s", rec.State, rec.Reason)
	}
	return failed
}

// pause waits; false: ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// settleLease is how long a claim holds a key whose steps are judged again.
const settleLease = 30 * time.Second

// notApplied settles a key as proved not applied. Between the judgement and an
// operator's settlement somebody could send again, later than the report is
// complete. So the key is claimed first, and judged by what its steps are then:
// as long as the claim holds, nobody sends.
func (r *run) notApplied(ctx context.Context, in intent) error {
	owner, err := r.claim(ctx, in.rec)
	if err != nil {
		return err
	}
	if err := r.endNotApplied(ctx, in.rec, owner); err != nil {
		_, parked := r.cfg.DB.Keys().Park(context.WithoutCancel(ctx), onlyonce.ParkRequest{Owner: owner, Reason: onlyonce.ReasonUnfinishedStep})
		return errors.Join(err, parked)
	}
	return nil
}

// claim makes the run the one owner of a key in doubt. An abandoned attempt is
// parked first.
func (r *run) claim(ctx context.Context, rec onlyonce.Record) (onlyonce.Owner, error) {
	keys := r.cfg.DB.Keys()
	if rec.State == onlyonce.InProgress {
		held, err := keys.Park(ctx, onlyonce.ParkRequest{Owner: rec.Owner(), Reason: onlyonce.ReasonAbandoned, LeaseOver: true})
		if err != nil || !held {
			return onlyonce.Owner{}, errors.Join(err, errMoved)
		}
	}
	claim, err := keys.Claim(ctx, onlyonce.ClaimRequest{
		Key: rec.Key, Operation: rec.Operation, Fingerprint: rec.Fingerprint, Attempt: onlyonce.NewToken(),
		Lease: settleLease, Retention: rec.Retention, Abandon: rec.Abandon, Resolve: true, Resource: rec.Resource,
	})
	switch {
	case err != nil:
		return onlyonce.Owner{}, fmt.Errorf("claim key: %w", err)
	case !claim.Verdict.Owns():
		return onlyonce.Owner{}, errMoved
	case claim.From != onlyonce.InDoubt: // it was settled meanwhile, and stays so
		_, err := keys.Release(ctx, claim.Record.Owner(), onlyonce.ReasonNotRun)
		return onlyonce.Owner{}, errors.Join(err, errMoved)
	}
	return claim.Record.Owner(), nil
}

// endNotApplied judges again, as the owner, and settles.
func (r *run) endNotApplied(ctx context.Context, rec onlyonce.Record, owner onlyonce.Owner) error {
	keys := r.cfg.DB.Keys()
	again, err := r.intentOf(ctx, rec)
	if err != nil {
		return err
	}
	if again.plan() != planNotApplied {
		return errMoved
	}
	reason := r.reason(again, planNotApplied)
	err = keys.AddAudit(ctx, onlyonce.AuditEntry{Key: rec.Key, Action: "settle not applied", Actor: r.cfg.Actor, Reason: reason, Fence: owner.Fence})
	if err != nil {
		return fmt.Errorf("write audit: %w", err)
	}
	for _, v := range again.verdicts {
		if v.is != absent {
			continue
		}
		held, err := keys.EndStep(ctx, owner, onlyonce.StepEnd{Name: v.step.Name, Occurrence: v.step.Occurrence, State: onlyonce.StepNotApplied})
		if err != nil || !held {
			return errors.Join(err, lostUnless(held))
		}
	}
	held, err := keys.Release(ctx, owner, "settled as not applied: "+reason)
	if err != nil || !held {
		return errors.Join(err, lostUnless(held))
	}
	// Other steps may be done. Should it fail, the key's turn comes all the same.
	_, _ = keys.Requeue(ctx, rec.Key)
	return nil
}

// lostUnless is the error of a write that another owner's claim has fenced off.
func lostUnless(held bool) error {
	if held {
		return nil
	}
	return &onlyonce.Error{Code: onlyonce.CodeLeaseLost, Op: "settle key", Hint: "somebody else took the key meanwhile; look at it again"}
}
