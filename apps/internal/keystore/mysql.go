package keystore

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
)

// mariadb is keys in MySQL or MariaDB.
type mariadb struct{}

func (mariadb) open(ctx context.Context, url string) (*Store, error) {
	s, err := mysqlstore.Open(ctx, url, mysqlstore.Config{SkipMigrate: true})
	if err != nil {
		return nil, err
	}
	return &Store{Store: s, close: s.Close, size: func(ctx context.Context) (Size, error) { return mysqlSize(ctx, s.DB()) }}, nil
}

func (mariadb) files() fs.FS { return mysqlstore.Migrations() }

func (mariadb) migrate(ctx context.Context, url string) error {
	s, err := mysqlstore.Open(ctx, url, mysqlstore.Config{})
	if err != nil {
		return err
	}
	return s.Close()
}

// mysqlNoTable is what the server says of a table that is not there.
const mysqlNoTable = 1146

// applied looks by a connection of its own: the store opens nothing that is not
// migrated.
func (b mariadb) applied(ctx context.Context, url string) (map[int]time.Time, error) {
	pool, err := b.look(url)
	if err != nil {
		return nil, err
	}
	applied, err := mysqlApplied(ctx, pool)
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == mysqlNoTable {
		applied, err = map[int]time.Time{}, nil
	}
	err = errors.Join(err, pool.Close())
	if _, ok := errors.AsType[net.Error](err); ok {
		return nil, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: "open store", Hint: "the server does not answer", Err: err}
	}
	if hint := mysqlRefusal(err); hint != "" {
		return nil, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: "open store", Hint: hint, Err: err}
	}
	return applied, failed("read migrations", err)
}

// mysqlRefusal is why a server that answers gave no connection; empty: it gave one.
func mysqlRefusal(err error) string {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		switch e.Number {
		case 1044, 1045: // access denied, to the database or at all
			return "authentication failed: check user and password of the URL"
		case 1049: // unknown database
			return "there is no such database: check the URL's, or create it"
		}
	}
	return ""
}

// look is a pool for a URL as the store writes it.
func (mariadb) look(text string) (*sql.DB, error) {
	wrong := configError("read store URL", "the URL cannot be read; use mysql://USER:PASSWORD@HOST:PORT/DATABASE")
	u, err := url.Parse(text)
	if err != nil || u.Path == "" || u.Path == "/" {
		return nil, wrong // the cause may hold the password
	}
	query := u.Query()
	at := "tcp(" + net.JoinHostPort(or(u.Hostname(), "127.0.0.1"), or(u.Port(), "3306")) + ")"
	if socket := query.Get("socket"); socket != "" {
		at = "unix(" + socket + ")"
		query.Del("socket")
	}
	cfg, err := mysql.ParseDSN(at + "/" + url.PathEscape(strings.TrimPrefix(u.Path, "/")) + "?" + query.Encode())
	if err != nil {
		return nil, wrong
	}
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.Logger = &mysql.NopLogger{} // errors are returned
	cfg.Timeout = 10 * time.Second
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, wrong
	}
	return sql.OpenDB(connector), nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func mysqlApplied(ctx context.Context, pool *sql.DB) (map[int]time.Time, error) {
	rows, err := pool.QueryContext(ctx, `SELECT version, applied_us FROM onlyonce_migrations`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	applied := map[int]time.Time{}
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

// mysqlSize is what InnoDB says of the table, which it counts now and then.
func mysqlSize(ctx context.Context, pool *sql.DB) (Size, error) {
	var size Size
	err := pool.QueryRowContext(ctx, `SELECT count(*) FROM onlyonce_keys`).Scan(&size.Keys)
	if err == nil {
		err = pool.QueryRowContext(ctx, `SELECT data_length, index_length FROM information_schema.tables
			WHERE table_schema = DATABASE() AND table_name = 'onlyonce_keys'`).Scan(&size.Table, &size.Index)
	}
	return size, failed("measure table of keys", err)
}
