package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
)

// Migration is one step of the service's tables.
type Migration struct {
	// Version counts from 1.
	Version int
	// Name is what it is about; empty for one that this program does not know.
	Name string
	// Applied tells whether the database has had it, At when, by the database's clock;
	// zero: it was applied by a program that noted no times.
	Applied bool
	At      time.Time
}

// Known tells whether this program has it. One that it has not was applied by a newer
// program.
func (m Migration) Known() bool { return m.Name != "" }

// Status lists the migrations of the service's tables in the database a URL names, in
// their order: those that this program has, and behind them those that a newer one has
// applied. It makes and changes nothing, and does not look at the tables of keys; of a
// database that is not there all are pending. Errors are *onlyonce.Error, with CodeConfig
// where the URL is at fault.
func Status(ctx context.Context, url string) ([]Migration, error) {
	d, err := driverOf(url)
	if err != nil {
		return nil, err
	}
	list, err := (&Database{driver: d}).steps()
	if err != nil {
		return nil, err
	}
	at, times := 0, map[int]time.Time{}
	err = lookInto(ctx, url, func(tx Tx) error {
		if at, err = version(ctx, tx, d); err != nil || at == 0 {
			return err
		}
		times, err = appliedAt(ctx, tx, d)
		return err
	})
	if err != nil {
		if _, ok := errors.AsType[*onlyonce.Error](err); !ok {
			err = &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: "read migrations of the payments service", Err: err}
		}
		return nil, err
	}
	var all []Migration
	for v := 1; v <= max(at, len(list)); v++ {
		m := Migration{Version: v, Applied: v <= at}
		if m.Applied {
			m.At = times[v]
		}
		if v <= len(list) {
			m.Name = list[v-1].name
		}
		all = append(all, m)
	}
	return all, nil
}

// Version is that of the service's tables; 0: there are none. It changes nothing.
func (d *Database) Version(ctx context.Context) (at int, err error) {
	err = d.Read(ctx, func(ctx context.Context, tx Tx) error {
		at, err = version(ctx, tx, d.driver)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read version of tables: %w", err)
	}
	return at, nil
}

// version reads it, where there is a table that has it.
func version(ctx context.Context, tx Tx, d driver) (at int, err error) {
	if there, err := exists(ctx, tx, d, versionTable); err != nil || !there {
		return 0, err
	}
	return at, ignoreNoRows(tx.QueryRow(ctx, "SELECT version FROM "+versionTable).Scan(&at))
}

func exists(ctx context.Context, tx Tx, d driver, table string) (bool, error) {
	var tables int
	err := tx.QueryRow(ctx, d.tables(table)).Scan(&tables)
	return tables > 0, err
}

// appliedAt reads when versions were applied. Programs of before have noted nothing.
func appliedAt(ctx context.Context, tx Tx, d driver) (map[int]time.Time, error) {
	times := map[int]time.Time{}
	if there, err := exists(ctx, tx, d, historyTable); err != nil || !there {
		return times, err
	}
	err := tx.Each(ctx, "SELECT version, applied_us FROM "+historyTable, nil, func(row Row) error {
		var version int
		var us int64
		err := row.Scan(&version, &us)
		times[version] = time.UnixMicro(us).UTC()
		return err
	})
	return times, err
}

// driverOf is the kind of database that a URL names, without a connection.
func driverOf(url string) (driver, error) {
	switch scheme, _, _ := strings.Cut(url, ":"); scheme {
	case "sqlite":
		return sqliteDriver{}, nil
	case "postgres", "postgresql":
		return postgresDriver{}, nil
	default:
		return nil, storeUnknown()
	}
}

// lookInto runs fn in a transaction of its own that only reads, beside whatever else is
// open. Where there is no database yet fn is not run.
func lookInto(ctx context.Context, url string, fn func(tx Tx) error) error {
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		if path == "" || path == ":memory:" {
			return storeError("URL names no file; use sqlite:PATH")
		}
		return lookIntoSQLite(ctx, path, fn)
	}
	pool, err := connectPostgres(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	return lookIntoPostgres(ctx, pool, fn)
}

func lookIntoPostgres(ctx context.Context, pool *pgxpool.Pool, fn func(tx Tx) error) error {
	return pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error { return fn(FromPgx(tx)) })
}

// lookIntoSQLite passes over a file that is not there, and one that is empty.
func lookIntoSQLite(ctx context.Context, path string, fn func(tx Tx) error) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || (err == nil && info.Size() == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: "mode=rw&_query_only=1&_pragma=busy_timeout(5000)"}
	pool, err := sql.Open("sqlite", u.String())
	if err != nil {
		return err
	}
	defer pool.Close() //nolint:errcheck // nothing was written
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	return fn(FromSQL(tx))
}
