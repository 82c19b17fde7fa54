package keystore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
)

// postgres is keys in PostgreSQL. The parameter schema of the URL is
// pgstore.Config.Schema; the others are the driver's.
type postgres struct{}

// sweepPages is how much of a table one sweep looks at: the store's own default,
// written down so that Rounds can count.
const sweepPages = 16384

// connect makes a pool, and reaches the server once.
func (postgres) connect(ctx context.Context, text string) (pool *pgxpool.Pool, schema string, err error) {
	text, schema, err = take(text, "schema")
	if err == nil {
		pool, err = pgxpool.New(ctx, text)
	}
	if err != nil {
		return nil, "", postgresURL()
	}
	if err := pool.Ping(ctx); err != nil {
		c := pool.Config().ConnConfig
		pool.Close()
		return nil, "", &onlyonce.Error{
			Code: onlyonce.CodeStoreUnavailable, Op: "open store", Err: err,
			Hint: fmt.Sprintf("%s at %s:%d", postgresRefusal(err), c.Host, c.Port),
		}
	}
	return pool, schema, nil
}

// postgresRefusal is why a connection was not made.
func postgresRefusal(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case "28P01", "28000": // invalid_password, invalid_authorization_specification
			return "authentication failed: check user and password of the URL; PostgreSQL answers"
		case "3D000": // invalid_catalog_name
			return "there is no such database: check the URL's, or create it; PostgreSQL answers"
		}
	}
	return "PostgreSQL does not answer"
}

// postgresURL leaves the cause out: it may hold the password.
func postgresURL() error {
	return configError("read store URL", "the URL cannot be read; use postgres://USER:PASSWORD@HOST:PORT/DATABASE")
}

func (b postgres) open(ctx context.Context, url string) (*Store, error) {
	pool, schema, err := b.connect(ctx, url)
	if err != nil {
		return nil, err
	}
	s, err := postgresStore(pool, schema)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return s, nil
}

func postgresStore(pool *pgxpool.Pool, schema string) (*Store, error) {
	s, err := pgstore.New(pool, pgstore.Config{Schema: schema, SweepPages: sweepPages})
	if err != nil {
		return nil, err
	}
	return &Store{
		Store:  s,
		close:  func() error { pool.Close(); return nil },
		rounds: func(ctx context.Context) (int, error) { return postgresRounds(ctx, pool, schema) },
		size:   func(ctx context.Context) (Size, error) { return postgresSize(ctx, pool, schema) },
	}, nil
}

func (postgres) files() fs.FS { return pgstore.Migrations() }

func (b postgres) migrate(ctx context.Context, url string) error {
	return b.migrateAs(ctx, url, pgstore.Partition{})
}

// migrateAs migrates, and gives the tables partitions if some are asked for.
func (b postgres) migrateAs(ctx context.Context, url string, p pgstore.Partition) error {
	pool, schema, err := b.connect(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	s, err := pgstore.New(pool, pgstore.Config{Schema: schema, Partition: p})
	if err != nil {
		return err
	}
	return s.Migrate(ctx)
}

// table is a table's name as SQL has it.
func table(schema, name string) string {
	if schema == "" {
		return name
	}
	return pgx.Identifier{schema, name}.Sanitize()
}

func (b postgres) applied(ctx context.Context, url string) (map[int]time.Time, error) {
	pool, schema, err := b.connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	applied, err := postgresApplied(ctx, pool, table(schema, "onlyonce_migrations"))
	return applied, failed("read migrations", err)
}

func postgresApplied(ctx context.Context, pool *pgxpool.Pool, name string) (map[int]time.Time, error) {
	applied := map[int]time.Time{}
	var there bool
	if err := pool.QueryRow(ctx, `SELECT to_regclass($1::text) IS NOT NULL`, name).Scan(&there); err != nil || !there {
		return applied, err
	}
	rows, err := pool.Query(ctx, `SELECT version, applied_at FROM `+name)
	if err != nil {
		return nil, err
	}
	var version int
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&version, &at}, func() error {
		applied[version] = at.UTC()
		return nil
	})
	return applied, err
}

// tables are those whose rows a sweep walks over and that grow with the keys: theirs,
// those of steps, and where answers and kept requests stand beside the keys, in
// partitions, those. $1 is the table of keys.
const tables = `
	FROM pg_catalog.pg_class c WHERE c.relkind = 'r'
		AND c.relnamespace = (SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = $1::text::regclass)
		AND (c.relname IN ('onlyonce_keys', 'onlyonce_steps') OR c.relname ~ '^onlyonce_(answers|requests)')`

// postgresRounds is about the largest table.
func postgresRounds(ctx context.Context, pool *pgxpool.Pool, schema string) (int, error) {
	var pages int64
	err := pool.QueryRow(ctx, `SELECT max(pg_relation_size(c.oid)) / current_setting('block_size')::bigint`+tables, table(schema, "onlyonce_keys")).Scan(&pages)
	if err != nil {
		return 0, failed("count pages", err)
	}
	return rounds(pages), nil
}

// rounds is how many sweeps see all of so many pages, wherever the first one begins.
func rounds(pages int64) int {
	if pages <= sweepPages {
		return 1
	}
	return int((pages+sweepPages-1)/sweepPages) + 1
}

// countable is how many bytes of rows are counted one by one; more are estimated as
// the planner does, by the density that the last vacuum or analyze has found.
const countable = 64 << 20

func postgresSize(ctx context.Context, pool *pgxpool.Pool, schema string) (Size, error) {
	name := table(schema, "onlyonce_keys")
	var size Size
	err := pool.QueryRow(ctx, `SELECT sum(pg_table_size(c.oid))::bigint, sum(pg_indexes_size(c.oid))::bigint`+tables+` AND c.relname <> 'onlyonce_steps'`, name).
		Scan(&size.Table, &size.Index)
	if err != nil {
		return Size{}, failed("measure table of keys", err)
	}
	var heap int64
	err = pool.QueryRow(ctx, `
		SELECT pg_relation_size(oid), CASE WHEN reltuples > 0 AND relpages > 0
			THEN (reltuples / relpages * (pg_relation_size(oid) / current_setting('block_size')::bigint))::bigint ELSE 0 END
		FROM pg_catalog.pg_class WHERE oid = $1::text::regclass`, name).Scan(&heap, &size.Keys)
	if err == nil && (size.Keys == 0 || heap <= countable) {
		err = pool.QueryRow(ctx, `SELECT count(*) FROM `+name).Scan(&size.Keys)
	}
	return size, failed("count keys", err)
}

// scratch makes a schema of its own in the same database, and drops it in the end,
// also when ctx is over by then.
func (b postgres) scratch(ctx context.Context, url string) (*Store, error) {
	pool, _, err := b.connect(ctx, url)
	if err != nil {
		return nil, err
	}
	schema := "onlyonce_scratch_" + strings.ToLower(rand.Text())
	drop := func() error {
		defer pool.Close()
		over, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, err := pool.Exec(over, `DROP SCHEMA IF EXISTS `+pgx.Identifier{schema}.Sanitize()+` CASCADE`)
		return failed("drop scratch schema "+schema, err)
	}
	s, err := pgstore.New(pool, pgstore.Config{Schema: schema})
	if err == nil {
		err = s.Migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make scratch schema: %w", err), drop())
	}
	scratch, err := postgresStore(pool, schema)
	if err != nil {
		return nil, errors.Join(err, drop())
	}
	scratch.close = drop
	return scratch, nil
}
