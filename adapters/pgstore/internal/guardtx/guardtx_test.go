package guardtx_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/guardtx"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestMain(m *testing.M) { os.Exit(testserver.Run(m)) }

// begun gives an open transaction, and a function that counts its table's rows.
func begun(t *testing.T) (pgx.Tx, func() int) {
	t.Helper()
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, testserver.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
	tx, err := conn.Begin(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, `CREATE TABLE business (n int)`)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tx, func() (n int) {
		t.Helper()
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM business`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
}

// A handler can do anything but end its transaction.
func TestHandlerCannotEnd(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	open, rows := begun(t)
	tx := guardtx.New(open)
	if tx.Commit(ctx) == nil || tx.Rollback(ctx) == nil {
		t.Error("the handler ended its transaction")
	}
	if _, err := tx.Exec(ctx, `INSERT INTO business VALUES (1)`); err != nil {
		t.Error(err)
	}
	b := &pgx.Batch{}
	b.Queue(`INSERT INTO business VALUES (2)`)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		t.Error(err)
	}
	if n, err := tx.CopyFrom(ctx, pgx.Identifier{"business"}, []string{"n"}, pgx.CopyFromRows([][]any{{3}, {4}})); n != 2 || err != nil {
		t.Error(n, err)
	}
	if _, err := tx.Prepare(ctx, "count", `SELECT count(*) FROM business`); err != nil {
		t.Error(err)
	}
	if r, err := tx.Query(ctx, "count"); err != nil {
		t.Error(err)
	} else if n, err := pgx.CollectExactlyOneRow(r, pgx.RowTo[int]); n != 4 || err != nil {
		t.Error(n, err)
	}
	if n := rows(); n != 4 {
		t.Errorf("%d rows, want 4", n)
	}
}

// Savepoints are the handler's to end.
func TestSavepoints(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	open, rows := begun(t)
	tx := guardtx.New(open)
	failure := errors.New("undo")
	for _, end := range []error{nil, failure} {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO business VALUES (1)`); err != nil {
				return err
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Errorf("savepoint that ends with %v: %v", end, err)
		}
	}
	if n := rows(); n != 1 {
		t.Errorf("%d rows, want the one whose savepoint was released", n)
	}
}

// Once the handler has returned nothing of it does anything any more.
func TestAfterTheHandler(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	open, rows := begun(t)
	tx := guardtx.New(open)
	point, err := tx.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tx.End()
	b := &pgx.Batch{}
	b.Queue(`INSERT INTO business VALUES (1)`)
	for name, late := range map[string]pgx.Tx{"transaction": tx, "savepoint": point} {
		_, execErr := late.Exec(ctx, `INSERT INTO business VALUES (1)`)
		r, queryErr := late.Query(ctx, `SELECT 1`)
		if queryErr == nil {
			r.Close()
		}
		_, beginErr := late.Begin(ctx)
		_, copyErr := late.CopyFrom(ctx, pgx.Identifier{"business"}, []string{"n"}, pgx.CopyFromRows([][]any{{1}}))
		_, prepareErr := late.Prepare(ctx, "late", `SELECT 1`)
		for what, err := range map[string]error{
			"exec": execErr, "query": queryErr, "begin": beginErr, "copy": copyErr, "prepare": prepareErr,
			"row": late.QueryRow(ctx, `SELECT 1`).Scan(new(int)), "batch": late.SendBatch(ctx, b).Close(),
		} {
			if !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("%s of a late %s: %v", what, name, err)
			}
		}
	}
	for what, err := range map[string]error{"commit": point.Commit(ctx), "rollback": point.Rollback(ctx)} {
		if !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("%s of a late savepoint: %v", what, err)
		}
	}
	if n := rows(); n != 0 {
		t.Errorf("%d rows were written late", n)
	}
}
