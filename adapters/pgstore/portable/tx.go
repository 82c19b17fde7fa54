package portable

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/guardtx"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/pgerr"
)

// Atomic claims, runs fn and completes in one transaction. Whatever way fn comes
// back, nothing but an answer is committed. Five round trips besides the handler's.
//
// A duplicate in this process is busy at once. One in another is busy when
// Config.LockTimeout has passed, on engines whose writers wait; on those that find
// conflicts only at the commit its handler runs as well, one of the two is committed,
// and the other is ErrConflict. The claim is retried here when it meets a conflict, fn
// never: from there on a conflict is ErrConflict, and the engine repeats all of it.
//
// fn must return every error of a statement, must not keep tx, and must not use the
// Store but for CompleteTx on its own tx when the pool has one connection only. Its
// savepoints need an engine that has them.
func (s *Store) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[pgx.Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	var none onlyonce.Settled
	if err := errors.Join(req.Validate(), req.ValidateAtomic(), claimText(req)); err != nil {
		return onlyonce.Claim{}, none, err
	}
	if s.open.Has(req.Key.Digest()) { // without a connection, of which there may be one
		return onlyonce.Claim{Verdict: onlyonce.Busy}, none, nil
	}
	t, made, err := s.claimOpen(ctx, req)
	if err != nil || t == nil {
		return made.Claim, none, err
	}
	defer t.close(ctx)
	if !s.open.Enter(req.Key.Digest()) {
		return onlyonce.Claim{Verdict: onlyonce.Busy}, none, nil
	}
	defer s.open.Leave(req.Key.Digest())
	answer, err := run(ctx, t, fn)
	if err != nil || answer == nil {
		return made.Claim, none, err
	}
	mine := made.next
	if !made.write {
		mine = made.old // this attempt's own claim, committed before
	}
	settled, err := t.store(ctx, mine, *answer)
	if err == nil {
		err = t.commit(ctx, opTransaction)
	}
	if err != nil {
		return made.Claim, none, classify(opTransaction, err, pgerr.Undone)
	}
	s.ended(req.Key)
	made.Record = mine.completed(*answer, settled)
	return made.Claim, settled, nil
}

const opTransaction = "run transaction"

// claimOpen claims in a transaction that stays open; nil: the key is not the claimer's.
func (s *Store) claimOpen(ctx context.Context, req onlyonce.ClaimRequest) (*txn, *claiming, error) {
	made := &claiming{}
	t, err := s.opened(ctx, "claim key", func(ctx context.Context, t *txn) error {
		m, err := t.claim(ctx, req)
		if err == nil {
			made = m
		}
		return stopWaiting(err)
	})
	switch {
	case errors.Is(err, errLocked):
		c, err := s.locked(ctx, req)
		if err == nil && c.Verdict.Owns() {
			err = &onlyonce.Error{Code: onlyonce.CodeConflict, Op: "claim key", Err: errLocked}
		}
		return nil, &claiming{Claim: c}, err
	case err != nil:
		return nil, &claiming{}, err
	case !made.Verdict.Owns():
		t.close(ctx)
		return nil, made, nil
	}
	return t, made, nil
}

// completed is the record as it is once completed.
func (r *row) completed(answer onlyonce.Answer, settled onlyonce.Settled) onlyonce.Record {
	rec := r.Record
	rec.State, rec.Reason, rec.Holds = onlyonce.Completed, "", false
	rec.CompletedAt, rec.ExpiresAt = settled.ExpiresAt.Add(-rec.Retention), settled.ExpiresAt
	answer.Outcome = onlyonce.ByStatus
	if answer.NotRetained {
		answer.Body = nil
	} else {
		answer.Body = notNil(answer.Body)
	}
	rec.Answer = &answer
	return rec
}

// Finish runs fn and completes the owner's key in one transaction. When the owner has
// lost the key by then, or has finished it before, fn does not run, or its writes are
// rolled back. In repeatable read and serializable a renewal while fn runs is
// ErrConflict: all of it is to be repeated. Five round trips besides the handler's.
func (s *Store) Finish(ctx context.Context, owner onlyonce.Owner, fn onlyonce.TxFunc[pgx.Tx]) (onlyonce.Settled, error) {
	var none onlyonce.Settled
	var mine *row
	t, err := s.opened(ctx, "finish key", func(ctx context.Context, t *txn) (err error) {
		mine, err = t.mine(ctx, owner)
		return err
	})
	if err != nil {
		return none, err
	}
	defer t.close(ctx)
	if mine == nil {
		return none, nil
	}
	if done, settled := mine.settled(); done {
		return settled, nil
	}
	answer, err := run(ctx, t, fn)
	if err != nil {
		return t.failed(ctx, owner, err)
	}
	if answer == nil {
		return none, nil
	}
	settled, err := t.finish(ctx, owner, *answer)
	return settled, classify(opTransaction, err, pgerr.Undone)
}

// finish completes and commits, unless there is nothing to complete any more: then
// nothing of the transaction may stand.
func (t *txn) finish(ctx context.Context, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	mine, err := t.mine(ctx, owner) // again: the lease may have been renewed
	if err != nil || mine == nil {
		return onlyonce.Settled{}, err
	}
	if done, settled := mine.settled(); done {
		return settled, nil
	}
	settled, err := t.store(ctx, mine, answer)
	if err == nil {
		err = t.commit(ctx, opTransaction)
	}
	if err != nil {
		return onlyonce.Settled{}, err
	}
	t.s.ended(owner.Key)
	return settled, nil
}

// failed looks whether a handler failed only because an earlier Finish of the same
// owner, whose reply was lost, has come to its commit meanwhile: what it wrote is then
// there already.
func (t *txn) failed(ctx context.Context, owner onlyonce.Owner, failure error) (onlyonce.Settled, error) {
	t.close(ctx)
	var at sight
	_, err := t.s.read(context.WithoutCancel(ctx), "read key", at.readKey(owner.Key))
	if err == nil && at.key != nil && at.key.Owner() == owner && at.key.State == onlyonce.Completed {
		return onlyonce.Settled{Held: true, ExpiresAt: at.key.ExpiresAt}, nil
	}
	return onlyonce.Settled{}, failure
}

// run runs a handler.
func run[T any](ctx context.Context, t *txn, fn func(context.Context, pgx.Tx) (T, error)) (result T, err error) {
	tx := guardtx.New(t.tx)
	defer tx.End()
	got, err := fn(ctx, tx)
	switch {
	case err != nil && pgerr.Conflict(err):
		return result, classify(opTransaction, err, pgerr.Undone)
	case err != nil:
		return result, err
	case !t.alive():
		return result, &onlyonce.Error{
			Code: onlyonce.CodeTxEnded, Op: opTransaction,
			Hint: "the handler ended the transaction, and what it wrote may stand: only the store may commit or roll back",
		}
	}
	return got, nil
}

// CompleteTx completes the owner's key in the caller's transaction. When Held is
// false, or with any error, the caller must roll back. Nothing is stored before the
// caller has committed; a commit that fails must be taken for uncertain and all of it
// be repeated: Settled.Earlier then tells that the owner has completed the key before,
// so that what this transaction has written is there already. A takeover or renewal
// meanwhile is ErrConflict, here or at the commit. Retention counts from about when the
// transaction began, with Config.OneClock from now. The transaction is durable if the
// caller's session makes it so. Two round trips, one more for a resource.
func (s *Store) CompleteTx(ctx context.Context, tx pgx.Tx, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	const op = "complete key"
	t := &txn{s: s, tx: tx}
	r, err := t.mine(ctx, owner)
	if err != nil || r == nil {
		return onlyonce.Settled{}, classify(op, err, pgerr.Undone)
	}
	if done, before := r.settled(); done {
		return onlyonce.Settled{Earlier: before.Held, ExpiresAt: before.ExpiresAt}, nil
	}
	settled, err := t.store(ctx, r, answer)
	return settled, classify(op, err, pgerr.Undone)
}
