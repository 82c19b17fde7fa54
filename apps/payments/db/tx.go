package db

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrNoRows is what Row.Scan returns when there is no row.
var ErrNoRows = sql.ErrNoRows

// Tx is a transaction of either database. Arguments stand as ? in a statement,
// which therefore holds no other question mark. A Tx is for one goroutine.
type Tx interface {
	// Exec runs a statement and returns how many rows it changed.
	Exec(ctx context.Context, query string, args ...any) (int64, error)
	// QueryRow runs a statement that gives at most one row.
	QueryRow(ctx context.Context, query string, args ...any) Row
	// Each runs a statement and calls fn for each of its rows. fn must not use
	// the transaction.
	Each(ctx context.Context, query string, args []any, fn func(Row) error) error
}

// Row is one row of a result. Scan returns ErrNoRows when there is none.
type Row interface {
	// Scan reads the columns in their order.
	Scan(dest ...any) error
}

// sqlTx is a Tx on database/sql.
type sqlTx struct{ raw *sql.Tx }

// FromSQL makes a Tx of a transaction on SQLite.
func FromSQL(tx *sql.Tx) Tx { return sqlTx{raw: tx} }

func (t sqlTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := t.raw.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (t sqlTx) QueryRow(ctx context.Context, query string, args ...any) Row {
	return t.raw.QueryRowContext(ctx, query, args...)
}

func (t sqlTx) Each(ctx context.Context, query string, args []any, fn func(Row) error) error {
	rows, err := t.raw.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// pgxTx is a Tx on pgx.
type pgxTx struct{ raw pgx.Tx }

// FromPgx makes a Tx of a transaction on PostgreSQL.
func FromPgx(tx pgx.Tx) Tx { return pgxTx{raw: tx} }

func (t pgxTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := t.raw.Exec(ctx, numbered(query), args...)
	return tag.RowsAffected(), err
}

func (t pgxTx) QueryRow(ctx context.Context, query string, args ...any) Row {
	return pgxRow{t.raw.QueryRow(ctx, numbered(query), args...)}
}

func (t pgxTx) Each(ctx context.Context, query string, args []any, fn func(Row) error) error {
	rows, err := t.raw.Query(ctx, numbered(query), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// pgxRow has database/sql's word for "no row".
type pgxRow struct{ raw pgx.Row }

func (r pgxRow) Scan(dest ...any) error {
	err := r.raw.Scan(dest...)
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNoRows
	}
	return err
}

// numbered turns each ? into $1, $2 and so on.
func numbered(query string) string {
	var b strings.Builder
	n := 0
	for {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		n++
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		query = after
	}
}
