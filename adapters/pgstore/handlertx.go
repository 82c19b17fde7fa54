package pgstore

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// handlerTx is the transaction as a handler sees it: it can do anything but end
// it, and nothing once the handler has returned, when the connection is
// somebody else's. Begin makes savepoints, as usual.
type handlerTx struct {
	pgx.Tx
	// over is shared with the savepoints in it.
	over *atomic.Bool
}

func newHandlerTx(tx pgx.Tx) *handlerTx { return &handlerTx{tx, &atomic.Bool{}} }

func (t *handlerTx) end() { t.over.Store(true) }

func (t *handlerTx) usable() error {
	if t.over.Load() {
		return pgx.ErrTxClosed
	}
	return nil
}

// Commit refuses: the store commits.
func (t *handlerTx) Commit(context.Context) error { return errLibraryCommits() }

// Rollback refuses: returning an error from the handler rolls back.
func (t *handlerTx) Rollback(context.Context) error { return errLibraryCommits() }

// Begin makes a savepoint.
func (t *handlerTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &savepoint{handlerTx{tx, t.over}}, nil
}

// savepoint is a transaction in a handler's transaction: it is the handler's to
// end, and of no use once the handler has returned, ended or not.
type savepoint struct{ handlerTx }

// Commit releases the savepoint.
func (t *savepoint) Commit(ctx context.Context) error {
	if err := t.usable(); err != nil {
		return err
	}
	return t.Tx.Commit(ctx)
}

// Rollback undoes what was done since the savepoint.
func (t *savepoint) Rollback(ctx context.Context) error {
	if err := t.usable(); err != nil {
		return err
	}
	return t.Tx.Rollback(ctx)
}

// Exec is pgx.Tx's.
func (t *handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.usable(); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.Tx.Exec(ctx, sql, args...)
}

// Query is pgx.Tx's.
func (t *handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	return t.Tx.Query(ctx, sql, args...)
}

// QueryRow is pgx.Tx's.
func (t *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.usable(); err != nil {
		return errRow{err}
	}
	return t.Tx.QueryRow(ctx, sql, args...)
}

// SendBatch is pgx.Tx's.
func (t *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if err := t.usable(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return t.Tx.SendBatch(ctx, b)
}

// CopyFrom is pgx.Tx's.
func (t *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.usable(); err != nil {
		return 0, err
	}
	return t.Tx.CopyFrom(ctx, table, columns, src)
}

// Prepare is pgx.Tx's.
func (t *handlerTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	return t.Tx.Prepare(ctx, name, sql)
}

// errRow is a row that could not be asked for.
type errRow struct{ err error }

func (r errRow) Scan(...any) error { return r.err }
