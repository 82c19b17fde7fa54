package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Config configures a Store. The zero value is the careful choice.
type Config struct {
	// BusyTimeout is how long a writer waits for another process to give up
	// the file's write lock before it fails. Default 5 s.
	BusyTimeout time.Duration
	// SkipMigrate leaves the tables as they are; Open then fails unless they
	// are of this version. For processes that may not change the schema.
	SkipMigrate bool
	// Now replaces the host's clock, for tests. All processes on one file must
	// have the same clock.
	Now func() time.Time
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.BusyTimeout == 0 {
		c.BusyTimeout = 5 * time.Second
	}
	if c.Now == nil {
		c.Now = hostClock
	}
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields.
func (c Config) Validate() error {
	if c.BusyTimeout < 0 || (c.BusyTimeout > 0 && c.BusyTimeout < time.Millisecond) || c.BusyTimeout > time.Hour {
		return configError("BusyTimeout", "must be between 1 ms and 1 h, got %v", c.BusyTimeout)
	}
	return nil
}

// Store is an onlyonce store in a SQLite file. It is safe for concurrent use,
// and so are several of them on one file, in one process or in many.
//
// After a crash of the process or of the machine, what a method has confirmed
// is there (write-ahead log, synchronous=FULL), and of what it had not
// confirmed either everything or nothing.
type Store struct {
	clock  func() time.Time
	busy   time.Duration
	writer *sql.DB
	reader *sql.DB
	reads  prepared
	writes prepared
	// turn lets writers of this process queue in order, each for as long as
	// its context lasts.
	turn chan struct{}
	// sealed vetoes every commit on the writing connection; see txn.
	sealed *atomic.Bool
	// open are the claims of transactions under way in this process.
	open openClaims
}

var (
	_ onlyonce.Store            = (*Store)(nil)
	_ onlyonce.TxStore[*sql.Tx] = (*Store)(nil)
	_ onlyonce.SettingStore     = (*Store)(nil)
	_ onlyonce.StepStore        = (*Store)(nil)
	_ onlyonce.OperatorStore    = (*Store)(nil)
	_ onlyonce.RecoveryStore    = (*Store)(nil)
)

// Open opens the file, makes it where there is none, and brings its tables up
// to date unless the configuration says not to. Every error has an
// *onlyonce.Error in its chain: CodeConfig for a wrong setting or tables of
// another version, CodeStoreUnavailable, with a hint where there is one, for a
// file that cannot be used, and for a context that has ended. Nothing is left
// open then. Close the store when it is no longer used.
func Open(ctx context.Context, path string, cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if path == "" || path == ":memory:" {
		return nil, configError("path", "must name a file, got %q: records in memory are lost with the process", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, openError(path, err)
	}
	cfg = cfg.WithDefaults()
	s := &Store{
		clock: cfg.Now, busy: cfg.BusyTimeout,
		turn: make(chan struct{}, 1), sealed: &atomic.Bool{},
	}
	if err := s.connect(path); err != nil {
		return nil, openError(path, err)
	}
	if err := s.setUp(ctx, cfg); err != nil {
		return nil, openError(path, errors.Join(err, s.Close()))
	}
	return s, nil
}

// openError names the file, and classifies what nobody has classified yet.
func openError(path string, err error) error {
	if onlyonce.CodeOf(err) == "" {
		return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: "open " + path, Err: err}
	}
	return fmt.Errorf("open %s: %w", path, err)
}

// setUp makes sure that the file can be written and has this version's
// tables.
func (s *Store) setUp(ctx context.Context, cfg Config) error {
	if err := s.firstConnection(ctx); err != nil {
		return s.fail("open database", err)
	}
	bring := s.Migrate
	if cfg.SkipMigrate {
		bring = s.checkSchema
	}
	if err := bring(ctx); err != nil {
		return err
	}
	if err := s.probe(ctx); err != nil {
		return err
	}
	return s.prepare(ctx)
}

// probe finds out whether the file may be written at all: on one that may not,
// even BEGIN IMMEDIATE succeeds. That somebody else writes it just now is no
// fault.
func (s *Store) probe(ctx context.Context) error {
	t, err := s.begin(ctx)
	if isBusy(err) {
		return nil
	}
	if err != nil {
		return s.fail("open database", err)
	}
	defer t.end()
	if _, err := exec(ctx, t.Tx, writeNothing); err != nil {
		return s.fail("open database", err)
	}
	return nil
}

// Close waits for the store's transaction under way, if there is one, and
// closes the file. It may be called twice, but not inside a transaction.
func (s *Store) Close() error {
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	if err := errors.Join(s.reader.Close(), s.writer.Close()); err != nil {
		return s.fail("close database", err)
	}
	return nil
}

// Features says what the store promises. SeesUncommitted holds within one
// process; a duplicate in another process waits for the writer.
func (s *Store) Features() onlyonce.Features {
	return onlyonce.Features{
		Name: "sqlite", Durable: true, Transactions: true, Steps: true, Resources: true, Recovery: true, SeesUncommitted: true,
		Settings: true, Operators: true,
	}
}

// Writer is the file's one writing connection, for business tables: their
// migrations, and transactions that end with CompleteTx, which begin
// IMMEDIATE. Whoever holds it makes every other writer wait, the store's too:
// keep transactions short, call no method of the store inside one but
// CompleteTx, and leave the pool's size alone. Every error of a statement must end the transaction: SQLite may
// have rolled it back already.
func (s *Store) Writer() *sql.DB { return s.writer }

// Reader is a pool of connections that cannot write, for business reads. They
// see what is committed and wait for nobody.
func (s *Store) Reader() *sql.DB { return s.reader }
