package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// querier runs statements: a connection, each in a transaction of its own, or a
// transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// conflictTries bounds how often a write of ours that met another one is tried.
const conflictTries = 10

// repeat runs fn again while it ends in a conflict, after a pause that is random, so
// that two that met do not meet again, and longer each time (rule C10). What waited
// for a lock until it timed out has waited enough.
func (s *Store) repeat(ctx context.Context, fn func() error) error {
	longest := 2 * time.Millisecond
	for try := 1; ; try++ {
		err := fn()
		if !errors.Is(err, onlyonce.ErrConflict) || lockTimeout(err) || try == conflictTries || !wait(ctx, rand.N(longest)) {
			return err
		}
		longest = min(2*longest, 100*time.Millisecond)
	}
}

// wait returns false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// acquire takes a connection out of the pool. Its errors say that nothing was sent.
func (s *Store) acquire(ctx context.Context) (*sql.Conn, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, noConnection(ctx, err)
	}
	return conn, nil
}

// staleTries bounds how often another connection is taken for one that turns out to
// be closed before anything was sent.
const staleTries = 3

// single runs fn on a connection without a transaction: each statement is one.
func (s *Store) single(ctx context.Context, op string, f fate, fn func(q querier) error) error {
	return s.repeat(ctx, func() (err error) {
		for range staleTries {
			var conn *sql.Conn
			if conn, err = s.acquire(ctx); err != nil {
				break
			}
			err = fn(conn)
			_ = conn.Close() // gives it back
			if !errors.Is(err, driver.ErrBadConn) {
				break
			}
		}
		return classify(op, err, f)
	})
}

// inTx runs fn in a READ COMMITTED transaction and commits it.
func (s *Store) inTx(ctx context.Context, op string, fn func(q querier) error) error {
	return s.repeat(ctx, func() error {
		l, err := s.line(ctx)
		if err != nil {
			return classify(op, err, undone)
		}
		defer l.close(ctx)
		if err := l.begin(ctx, sql.LevelReadCommitted); err != nil {
			return classify(op, err, undone)
		}
		if err := fn(l.tx); err != nil {
			return classify(op, err, undone)
		}
		return l.commit(op)
	})
}

// line is one connection with at most one transaction at a time, and at most one
// key's lock.
type line struct {
	s    *Store
	conn *sql.Conn
	tx   *sql.Tx // nil: none is open
	end  context.CancelFunc
	lock string // empty: none is held
}

func (s *Store) line(ctx context.Context) (*line, error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &line{s: s, conn: conn}, nil
}

// begin begins a transaction. Its own context does not end with the caller's: what
// runs in it does, and then close rolls back. So nothing ends a transaction behind
// our back.
func (l *line) begin(ctx context.Context, isolation sql.IsolationLevel) error {
	if isolation == sql.LevelReadCommitted && l.s.at.readCommitted() {
		isolation = sql.LevelDefault // saves a round trip
	}
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	tx, err := l.conn.BeginTx(own, &sql.TxOptions{Isolation: isolation})
	if !stop() && err == nil {
		_ = tx.Rollback() // its context has ended
		err = ctx.Err()
	}
	if err != nil {
		end()
		return err
	}
	l.tx, l.end = tx, end
	return nil
}

// commit ends the transaction. Its error is classified. A server that refuses a COMMIT
// may leave the transaction open, and would take what is written next for a part of it:
// unless it says that it has rolled back, the connection is closed.
func (l *line) commit(op string) error {
	err := l.tx.Commit()
	l.end()
	l.tx = nil
	if err != nil && !rolledBack(err) {
		l.discard()
	}
	return classify(op, err, committing)
}

// rollback ends the transaction, if one is open. When that fails the connection is
// closed, and the server rolls back.
func (l *line) rollback() {
	if l.tx == nil {
		return
	}
	if err := l.tx.Rollback(); err != nil { // also when a handler has tried to end it, with whatever success
		l.discard()
	}
	l.end()
	l.tx = nil
}

// take takes a key's lock, and waits for it that long; false: another session has
// it. In a Galera cluster only sessions of the same node see it.
func (l *line) take(ctx context.Context, name string, patience time.Duration) (bool, error) {
	if !l.s.at.locks() {
		return true, nil
	}
	var got sql.NullInt64
	if err := l.conn.QueryRowContext(ctx, `SELECT GET_LOCK(?, ?)`, name, seconds(patience)).Scan(&got); err != nil {
		return false, err
	}
	if got.Int64 != 1 {
		return false, nil
	}
	l.lock = name
	return true, nil
}

// farewell bounds how long a lock may take to be given up. Then its connection is
// closed, and the server frees it.
const farewell = 5 * time.Second

// close rolls back what is open, frees the lock and gives the connection back. It is
// deferred, so that it runs on every way out.
func (l *line) close(ctx context.Context) {
	l.rollback()
	if l.lock != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		if _, err := l.conn.ExecContext(ctx, `SELECT RELEASE_LOCK(?)`, l.lock); err != nil {
			l.discard()
		}
	}
	_ = l.conn.Close()
}

// discard closes the connection instead of giving it back.
func (l *line) discard() {
	_ = l.conn.Raw(func(any) error { return driver.ErrBadConn })
}

// told runs a guarded UPDATE and gives the number that it passed through
// LAST_INSERT_ID; 0: no row was as it should be.
func told(ctx context.Context, q querier, query string, args ...any) (int64, error) {
	res, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
}

// count runs an INSERT or DELETE and counts rows.
func count(ctx context.Context, q querier, query string, args ...any) (int64, error) {
	res, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// exec runs a statement whose reply says nothing more.
func exec(ctx context.Context, q querier, query string, args ...any) error {
	_, err := q.ExecContext(ctx, query, args...)
	return err
}
