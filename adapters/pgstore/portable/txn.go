package portable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/pgerr"
)

// How often a transaction that has met a conflict is run in all, and the bounds of
// the random pauses between.
const (
	maxTries   = 16
	firstPause = 2 * time.Millisecond
	longPause  = 100 * time.Millisecond
)

// txn is one transaction on one connection.
type txn struct {
	s    *Store
	conn *pgxpool.Conn
	tx   pgx.Tx
	clock
}

// question is a statement that reads: what goes in, and what is done with its rows.
type question struct {
	sql  string
	args []any
	// row reads a row; first is called before, whether there is one or not.
	row   func(pgx.Rows) error
	first func()
}

// errChanged says that a row is not as it was read.
var errChanged = errors.New("somebody changed it meanwhile")

// begin begins a transaction.
func (s *Store) begin(ctx context.Context) (*txn, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, pgerr.NoConnection(ctx, err)
	}
	begin, err := s.beginOn(ctx, conn)
	if err != nil {
		conn.Release()
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: begin})
	if err != nil {
		conn.Release()
		return nil, refusedToBegin(err)
	}
	return &txn{s: s, conn: conn, tx: tx}, nil
}

// refusedToBegin explains an engine that does not know what we begin with.
func refusedToBegin(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch e.Code {
	case "42704", "0A000", "22023", "42601": // no such parameter, not supported, no such value, no such syntax
		return &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "begin transaction", Err: err,
			Hint: "the engine does not begin transactions as it was told: set LockTimeout below 0 where it has no lock_timeout, EngineIsolation where it has but one level",
		}
	default:
		return err
	}
}

// transact runs fn in a transaction and commits it; all of it again, a bounded number
// of times, when a concurrent one stood in the way. fn must do nothing that a
// rollback does not undo, and set its results anew.
func (s *Store) transact(ctx context.Context, op string, fn func(context.Context, *txn) error) error {
	return s.repeat(ctx, op, func() error {
		t, err := s.begin(ctx)
		if err != nil {
			return err
		}
		defer t.close(ctx)
		if err := fn(ctx, t); err != nil {
			return err
		}
		return t.commit(ctx, op)
	})
}

// opened is transact without its commit: it gives the open transaction.
func (s *Store) opened(ctx context.Context, op string, fn func(context.Context, *txn) error) (t *txn, err error) {
	err = s.repeat(ctx, op, func() (err error) {
		if t, err = s.begin(ctx); err != nil {
			return err
		}
		if err = fn(ctx, t); err != nil {
			t.close(ctx)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// repeat runs fn until it meets no conflict. Its errors are classified.
func (s *Store) repeat(ctx context.Context, op string, fn func() error) error {
	for try := 1; ; try++ {
		err := classify(op, fn(), pgerr.Undone)
		if err == nil || !errors.Is(err, onlyonce.ErrConflict) || try == maxTries {
			return err
		}
		if !pause(ctx, try) {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// pause waits for a random time that grows with each try; false: ctx ended first.
func pause(ctx context.Context, try int) bool {
	most := min(firstPause<<min(try, 10), longPause)
	t := time.NewTimer(rand.N(most) + 1)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// classify makes an error one of the store contract's. A row of ours that is there
// already is a conflict, on engines that report it although they were told to do
// nothing.
func classify(op string, err error, f pgerr.Fate) error {
	if errors.Is(err, errChanged) {
		return &onlyonce.Error{Code: onlyonce.CodeConflict, Op: op, Err: err}
	}
	return pgerr.Classify(op, err, f, "onlyonce_portable_keys_pkey", "onlyonce_portable_resources_pkey", "onlyonce_portable_steps_pkey")
}

// rollbackTimeout bounds the farewell to a transaction. One that cannot be rolled
// back in time ends with its connection.
const rollbackTimeout = 5 * time.Second

// close rolls back, unless it was committed, and gives the connection back. It may be
// called twice.
func (t *txn) close(ctx context.Context) {
	if t.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = t.tx.Rollback(ctx) // when it fails the connection is closed, which rolls back
	t.conn.Release()
	t.conn = nil
}

// commit commits. Of its errors those are uncertain behind which the commit may
// stand.
func (t *txn) commit(ctx context.Context, op string) error {
	if t.conn.Conn().IsClosed() {
		return &pgerr.NotSentError{Err: pgconn.ErrConnClosed}
	}
	return classify(op, t.tx.Commit(ctx), pgerr.Committing)
}

// alive tells whether the transaction we began is still the one that is open.
func (t *txn) alive() bool {
	status := t.conn.Conn().PgConn().TxStatus()
	return status == 'T' || status == 'E'
}

// look reads the clock and asks questions, in one round trip. The clock is read
// first, so that a lease is not taken for over which was renewed in between. The
// clock of a transaction stands still, so that only the first look tells the time.
func (t *txn) look(ctx context.Context, qs ...question) error {
	read, err := t.s.ask(ctx, t.tx, qs)
	if err == nil && (t.at.IsZero() || t.s.cfg.OneClock) {
		t.clock = t.s.clock(read)
	}
	return err
}

// sender sends batches: a pool or a transaction.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// read asks questions outside of a transaction, in one round trip, and gives the
// time. What it has read it may read again: a lone statement is a transaction too,
// which may meet a conflict.
func (s *Store) read(ctx context.Context, op string, qs ...question) (now time.Time, err error) {
	err = s.repeat(ctx, op, func() error {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return pgerr.NoConnection(ctx, err)
		}
		defer conn.Release()
		read, err := s.ask(ctx, conn, qs)
		now = s.clock(read).now()
		return err
	})
	return now, err
}

// ask sends the clock's statement and the questions.
func (s *Store) ask(ctx context.Context, to sender, qs []question) (read time.Time, err error) {
	b := &pgx.Batch{}
	b.Queue(s.clockSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&read) })
	for _, q := range qs {
		if err := checkArgs(q.args); err != nil {
			return read, err
		}
		if q.first != nil {
			q.first()
		}
		b.Queue(s.sql(q.sql), q.args...).Query(func(rows pgx.Rows) error {
			defer rows.Close()
			for rows.Next() {
				if err := q.row(rows); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
	err = to.SendBatch(ctx, b).Close()
	return read, err
}

// exec runs a statement that writes and tells how many rows it has changed.
func (t *txn) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	if err := checkArgs(args); err != nil {
		return 0, err
	}
	tag, err := t.tx.Exec(ctx, t.s.sql(sql), args...)
	return tag.RowsAffected(), err
}

// write is a statement that writes.
type write struct {
	sql  string
	args []any
}

// execAll runs statements in one round trip and tells how many rows each has changed.
func (t *txn) execAll(ctx context.Context, writes []write) ([]int64, error) {
	counts := make([]int64, len(writes))
	b := &pgx.Batch{}
	for i, w := range writes {
		b.Queue(t.s.sql(w.sql), w.args...).Exec(func(tag pgconn.CommandTag) error {
			counts[i] = tag.RowsAffected()
			return nil
		})
	}
	err := t.tx.SendBatch(ctx, b).Close()
	return counts, err
}

// must runs a statement that has to change one row: it was read in this transaction.
func (t *txn) must(ctx context.Context, sql string, args ...any) error {
	n, err := t.exec(ctx, sql, args...)
	switch {
	case err != nil:
		return err
	case n == 0:
		return errChanged
	case n > 1:
		return fmt.Errorf("write by primary key: %d rows were changed", n)
	}
	return nil
}
