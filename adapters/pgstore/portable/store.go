package portable

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/local"
	"github.com/onlyonce-go/onlyonce/adapters/internal/watch"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/internal/pgerr"
)

// Store is an onlyonce.Store on an engine that speaks PostgreSQL's protocol. It is
// safe for concurrent use by any number of goroutines, and any number of Stores may
// share the tables.
type Store struct {
	pool *pgxpool.Pool
	own  bool // the pool is ours to close
	cfg  Config
	// beginSQL begins a transaction, clockSQL reads the clock.
	beginSQL, clockSQL string
	// watch judges leases; nil: the clock does.
	watch *watch.Watch
	// sends watches the last sends of steps; nil: the clock tells how long ago they were.
	sends *watch.Watch
	open  local.Open
	// turns is where Due goes on.
	turns turns
}

var (
	_ onlyonce.TxStore[pgx.Tx] = (*Store)(nil)
	_ onlyonce.StepStore       = (*Store)(nil)
	_ onlyonce.SettingStore    = (*Store)(nil)
	_ onlyonce.OperatorStore   = (*Store)(nil)
	_ onlyonce.RecoveryStore   = (*Store)(nil)
)

// Open connects to the database that url names, with a pool of the Store's own, and
// makes the tables unless Config.SkipMigrate is set. The URL begins with postgres://,
// postgresql:// or postgres+portable://, which are the same here; the driver's other
// form, of keywords and values, is refused, since the driver takes any misspelt URL for
// it and connects to wherever its defaults say. It returns an error when the URL is
// wrong, which never tells it, ErrUnreachable when the server cannot be reached, another
// error when it is there and lets nobody in, and what Migrate returns. Close the Store
// in the end.
func Open(ctx context.Context, url string, cfg Config) (*Store, error) {
	pc, err := poolConfig(url)
	if err != nil {
		return nil, err
	}
	if cfg.QueryExecMode != 0 {
		pc.ConnConfig.DefaultQueryExecMode = cfg.QueryExecMode
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, pgerr.Classify("open portable pgstore", err, pgerr.Undone)
	}
	s, err := New(pool, cfg)
	if err == nil {
		err = s.probe(ctx)
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

// poolConfig reads a URL. Its errors leave the driver's out: they may hold the password.
func poolConfig(url string) (*pgxpool.Config, error) {
	wrong := func(hint string) error {
		return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "open portable pgstore", Hint: hint}
	}
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok || !slices.Contains([]string{"postgres", "postgresql", "postgres+portable"}, scheme) {
		return nil, wrong("a URL must begin with postgres://, postgresql:// or postgres+portable://; keywords and values are not taken")
	}
	pc, err := pgxpool.ParseConfig("postgres://" + rest)
	if err != nil {
		return nil, wrong("the URL cannot be read; use postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	return pc, nil
}

// New makes a Store on the caller's pool, which stays the caller's to close. It does
// not connect.
func New(pool *pgxpool.Pool, cfg Config) (*Store, error) {
	if pool == nil {
		return nil, configError("New needs a pool")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	s := &Store{pool: pool, cfg: cfg, beginSQL: cfg.begin(), clockSQL: clockOfTransaction, open: local.NewOpen()}
	if cfg.OneClock {
		s.clockSQL = clockOfServer
	} else {
		s.watch, s.sends = watch.New(cfg.Now, 0), watch.New(cfg.Now, 0)
	}
	return s, nil
}

// probe makes sure that the engine begins a transaction as we do and tells its time.
func (s *Store) probe(ctx context.Context) error {
	return s.transact(ctx, "open portable pgstore", func(ctx context.Context, t *txn) error {
		return t.look(ctx)
	})
}

// Close closes the pool, if Open made it, and waits for its connections. It never
// fails.
func (s *Store) Close() error {
	if s.own {
		s.pool.Close()
	}
	return nil
}

// Features says what is promised. It is durable as far as the engine's commits are; a
// session that would do without is told not to. Transactions of one key may run side by side until
// one of them commits (CommitDecides); whether they do is the engine's affair.
func (s *Store) Features() onlyonce.Features {
	return onlyonce.Features{
		Name: "postgres-portable", Durable: true, Transactions: true, Steps: true, Resources: true, Recovery: true,
		Settings: true, Operators: true, Observes: s.watch != nil, CommitDecides: true,
	}
}

// Get reads a record; false if there is none or it has expired. One round trip.
func (s *Store) Get(ctx context.Context, key onlyonce.Key) (onlyonce.Record, bool, error) {
	var at sight
	now, err := s.read(ctx, "read key", at.readKey(key))
	if err != nil || at.key == nil || at.key.Expired(now) {
		return onlyonce.Record{}, false, err
	}
	return at.key.Record, true, nil
}

// sql is a statement with the schema in its place.
func (s *Store) sql(text string) string { return strings.ReplaceAll(text, "{s}", s.cfg.qualifier()) }

// micros is a duration in the resolution of the tables, never rounded to nothing.
func micros(d time.Duration) int64 {
	if d > 0 && d < time.Microsecond {
		return 1
	}
	return d.Microseconds()
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// whole is a duration as the tables keep it.
func whole(d time.Duration) time.Duration { return duration(micros(d)) }
