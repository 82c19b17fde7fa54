package keystore

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
)

// portablePostgres is keys in an engine that speaks PostgreSQL's protocol and is
// another. Its URL is PostgreSQL's, with +portable in the scheme; the parameter schema
// is portable.Config.Schema.
type portablePostgres struct{ postgres }

func (b portablePostgres) connect(ctx context.Context, url string) (*pgxpool.Pool, string, error) {
	return b.postgres.connect(ctx, "postgres"+strings.TrimPrefix(url, "postgres+portable"))
}

func (b portablePostgres) open(ctx context.Context, url string) (*Store, error) {
	pool, schema, err := b.connect(ctx, url)
	if err != nil {
		return nil, err
	}
	s, err := portable.New(pool, portable.Config{Schema: schema})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &Store{Store: s, close: func() error { pool.Close(); return nil }}, nil
}

func (portablePostgres) files() fs.FS { return portable.Migrations() }

func (b portablePostgres) migrate(ctx context.Context, url string) error {
	pool, schema, err := b.connect(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	s, err := portable.New(pool, portable.Config{Schema: schema})
	if err != nil {
		return err
	}
	return s.Migrate(ctx)
}

// undefinedTable is what such engines say of a table that is not there; their
// catalogues differ.
const undefinedTable = "42P01"

// applied knows versions alone: the table does not note when.
func (b portablePostgres) applied(ctx context.Context, url string) (map[int]time.Time, error) {
	pool, schema, err := b.connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	applied := map[int]time.Time{}
	rows, err := pool.Query(ctx, `SELECT version FROM `+table(schema, "onlyonce_portable_schema"))
	if err == nil {
		var version int
		_, err = pgx.ForEachRow(rows, []any{&version}, func() error {
			for v := 1; v <= version; v++ {
				applied[v] = time.Time{}
			}
			return nil
		})
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == undefinedTable {
		return map[int]time.Time{}, nil
	}
	return applied, failed("read migrations", err)
}
