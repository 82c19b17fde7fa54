package pgstore

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
)

// Config configures a Store. The zero value is the careful choice.
type Config struct {
	// Schema is where the tables are, or are to be made. Empty: wherever the
	// connection's search_path finds them.
	Schema string
	// SkipMigrate leaves the tables as they are. Default: Open brings them up to
	// date, which needs no more than data rights once they are. New never does.
	SkipMigrate bool
	// Isolation is that of the transactions of Atomic, Finish and StepTx: read
	// committed (the default), repeatable read or serializable. With the last
	// two a renewal or a duplicate at the wrong moment ends in ErrConflict,
	// and the engine repeats the handler. Claims and everything else that is
	// one statement always run in read committed.
	Isolation pgx.TxIsoLevel
	// StatementTimeout bounds each statement of Atomic, Finish, StepTx, Release and
	// Sweep. Default 30 s; negative leaves the session's setting.
	StatementTimeout time.Duration
	// LockTimeout bounds each wait for a lock in them; what runs into it is
	// ErrConflict. Default 10 s; negative leaves the session's setting.
	LockTimeout time.Duration
	// IdleTimeout bounds how long such a transaction may lie idle, so that a
	// peer that vanished cannot hold a key. A handler that thinks for longer
	// between two statements loses its transaction. Default 30 s; negative
	// leaves the session's setting.
	IdleTimeout time.Duration
	// QueryExecMode is how Open has pgx send statements. The zero value keeps
	// prepared statements, which is fastest, and works behind PgBouncer 1.21
	// and later with max_prepared_statements. Behind an older one, or without
	// that setting, use pgx.QueryExecModeExec or the URL's parameter
	// default_query_exec_mode=exec. It is not for New: there it is the pool's.
	QueryExecMode pgx.QueryExecMode
	// SweepPages is how many pages of a table one Sweep looks at. Default
	// 16,384 (128 MiB): a table of ten million keys is walked in about an hour
	// by a sweep a minute, faster where there is something to do.
	SweepPages int64
	// Partition has Migrate put answers and kept requests beside the keys, into
	// partitions that are emptied as a whole. Empty: the tables stay as they are,
	// and answers are where they say.
	Partition Partition
	// Now replaces the server's clock. For tests only.
	Now func() time.Time
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Isolation == "" {
		c.Isolation = pgx.ReadCommitted
	}
	if c.StatementTimeout == 0 {
		c.StatementTimeout = 30 * time.Second
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = 10 * time.Second
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 30 * time.Second
	}
	if c.SweepPages == 0 {
		c.SweepPages = 16384
	}
	c.Partition = c.Partition.WithDefaults()
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields.
func (c Config) Validate() error {
	var errs []error
	switch c.Isolation {
	case "", pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
	default:
		errs = append(errs, configError("Isolation must be read committed, repeatable read or serializable, got %q", c.Isolation))
	}
	if strings.ContainsRune(c.Schema, 0) || len(c.Schema) > 63 {
		errs = append(errs, configError("Schema must be a name of at most 63 bytes"))
	}
	for name, d := range map[string]time.Duration{
		"StatementTimeout": c.StatementTimeout, "LockTimeout": c.LockTimeout, "IdleTimeout": c.IdleTimeout,
	} {
		if d > 0 && d < time.Millisecond {
			errs = append(errs, configError("%s must be at least a millisecond, got %v", name, d))
		}
	}
	if c.SweepPages < 0 {
		errs = append(errs, configError("SweepPages must not be negative, got %d", c.SweepPages))
	}
	errs = append(errs, c.Partition.Validate())
	return errors.Join(errs...)
}

func configError(format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "configure pgstore", Hint: fmt.Sprintf(format, args...)}
}

// qualifier is what stands before table names.
func (c Config) qualifier() string {
	if c.Schema == "" {
		return ""
	}
	return pgx.Identifier{c.Schema}.Sanitize() + "."
}

// settings is the statement that makes a transaction of ours safe to have
// open: it gives up by itself when its client is gone, and its commit is on
// disk when it is confirmed, whatever the session's defaults are.
func (c Config) settings() string {
	set := []string{`set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), true)`}
	add := func(name string, d time.Duration) {
		if d >= 0 {
			set = append(set, fmt.Sprintf(`set_config('%s', '%d', true)`, name, d.Milliseconds()))
		}
	}
	add("statement_timeout", c.StatementTimeout)
	add("lock_timeout", c.LockTimeout)
	add("idle_in_transaction_session_timeout", c.IdleTimeout)
	return "SELECT " + strings.Join(set, ", ")
}
