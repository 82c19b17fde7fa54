package db

import (
	"context"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

//go:embed migrations
var migrationFiles embed.FS

// versionTable notes which migrations of the service's tables were applied.
const versionTable = "payments_schema"

// historyTable notes when each of them was applied. It came later than versionTable, which
// alone counts: programs of before do not write it.
const historyTable = "payments_migrations"

// step is one change of the schema.
type step struct {
	version  int
	name     string
	up, down string
}

// steps reads the migrations of a database in order.
func steps(files fs.FS) ([]step, error) {
	ups, err := fs.Glob(files, "*.up.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	var list []step
	for _, name := range ups {
		number, what, _ := strings.Cut(strings.TrimSuffix(path.Base(name), ".up.sql"), "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != len(list)+1 {
			return nil, fmt.Errorf("list migrations: %s is not number %d", name, len(list)+1)
		}
		up, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		down, err := fs.ReadFile(files, strings.TrimSuffix(name, ".up.sql")+".down.sql")
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		list = append(list, step{version: version, name: what, up: string(up), down: string(down)})
	}
	return list, nil
}

// Migrate brings the service's tables up to date. All that is missing is
// applied in one transaction, so that a crash leaves the former version, and
// several processes may migrate at once. Tables that are up to date are only
// read. Tables of a later version than this program knows are an error.
func (d *Database) Migrate(ctx context.Context) error {
	list, err := d.steps()
	if err != nil {
		return err
	}
	return d.move(ctx, func(tx Tx, at int, run func(string) error) (int, error) {
		if at > len(list) {
			return at, &onlyonce.Error{
				Code: onlyonce.CodeConfig, Op: "migrate",
				Hint: fmt.Sprintf("the tables are of version %d, this program knows %d: run a newer program", at, len(list)),
			}
		}
		for _, s := range list[at:] {
			if err := run(s.up); err != nil {
				return at, fmt.Errorf("apply migration %d: %w", s.version, err)
			}
		}
		return len(list), nil
	})
}

// Ensure makes one table of another service that keeps its own in this database, where
// it is not there yet; statement makes it, on either database. Several processes may do
// so at once, and where the table is there none waits for another. The service's
// migrations know nothing of it.
func (d *Database) Ensure(ctx context.Context, table, statement string) error {
	there, err := d.Has(ctx, table)
	if err != nil || there {
		return err
	}
	err = d.driver.script(ctx, func(tx Tx, run func(string) error) error {
		there, err := exists(ctx, tx, d.driver, table)
		if err != nil || there {
			return err
		}
		return run(statement)
	})
	if err != nil {
		return fmt.Errorf("make table %s: %w", table, err)
	}
	return nil
}

// Has tells whether there is a table of a name, which is the caller's own. It changes
// nothing.
func (d *Database) Has(ctx context.Context, table string) (there bool, err error) {
	err = d.Read(ctx, func(ctx context.Context, tx Tx) error {
		there, err = exists(ctx, tx, d.driver, table)
		return err
	})
	return there, err
}

// CheckVersion makes sure that the service's tables are there, in the version that
// this program knows. It changes nothing.
func (d *Database) CheckVersion(ctx context.Context) error {
	list, err := d.steps()
	if err != nil {
		return err
	}
	at := 0
	err = d.Read(ctx, func(ctx context.Context, tx Tx) error {
		return ignoreNoRows(tx.QueryRow(ctx, "SELECT version FROM "+versionTable).Scan(&at))
	})
	switch {
	case err != nil:
		return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "check tables", Hint: "the payments service has no tables there", Err: err}
	case at != len(list):
		return &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "check tables",
			Hint: fmt.Sprintf("the tables are of version %d, this program is of %d: use the program that serves them", at, len(list)),
		}
	}
	return nil
}

// Unmigrate removes the service's tables and everything in them; the keys stay.
func (d *Database) Unmigrate(ctx context.Context) error {
	list, err := d.steps()
	if err != nil {
		return err
	}
	return d.move(ctx, func(_ Tx, at int, run func(string) error) (int, error) {
		for i := min(at, len(list)) - 1; i >= 0; i-- {
			if err := run(list[i].down); err != nil {
				return at, fmt.Errorf("take back migration %d: %w", list[i].version, err)
			}
		}
		return 0, nil
	})
}

// PrintMigrations writes the statements of both schemas, the keys' and the
// service's, of the database a URL names, for people with a tool of their own.
// It opens nothing.
func PrintMigrations(w io.Writer, url string) error {
	d, err := driverOf(url)
	if err != nil {
		return err
	}
	own, err := (&Database{driver: d}).steps()
	if err != nil {
		return err
	}
	all, err := steps(d.keyMigrations())
	if err != nil {
		return err
	}
	for _, s := range append(all, own...) {
		if _, err := fmt.Fprintln(w, s.up); err != nil {
			return fmt.Errorf("print migrations: %w", err)
		}
	}
	_, err = fmt.Fprintf(w, "%s;\n%s\nINSERT INTO %s (version) VALUES (%d);\n", createVersions, noteTimes(d, own), versionTable, len(own))
	return err
}

func (d *Database) steps() ([]step, error) {
	files, err := d.driver.migrations()
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	return steps(files)
}

// createVersions makes the table of versions, which has one row, and the one of times.
const createVersions = "CREATE TABLE IF NOT EXISTS " + versionTable + " (version INTEGER NOT NULL);\n" +
	"CREATE TABLE IF NOT EXISTS " + historyTable + " (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_us BIGINT NOT NULL)"

// noteTimes are the statements that note migrations as applied now. Names are those of
// files of ours, without quotes.
func noteTimes(d driver, applied []step) string {
	var b strings.Builder
	for _, s := range applied {
		fmt.Fprintf(&b, "INSERT INTO %s (version, name, applied_us) VALUES (%d, '%s', %s);\n", historyTable, s.version, s.name, d.clock())
	}
	return b.String()
}

// move changes the version of the tables, in one transaction.
func (d *Database) move(ctx context.Context, fn func(tx Tx, at int, run func(string) error) (int, error)) error {
	list, err := d.steps()
	if err != nil {
		return err
	}
	err = d.driver.script(ctx, func(tx Tx, run func(string) error) error {
		if err := run(createVersions); err != nil {
			return fmt.Errorf("make table of versions: %w", err)
		}
		at := 0
		if err := ignoreNoRows(tx.QueryRow(ctx, "SELECT version FROM "+versionTable).Scan(&at)); err != nil {
			return fmt.Errorf("read version: %w", err)
		}
		now, err := fn(tx, at, run)
		if err != nil || now == at {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM "+versionTable); err != nil {
			return fmt.Errorf("write version: %w", err)
		}
		if _, err := tx.Exec(ctx, "INSERT INTO "+versionTable+" (version) VALUES (?)", now); err != nil {
			return fmt.Errorf("write version: %w", err)
		}
		// Another program may have moved the version without a note of it.
		note := fmt.Sprintf("DELETE FROM %s WHERE version > %d;\n", historyTable, min(at, now))
		if now > at {
			note += noteTimes(d.driver, list[at:now])
		}
		if err := run(note); err != nil {
			return fmt.Errorf("note migrations: %w", err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("migrate tables: %w", err)
	}
	return nil
}
