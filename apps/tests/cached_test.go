package tests_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// database is a kind of store that a cache is put before, with business data, a
// list of names, beside it.
type database[Tx any] struct {
	// open gives two handles on fresh data.
	open func(t *testing.T, now func() time.Time) (one, two onlyonce.TxStore[Tx])
	// reopen does the same, again and again within one test; nil: open does.
	reopen func(t *testing.T, now func() time.Time) (one, two onlyonce.TxStore[Tx])
	write  func(ctx context.Context, tx Tx, name string) error
	count  func(t *testing.T, store onlyonce.Store, name string) int
	do     func(ctx context.Context, store onlyonce.Store, fn func(Tx) error) error
}

// B89, B86: over each database, behind a cache in the process and behind one that
// shares in Redis, the whole contract holds: rules, transactions, random lists of
// operations against the model, and concurrent histories.
func TestCachedStores(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		cachedSuites(t, cachedSQLite())
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		cachedSuites(t, cachedPostgres(t))
	})
}

func cachedSuites[Tx any](t *testing.T, db database[Tx]) {
	server := testserver.NewRedis(t, "appendonly no")
	for name, cfg := range map[string]cachestore.Config{
		"process": {},
		"shared":  {ReadBack: true, Shared: sharedIn(server)},
	} {
		cache := func(open func(*testing.T, func() time.Time) (one, two onlyonce.TxStore[Tx])) storetest.Backend {
			return storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
				cfg := cfg
				cfg.Now = now
				one, two := open(t, now)
				return storetest.Instance{Store: cached(t, one, cfg), Another: cached(t, two, cfg)}
			}}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("contract", func(t *testing.T) { t.Parallel(); storetest.Run(t, cache(db.open)) })
			t.Run("history", func(t *testing.T) { t.Parallel(); storetest.RunHistory(t, cache(db.open)) })
			t.Run("model", func(t *testing.T) {
				t.Parallel()
				open := db.reopen
				if open == nil {
					open = db.open
				}
				storetest.RunModel(t, cache(open), func(now func() time.Time) onlyonce.Store { return memory(t, now) })
			})
			t.Run("transactions", func(t *testing.T) { t.Parallel(); storetest.RunTx(t, db.backend(cache(db.open))) })
		})
	}
}

// backend adds the business data.
func (db database[Tx]) backend(b storetest.Backend) storetest.TxBackend[Tx] {
	return storetest.TxBackend[Tx]{
		Open: b.Open, Write: db.write,
		Count: func(t *testing.T, in storetest.Instance, name string) int {
			return db.count(t, beneath[Tx](in.Store), name)
		},
		Do: func(ctx context.Context, in storetest.Instance, fn func(Tx) error) error {
			return db.do(ctx, beneath[Tx](in.Store), fn)
		},
	}
}

// beneath is the store behind a cache.
func beneath[Tx any](s onlyonce.Store) onlyonce.Store {
	return s.(*cachestore.TxStore[Tx]).Store.Store
}

// cached puts a cache before a store.
func cached[Tx any](t *testing.T, store onlyonce.TxStore[Tx], cfg cachestore.Config) *cachestore.TxStore[Tx] {
	t.Helper()
	s, err := cachestore.NewTx(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func sharedIn(server *testserver.RedisServer) *cachestore.Shared {
	return &cachestore.Shared{Redis: &redis.UniversalOptions{Addrs: []string{server.Address()}}, Timeout: 5 * time.Second}
}

func memory(t *testing.T, now func() time.Time) onlyonce.Store {
	t.Helper()
	m, err := memstore.New(memstore.Config{SingleProcess: true, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// cachedSQLite is a file for each test.
func cachedSQLite() database[*sql.Tx] {
	open := func(t *testing.T, path string, now func() time.Time) *sqlitestore.Store {
		s, err := sqlitestore.Open(t.Context(), path, sqlitestore.Config{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	return database[*sql.Tx]{
		open: func(t *testing.T, now func() time.Time) (one, two onlyonce.TxStore[*sql.Tx]) {
			path := filepath.Join(t.TempDir(), "once.db")
			s := open(t, path, now)
			if _, err := s.Writer().ExecContext(t.Context(), "CREATE TABLE names (name TEXT)"); err != nil {
				t.Fatal(err)
			}
			return s, open(t, path, now)
		},
		write: func(ctx context.Context, tx *sql.Tx, name string) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO names VALUES (?)", name)
			return err
		},
		count: func(t *testing.T, store onlyonce.Store, name string) (n int) {
			row := store.(*sqlitestore.Store).Reader().QueryRowContext(t.Context(), "SELECT count(*) FROM names WHERE name = ?", name)
			if err := row.Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		},
		do: func(ctx context.Context, store onlyonce.Store, fn func(*sql.Tx) error) error {
			tx, err := store.(*sqlitestore.Store).Writer().BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := fn(tx); err != nil {
				return err
			}
			return tx.Commit()
		},
	}
}

// places are schemas of one database, each with our tables and one of names, that
// tests take and give back empty.
type places struct {
	t     *testing.T // whose end is theirs
	dsn   string
	mu    sync.Mutex
	free  []*place
	made  int
	pools sync.Map // of *pgxpool.Pool, by store
	kept  sync.Map // of func() *place, by test
}

// place is one of them; its connections find it first.
type place struct {
	schema   string
	one, two *pgxpool.Pool
}

func cachedPostgres(t *testing.T) database[pgx.Tx] {
	p := &places{t: t, dsn: testserver.Postgres(t)}
	return database[pgx.Tx]{
		open: func(t *testing.T, now func() time.Time) (one, two onlyonce.TxStore[pgx.Tx]) {
			at := p.take()
			t.Cleanup(func() { p.give(at) })
			return p.open(t, at, now)
		},
		reopen: func(t *testing.T, now func() time.Time) (one, two onlyonce.TxStore[pgx.Tx]) {
			v, used := p.kept.LoadOrStore(t, sync.OnceValue(p.take))
			at := v.(func() *place)()
			if used {
				p.clear(at)
			}
			return p.open(t, at, now)
		},
		write: func(ctx context.Context, tx pgx.Tx, name string) error {
			_, err := tx.Exec(ctx, "INSERT INTO names VALUES ($1)", name)
			return err
		},
		count: func(t *testing.T, store onlyonce.Store, name string) (n int) {
			if err := p.poolOf(store).QueryRow(t.Context(), "SELECT count(*) FROM names WHERE name = $1", name).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		},
		do: func(ctx context.Context, store onlyonce.Store, fn func(pgx.Tx) error) error {
			return pgx.BeginFunc(ctx, p.poolOf(store), fn)
		},
	}
}

func (p *places) poolOf(store onlyonce.Store) *pgxpool.Pool {
	v, _ := p.pools.Load(store)
	return v.(*pgxpool.Pool)
}

func (p *places) open(t *testing.T, at *place, now func() time.Time) (one, two onlyonce.TxStore[pgx.Tx]) {
	open := func(pool *pgxpool.Pool) *pgstore.Store {
		s, err := pgstore.New(pool, pgstore.Config{Schema: at.schema, Now: now})
		if err == nil {
			err = s.Migrate(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		p.pools.Store(onlyonce.Store(s), pool)
		return s
	}
	return open(at.one), open(at.two)
}

func (p *places) take() *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		at := p.free[n-1]
		p.free = p.free[:n-1]
		return at
	}
	p.made++
	at := &place{schema: fmt.Sprint("place_", p.made)}
	at.one, at.two = p.pool(at.schema), p.pool(at.schema)
	p.exec(at, "CREATE SCHEMA "+at.schema)
	p.exec(at, "CREATE TABLE names (name text)")
	return at
}

func (p *places) give(at *place) {
	p.clear(at)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, at)
}

// clear empties what New has made, or will make.
func (p *places) clear(at *place) {
	for _, table := range []string{"onlyonce_keys", "onlyonce_steps", "onlyonce_settings", "onlyonce_audit", "names"} {
		p.exec(at, fmt.Sprintf("DO $$ BEGIN IF to_regclass('%s.%s') IS NOT NULL THEN DELETE FROM %[1]s.%[2]s; END IF; END $$", at.schema, table))
	}
}

func (p *places) pool(schema string) *pgxpool.Pool {
	cfg, err := pgxpool.ParseConfig(p.dsn)
	if err != nil {
		p.t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = schema
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(p.t.Context()), cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(pool.Close)
	return pool
}

func (p *places) exec(at *place, statement string) {
	if _, err := at.one.Exec(context.WithoutCancel(p.t.Context()), statement); err != nil {
		p.t.Errorf("%s: %v", statement, err)
	}
}

// B86, B88: while Redis is killed, emptied and paused at random, clients retry
// through two processes; each key takes effect once, and all of its answers are
// the same.
func TestCachedStormWithoutRedis(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); cachedStorm(t, cachedSQLite()) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); cachedStorm(t, cachedPostgres(t)) })
}

func cachedStorm[Tx any](t *testing.T, db database[Tx]) {
	server := testserver.NewRedis(t, "appendonly no")
	shared := sharedIn(server)
	shared.Timeout = 50 * time.Millisecond
	one, two := db.open(t, time.Now)
	stores := []*cachestore.TxStore[Tx]{
		cached(t, one, cachestore.Config{Shared: shared, ReadBack: true}), cached(t, two, cachestore.Config{Shared: shared, MaxBytes: 4 << 10}),
	}
	ctx, over := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		defer over()
		disturb(ctx, t, server)
	})
	var answers sync.Map
	for client := range 8 {
		wg.Go(func() {
			for round := 0; round == 0 || ctx.Err() == nil; round++ {
				for key := range 20 {
					name := fmt.Sprint(key)
					body := insist(t, db, stores[(client+round)%2], name)
					if first, ok := answers.LoadOrStore(name, body); ok && first != body {
						t.Errorf("%s was answered %q and %q", name, first, body)
					}
				}
			}
		})
	}
	wg.Wait()
	for key := range 20 {
		if n := db.count(t, one, fmt.Sprint(key)); n != 1 {
			t.Errorf("%d took effect %d times", key, n)
		}
	}
	a, b := stores[0].Stats(), stores[1].Stats()
	t.Logf("%+v\n%+v", a, b)
	if a.Hits+b.Hits == 0 {
		t.Error("nothing was answered from memory")
	}
}

// insist sends one request until it is answered.
func insist[Tx any](t *testing.T, db database[Tx], s *cachestore.TxStore[Tx], name string) string {
	req := onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: "acct", Value: name}, Operation: "POST /charges", Lease: time.Minute, Retention: time.Hour, Abandon: onlyonce.AbandonRerun,
	}
	copy(req.Fingerprint.Sum[:], name)
	body := onlyonce.NewToken().String()
	for t.Context().Err() == nil {
		req.Attempt = onlyonce.NewToken()
		claim, settled, err := s.Atomic(t.Context(), req, func(ctx context.Context, tx Tx) (*onlyonce.Answer, error) {
			return &onlyonce.Answer{Status: 201, Body: []byte(body)}, db.write(ctx, tx, name)
		})
		switch {
		case settled.Held:
			return body
		case claim.Verdict == onlyonce.Replay:
			return string(claim.Record.Answer.Body)
		case err != nil && !errors.Is(err, onlyonce.ErrConflict), err == nil && claim.Verdict != onlyonce.Busy:
			t.Errorf("%s: %v, %v", name, claim.Verdict, err)
			return ""
		}
		pause(t.Context(), time.Millisecond)
	}
	return ""
}

// disturb does to a Redis what happens to one, and leaves it alone in between.
func disturb(ctx context.Context, t *testing.T, server *testserver.RedisServer) {
	for _, what := range rand.Perm(9) {
		var begin, end func() error
		switch what % 3 {
		case 0:
			begin, end = server.Kill, server.Start
		case 1:
			begin, end = server.Pause, server.Resume
		case 2:
			begin = func() error { _, err := server.Do("FLUSHALL"); return err }
			end = begin
		}
		err := begin()
		pause(ctx, 50*time.Millisecond)
		if err = errors.Join(err, end()); err != nil {
			t.Error(err)
			return
		}
		pause(ctx, time.Duration(rand.IntN(600))*time.Millisecond)
	}
}
