package sqlitestore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// txn is a write transaction, begun IMMEDIATE: it holds the file's write lock.
// Its end is definite. The caller's context ends the wait for the lock, but
// not the store's own statements and not the commit; so a context that ends
// leaves no doubt about what was done.
//
// While it is sealed, SQLite refuses every commit on its connection. SQLite
// rolls a transaction back by itself on some errors (disk full, interrupted),
// after which statements would commit one by one; a handler that ignored such
// an error, or that commits by itself, must not get its writes in that way.
type txn struct {
	*sql.Tx
	s      *Store
	conn   *sql.Conn
	cancel context.CancelFunc
}

// begin waits for the writing connection and for the file's write lock. When
// ctx ends first, or the lock is not free in time, nothing is held.
func (s *Store) begin(ctx context.Context) (*txn, error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	t, err := s.beginInTurn(ctx)
	if err != nil {
		<-s.turn
		return nil, err
	}
	return t, nil
}

func (s *Store) beginInTurn(ctx context.Context) (*txn, error) {
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return nil, err
	}
	// The transaction's own context ends with ctx only until it has begun.
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	tx, err := conn.BeginTx(own, nil)
	if !stop() {
		if err == nil {
			_ = tx.Rollback()
		}
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, errors.Join(err, conn.Close())
	}
	return &txn{Tx: tx, s: s, conn: conn, cancel: cancel}, nil
}

// querier runs the store's own statements in the transaction.
func (t *txn) querier() querier { return preparedTx{t.Tx, t.s.writes} }

func (t *txn) seal(on bool) { t.s.sealed.Store(on) }

// commit commits; the transaction must still be ended. An error of another
// kind than "refused" closes the connection, whose state is then not known.
func (t *txn) commit() error {
	t.seal(false)
	err := t.Commit()
	if err != nil {
		t.discard()
	}
	return err
}

// end rolls back what is not committed and gives the connection back. It is
// deferred, so that it runs on every way out.
func (t *txn) end() {
	if err := t.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		t.discard()
	}
	t.seal(false)
	t.cancel()
	_ = t.conn.Close()
	<-t.s.turn
}

// discard closes the connection instead of giving it back, which rolls back
// whatever SQLite still holds open on it.
func (t *txn) discard() {
	_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
}

// write runs fn in a transaction and commits it. fn's context does not end
// with the caller's. Errors are classified: CodeUncertain only when the commit
// may have reached the disk, everything else means that nothing happened.
func (s *Store) write(ctx context.Context, op string, fn func(ctx context.Context, q querier) error) error {
	t, err := s.begin(ctx)
	if err != nil {
		return s.fail(op, err)
	}
	defer t.end()
	if err := fn(context.WithoutCancel(ctx), t.querier()); err != nil {
		return s.fail(op, err)
	}
	if err := t.commit(); err != nil {
		return s.failCommit(op, err)
	}
	return nil
}
