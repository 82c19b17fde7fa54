// Package pgstore keeps records in PostgreSQL 14 or later, beside the business
// data, through pgx.
//
// A claim of a fresh key costs its winner one round trip and a loser at most
// two, a replay of a key this process has met before one; a replay writes
// nothing. Atomic adds two round trips to those of the handler: BEGIN
// travels with the claim, COMMIT with the answer. Whoever meets a key that a
// transaction has claimed and not yet committed is told so at once instead of
// waiting: every claim tries an advisory lock made from the key's digest and
// the schema's name, in the space of locks with one bigint key. Transactions
// hold it alone, single claims share it.
//
// Who has a resource is decided by a unique index, which only claims that name one
// touch; a claim that finds it held costs two round trips at most and waits for
// nobody. What is kept of requests is in one index as well, which recoverers read
// in the order in which turns come.
//
// Answers and kept requests stand in the key's row, or beside it, in partitions by the
// time when they expire, which are emptied as a whole (Config.Partition). Round trips
// are the same in both; with partitions a key writes a fifth more WAL, a replay opens
// every partition and reads one, and what is left to delete row by row are the keys
// themselves, without their answers, steps, and answers that are retained for longer
// than there are partitions. (scope, key) is unique in either form: the key's row is
// in no partition.
//
// It needs SELECT, INSERT, UPDATE and DELETE on its tables; only making them
// (Migrate) and emptying partitions (MaintainPartitions) need more. It works with a pool of one connection, behind
// PgBouncer in transaction mode (see Config.QueryExecMode), and with sessions
// whose default isolation is serializable or whose commits are asynchronous.
package pgstore

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/local"
)

// Store is an onlyonce.Store in PostgreSQL. It is safe for concurrent use by
// any number of goroutines, and any number of Stores may share the tables.
type Store struct {
	pool *pgxpool.Pool
	own  bool // the pool is ours to close
	cfg  Config
	sql  statements
	// settings is the statement behind BEGIN.
	settings string
	// salt keeps the locks of two schemas of one database apart.
	salt  uint64
	known atomic.Pointer[facts] // nil: not yet
	open  local.Open
	seen  local.Seen
	sweep cursors
}

var (
	_ onlyonce.TxStore[pgx.Tx] = (*Store)(nil)
	_ onlyonce.StepStore       = (*Store)(nil)
	_ onlyonce.SettingStore    = (*Store)(nil)
	_ onlyonce.OperatorStore   = (*Store)(nil)
	_ onlyonce.RecoveryStore   = (*Store)(nil)
)

// Open connects to the database that url names, with a pool of the Store's own,
// and makes or updates the tables unless Config.SkipMigrate is set. It returns
// an error when the URL is wrong, ErrUnreachable when the server cannot be reached,
// another error when it is there and lets nobody in, and what Migrate returns.
// Close the Store in the end.
func Open(ctx context.Context, url string, cfg Config) (*Store, error) {
	// What is no URL of its own the driver takes for settings by name, of which it
	// ignores those it does not know: keys would go to whatever server is the default.
	if scheme, _, ok := strings.Cut(url, "://"); ok && scheme != "postgres" && scheme != "postgresql" {
		return nil, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "open pgstore", Hint: "the URL must begin with postgres://"}
	}
	pc, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "open pgstore", Hint: "the URL cannot be read", Err: err}
	}
	if cfg.QueryExecMode != 0 {
		pc.ConnConfig.DefaultQueryExecMode = cfg.QueryExecMode
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, classify("open pgstore", err, undone)
	}
	s, err := New(pool, cfg)
	if err == nil {
		err = s.look(ctx)
	}
	if err == nil && !cfg.SkipMigrate {
		err = s.Migrate(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.own = true
	return s, nil
}

// New makes a Store on the caller's pool, which stays the caller's to close. It
// does not connect.
func New(pool *pgxpool.Pool, cfg Config) (*Store, error) {
	if pool == nil {
		return nil, configError("New needs a pool")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	h := fnv.New64a()
	_, _ = h.Write([]byte("onlyonce\x00" + cfg.Schema)) // a hash never fails
	return &Store{
		pool: pool, cfg: cfg, sql: newStatements(cfg.qualifier()), settings: cfg.settings(), salt: h.Sum64(),
		open: local.NewOpen(), seen: local.NewSeen(),
	}, nil
}

// Close closes the pool, if Open made it, and waits for its connections.
// It never fails.
func (s *Store) Close() error {
	if s.own {
		s.pool.Close()
	}
	return nil
}

// Features says what is promised.
func (s *Store) Features() onlyonce.Features {
	return onlyonce.Features{Name: "postgres", Durable: true, Transactions: true, Steps: true, Resources: true, Recovery: true, Settings: true, Operators: true}
}

// Get reads a record; false if there is none or it has expired. It takes no lock.
func (s *Store) Get(ctx context.Context, key onlyonce.Key) (onlyonce.Record, bool, error) {
	rec, err := s.read(ctx, alone{s}, key)
	if err != nil || rec == nil || rec.Expired(rec.now) {
		return onlyonce.Record{}, false, err
	}
	return rec.Record, true, nil
}

// now is the time that takes the place of the server's; nil: it does not.
func (s *Store) now() *time.Time {
	if s.cfg.Now == nil {
		return nil
	}
	t := s.cfg.Now()
	return &t
}

// lock is the key's number among advisory locks.
func (s *Store) lock(d onlyonce.Digest) int64 {
	return int64(binary.BigEndian.Uint64(d[:8]) ^ s.salt)
}

// micros is a duration in the resolution of the database, never rounded to
// nothing.
func micros(d time.Duration) int64 {
	if d > 0 && d < time.Microsecond {
		return 1
	}
	return d.Microseconds()
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
