package sqlitestore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/onlyonce-go/onlyonce"
)

// StepTx runs fn and records its result as that of a step that is done, in one
// transaction, which holds the file's write lock; see Atomic for what fn must not
// do. When the step is done already, fn does not run and the recorded result is
// returned. held is false, fn does not run and nothing is changed when the owner
// does not hold the key in progress, or when something else is recorded under the
// step's name. When ctx ends before fn has returned, nothing happens; a crash
// leaves all of it or nothing.
//
// An error of fn comes back as it is, but for one that a concurrent transaction
// is the cause of: that is ErrConflict. ErrUncertain means that the commit may
// stand: repeating StepTx by the same owner finds it, or runs fn again.
func (s *Store) StepTx(ctx context.Context, owner onlyonce.Owner, step onlyonce.TxStep, fn onlyonce.TxStepFunc[*sql.Tx]) (result []byte, held bool, err error) {
	const op = "run step"
	t, err := s.begin(ctx)
	if err != nil {
		return nil, false, s.fail(op, err)
	}
	defer t.end()
	own := context.WithoutCancel(ctx)
	recorded, held, err := readTxStep(own, t.querier(), owner, step)
	switch {
	case err != nil:
		return nil, false, s.fail(op, err)
	case !held || recorded.done:
		return recorded.result, held, nil
	}
	result, err = call(ctx, t, fn)
	if err != nil {
		return nil, true, err
	}
	n, err := exec(own, t.querier(), insertDoneStep, ownerArgs(owner,
		step.Name, step.Occurrence, onlyonce.ProviderStore, blob(result), s.now().UnixMicro())...)
	if err == nil && n != 1 {
		err = errEnded
	}
	if err != nil {
		return nil, true, s.fail(op, err)
	}
	if err := t.commit(); err != nil {
		return nil, true, s.failCommit(op, err)
	}
	return blob(result), true, nil
}

// txStep is what is recorded of a step whose effect is in the store.
type txStep struct {
	done   bool
	result []byte
}

// readTxStep finds out whether the step may be done or was. It is not held when
// the owner does not hold the key in progress, or when what is recorded under the
// step's name is another kind of step, or has not ended so.
func readTxStep(ctx context.Context, q querier, owner onlyonce.Owner, step onlyonce.TxStep) (recorded txStep, held bool, err error) {
	var state, provider sql.NullString
	var result []byte
	err = q.QueryRowContext(ctx, stepForTx, ownerArgs(owner, step.Name, step.Occurrence)...).Scan(&state, &provider, &result)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return txStep{}, false, nil
	case err != nil:
		return txStep{}, false, err
	case !state.Valid:
		return txStep{}, true, nil
	case state.String != string(onlyonce.StepDone) || provider.String != onlyonce.ProviderStore:
		return txStep{}, false, nil
	}
	return txStep{done: true, result: blob(result)}, true, nil
}
