// Package guardtx gives handlers a transaction that they cannot end.
package guardtx

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Tx is the transaction as a handler sees it: it can do anything but end
// it, and nothing once the handler has returned, when the connection is
// somebody else's. Begin makes savepoints, as usual.
type Tx struct {
	pgx.Tx
	// over is shared with the savepoints in it.
	over *atomic.Bool
}

// New makes a Tx of an open transaction.
func New(tx pgx.Tx) *Tx { return &Tx{tx, &atomic.Bool{}} }

// End says that the handler has returned: everything fails from here on, in
// savepoints too.
func (t *Tx) End() { t.over.Store(true) }

func (t *Tx) usable() error {
	if t.over.Load() {
		return pgx.ErrTxClosed
	}
	return nil
}

// Commit refuses: the store commits.
func (t *Tx) Commit(context.Context) error { return errLibraryCommits() }

// Rollback refuses: returning an error from the handler rolls back.
func (t *Tx) Rollback(context.Context) error { return errLibraryCommits() }

// Begin makes a savepoint.
func (t *Tx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &savepoint{Tx{tx, t.over}}, nil
}

// savepoint is a transaction in a handler's transaction: it is the handler's to
// end, and of no use once the handler has returned, ended or not.
type savepoint struct{ Tx }

// Commit releases the savepoint.
func (t *savepoint) Commit(ctx context.Context) error {
	if err := t.usable(); err != nil {
		return err
	}
	return t.Tx.Tx.Commit(ctx)
}

// Rollback undoes what was done since the savepoint.
func (t *savepoint) Rollback(ctx context.Context) error {
	if err := t.usable(); err != nil {
		return err
	}
	return t.Tx.Tx.Rollback(ctx)
}

// Exec is pgx.Tx's.
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.usable(); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.Tx.Exec(ctx, sql, args...)
}

// Query is pgx.Tx's.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	return t.Tx.Query(ctx, sql, args...)
}

// QueryRow is pgx.Tx's.
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.usable(); err != nil {
		return errRow{err}
	}
	return t.Tx.QueryRow(ctx, sql, args...)
}

// SendBatch is pgx.Tx's.
func (t *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.usable(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return t.Tx.SendBatch(ctx, b)
}

// CopyFrom is pgx.Tx's.
func (t *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.usable(); err != nil {
		return 0, err
	}
	return t.Tx.CopyFrom(ctx, table, columns, src)
}

// Prepare is pgx.Tx's.
func (t *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	return t.Tx.Prepare(ctx, name, sql)
}

// errRow is a row that could not be asked for.
type errRow struct{ err error }

func (r errRow) Scan(...any) error { return r.err }

// errLibraryCommits is what a handler gets that tries to end its transaction.
func errLibraryCommits() error {
	return errors.New("the store commits this transaction when the handler returns an answer, and rolls it back otherwise")
}
