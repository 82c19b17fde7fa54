package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
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
		if err := r.settleAs(ctx, in, p); err != nil {
			return "", err
		}
		return "the key is free, and its caller's retry runs again", nil
	case planApply:
		if err := r.settleAs(ctx, in, p); err != nil {
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

// settlement is a plan as an operator's word on the key: the results of begun
// steps, or that none was applied. Between the judgement and the settlement
// somebody could send again, later than the report is complete: it holds only for
// what was judged.
func (r *run) settlement(in intent, p plan) (onlyonce.Settlement, error) {
	s := onlyonce.Settlement{Key: in.rec.Key, Actor: r.cfg.Actor, Reason: r.reason(in, p), If: in.unchanged}
	for _, v := range in.verdicts {
		if p != planApply || v.is != applied {
			continue
		}
		out, err := json.Marshal(provider.Outcome{Status: provider.Succeeded, ID: v.row.id, Amount: v.row.amount, Currency: v.row.currency})
		if err != nil {
			return s, fmt.Errorf("encode outcome: %w", err)
		}
		s.Results = append(s.Results, onlyonce.StepResult{Name: v.step.Name, Occurrence: v.step.Occurrence, Result: out})
	}
	return s, nil
}

// settleAs settles a key as planned.
func (r *run) settleAs(ctx context.Context, in intent, p plan) error {
	s, err := r.settlement(in, p)
	if err != nil {
		return err
	}
	_, err = r.cfg.Engine.Settle(ctx, s)
	switch onlyonce.CodeOf(err) {
	case onlyonce.CodeNotInDoubt, onlyonce.CodeNotFound:
		return errMoved
	default:
		return err
	}
}

// unchanged makes sure that a key is still what was judged. An abandoned attempt
// may have been put in doubt since, which says no more; one that was freed is its
// caller's to go on with.
func (in intent) unchanged(rec onlyonce.Record, steps []onlyonce.StepRecord) error {
	freed := rec.State == onlyonce.FailedRetryable && in.rec.State != onlyonce.FailedRetryable
	if freed || rec.Origin != in.rec.Origin || !slices.EqualFunc(steps, in.steps, sameStep) {
		return errMoved
	}
	return nil
}

// sameStep compares two readings of a step, whose ages differ.
func sameStep(a, b onlyonce.StepRecord) bool {
	a.Age, a.Idle, b.Age, b.Idle = 0, 0, 0, 0
	return reflect.DeepEqual(a, b)
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
