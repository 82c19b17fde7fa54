package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/guardtx"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/pgerr"
)

// Atomic claims, runs fn and completes in one transaction: BEGIN travels with
// the claim, COMMIT with the answer. A duplicate, here or elsewhere, is busy at
// once. Whatever way fn comes back, nothing but an answer is committed.
//
// Only an attempt that owns the key makes others busy, and only the database
// knows who does: retries of a settled key that meet each other all hear what
// became of it.
//
// A key that was freed with a resource may have it back only when no other key
// holds it. The transaction takes hold of nothing, but what its row holds already
// it holds until the commit.
//
// While fn runs it holds one connection, so fn must not use the Store for
// anything but CompleteTx on its own tx when the pool has one connection only.
func (s *Store) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[pgx.Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	var none onlyonce.Settled
	if err := errors.Join(req.Validate(), req.ValidateAtomic()); err != nil {
		return onlyonce.Claim{}, none, err
	}
	if s.open.Has(req.Key.Digest()) { // without a connection, of which there may be one
		return onlyonce.Claim{Verdict: onlyonce.Busy}, none, nil
	}
	x, err := s.session(ctx)
	if err != nil {
		return onlyonce.Claim{}, none, classify("claim key", err, undone)
	}
	defer x.close(ctx)
	if s.open.WasLost(req.Attempt) {
		if err := x.outlast(ctx, req); err != nil {
			s.open.Lose(req.Attempt)
			return onlyonce.Claim{}, none, err
		}
	}
	claim, err := s.contend(ctx, req, x)
	if err != nil || !claim.Verdict.Owns() {
		return claim, none, err
	}
	if !s.open.Enter(req.Key.Digest()) {
		return onlyonce.Claim{Verdict: onlyonce.Busy}, none, nil // this attempt, twice at once
	}
	defer s.open.Leave(req.Key.Digest())
	if !x.claimed { // this attempt's own claim, committed before
		if err := x.begin(ctx, s.cfg.Isolation); err != nil {
			return claim, none, classify("begin transaction", err, undone)
		}
	}
	answer, err := run(ctx, x, fn)
	if err != nil || answer == nil {
		return claim, none, err
	}
	done := x.completion(claim.Record, *answer)
	settled, err := x.settle(ctx, claim.Record.Owner(), done)
	if errors.Is(err, onlyonce.ErrUncertain) {
		s.open.Lose(req.Attempt)
	}
	if settled.Held && done.found {
		rec := &claim.Record
		rec.State, rec.Answer = onlyonce.Completed, answer
		rec.CompletedAt, rec.ExpiresAt = done.completedAt.UTC(), settled.ExpiresAt
	}
	return claim, settled, err
}

// outlast waits until this attempt's former session, whose COMMIT was not
// answered, has ended one way or the other: it would be taken for a stranger.
func (x *session) outlast(ctx context.Context, req onlyonce.ClaimRequest) error {
	var ok bool
	wait := &stmt{sql: text{waitKey, waitKey}, args: []any{x.s.lock(req.Key.Digest())}, dest: []any{&ok}}
	if err := x.begin(ctx, pgx.ReadCommitted, wait); err != nil {
		return classify("claim key", err, undone)
	}
	err := x.tx.Rollback(ctx)
	x.tx = nil
	return classify("claim key", err, undone)
}

// Finish runs fn and completes the owner's key in one transaction. The lease
// may be renewed meanwhile. When the owner has lost the key by then, or has
// finished it before, fn does not run, or its writes are rolled back.
func (s *Store) Finish(ctx context.Context, owner onlyonce.Owner, fn onlyonce.TxFunc[pgx.Tx]) (onlyonce.Settled, error) {
	var none onlyonce.Settled
	x, err := s.session(ctx)
	if err != nil {
		return none, classify("finish key", err, undone)
	}
	defer x.close(ctx)
	var state int16
	var expires *time.Time
	own := s.owned(s.sql.ownedKey, owner)
	own.dest = []any{&state, &expires}
	if err := x.begin(ctx, s.cfg.Isolation, own); err != nil {
		return none, classify("begin transaction", err, undone)
	}
	switch {
	case !own.found || state == failedRetryable:
		return none, nil
	case state == completed:
		return onlyonce.Settled{Held: true, ExpiresAt: expires.UTC()}, nil
	}
	answer, err := run(ctx, x, fn)
	if err != nil {
		return x.failed(ctx, owner, err)
	}
	if answer == nil {
		return none, nil
	}
	return x.settle(ctx, owner, s.finishing(owner, *answer))
}

// failed looks whether a handler failed only because an earlier Finish of the
// same owner, whose reply was lost, has come to its commit meanwhile: what it
// wrote is then there already.
func (x *session) failed(ctx context.Context, owner onlyonce.Owner, failure error) (onlyonce.Settled, error) {
	rec, err := x.s.read(context.WithoutCancel(ctx), x, owner.Key)
	if settled := settledBefore(rec, owner); err == nil && settled.Held {
		return settled, nil
	}
	return onlyonce.Settled{}, failure
}

// run runs a handler, whose answer is nil where there is none.
func run[T any](ctx context.Context, x *session, fn func(context.Context, pgx.Tx) (*T, error)) (*T, error) {
	tx := guardtx.New(x.tx)
	defer tx.End()
	answer, err := fn(ctx, tx)
	switch {
	case !x.alive(): // also when it failed: a rollback undoes nothing then
		return nil, &onlyonce.Error{
			Code: onlyonce.CodeTxEnded, Op: "run transaction", Err: unrepeatable(err),
			Hint: "the handler ended the transaction, and what it wrote may stand: only the store may commit or roll back",
		}
	case err != nil && conflict(err):
		return nil, classify("run transaction", err, undone)
	case err != nil || answer == nil:
		return nil, err
	}
	return answer, nil
}

// unrepeatable is a handler's error behind a transaction that it has ended: nobody may
// take it for one after which all of it is done again.
func unrepeatable(err error) error {
	if errors.Is(err, onlyonce.ErrConflict) || errors.Is(err, onlyonce.ErrUncertain) || (err != nil && conflict(err)) {
		return errors.New(err.Error())
	}
	return err
}

// completion completes a claim: by its row, or by writing that.
func (x *session) completion(rec onlyonce.Record, answer onlyonce.Answer) *completion {
	s := x.s
	if x.promised == nil {
		return s.finishing(rec.Owner(), answer)
	}
	status, header, body := columnsOf(answer)
	c := &completion{stmt: &stmt{
		sql: s.sql.insertAnswer, args: s.rowArgs(*x.promised, rec.Fence, rec.CreatedAt, status, header, body),
	}}
	c.dest = []any{&c.completedAt, &c.expiresAt}
	return c
}

// settle completes and commits in one round trip. A completion that finds
// nothing to complete fails, which keeps COMMIT from running.
func (x *session) settle(ctx context.Context, owner onlyonce.Owner, done *completion) (onlyonce.Settled, error) {
	err := x.commit(ctx, done.stmt)
	if err == nil {
		return done.settled(), nil
	}
	if done.found || !pgerr.HasState(err, pgerr.Division) {
		return onlyonce.Settled{}, classify("commit transaction", err, committing)
	}
	rec, err := x.s.read(ctx, x, owner.Key)
	return settledBefore(rec, owner), err
}

// CompleteTx completes the owner's key in the caller's transaction. Nothing is
// stored before that commits; whoever takes the key over meanwhile waits, and
// then finds it completed. In repeatable read and serializable a takeover or
// renewal since the transaction's snapshot is ErrConflict: repeat all of it. When the
// owner has completed the key before, Settled.Earlier is set and Held is not.
func (s *Store) CompleteTx(ctx context.Context, tx pgx.Tx, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	f, err := s.learn(ctx, tx)
	if err != nil {
		return onlyonce.Settled{}, classify("complete key", err, undone)
	}
	c := s.completion(owner, answer)
	if err := c.read(tx.QueryRow(ctx, c.sql.in(f.form), c.args...)); err != nil {
		s.outdated(err)
		return onlyonce.Settled{}, classify("complete key", err, undone)
	}
	if c.found {
		return c.settled(), nil
	}
	row := &keyRow{}
	st := s.readStmt(owner.Key.Digest(), row)
	if err := st.read(tx.QueryRow(ctx, st.sql.in(f.form), st.args...)); err != nil {
		return onlyonce.Settled{}, classify("read key", err, undone)
	}
	rec, err := row.found(st, owner.Key)
	return earlier(settledBefore(rec, owner)), err
}

// earlier is what CompleteTx says of a key that its owner has completed before: what
// this transaction has written is there already.
func earlier(before onlyonce.Settled) onlyonce.Settled {
	return onlyonce.Settled{Earlier: before.Held, ExpiresAt: before.ExpiresAt}
}
