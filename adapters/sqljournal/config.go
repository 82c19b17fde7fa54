package sqljournal

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// Config says what the database is and how long a lock lives.
type Config struct {
	// Dialect is the kind of the database. Required.
	Dialect Dialect
	// Lease is for how long after its holder was killed an entry stays locked. A live
	// holder renews it three times in that time. Default 30 s, at least 1 s.
	Lease time.Duration
	// SkipMigrate: the tables are somebody else's to make, see [Statements]. Default:
	// New makes them where they are missing.
	SkipMigrate bool
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	c.Lease = cmp.Or(c.Lease, 30*time.Second)
	return c
}

// Validate returns CodeConfig for a configuration that cannot be.
func (c Config) Validate() error {
	if !c.Dialect.known() {
		return unknownDialect(c.Dialect)
	}
	if c.Lease != 0 && c.Lease < time.Second {
		return configError(fmt.Sprintf("Lease is %v: take at least 1s, or leave it out for 30s", c.Lease))
	}
	return nil
}

func unknownDialect(d Dialect) error {
	return configError(fmt.Sprintf("Dialect is %q: say SQLite, Postgres or MySQL", string(d)))
}

// checkSession refuses a database whose commits may be lost or changed.
func (j *Journal) checkSession(ctx context.Context) error {
	switch j.cfg.Dialect {
	case SQLite:
		return checkSQLite(ctx, j.db)
	case Postgres:
		return checkPostgres(ctx, j.db)
	case MySQL:
		return checkMySQL(ctx, j.db)
	}
	return nil
}

// checkSQLite looks at one connection, so the settings belong into the name that all
// of them are opened with.
func checkSQLite(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return failRead(opOpen, err)
	}
	defer func() { _ = conn.Close() }()
	var mode string
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return failRead(opOpen, err)
	}
	var synchronous int
	if err := conn.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous); err != nil {
		return failRead(opOpen, err)
	}
	const full = 2
	if !strings.EqualFold(mode, "wal") || synchronous < full {
		return configError(fmt.Sprintf("SQLite has journal_mode=%s and synchronous=%d, and an entry must survive a crash of the machine: "+
			"open a file with _pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)", mode, synchronous))
	}
	return nil
}

func checkPostgres(ctx context.Context, db *sql.DB) error {
	var commit string
	if err := db.QueryRowContext(ctx, "SHOW synchronous_commit").Scan(&commit); err != nil {
		return failRead(opOpen, err)
	}
	if commit == "off" {
		return configError("sessions have synchronous_commit=off, and an entry must survive a crash of the server: remove it from the URL, the role or the server's settings")
	}
	return nil
}

// checkMySQL asks with SHOW VARIABLES, which leaves out what a server does not know.
func checkMySQL(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, `SHOW SESSION VARIABLES WHERE Variable_name IN
		('sql_mode', 'autocommit', 'innodb_flush_log_at_trx_commit', 'wsrep_on', 'wsrep_sync_wait')`)
	if err != nil {
		return failRead(opOpen, err)
	}
	defer rows.Close()
	vars := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return failRead(opOpen, err)
		}
		vars[strings.ToLower(name)] = strings.ToUpper(value)
	}
	if err := rows.Err(); err != nil {
		return failRead(opOpen, err)
	}
	return judgeMySQL(vars)
}

func judgeMySQL(vars map[string]string) error {
	mode := "," + vars["sql_mode"] + ","
	switch {
	case vars["autocommit"] != "ON" && vars["autocommit"] != "1":
		return configError("sessions have autocommit off, so that nothing would be committed: remove it from the DSN, init_connect or the server's settings")
	case !strings.Contains(mode, ",STRICT_TRANS_TABLES,") && !strings.Contains(mode, ",STRICT_ALL_TABLES,"):
		return configError("sessions are not in strict mode, so that values could be cut off without an error: add STRICT_TRANS_TABLES to sql_mode")
	case strings.Contains(mode, ",EMPTY_STRING_IS_NULL,"):
		return configError("sessions take empty strings for NULL: remove EMPTY_STRING_IS_NULL from sql_mode")
	case vars["innodb_flush_log_at_trx_commit"] != "1":
		return configError("the server has innodb_flush_log_at_trx_commit=" + vars["innodb_flush_log_at_trx_commit"] + ", and an entry must survive its crash: set it to 1")
	case vars["wsrep_on"] == "ON" && vars["wsrep_sync_wait"] != "7":
		return configError("sessions of a Galera cluster need wsrep_sync_wait=7, or a node would answer with what it has not applied yet: add it to the DSN")
	}
	return nil
}
