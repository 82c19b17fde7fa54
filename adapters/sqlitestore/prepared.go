package sqlitestore

import (
	"context"
	"database/sql"
	"fmt"
)

// querier runs statements: a pool, a transaction, or either with statements
// prepared ahead.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// prepared are statements of one pool, prepared once. Compiling a statement
// costs more than running it.
type prepared map[string]*sql.Stmt

func prepareAll(ctx context.Context, db *sql.DB, queries ...string) (prepared, error) {
	p := prepared{}
	for _, query := range queries {
		stmt, err := db.PrepareContext(ctx, query) //nolint:sqlclosecheck // closed with its pool
		if err != nil {
			return nil, fmt.Errorf("prepare statement: %w", err)
		}
		p[query] = stmt
	}
	return p, nil
}

// prepare prepares what requests need.
func (s *Store) prepare(ctx context.Context) error {
	var err error
	s.reads, err = prepareAll(ctx, s.reader, selectKey, selectHolder, selectSteps, selectSetting, anyDue)
	if err != nil {
		return s.fail("open database", err)
	}
	s.writes, err = prepareAll(ctx, s.writer,
		selectKey, selectHolder, insertKey, beginNewLife, resumeKey, renewKey, completeKey, releaseKey, parkKey, ownedState,
		beginStep, endStep, stepState, stepForTx, insertDoneStep)
	if err != nil {
		return s.fail("open database", err)
	}
	return nil
}

// readPool is the read pool with its prepared statements.
func (s *Store) readPool() querier { return preparedPool{s.reader, s.reads} }

type preparedPool struct {
	*sql.DB
	stmts prepared
}

// QueryContext runs a query, prepared if it can be.
func (p preparedPool) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt, ok := p.stmts[query]; ok {
		return stmt.QueryContext(ctx, args...)
	}
	return p.DB.QueryContext(ctx, query, args...)
}

// QueryRowContext runs a query of one row, prepared if it can be.
func (p preparedPool) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt, ok := p.stmts[query]; ok {
		return stmt.QueryRowContext(ctx, args...)
	}
	return p.DB.QueryRowContext(ctx, query, args...)
}

// preparedTx is a transaction of the writing connection with its prepared
// statements.
type preparedTx struct {
	*sql.Tx
	stmts prepared
}

// ExecContext runs a statement, prepared if it can be.
func (p preparedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if stmt, ok := p.stmts[query]; ok {
		return p.StmtContext(ctx, stmt).ExecContext(ctx, args...) //nolint:sqlclosecheck // closed with its transaction
	}
	return p.Tx.ExecContext(ctx, query, args...)
}

// QueryRowContext runs a query of one row, prepared if it can be.
func (p preparedTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt, ok := p.stmts[query]; ok {
		return p.StmtContext(ctx, stmt).QueryRowContext(ctx, args...) //nolint:sqlclosecheck // closed with its transaction
	}
	return p.Tx.QueryRowContext(ctx, query, args...)
}

// exec runs a guarded statement and tells how many rows it changed.
func exec(ctx context.Context, q querier, query string, args ...any) (int, error) {
	res, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}
