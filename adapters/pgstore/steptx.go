package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/pgerr"
)

// StepTx runs fn and records its result as that of a step that is done, in one
// transaction: BEGIN travels with the look at what is recorded, COMMIT with the
// record. When the step is done already, fn does not run, or its writes are rolled
// back, and the recorded result is returned. held is false, and nothing is
// changed, when the owner does not hold the key in progress, or no longer when fn
// is done, or when something else is recorded under the step's name.
//
// The lease may be renewed while fn runs; in repeatable read and serializable that
// is ErrConflict, and all of it is to be repeated. An error of fn comes back as it
// is, but for one that a concurrent transaction is the cause of: that is
// ErrConflict. ErrUncertain means that the commit may stand: repeating StepTx by
// the same owner finds it, or runs fn again. A crash leaves all of it or nothing.
//
// While fn runs it holds one connection; what is said of Atomic's holds for it. In
// a pool of one the lease cannot be renewed meanwhile.
func (s *Store) StepTx(ctx context.Context, owner onlyonce.Owner, step onlyonce.TxStep, fn onlyonce.TxStepFunc[pgx.Tx]) (result []byte, held bool, err error) {
	x, err := s.session(ctx)
	if err != nil {
		return nil, false, classify("run step", err, undone)
	}
	defer x.close(ctx)
	before := s.recorded(owner, step)
	if err := x.begin(ctx, s.cfg.Isolation, before.stmt); err != nil {
		return nil, false, classify("begin transaction", err, undone)
	}
	if !before.mayRun() {
		result, held = before.done()
		return result, held, nil
	}
	made, err := run(ctx, x, func(ctx context.Context, tx pgx.Tx) (*[]byte, error) {
		result, err := fn(ctx, tx)
		return &result, err
	})
	if err != nil {
		return x.stepFailed(ctx, s.recorded(owner, step), err)
	}
	add := s.owned(s.sql.addStep, owner, step.Name, step.Occurrence, onlyonce.ProviderStore, notNil(*made), s.now())
	add.dest = []any{new(int64)}
	if err := x.commit(ctx, add); err != nil {
		if add.found || (!pgerr.HasState(err, pgerr.Division) && !pgerr.NotUnique(err, stepsIndex)) {
			return nil, false, classify("commit transaction", err, committing)
		}
		return x.stepLost(ctx, s.recorded(owner, step))
	}
	return *made, true, nil
}

// recorded is what is recorded of a step, once its statement has run.
type recorded struct {
	*stmt
	state    *int16
	provider *string
	result   []byte
}

func (s *Store) recorded(owner onlyonce.Owner, step onlyonce.TxStep) *recorded {
	r := &recorded{stmt: s.owned(s.sql.lookStep, owner, step.Name, step.Occurrence)}
	r.dest = []any{&r.state, &r.provider, &r.result}
	return r
}

// mayRun: the owner holds the key in progress, and nothing is recorded.
func (r *recorded) mayRun() bool { return r.found && r.state == nil }

// done is the result of a step of the store's own; not held: there is none.
func (r *recorded) done() (result []byte, held bool) {
	if !r.found || r.state == nil || *r.state != stepDone || *r.provider != onlyonce.ProviderStore {
		return nil, false
	}
	return r.result, true
}

// stepFailed looks whether fn failed only because an earlier StepTx of the same
// owner, whose reply was lost, has come to its commit meanwhile: what it wrote is
// then there already.
func (x *session) stepFailed(ctx context.Context, now *recorded, failure error) ([]byte, bool, error) {
	err := x.rollback(context.WithoutCancel(ctx), now.stmt)
	if result, held := now.done(); err == nil && held {
		return result, true, nil
	}
	return nil, true, failure
}

// stepLost finds out why a step was not recorded: it was, meanwhile, or the owner
// has lost the key.
func (x *session) stepLost(ctx context.Context, now *recorded) ([]byte, bool, error) {
	if err := x.rollback(ctx, now.stmt); err != nil {
		return nil, false, classify("read step", err, undone)
	}
	if now.mayRun() {
		return nil, false, &onlyonce.Error{Code: onlyonce.CodeConflict, Op: "commit transaction", Hint: "the step's record was removed meanwhile; everything was rolled back"}
	}
	result, held := now.done()
	return result, held, nil
}
