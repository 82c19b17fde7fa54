package mysqlstore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations is the schema as numbered pairs of files, 0001_init.up.sql and
// 0001_init.down.sql and so on, for people who apply it with a tool of their own.
// Every statement in them ends with a semicolon at the end of a line and may be run
// again; the up files note their version in the table onlyonce_migrations, so that
// Migrate knows about it.
func Migrations() fs.FS {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return migrations // cannot be: the folder is embedded
	}
	return sub
}

// migration is one step of the schema.
type migration struct {
	version int
	file    string
}

// ups are the migrations in order.
func ups() ([]migration, error) {
	files, err := fs.Glob(Migrations(), "*.up.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	var list []migration
	for _, file := range files {
		number, _, _ := strings.Cut(path.Base(file), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != len(list)+1 {
			return nil, fmt.Errorf("list migrations: %s is not number %d", file, len(list)+1)
		}
		list = append(list, migration{version, file})
	}
	return list, nil
}

// migratorsTurn is how often a migrator that waits for another one looks.
const migratorsTurn = 100 * time.Millisecond

// Migrate brings the tables up to this version. Tables that are up to date are only
// read. MySQL commits each statement of a migration by itself, so a crash may leave a
// part of it; every statement can be run again, and the version is noted last.
// Several processes may migrate at once: a lock lets one in at a time, and the others
// wait for it until ctx ends; on two nodes of a Galera cluster, which do not share it,
// they do no harm. It returns an *onlyonce.Error with
// CodeConfig when the tables are of a later version than this program knows, or not
// InnoDB's.
func (s *Store) Migrate(ctx context.Context) error {
	const op = "migrate database"
	list, err := ups()
	if err != nil {
		return err
	}
	version, err := s.version(ctx)
	if err != nil {
		return err
	}
	if version >= len(list) {
		return s.checkSchema(ctx)
	}
	l, err := s.line(ctx)
	if err != nil {
		return classify(op, err, undone)
	}
	if err := l.migrate(ctx, list); err != nil {
		l.close(ctx)
		return classify(op, err, undone)
	}
	l.close(ctx)
	return s.checkSchema(ctx)
}

// migrate applies what is missing, under the migrators' lock.
func (l *line) migrate(ctx context.Context, list []migration) error {
	for {
		got, err := l.take(ctx, l.s.locks+"migrate", 0)
		if err != nil {
			return err
		}
		if got {
			break
		}
		if !wait(ctx, migratorsTurn) {
			return ctx.Err()
		}
	}
	version, err := readVersion(ctx, l.conn)
	if err != nil {
		return err
	}
	for _, m := range list[min(version, len(list)):] {
		text, err := fs.ReadFile(Migrations(), m.file)
		if err != nil {
			return fmt.Errorf("read migration %s: %w", m.file, err)
		}
		for _, statement := range statements(string(text)) {
			if err := exec(ctx, l.conn, statement); err != nil {
				return fmt.Errorf("apply migration %s: %w", m.file, err)
			}
		}
	}
	return nil
}

// statements are those of a migration: each ends with a semicolon at the end of a
// line. Comments go, since a server may be told to read in them.
func statements(text string) []string {
	var list []string
	var current strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "--")
		line = strings.TrimSpace(line)
		current.WriteString(line + "\n")
		if strings.HasSuffix(line, ";") {
			list = append(list, strings.TrimSuffix(strings.TrimSpace(current.String()), ";"))
			current.Reset()
		}
	}
	return list
}

// checkSchema makes sure that the tables are of exactly this version, and InnoDB's:
// no other engine has transactions and row locks.
func (s *Store) checkSchema(ctx context.Context) error {
	const op = "check database"
	list, err := ups()
	if err != nil {
		return err
	}
	version, err := s.version(ctx)
	switch {
	case err != nil:
		return err
	case version < len(list):
		return &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: op,
			Hint: fmt.Sprintf("the tables are of version %d, this program needs %d: migrate the database first", version, len(list)),
		}
	case version > len(list):
		return &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: op,
			Hint: fmt.Sprintf("the tables are of version %d, this program knows %d: run a later program, or migrate down first", version, len(list)),
		}
	}
	var table, engine string
	err = s.single(ctx, op, undone, func(q querier) error {
		return q.QueryRowContext(ctx, otherEngine).Scan(&table, &engine)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return &onlyonce.Error{
		Code: onlyonce.CodeConfig, Op: op,
		Hint: fmt.Sprintf("the table %s is kept by %s, which has no transactions: ALTER TABLE %s ENGINE = InnoDB", table, engine, table),
	}
}

// version is the number of the last applied migration, 0 for none.
func (s *Store) version(ctx context.Context) (version int, err error) {
	err = s.single(ctx, "read version of database", undone, func(q querier) error {
		version, err = readVersion(ctx, q)
		return err
	})
	return version, err
}

func readVersion(ctx context.Context, q querier) (int, error) {
	var version int
	err := q.QueryRowContext(ctx, schemaVersion).Scan(&version)
	if number(err) == numNoTable {
		return 0, nil
	}
	return version, err
}
