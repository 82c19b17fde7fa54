package keystore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	driver "modernc.org/sqlite"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

// sqlite is keys in a file.
type sqlite struct{}

// sqliteBusy is SQLite's code for a file that somebody else has locked, in its last
// byte.
const sqliteBusy = 5

// Locked tells whether an error means that another process had a SQLite file locked
// for as long as the store waits, so that nothing was done and it may be tried again.
func Locked(err error) bool {
	e, ok := errors.AsType[*driver.Error](err)
	return ok && e.Code()&0xff == sqliteBusy
}

func (sqlite) path(url string) string { return strings.TrimPrefix(url, "sqlite:") }

func (b sqlite) open(ctx context.Context, url string) (*Store, error) {
	s, err := sqlitestore.Open(ctx, b.path(url), sqlitestore.Config{SkipMigrate: true})
	if err != nil {
		return nil, err
	}
	return sqliteStore(s), nil
}

func sqliteStore(s *sqlitestore.Store) *Store {
	return &Store{Store: s, close: s.Close, size: func(ctx context.Context) (Size, error) { return sqliteSize(ctx, s.Reader()) }}
}

func (sqlite) files() fs.FS { return sqlitestore.Migrations() }

// migrate makes the file, for its owner alone, where there is none: SQLite would let
// everybody read it.
func (b sqlite) migrate(ctx context.Context, url string) error {
	path := b.path(url)
	if path != "" && path != ":memory:" {
		if file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err == nil {
			_ = file.Close()
		}
	}
	s, err := sqlitestore.Open(ctx, path, sqlitestore.Config{})
	if err != nil {
		return err
	}
	return s.Close()
}

// applied looks at a file without making or changing it.
func (b sqlite) applied(ctx context.Context, url string) (map[int]time.Time, error) {
	path, err := filepath.Abs(b.path(url))
	if err != nil || b.path(url) == "" || b.path(url) == ":memory:" {
		return nil, configError("open store", "sqlite:PATH names a file")
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return map[int]time.Time{}, nil
	}
	pool, err := sql.Open("sqlite", sqliteLook(path))
	if err != nil {
		return nil, failed("open "+path, err)
	}
	applied, err := sqliteApplied(ctx, pool)
	return applied, failed("read migrations of "+path, errors.Join(err, pool.Close()))
}

// sqliteLook opens a file that must be there, to read.
func sqliteLook(path string) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: "mode=rw&_query_only=1&_pragma=busy_timeout(5000)"}
	return u.String()
}

func sqliteApplied(ctx context.Context, pool *sql.DB) (map[int]time.Time, error) {
	applied := map[int]time.Time{}
	var tables int
	err := pool.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'onlyonce_schema'`).Scan(&tables)
	if err != nil || tables == 0 {
		return applied, err
	}
	rows, err := pool.QueryContext(ctx, `SELECT version, applied_us FROM onlyonce_schema`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var version int
		var us int64
		if err := rows.Scan(&version, &us); err != nil {
			return nil, err
		}
		applied[version] = time.UnixMicro(us).UTC()
	}
	return applied, rows.Err()
}

// sqliteSize asks the table of pages that SQLite makes up.
func sqliteSize(ctx context.Context, pool *sql.DB) (Size, error) {
	var size Size
	err := pool.QueryRowContext(ctx, `SELECT count(*) FROM onlyonce_keys`).Scan(&size.Keys)
	if err == nil {
		err = pool.QueryRowContext(ctx, `
			SELECT coalesce(sum(p.pgsize) FILTER (WHERE s.type = 'table'), 0), coalesce(sum(p.pgsize) FILTER (WHERE s.type = 'index'), 0)
			FROM sqlite_schema s JOIN dbstat p ON p.name = s.name
			WHERE s.tbl_name = 'onlyonce_keys' AND p.aggregate = TRUE`).Scan(&size.Table, &size.Index)
	}
	return size, failed("measure table of keys", err)
}

// scratch makes a file in a folder of its own beside the store's, since another disk
// would not be its disk.
func (b sqlite) scratch(ctx context.Context, url string) (*Store, error) {
	dir, err := os.MkdirTemp(filepath.Dir(b.path(url)), "onlyonce_scratch")
	if err != nil {
		return nil, &onlyonce.Error{
			Code: onlyonce.CodeStoreUnavailable, Op: "make scratch file", Err: err,
			Hint: fmt.Sprintf("the folder %s must exist, and this process must be able to write there", filepath.Dir(b.path(url))),
		}
	}
	s, err := sqlitestore.Open(ctx, filepath.Join(dir, "keys.db"), sqlitestore.Config{})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	scratch := sqliteStore(s)
	scratch.close = func() error { return errors.Join(s.Close(), os.RemoveAll(dir)) }
	return scratch, nil
}
