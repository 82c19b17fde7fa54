package mysqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/local"
	"github.com/onlyonce-go/onlyonce/adapters/internal/watch"
)

// Store is an onlyonce.Store in MySQL, MariaDB, a Galera cluster or Vitess. It is safe
// for concurrent use by any number of goroutines, and any number of Stores may share
// the tables.
type Store struct {
	db  *sql.DB
	own bool // the pool is ours to close
	cfg Config
	// at is what sessions were like when the Store was made.
	at session
	// locks begins the names of the locks of keys.
	locks string
	// watch judges leases in a Galera cluster; nil elsewhere.
	watch *watch.Watch
	// sends is what it has seen of the sends of steps there.
	sends *watch.Watch
	open  local.Open
	seen  local.Seen
}

var (
	_ onlyonce.TxStore[*sql.Tx] = (*Store)(nil)
	_ onlyonce.StepStore        = (*Store)(nil)
	_ onlyonce.SettingStore     = (*Store)(nil)
	_ onlyonce.OperatorStore    = (*Store)(nil)
	_ onlyonce.RecoveryStore    = (*Store)(nil)
)

// New makes a Store on the caller's pool, which stays the caller's to close, and
// makes or updates the tables unless Config.SkipMigrate is set. It looks at one of
// the pool's sessions and refuses it, with CodeConfig and a hint, when it is not in
// strict mode, has autocommit off, chains transactions (completion_type), is READ
// UNCOMMITTED, has another character set than UTF-8 or one of single bytes, limits what
// it reads (sql_select_limit) or logs (sql_log_bin), in a Galera cluster is not a part
// of it (wsrep_on) or does not wait for its node (wsrep_sync_wait=7), or on Vitess may
// reach two shards in one transaction (transaction_mode). A replication group of several
// primaries is refused too. All sessions must be alike, and stay so: whoever changes
// one, or leaves a transaction open on it that was not begun with BeginTx, must not give
// it back, since what the store writes there would not be committed (Open's pool takes
// care of that by itself). With the driver's
// interpolateParams a statement takes one round trip instead of two. The pool's own
// innodb_lock_wait_timeout, wait_timeout and readTimeout should be short.
func New(ctx context.Context, db *sql.DB, cfg Config) (*Store, error) {
	if db == nil {
		return nil, configError("New needs a pool")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	at, err := readSession(ctx, db)
	if err == nil {
		err = at.check()
	}
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, cfg: cfg.WithDefaults(), at: at, open: local.NewOpen(), seen: local.NewSeen()}
	h := fnv.New32a()
	_, _ = h.Write([]byte(at.database)) // a hash never fails
	s.locks = fmt.Sprintf("onlyonce:%08x:", h.Sum32())
	if at.galera() {
		s.watch, s.sends = watch.New(cfg.Now, 0), watch.New(cfg.Now, 0)
	}
	bring := s.Migrate
	if cfg.SkipMigrate {
		bring = s.checkSchema
	}
	if err := bring(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Close closes the pool, if Open made it.
func (s *Store) Close() error {
	if !s.own {
		return nil
	}
	if err := s.db.Close(); err != nil {
		return classify("close mysqlstore", err, undone)
	}
	return nil
}

// DB is the pool, for the business tables' own statements, and for transactions that
// end with CompleteTx. Of Open's a connection is closed, not given back, when a statement
// on it may have changed the session or begun a transaction: anything but SELECT, INSERT,
// UPDATE, DELETE, REPLACE, WITH, SHOW, EXPLAIN and savepoints. Of New's nothing is: begin
// transactions with BeginTx only.
func (s *Store) DB() *sql.DB { return s.db }

// Features says what is promised. Durable is false where the server does not flush
// its log at every commit (innodb_flush_log_at_trx_commit).
func (s *Store) Features() onlyonce.Features {
	f := onlyonce.Features{
		Name: "mysql", Durable: s.at.durable(), Transactions: true, Steps: true, Resources: true, Recovery: true,
		Settings: true, Operators: true,
	}
	if s.at.vitess() {
		f.Name, f.Resources = "vitess", false
	}
	if s.watch != nil {
		f.Name, f.Observes, f.CommitDecides = "galera", true, true
	}
	return f
}

// Get reads a record; false if there is none or it has expired. It takes no lock.
func (s *Store) Get(ctx context.Context, key onlyonce.Key) (onlyonce.Record, bool, error) {
	found, err := s.look(ctx, key, "")
	if err != nil || found.key == nil || found.key.Expired(found.key.now) {
		return onlyonce.Record{}, false, err
	}
	return found.key.Record, true, nil
}

// sql is the statement with the time that takes the place of the server's, if one
// does.
func (s *Store) sql(query string) string {
	if s.cfg.Now == nil {
		return query
	}
	return strings.ReplaceAll(query, nowSQL, strconv.FormatInt(s.cfg.Now().UnixMicro(), 10))
}

// lockName is the name of a key's lock. All of a server's databases share them.
func (s *Store) lockName(d onlyonce.Digest) string { return s.locks + hex.EncodeToString(d[:]) }

// micros is a duration in microseconds, rounded up: a lease or a retention is never
// shorter than it was asked for.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }
