package tests_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// B89, B86: over each database, behind a cache in the process and behind one that
// shares in Redis, the whole contract holds: rules, transactions, random lists of
// operations against the model, and concurrent histories.
func TestCachedStores(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		cachedSuites(t, sqliteFiles(), "process", "shared")
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		cachedSuites(t, postgresPlaces(t, plainPostgres(pgstore.Partition{})), "shared")
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		cachedSuites(t, mysqlDatabases(t), "shared")
	})
}

// cachedSuites runs everything under caches of these forms, in a soak under both. What is
// shared in Redis has a cache in the process in front of it.
func cachedSuites[Tx any](t *testing.T, db database[Tx], forms ...string) {
	server := testserver.NewRedis(t, "appendonly no")
	for name, cfg := range map[string]cachestore.Config{
		"process": {},
		"shared":  {ReadBack: true, Shared: sharedIn(server)},
	} {
		if !slices.Contains(forms, name) && os.Getenv("ONLYONCE_SOAK") == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("contract", func(t *testing.T) { t.Parallel(); storetest.Run(t, db.cached(cfg)) })
			t.Run("history", func(t *testing.T) { t.Parallel(); storetest.RunHistory(t, db.cached(cfg)) })
			t.Run("model", func(t *testing.T) {
				t.Parallel()
				storetest.RunModel(t, db.cachedReused(t, cfg), reference(t))
			})
			t.Run("transactions", func(t *testing.T) { t.Parallel(); storetest.RunTx(t, db.backend(db.cached(cfg))) })
		})
	}
}

// cached opens two handles behind caches.
func (db database[Tx]) cached(cfg cachestore.Config) storetest.Backend {
	return storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		cfg := cfg
		cfg.Now = now
		one, two := db.open(t, now)
		return storetest.Instance{Store: cached(t, one, cfg), Another: cached(t, two, cfg)}
	}}
}

// cachedReused opens one handle behind a cache, again and again.
func (db database[Tx]) cachedReused(t *testing.T, cfg cachestore.Config) storetest.Backend {
	open := db.reuse(t)
	return storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		cfg := cfg
		cfg.Now = now
		return storetest.Instance{Store: cached(t, open(now), cfg)}
	}}
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

// B86, B88: while Redis is killed, emptied and paused at random, clients retry
// through two processes; each key takes effect once, and all of its answers are
// the same.
func TestCachedStormWithoutRedis(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); cachedStorm(t, sqliteFiles()) })
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		cachedStorm(t, postgresPlaces(t, plainPostgres(pgstore.Partition{})))
	})
	t.Run("mysql", func(t *testing.T) { t.Parallel(); cachedStorm(t, mysqlDatabases(t)) })
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
