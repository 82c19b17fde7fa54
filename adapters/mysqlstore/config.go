package mysqlstore

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Config configures a Store. The zero value is the careful choice.
type Config struct {
	// SkipMigrate leaves the tables as they are; Open and New then fail unless they
	// are of this version. For programs that may not change the schema.
	SkipMigrate bool
	// Isolation is that of the transactions of Atomic, Finish and StepTx:
	// sql.LevelReadCommitted (the default), sql.LevelRepeatableRead or
	// sql.LevelSerializable. The last two lock gaps, so that more of them end in
	// ErrConflict. All others are READ COMMITTED.
	Isolation sql.IsolationLevel
	// MaxConns bounds the connections of Open's pool. Default 32. It is not for
	// New.
	MaxConns int
	// StatementTimeout bounds how long Open's connections wait for a reply. A
	// connection that waited for longer is closed, and a write on it is uncertain.
	// Default 30 s; negative: no bound. It is not for New: there it is the driver's
	// readTimeout.
	StatementTimeout time.Duration
	// LockTimeout bounds each wait for a row's lock on Open's connections, those of
	// handlers included, in whole seconds; what runs into it is ErrConflict. Default
	// 10 s; negative leaves the server's setting. It is not for New: there it is the
	// session's innodb_lock_wait_timeout.
	LockTimeout time.Duration
	// IdleTimeout bounds how long a session of Open's may lie idle, also inside a
	// transaction, in whole seconds, so that a peer that vanished cannot hold a key. A
	// handler that thinks for longer between two statements loses its transaction.
	// Default 30 s; negative leaves the server's setting. It is not for New: there
	// it is the session's wait_timeout. Vitess does not listen to it: there it is
	// vttablet's own limit of a transaction.
	IdleTimeout time.Duration
	// MaxClockSkew is by how much the clocks of a Galera cluster's nodes may differ. It
	// is added to the age of a step's first send, so that nothing is sent again past
	// what a provider remembers. Default 5 min; negative: none. Elsewhere there is one
	// clock.
	MaxClockSkew time.Duration
	// Now replaces the server's clock, and the one that leases are watched by in a
	// Galera cluster. For tests only.
	Now func() time.Time
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Isolation == sql.LevelDefault {
		c.Isolation = sql.LevelReadCommitted
	}
	if c.MaxConns == 0 {
		c.MaxConns = 32
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
	if c.MaxClockSkew == 0 {
		c.MaxClockSkew = 5 * time.Minute
	}
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields.
func (c Config) Validate() error {
	var errs []error
	switch c.Isolation {
	case sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable:
	default:
		errs = append(errs, configError("Isolation must be read committed, repeatable read or serializable, got %v", c.Isolation))
	}
	if c.MaxConns < 0 {
		errs = append(errs, configError("MaxConns must not be negative, got %d", c.MaxConns))
	}
	if c.StatementTimeout > 0 && c.StatementTimeout < time.Millisecond {
		errs = append(errs, configError("StatementTimeout must be at least a millisecond, got %v", c.StatementTimeout))
	}
	for _, d := range []struct {
		name string
		time.Duration
	}{{"LockTimeout", c.LockTimeout}, {"IdleTimeout", c.IdleTimeout}} {
		if d.Duration > 0 && d.Duration < time.Second {
			errs = append(errs, configError("%s must be at least a second, got %v", d.name, d.Duration))
		}
	}
	return errors.Join(errs...)
}

func configError(format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "configure mysqlstore", Hint: fmt.Sprintf(format, args...)}
}
