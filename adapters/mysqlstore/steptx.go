package mysqlstore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/onlyonce-go/onlyonce"
)

// StepTx runs fn and records its result as that of a step that is done, in one
// transaction; see Atomic for what fn must not do. When the step is done already, fn
// does not run, or its writes are rolled back, and the recorded result is returned.
// held is false, and nothing is changed, when the owner does not hold the key in
// progress, or no longer when fn is done, or when something else is recorded under
// the step's name.
//
// The lease may be renewed while fn runs. An error of fn comes back as it is, but for
// one that a concurrent transaction is the cause of: that is ErrConflict. ErrUncertain
// means that the commit may stand: repeating StepTx by the same owner finds it, or
// runs fn again. A crash leaves all of it or nothing. While fn runs it holds one
// connection; in a pool of one the lease cannot be renewed meanwhile.
func (s *Store) StepTx(ctx context.Context, owner onlyonce.Owner, step onlyonce.TxStep, fn onlyonce.TxStepFunc[*sql.Tx]) (result []byte, held bool, err error) {
	const op = "run step"
	l, err := s.line(ctx)
	if err != nil {
		return nil, false, classify(op, err, undone)
	}
	defer l.close(ctx)
	before, err := readStep(ctx, l.conn, owner, step)
	if err != nil || !before.held || before.state != 0 {
		result, held = before.done()
		return result, held, classify(op, err, undone)
	}
	if err := l.guarded(ctx); err != nil {
		return nil, false, classify(op, err, undone)
	}
	result, err = run(ctx, l, fn)
	if err != nil {
		return l.stepAfter(ctx, owner, step, err)
	}
	result = blob(result)
	var n int64
	renewal, err := s.touch(ctx, l.tx, owner)
	if err == nil && renewal != 0 {
		n, err = count(ctx, l.tx, s.sql(insertStep), ownerArgs(owner,
			bytesOf(step.Name), step.Occurrence, bytesOf(onlyonce.ProviderStore), 0, "", "", "", 0, stepDone, result)...)
	}
	switch {
	case duplicate(err) || (err == nil && n == 0):
		return l.stepAfter(ctx, owner, step, nil)
	case err != nil:
		return nil, false, classify(op, err, undone)
	}
	if err := l.commit(op); err != nil {
		return nil, false, err
	}
	s.touched(owner, renewal)
	return result, true, nil
}

// done is the result of a step of the store's own; not held: there is none.
func (r recorded) done() (result []byte, held bool) {
	if !r.held || r.state != stepDone || r.provider != onlyonce.ProviderStore {
		return nil, false
	}
	return r.result, true
}

// stepAfter rolls back and looks why a step was not recorded: an earlier StepTx of the
// same owner, whose reply was lost, has come to its commit meanwhile, or the owner has
// lost the key, or fn failed.
func (l *line) stepAfter(ctx context.Context, owner onlyonce.Owner, step onlyonce.TxStep, failure error) ([]byte, bool, error) {
	if errors.Is(failure, onlyonce.ErrTxEnded) {
		return nil, true, failure
	}
	l.rollback()
	now, err := readStep(context.WithoutCancel(ctx), l.conn, owner, step)
	if result, held := now.done(); err == nil && held {
		return result, true, nil
	}
	if failure == nil {
		return nil, false, classify("run step", err, undone)
	}
	return nil, true, failure
}
