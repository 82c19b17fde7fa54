package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
)

// errEnded is what Atomic, Finish and StepTx return when the transaction was no longer
// open after fn had succeeded.
var errEnded = errors.New("the transaction was ended inside fn, or SQLite ended it and fn ignored the error of a statement")

// Atomic claims the key, runs fn and completes in one transaction, which holds
// the file's write lock: every other writer waits for fn. fn must return every
// error of a statement, must not end the transaction, and must call no other
// method of the store. When ctx ends before fn has returned, nothing happens;
// afterwards it no longer matters. A crash leaves nothing. The request may name
// no resource and keep nothing; one that an earlier attempt has named counts.
//
// A duplicate in this process is busy at once; one in another process waits
// for Config.BusyTimeout and then fails with nothing done.
func (s *Store) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[*sql.Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	if err := errors.Join(req.Validate(), req.ValidateAtomic()); err != nil {
		return onlyonce.Claim{}, onlyonce.Settled{}, err
	}
	if claim, busy := s.open.find(req, s.now()); busy {
		return s.beside(ctx, req, claim), onlyonce.Settled{}, nil
	}
	claim, decided, err := s.look(ctx, req)
	if err != nil {
		return onlyonce.Claim{}, onlyonce.Settled{}, err
	}
	if decided && !claim.Verdict.Owns() {
		return claim, onlyonce.Settled{}, nil
	}
	if claim, busy := s.open.enter(req, s.now()); busy {
		return s.beside(ctx, req, claim), onlyonce.Settled{}, nil
	}
	defer s.open.leave(req.Key)
	return s.atomic(ctx, req, fn)
}

// atomic is Atomic once the key is known to be open to the claim.
func (s *Store) atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[*sql.Tx]) (claim onlyonce.Claim, settled onlyonce.Settled, err error) {
	const op = "run transaction"
	t, err := s.begin(ctx)
	if err != nil {
		return claim, onlyonce.Settled{}, s.fail(op, err)
	}
	defer t.end()
	own := context.WithoutCancel(ctx)
	claim, err = s.claim(own, t.querier(), req)
	if err != nil {
		return onlyonce.Claim{}, settled, s.fail(op, err)
	}
	if !claim.Verdict.Owns() {
		return claim, settled, nil
	}
	answer, err := call(ctx, t, fn)
	if answer == nil || err != nil {
		return claim, settled, err
	}
	settled, err = s.complete(own, t.querier(), claim.Record.Owner(), *answer)
	if err == nil && !settled.Held {
		err = errEnded
	}
	if err != nil {
		return claim, onlyonce.Settled{}, s.fail(op, err)
	}
	if claim.Record, err = completed(own, t.querier(), req.Key); err != nil {
		return claim, onlyonce.Settled{}, s.fail(op, err)
	}
	if err := t.commit(); err != nil {
		return claim, onlyonce.Settled{}, s.failCommit(op, err)
	}
	return claim, settled, nil
}

// completed reads back what is about to be committed.
func completed(ctx context.Context, q querier, key onlyonce.Key) (onlyonce.Record, error) {
	row, _, err := readKey(ctx, q, key)
	return row.Record, err
}

// call runs fn with commits vetoed from here on. fn's error is its own, unless
// a concurrent transaction is the cause. A context that has ended counts as
// fn's failure.
func call[T any](ctx context.Context, t *txn, fn func(context.Context, *sql.Tx) (T, error)) (result T, err error) {
	t.seal(true)
	got, err := fn(ctx, t.Tx)
	switch {
	case err != nil && isConflict(err):
		return result, &onlyonce.Error{Code: onlyonce.CodeConflict, Op: "run transaction", Err: err}
	case err != nil:
		return result, err
	case ctx.Err() != nil:
		return result, fmt.Errorf("run transaction: %w", ctx.Err())
	}
	return got, nil
}

// Finish runs fn and completes the owner's key in one transaction; see Atomic
// for what fn must not do. fn does not run when the owner has lost the key, or
// when an earlier Finish has committed.
func (s *Store) Finish(ctx context.Context, owner onlyonce.Owner, fn onlyonce.TxFunc[*sql.Tx]) (onlyonce.Settled, error) {
	const op = "finish key"
	t, err := s.begin(ctx)
	if err != nil {
		return onlyonce.Settled{}, s.fail(op, err)
	}
	defer t.end()
	own := context.WithoutCancel(ctx)
	state, expires, err := readOwned(own, t.querier(), owner)
	switch {
	case err != nil:
		return onlyonce.Settled{}, s.fail(op, err)
	case state == onlyonce.Completed:
		return onlyonce.Settled{Held: true, ExpiresAt: expires}, nil // the earlier Finish stands
	case state == "", state == onlyonce.FailedRetryable:
		return onlyonce.Settled{}, nil
	}
	answer, err := call(ctx, t, fn)
	if answer == nil || err != nil {
		return onlyonce.Settled{}, err
	}
	settled, err := s.complete(own, t.querier(), owner, *answer)
	if err == nil && !settled.Held {
		err = errEnded
	}
	if err != nil {
		return onlyonce.Settled{}, s.fail(op, err)
	}
	if err := t.commit(); err != nil {
		return onlyonce.Settled{}, s.failCommit(op, err)
	}
	return settled, nil
}

// CompleteTx completes the owner's key in the caller's own transaction, which
// must be of Writer. When Held is false, or an error is returned, the caller
// must roll back. Nothing is stored before the caller has committed; a commit
// that fails must be taken for uncertain and all of it be repeated: Settled.Earlier
// then says that it had gone through.
func (s *Store) CompleteTx(ctx context.Context, tx *sql.Tx, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	state, expires, err := readOwned(ctx, tx, owner)
	if err != nil {
		return onlyonce.Settled{}, s.fail("complete key", err)
	}
	if state == onlyonce.Completed {
		return onlyonce.Settled{Earlier: true, ExpiresAt: expires}, nil
	}
	settled, err := s.complete(ctx, tx, owner, answer)
	if err != nil {
		return onlyonce.Settled{}, s.fail("complete key", err)
	}
	return settled, nil
}
