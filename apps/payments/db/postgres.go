package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
)

// postgresDriver has one pool for keys and business rows.
type postgresDriver struct {
	pool  *pgxpool.Pool
	store *pgstore.Store
}

func openPostgres(ctx context.Context, url string, migrate bool) (*Database, error) {
	pool, err := connectPostgres(ctx, url)
	if err != nil {
		return nil, err
	}
	d, err := newPostgres(ctx, pool, migrate)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return d, nil
}

// connectPostgres makes a pool, and reaches the server once.
func connectPostgres(ctx context.Context, url string) (*pgxpool.Pool, error) {
	if _, parameters, _ := strings.Cut(url, "?"); slices.ContainsFunc(strings.Split(parameters, "&"), func(p string) bool { return strings.HasPrefix(p, "schema=") }) {
		return nil, storeError("URL names a schema, which is for keys alone: the payments service's own databases (sqlite:PATH or postgres://…) " +
			"have their tables where the connection has them, search_path=NAME")
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		// The error may hold the password.
		return nil, storeError("URL cannot be read; use postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	if err := pool.Ping(ctx); err != nil {
		c := pool.Config().ConnConfig
		pool.Close()
		return nil, &onlyonce.Error{
			Code: onlyonce.CodeStoreUnavailable, Op: "open store", Err: err,
			Hint: fmt.Sprintf("PostgreSQL does not answer at %s:%d", c.Host, c.Port),
		}
	}
	return pool, nil
}

func newPostgres(ctx context.Context, pool *pgxpool.Pool, migrate bool) (*Database, error) {
	store, err := pgstore.New(pool, pgstore.Config{})
	if err != nil {
		return nil, err
	}
	if migrate {
		if err := refuseHeldPostgres(ctx, pool); err != nil {
			return nil, err
		}
		if err := store.Migrate(ctx); err != nil {
			return nil, err
		}
	}
	return &Database{keys: postgresKeys(store), driver: postgresDriver{pool: pool, store: store}}, nil
}

func (d postgresDriver) begin(ctx context.Context, write bool) (transaction, error) {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	if write {
		options = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	}
	tx, err := d.pool.BeginTx(ctx, options)
	if err != nil {
		return transaction{}, err
	}
	return transaction{
		tx:       FromPgx(tx),
		commit:   tx.Commit,
		rollback: func() { _ = tx.Rollback(context.WithoutCancel(ctx)) },
	}, nil
}

func (d postgresDriver) again(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "40001" || e.Code == "40P01") // serialization failure, deadlock
}

// migrationLock keeps two processes from migrating at once.
const migrationLock = 0x6f6e6c796f6e6365

func (d postgresDriver) script(ctx context.Context, fn func(tx Tx, run func(string) error) error) error {
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
		return err
	}
	run := func(statements string) error {
		_, err := tx.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol)
		return err
	}
	if err := fn(FromPgx(tx), run); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func (d postgresDriver) ping(ctx context.Context) error {
	var one int
	return d.pool.QueryRow(ctx, "SELECT 1 FROM "+versionTable).Scan(&one)
}

func (postgresDriver) tables(name string) string {
	return "SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('" + name + "')"
}

func (postgresDriver) clock() string {
	return "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
}

func (d postgresDriver) migrations() (fs.FS, error) {
	return fs.Sub(migrationFiles, "migrations/postgres")
}
func (d postgresDriver) keyMigrations() fs.FS { return pgstore.Migrations() }

func (d postgresDriver) close() error {
	err := d.store.Close()
	d.pool.Close()
	return err
}
