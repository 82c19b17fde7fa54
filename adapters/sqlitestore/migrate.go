package sqlitestore

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

	"github.com/onlyonce-go/onlyonce"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations is the schema as numbered pairs of files, 0001_init.up.sql and
// 0001_init.down.sql and so on, for people who apply it with a tool of their
// own. Each file must be applied in one transaction; the up files note their
// version in the table onlyonce_schema, so that Migrate knows about it.
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

// Migrate brings the tables up to this version. Each migration is one
// transaction, so that a crash leaves a whole version, and several processes
// may migrate at once: the write lock decides who does. Tables that are up to
// date are only read. It returns an *onlyonce.Error with CodeConfig when the
// tables are of a later version than this program knows.
func (s *Store) Migrate(ctx context.Context) error {
	list, err := ups()
	if err != nil {
		return err
	}
	for _, m := range list {
		version, err := s.version(ctx)
		if err != nil {
			return err
		}
		if version >= m.version {
			continue
		}
		if err := s.apply(ctx, m); err != nil {
			return err
		}
	}
	return s.checkSchema(ctx)
}

// apply runs one migration unless somebody else has run it meanwhile.
func (s *Store) apply(ctx context.Context, m migration) error {
	text, err := fs.ReadFile(Migrations(), m.file)
	if err != nil {
		return fmt.Errorf("read migration %s: %w", m.file, err)
	}
	return s.write(ctx, "migrate database", func(ctx context.Context, q querier) error {
		version, err := readVersion(ctx, q)
		if err != nil || version >= m.version {
			return err
		}
		_, err = q.ExecContext(ctx, string(text))
		return err
	})
}

// checkSchema makes sure that the tables are of exactly this version.
func (s *Store) checkSchema(ctx context.Context) error {
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
			Code: onlyonce.CodeConfig, Op: "check database",
			Hint: fmt.Sprintf("the tables are of version %d, this program needs %d: migrate the database first", version, len(list)),
		}
	case version > len(list):
		return &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "check database",
			Hint: fmt.Sprintf("the tables are of version %d, this program knows %d: run a later program, or migrate down first", version, len(list)),
		}
	}
	return nil
}

func (s *Store) version(ctx context.Context) (int, error) {
	version, err := readVersion(ctx, s.reader)
	if err != nil {
		return 0, s.fail("read version of database", err)
	}
	return version, nil
}

// readVersion is the number of the last applied migration, 0 for none.
func readVersion(ctx context.Context, q querier) (int, error) {
	var tables, version int
	if err := q.QueryRowContext(ctx, schemaExists).Scan(&tables); err != nil {
		return 0, err
	}
	if tables == 0 {
		return 0, nil
	}
	err := q.QueryRowContext(ctx, schemaVersion).Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return version, err
}
