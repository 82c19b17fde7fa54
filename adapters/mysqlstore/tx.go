package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Atomic claims, runs fn and completes in one transaction. A duplicate, here or in
// another process, is busy at once: the transaction's session has the key's lock. In
// a Galera cluster a duplicate on another node runs as well, and all but one are
// rolled back at their commit: that is ErrConflict.
//
// Whatever way fn comes back, nothing but an answer is committed. fn must return
// every error of a statement: behind a deadlock the server has rolled back
// everything and commits the next statement by itself. It must not end the
// transaction, nor run DDL, which commits it. Where the store finds, behind an answer,
// an error or a panic, that the transaction is not its own any more it returns
// ErrTxEnded. It cannot tell where the connection is lost too, nor a deadlock that fn
// returns from one before it that fn has ignored: that is ErrConflict.
//
// While fn runs it holds one connection, so fn must not use the Store for anything
// but CompleteTx on its own tx when the pool has one connection only. A crash leaves
// nothing.
func (s *Store) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[*sql.Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	var none onlyonce.Settled
	if err := errors.Join(req.Validate(), req.ValidateAtomic(), s.refuse(req)); err != nil {
		return onlyonce.Claim{}, none, err
	}
	d := req.Key.Digest()
	if s.open.Has(d) { // without a connection, of which there may be one
		return onlyonce.Claim{Verdict: onlyonce.Busy}, none, nil
	}
	l, err := s.line(ctx)
	if err != nil {
		return onlyonce.Claim{}, none, classify("claim key", err, undone)
	}
	defer l.close(ctx)
	by := &inside{line: l}
	if s.open.WasLost(req.Attempt) {
		// Its former session, whose COMMIT was not answered, may still be at it.
		by.patience = lostPatience
	}
	claim, err := s.contend(ctx, req, by)
	if err != nil || !claim.Verdict.Owns() {
		if by.patience > 0 {
			s.open.Lose(req.Attempt)
		}
		return claim, none, err
	}
	if !s.open.Enter(d) {
		return onlyonce.Claim{Verdict: onlyonce.Busy}, none, nil // this attempt, twice at once
	}
	defer s.open.Leave(d)
	settled, err := s.atomic(ctx, by, &claim, fn)
	if errors.Is(err, onlyonce.ErrUncertain) {
		s.open.Lose(req.Attempt)
	}
	return claim, settled, err
}

// lostPatience is how long an attempt waits for its own former session. The server
// ends that as soon as it notices that nobody is there.
const lostPatience = 10 * time.Second

// atomic runs fn behind a claim, and completes.
func (s *Store) atomic(ctx context.Context, by *inside, claim *onlyonce.Claim, fn onlyonce.TxFunc[*sql.Tx]) (onlyonce.Settled, error) {
	const op = "run transaction"
	var none onlyonce.Settled
	if by.tx == nil { // this attempt's own claim, committed before
		if err := by.guarded(ctx); err != nil {
			return none, classify(op, err, undone)
		}
	}
	answer, err := run(ctx, by.line, fn)
	if err != nil || answer == nil {
		return none, err
	}
	done, err := s.completeTx(ctx, by.tx, claim.Record.Owner(), *answer)
	switch {
	case err != nil:
		return none, classify(op, ended(err), undone)
	case !done.fresh && by.wrote:
		return none, txEnded(nil) // nobody else could change the row that it wrote
	case !done.fresh:
		return done.Settled, nil
	}
	settled := done.Settled
	if err := by.commit(op); err != nil {
		return none, err
	}
	rec := &claim.Record
	rec.State, rec.Answer, rec.Holds = onlyonce.Completed, answer, false
	rec.ExpiresAt, rec.CompletedAt = settled.ExpiresAt, settled.ExpiresAt.Add(-rec.Retention)
	return settled, nil
}

// inside contends in a transaction that stays open behind the claim.
type inside struct {
	*line
	// patience is how long to wait for the key's lock.
	patience time.Duration
	// wrote: the open transaction has written the claim, so that nobody else can
	// change the row before it ends.
	wrote bool
}

func (x *inside) read(ctx context.Context, key onlyonce.Key, resource string) (at found, err error) {
	at, err = x.s.lookBy(ctx, x.conn, key, resource)
	at.free = true // write asks for the lock
	return at, classify("read key", err, undone)
}

// write takes the key's lock, begins a transaction and writes the claim.
func (x *inside) write(ctx context.Context, c *claiming) (bool, error) {
	const op = "claim key"
	if x.lock == "" {
		got, err := x.take(ctx, x.s.lockName(c.req.Key.Digest()), x.patience)
		if c.locked = !got; err != nil || !got {
			return false, classify(op, err, undone)
		}
	}
	err := x.s.repeat(ctx, func() error {
		if err := x.begin(ctx, x.s.cfg.Isolation); err != nil {
			return classify(op, err, undone)
		}
		won, err := c.run(ctx, x.tx)
		if won && err == nil {
			err = exec(ctx, x.tx, setGuard)
		}
		if x.wrote = won && err == nil; !x.wrote {
			x.rollback()
		}
		return classify(op, err, undone)
	})
	return x.wrote, lost(err)
}

// run runs a handler in a guarded transaction. Its error is its own, unless a
// concurrent transaction is the cause, or the transaction has ended by itself: then a
// rollback undoes nothing, whatever way the handler has come back.
func run[T any](ctx context.Context, l *line, fn func(context.Context, *sql.Tx) (T, error)) (result T, err error) {
	const op = "run transaction"
	back := false
	defer func() {
		if back || !errors.Is(l.test(ctx), onlyonce.ErrTxEnded) {
			return // else a panic goes on
		}
		if v := recover(); v != nil {
			err = txEnded(fmt.Errorf("the handler panicked: %v", v))
		}
	}()
	got, err := fn(ctx, l.tx)
	back = true
	test := l.test(ctx)
	switch {
	case errors.Is(test, onlyonce.ErrTxEnded) && !l.s.at.undoes(err):
		return result, txEnded(err)
	case err != nil && conflict(err):
		return result, classify(op, err, undone)
	case err != nil:
		return result, err
	case ctx.Err() != nil:
		return result, fmt.Errorf("%s: %w", op, ctx.Err())
	case test != nil:
		return result, classify(op, test, undone)
	}
	return got, nil
}

// A savepoint tells whether a transaction is still the one that was begun. After a
// deadlock, DDL, or a COMMIT that a handler sent, it is gone.
const (
	setGuard  = `SAVEPOINT onlyonce`
	testGuard = `RELEASE SAVEPOINT onlyonce`
	// Outside of a transaction a savepoint is gone at once.
	setOpen  = `SAVEPOINT onlyonce_open`
	testOpen = `RELEASE SAVEPOINT onlyonce_open`
)

// test tells by the guard whether the transaction is still open; also when the
// handler's context has ended.
func (l *line) test(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	return ended(exec(ctx, l.tx, testGuard))
}

// ended tells a transaction that is over from one that failed.
func ended(err error) error {
	if errors.Is(err, sql.ErrTxDone) || number(err) == numNoSavepoint {
		return txEnded(err)
	}
	return err
}

// txEnded is the error of a transaction that is over. That the handler speaks of a
// conflict must not have it repeated: something stands.
func txEnded(cause error) error {
	if errors.Is(cause, onlyonce.ErrConflict) || errors.Is(cause, onlyonce.ErrUncertain) {
		cause = errors.New(cause.Error())
	}
	return &onlyonce.Error{
		Code: onlyonce.CodeTxEnded, Op: "run transaction", Err: cause,
		Hint: "the handler ended the transaction, or the server did and the handler ignored the error of a statement; what it wrote may stand: return every error, and leave the end to the store",
	}
}

// Finish runs fn and completes the owner's key in one transaction; see Atomic for
// what fn must not do. The lease may be renewed meanwhile. When the owner has lost
// the key by then, or has finished it before, fn does not run, or its writes are
// rolled back.
func (s *Store) Finish(ctx context.Context, owner onlyonce.Owner, fn onlyonce.TxFunc[*sql.Tx]) (onlyonce.Settled, error) {
	const op = "finish key"
	var none onlyonce.Settled
	l, err := s.line(ctx)
	if err != nil {
		return none, classify(op, err, undone)
	}
	defer l.close(ctx)
	row, err := s.readOwned(ctx, l.conn, ownedKey, owner)
	if err != nil || row == nil || row.State == onlyonce.Completed || row.State == onlyonce.FailedRetryable {
		return settledBefore(row), classify(op, err, undone)
	}
	if err := l.guarded(ctx); err != nil {
		return none, classify(op, err, undone)
	}
	answer, err := run(ctx, l, fn)
	if err != nil {
		return s.finishFailed(ctx, l, owner, err)
	}
	if answer == nil {
		return none, nil
	}
	done, err := s.completeTx(ctx, l.tx, owner, *answer)
	switch {
	case err != nil:
		return none, classify(op, err, undone)
	case !done.fresh: // lost, or an earlier Finish has come to its commit meanwhile
		return done.Settled, nil
	}
	if err := l.commit(op); err != nil {
		return none, err
	}
	return done.Settled, nil
}

// finishFailed looks whether a handler failed only because an earlier Finish of the
// same owner, whose reply was lost, has come to its commit meanwhile: what it wrote is
// then there already.
func (s *Store) finishFailed(ctx context.Context, l *line, owner onlyonce.Owner, failure error) (onlyonce.Settled, error) {
	if errors.Is(failure, onlyonce.ErrTxEnded) {
		return onlyonce.Settled{}, failure
	}
	l.rollback()
	row, err := s.readOwned(context.WithoutCancel(ctx), l.conn, ownedKey, owner)
	if settled := settledBefore(row); err == nil && settled.Held {
		return settled, nil
	}
	return onlyonce.Settled{}, failure
}

// guarded begins a transaction that run can test.
func (l *line) guarded(ctx context.Context) error {
	if err := l.begin(ctx, l.s.cfg.Isolation); err != nil {
		return err
	}
	return exec(ctx, l.tx, setGuard)
}

// CompleteTx completes the owner's key in the caller's transaction, of whatever
// isolation: the row is written, and where need be read, as it is now, not as the
// transaction's snapshot has it. Nothing is stored before that commits; whoever takes
// the key over meanwhile waits, and then finds it completed. In a Galera cluster a
// takeover on another node does not wait, and the caller's commit fails (1213). An
// error of the caller's COMMIT must be taken for uncertain and all of it be repeated,
// unless the server says that it was rolled back. In MariaDB with
// innodb_snapshot_isolation a takeover or renewal since the snapshot is ErrConflict.
// When the owner has completed the key before, Settled.Earlier is set and Held is not.
// A transaction that is over already, as behind a deadlock whose error was ignored, is
// ErrTxEnded, and nothing is completed. It takes two round trips more than Complete.
func (s *Store) CompleteTx(ctx context.Context, tx *sql.Tx, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	const op = "complete key"
	err := exec(ctx, tx, setOpen)
	if err == nil {
		err = exec(ctx, tx, testOpen)
	}
	if err != nil {
		return onlyonce.Settled{}, classify(op, ended(err), undone)
	}
	done, err := s.completeTx(ctx, tx, owner, answer)
	if err != nil {
		return onlyonce.Settled{}, classify(op, err, undone)
	}
	if done.Held && !done.fresh {
		return onlyonce.Settled{Earlier: true, ExpiresAt: done.ExpiresAt}, nil
	}
	return done.Settled, nil
}
