package portable

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
)

// DefaultMaxClockSkew is by how much clocks may differ where nothing is said.
const DefaultMaxClockSkew = 5 * time.Minute

// Config configures a Store. The zero value is for an engine of several nodes.
type Config struct {
	// OneClock says that one server makes all times: a single PostgreSQL, or one
	// with standbys that nobody writes to. Leases are then made and judged by its
	// clock. Default false: leases are judged by watching (Features.Observes), and
	// the clocks of nodes decide about retention and the ages of steps alone.
	OneClock bool
	// MaxClockSkew is by how much the clocks of any two nodes may differ. It is added to
	// the age of a step's first send, so that nothing is sent again past what a provider
	// remembers: what remembers its keys for no longer is never sent to again. Default 5
	// minutes; negative: none. With OneClock it counts for nothing.
	MaxClockSkew time.Duration
	// Schema is where the tables are, or are to be made. Empty: wherever the
	// connection's search_path finds them.
	Schema string
	// SkipMigrate leaves the tables as they are. Default: Open makes them, which
	// needs no more than the right to read once they are there. New never does.
	SkipMigrate bool
	// Isolation is that of every transaction of ours: serializable (the default),
	// repeatable read, or read committed. Each is right by itself: what is decided is
	// written only if nothing it was decided by has changed.
	Isolation pgx.TxIsoLevel
	// EngineIsolation leaves the isolation level unsaid, for engines that have but one
	// and refuse to be told another. It must not be set together with Isolation.
	EngineIsolation bool
	// LockTimeout bounds each wait for another transaction, on engines where writers
	// wait. A claim that runs into it finds the key busy, any other write is repeated
	// for a while and is then ErrConflict. It bounds the statements of handlers in our
	// transactions too: there it is ErrConflict at once, which the engine repeats.
	// Sweep and Due pass over a key that runs into it. Default 250 ms; negative leaves the
	// session's setting, for engines without lock_timeout: where their writers wait, all
	// of this lasts as long as the other transaction.
	LockTimeout time.Duration
	// QueryExecMode is how Open has pgx send statements. The zero value keeps
	// prepared statements. It is not for New: there it is the pool's.
	QueryExecMode pgx.QueryExecMode
	// Now replaces all clocks, that of watching included. For tests only.
	Now func() time.Time
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Isolation == "" && !c.EngineIsolation {
		c.Isolation = pgx.Serializable
	}
	if c.MaxClockSkew == 0 {
		c.MaxClockSkew = DefaultMaxClockSkew
	}
	if c.LockTimeout == 0 {
		c.LockTimeout = 250 * time.Millisecond
	}
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
	if c.EngineIsolation && c.Isolation != "" {
		errs = append(errs, configError("EngineIsolation leaves the level unsaid: do not set Isolation to %q as well", c.Isolation))
	}
	if strings.ContainsRune(c.Schema, 0) || len(c.Schema) > 63 {
		errs = append(errs, configError("Schema must be a name of at most 63 bytes"))
	}
	if c.LockTimeout > 0 && c.LockTimeout < time.Millisecond {
		errs = append(errs, configError("LockTimeout must be at least a millisecond, got %v; negative leaves the session's setting", c.LockTimeout))
	}
	return errors.Join(errs...)
}

func configError(format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "configure portable pgstore", Hint: fmt.Sprintf(format, args...)}
}

// qualifier is what stands before table names.
func (c Config) qualifier() string {
	if c.Schema == "" {
		return ""
	}
	return pgx.Identifier{c.Schema}.Sanitize() + "."
}

// begin is what a transaction of ours begins with, in one round trip.
func (c Config) begin() string {
	sql := "BEGIN"
	if c.Isolation != "" {
		sql += " ISOLATION LEVEL " + strings.ToUpper(string(c.Isolation))
	}
	if c.LockTimeout >= 0 {
		sql += fmt.Sprintf("; SET LOCAL lock_timeout = '%dms'", c.LockTimeout.Milliseconds())
	}
	return sql
}
