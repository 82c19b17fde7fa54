package pgstore

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
)

//go:embed migrations/*.sql migrations/partition/*.sql
var migrationFiles embed.FS

// Migrations are the files NNNN_name.up.sql and NNNN_name.down.sql, for people
// who apply them with a tool of their own. Each up file records its version in
// onlyonce_migrations itself, so that Migrate sees what such a tool has done.
// They name no schema: set search_path. What Config.Partition does is beside them in
// the folder partition; see Partition.Scripts.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrationFiles, "migrations")
	if err != nil {
		panic(err) // the name is a constant
	}
	return sub
}

// migration is one step of the schema.
type migration struct {
	version int
	file    string
}

func migrations() ([]migration, error) {
	files, err := fs.Glob(Migrations(), "*.up.sql")
	if err != nil {
		return nil, err
	}
	var out []migration
	for _, f := range files { // in the order of their names
		number, _, _ := strings.Cut(f, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("read version of migration %s: %w", f, err)
		}
		out = append(out, migration{version: version, file: f})
	}
	return out, nil
}

// Migrate brings the tables to the version this package knows. Each migration
// is a transaction; of several migrators at once the others wait and find it
// done. When nothing is to be done it needs no right but SELECT, so a role that
// may not create tables can call it as well. Tables newer than this package are
// an error.
//
// With Config.Partition it then gives the tables partitions, as Partition says; while
// it waits for the tables nobody waits behind it for longer than 100 ms. Partitions
// other than those the tables have are an error.
func (s *Store) Migrate(ctx context.Context) error {
	all, err := migrations()
	if err != nil {
		return err
	}
	conn, err := s.acquire(ctx)
	if err != nil {
		return classify("migrate", err, undone)
	}
	defer conn.Release()
	at, err := s.version(ctx, conn)
	if err != nil {
		return classify("read schema version", err, undone)
	}
	latest := all[len(all)-1].version
	if at > latest {
		return &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "migrate",
			Hint: fmt.Sprintf("the tables are at version %d, this program knows %d: use a newer program", at, latest),
		}
	}
	for _, m := range all {
		if m.version <= at {
			continue
		}
		err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error { return s.apply(ctx, tx, m) })
		if err != nil {
			return classify("apply migration "+m.file, err, committing)
		}
	}
	return s.switchOver(ctx, conn)
}

// queryer is a connection or a transaction.
type queryer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// version is the highest applied; 0 when there is nothing yet. It looks for the
// table by way of pg_class: to_regclass alone may answer from a cache that is
// older than the lock another migrator has just let go.
func (s *Store) version(ctx context.Context, q queryer) (int, error) {
	table := s.cfg.qualifier() + "onlyonce_migrations"
	var there bool
	if err := q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class WHERE oid = to_regclass($1::text))`, table).Scan(&there); err != nil || !there {
		return 0, err
	}
	var version int
	err := q.QueryRow(ctx, `SELECT coalesce(max(version), 0) FROM `+table).Scan(&version)
	return version, err
}

// apply applies one migration, unless another migrator has meanwhile.
func (s *Store) apply(ctx context.Context, tx pgx.Tx, m migration) error {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1::bigint)`, int64(s.salt)+1); err != nil {
		return err
	}
	at, err := s.version(ctx, tx)
	if err != nil || at >= m.version {
		return err
	}
	sql, err := fs.ReadFile(Migrations(), m.file)
	if err != nil {
		return err
	}
	if s.cfg.Schema != "" {
		if err := enterSchema(ctx, tx, s.cfg.Schema); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, string(sql))
	return err
}

// enterSchema makes the schema, if it is not there, and has what follows in the
// transaction happen in it.
func enterSchema(ctx context.Context, tx pgx.Tx, name string) error {
	schema := pgx.Identifier{name}.Sanitize()
	var there bool
	err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE oid = to_regnamespace($1::text))`, schema).Scan(&there)
	if err == nil && !there {
		_, err = tx.Exec(ctx, `CREATE SCHEMA `+schema)
	}
	if err == nil {
		_, err = tx.Exec(ctx, `SET LOCAL search_path = `+schema)
	}
	return err
}
