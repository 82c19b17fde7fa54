package db

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

// sqliteDriver shares the connections of the store of keys, so that one writer
// stands in line for the file.
type sqliteDriver struct{ store *sqlitestore.Store }

func openSQLite(ctx context.Context, path string, migrate bool) (*Database, error) {
	if migrate {
		if err := refuseHeldSQLite(ctx, path); err != nil {
			return nil, err
		}
		makePrivate(path)
	}
	store, err := sqlitestore.Open(ctx, path, sqlitestore.Config{SkipMigrate: !migrate})
	if err != nil {
		return nil, err
	}
	return &Database{keys: sqliteKeys(store), driver: sqliteDriver{store}}, nil
}

// makePrivate makes the file, for its owner alone, where there is none: SQLite
// would let everybody read it. The write-ahead log gets the mode of the file. A
// file that is there is not opened, for closing it would drop the locks that this
// process has on it. Whatever stands in the way is left to SQLite to report.
func makePrivate(path string) {
	if path == "" || path == ":memory:" {
		return
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		_ = file.Close()
	}
}

func (d sqliteDriver) begin(ctx context.Context, write bool) (transaction, error) {
	pool := d.store.Reader()
	if write {
		pool = d.store.Writer()
	}
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return transaction{}, err
	}
	return transaction{
		tx:       FromSQL(tx),
		commit:   func(context.Context) error { return tx.Commit() },
		rollback: func() { _ = tx.Rollback() },
	}, nil
}

func (d sqliteDriver) again(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

func (d sqliteDriver) script(ctx context.Context, fn func(tx Tx, run func(string) error) error) error {
	tx, err := d.store.Writer().BeginTx(ctx, nil) // IMMEDIATE: the file's one writer
	if err != nil {
		return err
	}
	defer tx.Rollback()
	run := func(statements string) error {
		_, err := tx.ExecContext(ctx, statements)
		return err
	}
	if err := fn(FromSQL(tx), run); err != nil {
		return err
	}
	return tx.Commit()
}

func (d sqliteDriver) ping(ctx context.Context) error {
	var one int
	return d.store.Reader().QueryRowContext(ctx, "SELECT 1 FROM "+versionTable).Scan(&one)
}

func (sqliteDriver) tables(name string) string {
	return "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '" + name + "'"
}

func (sqliteDriver) clock() string { return "CAST(unixepoch('subsec') * 1000000 AS INTEGER)" }

func (d sqliteDriver) migrations() (fs.FS, error) { return fs.Sub(migrationFiles, "migrations/sqlite") }
func (d sqliteDriver) keyMigrations() fs.FS       { return sqlitestore.Migrations() }
func (d sqliteDriver) close() error               { return d.store.Close() }

// ignoreNoRows is for reading what may be absent.
func ignoreNoRows(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}
