package mysqlstore

import (
	"context"
	"database/sql"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/onlyonce-go/onlyonce"
)

// schemes are those of URLs that name a database of this kind.
const schemes = "mysql:// or mariadb://"

// driverConfig reads a URL. What stands behind the question mark are parameters of
// the driver, and else session variables.
func driverConfig(text string, cfg Config) (*mysql.Config, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, configError("the URL cannot be read: write mysql://user:password@host:port/database, with %%XX for what is special")
	}
	if u.Scheme != "mysql" && u.Scheme != "mariadb" {
		return nil, configError("the URL must begin with %s, got %q", schemes, u.Scheme)
	}
	database := strings.TrimPrefix(u.Path, "/")
	if database == "" {
		return nil, configError("the URL must name a database: mysql://user:password@host:port/database")
	}
	query := u.Query()
	where := mysql.NewConfig()
	where.Net, where.Addr = "tcp", net.JoinHostPort(or(u.Hostname(), "127.0.0.1"), or(u.Port(), "3306"))
	if socket := query.Get("socket"); socket != "" {
		where.Net, where.Addr = "unix", socket
		query.Del("socket")
	}
	name := where.Net + "(" + where.Addr + ")/" + url.PathEscape(database) + "?" + query.Encode()
	dc, err := mysql.ParseDSN(name)
	if err != nil {
		return nil, configError("the URL's parameters are none of the driver's: %v", err)
	}
	if dc.MultiStatements {
		return nil, configError("the URL asks for multiStatements, with which a forgotten quote becomes a statement: leave it out")
	}
	dc.User = u.User.Username()
	dc.Passwd, _ = u.User.Password()
	dc.Logger = &mysql.NopLogger{} // errors are returned
	// One round trip a statement instead of two; the server then prepares nothing.
	dc.InterpolateParams = true
	if !query.Has("maxAllowedPacket") {
		dc.MaxAllowedPacket = 0 // the server's: what is too big is refused before it is sent
	}
	bound(dc, cfg)
	return dc, nil
}

// bound sets how long a connection waits.
func bound(dc *mysql.Config, cfg Config) {
	if dc.Timeout == 0 {
		dc.Timeout = 10 * time.Second
	}
	if cfg.StatementTimeout > 0 {
		if dc.ReadTimeout == 0 {
			dc.ReadTimeout = cfg.StatementTimeout
		}
		if dc.WriteTimeout == 0 {
			dc.WriteTimeout = cfg.StatementTimeout
		}
	}
}

// sessionSettings are what Open's sessions have beside what the URL says.
func sessionSettings(dc *mysql.Config, cfg Config, at session) {
	set := func(name, value string) {
		if _, said := dc.Params[name]; said {
			return
		}
		if dc.Params == nil {
			dc.Params = map[string]string{}
		}
		dc.Params[name] = value
	}
	set(at.isolationName(), "'READ-COMMITTED'")
	if cfg.LockTimeout > 0 {
		set("innodb_lock_wait_timeout", strconv.FormatInt(seconds(cfg.LockTimeout), 10))
	}
	if cfg.IdleTimeout > 0 {
		set("wait_timeout", strconv.FormatInt(seconds(cfg.IdleTimeout), 10))
	}
	if at.vitess() {
		set("transaction_mode", "'"+singleShard+"'")
	}
	if at.galera() {
		set("wsrep_sync_wait", syncWait)
	}
}

func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// Open connects to the database that url names, with a pool of the Store's own, and
// makes or updates the tables unless Config.SkipMigrate is set:
//
//	mysql://user:password@host:port/database?tls=true
//
// Parameters are the driver's (tls, timeout, collation, …), socket for the path of a
// Unix socket, and else session variables. It returns CodeConfig when the URL or the
// server's settings are not fit for money, with a hint, ErrUnreachable when the
// server cannot be reached, and CodeStoreUnavailable when it is there and lets nobody
// in. Close the Store in the end.
func Open(ctx context.Context, url string, cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	dc, err := driverConfig(url, cfg)
	if err != nil {
		return nil, err
	}
	at, err := meet(ctx, dc)
	if err != nil {
		return nil, err
	}
	sessionSettings(dc, cfg, at)
	db, err := openPool(dc, cfg)
	if err != nil {
		return nil, err
	}
	s, err := New(ctx, db, cfg)
	if err != nil {
		_ = db.Close() // the error is the other one
		return nil, err
	}
	s.own = true
	return s, nil
}

// openPool makes the pool; nothing is connected yet. Idle connections go before the
// server ends their sessions.
func openPool(dc *mysql.Config, cfg Config) (*sql.DB, error) {
	connector, err := mysql.NewConnector(dc)
	if err != nil {
		return nil, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: openStore, Hint: "the URL's parameters do not go together", Err: err}
	}
	db := sql.OpenDB(pooledConnector{connector})
	db.SetMaxOpenConns(cfg.MaxConns)
	db.SetMaxIdleConns(cfg.MaxConns)
	if cfg.IdleTimeout > 0 {
		db.SetConnMaxIdleTime(cfg.IdleTimeout / 2)
	}
	return db, nil
}

// meet finds out what server it is, before sessions get their settings.
func meet(ctx context.Context, dc *mysql.Config) (at session, err error) {
	db, err := openPool(dc, Config{MaxConns: 1})
	if err != nil {
		return at, err
	}
	defer func() { _ = db.Close() }()
	return readSession(ctx, db)
}
