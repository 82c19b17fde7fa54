package portable

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/pgerr"
)

// StepTx runs fn and records its result as that of a step that is done, in one
// transaction; see Atomic for what fn must not do. When the step is done already, fn
// does not run and the recorded result is returned. held is false, and nothing is
// changed, when the owner does not hold the key in progress, or no longer when fn is
// done, or when something else is recorded under the step's name.
//
// In repeatable read and serializable a renewal while fn runs is ErrConflict: all of it
// is to be repeated. An error of fn comes back as it is, but for one that a concurrent
// transaction is the cause of: that is ErrConflict. ErrUncertain means that the commit
// may stand: repeating StepTx by the same owner finds it, or runs fn again. A crash
// leaves all of it or nothing. Seven round trips besides the handler's.
func (s *Store) StepTx(ctx context.Context, owner onlyonce.Owner, ts onlyonce.TxStep, fn onlyonce.TxStepFunc[pgx.Tx]) (result []byte, held bool, err error) {
	if err := checkText(field{"TxStep.Name", ts.Name}); err != nil {
		return nil, false, err
	}
	var before txStep
	t, err := s.opened(ctx, "run step", func(ctx context.Context, t *txn) (err error) {
		before, err = t.txStep(ctx, owner, ts)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	defer t.close(ctx)
	if !before.mayRun() {
		result, held = before.done()
		return result, held, nil
	}
	made, err := run(ctx, t, fn)
	if err != nil {
		return t.stepFailed(ctx, owner, ts, err)
	}
	result, held, err = t.addDone(ctx, owner, ts, notNil(made))
	return result, held, classify(opTransaction, err, pgerr.Undone)
}

// txStep is what is found of a step of the store's own.
type txStep struct {
	// row is the owner's key in progress; nil: it is not.
	row *row
	// step is what is recorded under its name; nil: nothing.
	step *step
}

// txStep finds out whether the step may be done or was.
func (t *txn) txStep(ctx context.Context, owner onlyonce.Owner, ts onlyonce.TxStep) (found txStep, err error) {
	r, err := t.mine(ctx, owner)
	if err != nil || r == nil || r.State != onlyonce.InProgress {
		return found, err
	}
	found.row = r
	found.step, err = t.step(ctx, r, ts.Name, ts.Occurrence)
	return found, err
}

// mayRun: the owner holds the key in progress, and nothing is recorded.
func (f txStep) mayRun() bool { return f.row != nil && f.step == nil }

// done is the result of a step of the store's own; not held: there is none.
func (f txStep) done() (result []byte, held bool) {
	if f.row == nil || f.step == nil || f.step.State != onlyonce.StepDone || f.step.Provider != onlyonce.ProviderStore {
		return nil, false
	}
	return f.step.Result, true
}

// addDone records the step and commits, unless the owner has lost the key.
func (t *txn) addDone(ctx context.Context, owner onlyonce.Owner, ts onlyonce.TxStep, result []byte) ([]byte, bool, error) {
	r, err := t.mine(ctx, owner) // again: the lease may have been renewed
	if err != nil || r == nil || r.State != onlyonce.InProgress {
		return nil, false, err
	}
	now := t.now()
	done := step{begun: now, sent: now, StepRecord: onlyonce.StepRecord{
		Intent: onlyonce.Intent{Name: ts.Name, Occurrence: ts.Occurrence, Provider: onlyonce.ProviderStore},
		State:  onlyonce.StepDone, Result: result, Sends: 1,
	}}
	if err = t.add(ctx, r, done); err == nil {
		err = t.commit(ctx, opTransaction)
	}
	if err != nil {
		return nil, true, err
	}
	return result, true, nil
}

// stepFailed looks whether fn failed only because an earlier StepTx of the same owner,
// whose reply was lost, has come to its commit meanwhile: what it wrote is then there
// already.
func (t *txn) stepFailed(ctx context.Context, owner onlyonce.Owner, ts onlyonce.TxStep, failure error) ([]byte, bool, error) {
	t.close(ctx)
	var now txStep
	err := t.s.transact(context.WithoutCancel(ctx), "read step", func(ctx context.Context, t *txn) (err error) {
		now, err = t.txStep(ctx, owner, ts)
		return err
	})
	if result, held := now.done(); err == nil && held {
		return result, true, nil
	}
	return nil, true, failure
}
