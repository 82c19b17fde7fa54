package portable

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/pgerr"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// version is that of the tables this package knows.
const version = 1

// Migrations are the files 0001_init.up.sql and 0001_init.down.sql, for people who
// apply them with a tool of their own, and for engines whose DDL needs a word more
// (CREATE INDEX ASYNC) or a statement besides (how rows are spread by scope). Every
// statement stands alone and may be repeated. They name no schema: set search_path.
// Such a tool must also insert the version, 1, into onlyonce_portable_schema, or have
// Migrate do it.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the name is a constant
	}
	return sub
}

// statements splits a file of DDL. Comments go; none of its statements holds a
// semicolon.
func statements(sql string) []string {
	var text strings.Builder
	for line := range strings.Lines(sql) {
		code, _, _ := strings.Cut(line, "--")
		text.WriteString(strings.TrimRight(code, " \n") + "\n")
	}
	var all []string
	for s := range strings.SplitSeq(text.String(), ";") {
		if s = strings.TrimSpace(s); s != "" {
			all = append(all, s)
		}
	}
	return all
}

// Migrate makes the tables: each statement by itself, each of which may be there
// already, so that it can be repeated from wherever it ended, and several may run at
// once. When there is nothing to do it needs no right but SELECT. Tables newer than
// this package are an error.
func (s *Store) Migrate(ctx context.Context) error {
	at, err := s.version(ctx)
	switch {
	case err != nil:
		return err
	case at == version:
		return nil
	case at > version:
		return &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "migrate",
			Hint: fmt.Sprintf("the tables are at version %d, this program knows %d: use a newer program", at, version),
		}
	}
	file, err := fs.ReadFile(Migrations(), "0001_init.up.sql")
	if err != nil {
		return err
	}
	if s.cfg.Schema != "" {
		if err := s.define(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{s.cfg.Schema}.Sanitize()); err != nil {
			return err
		}
	}
	for _, ddl := range statements(string(file)) {
		if err := s.define(ctx, s.qualified(ddl)); err != nil {
			return err
		}
	}
	return s.transact(ctx, "record schema version", func(ctx context.Context, t *txn) error {
		_, err := t.exec(ctx, recordVersion, int64(version))
		return err
	})
}

// qualified puts the schema before the names of tables. Indexes are in the schema of
// their table, and their names take none.
func (s *Store) qualified(ddl string) string {
	q := s.cfg.qualifier()
	return strings.NewReplacer(
		"TABLE IF NOT EXISTS onlyonce_", "TABLE IF NOT EXISTS "+q+"onlyonce_",
		" ON onlyonce_", " ON "+q+"onlyonce_").Replace(ddl)
}

// version reads the version of the tables; 0: there are none.
func (s *Store) version(ctx context.Context) (at int, err error) {
	_, err = s.read(ctx, "read schema version", question{sql: schemaVersion, row: func(rows pgx.Rows) error { return rows.Scan(&at) }})
	if pgerr.HasState(err, pgerr.NoTable) || pgerr.HasState(err, pgerr.NoSchema) {
		return 0, nil
	}
	return at, err
}

// define runs a statement of DDL by itself. Engines check that something is not there
// yet before they make it, so that two migrators may be in each other's way.
func (s *Store) define(ctx context.Context, ddl string) error {
	return s.repeat(ctx, "migrate", func() error {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return pgerr.NoConnection(ctx, err)
		}
		defer conn.Release()
		_, err = conn.Exec(ctx, ddl)
		if definedMeanwhile(err) {
			return errors.Join(errChanged, err)
		}
		return err
	})
}

// definedMeanwhile tells whether another migrator was faster.
func definedMeanwhile(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch e.Code {
	case pgerr.Unique, "42P06", "42P07", "42710", "XX000": // duplicate schema, table, object; tuple concurrently updated
		return true
	default:
		return false
	}
}
