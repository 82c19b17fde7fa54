package cachestore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// setting is one way of caching that every suite runs with.
type setting struct {
	name   string
	config func() cachestore.Config
	// handles is how many caches, each a process of its own, take turns.
	handles int
	// met tells whether what was counted shows that the tiers were in use.
	met func(total cachestore.Stats) bool
}

func settings(t *testing.T) []setting {
	t.Helper()
	redis := startRedis(t)
	var names atomic.Int64
	inProcess := func(n cachestore.Stats) bool { return n.Hits > 0 }
	return []setting{
		{"process", func() cachestore.Config { return cachestore.Config{} }, 1, inProcess},
		{"read_back", func() cachestore.Config { return cachestore.Config{ReadBack: true, MaxBytes: 20 << 10} }, 1, inProcess},
		// All stores of the suite write to one Redis, under the same names.
		{"one_redis_for_many_databases", func() cachestore.Config {
			return cachestore.Config{ReadBack: true, Shared: redis.shared()}
		}, 3, func(n cachestore.Stats) bool { return n.Rejected > 0 && n.SharedErrors == 0 }},
		{"shared", func() cachestore.Config {
			shared := redis.shared()
			shared.Namespace = fmt.Sprint("shared-", names.Add(1))
			return cachestore.Config{Shared: shared}
		}, 3, func(n cachestore.Stats) bool { return n.SharedHits > 0 && n.SharedErrors == 0 && n.Rejected == 0 }},
	}
}

// each runs a suite behind each kind of cache over a memory store.
func each(t *testing.T, run func(t *testing.T, ground *ground)) {
	t.Helper()
	for _, c := range settings(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			run(t, &ground{setting: c})
		})
	}
}

// ground opens stores behind one kind of cache.
type ground struct {
	setting
	mu     sync.Mutex
	caches []*cached
}

func (g *ground) open(t *testing.T, now func() time.Time) storetest.Instance {
	t.Helper()
	mem, cfg := newMemory(t, now), g.config()
	cfg.Now = now
	s, another := newTurns(t, mem, cfg, g.handles), before(t, mem, cfg)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.caches = append(append(g.caches, s.all...), another)
	return storetest.Instance{Store: s, Another: another}
}

// examined fails at the end of the test unless the suite has met the cache.
func (g *ground) examined(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		var total cachestore.Stats
		for _, s := range g.caches {
			n := s.Stats()
			total.Hits += n.Hits
			total.SharedHits += n.SharedHits
			total.SharedErrors += n.SharedErrors
			total.Rejected += n.Rejected
		}
		if !g.met(total) {
			t.Errorf("the suite has not examined the cache: %+v", total)
		}
	})
}

// turns is several caches before one store, as several processes have them: each
// call that a cache may answer or learn from goes to the next.
type turns struct {
	*cached
	mem  *memstore.Store
	all  []*cached
	next *atomic.Int64
}

func newTurns(t *testing.T, mem *memstore.Store, cfg cachestore.Config, handles int) *turns {
	t.Helper()
	s := &turns{mem: mem, next: new(atomic.Int64)}
	for range handles {
		s.all = append(s.all, before(t, mem, cfg))
	}
	s.cached = s.all[0]
	return s
}

func (s *turns) turn() *cached { return s.all[int(s.next.Add(1))%len(s.all)] }

func (s *turns) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	return s.turn().Claim(ctx, req)
}

func (s *turns) Complete(ctx context.Context, o onlyonce.Owner, a onlyonce.Answer) (onlyonce.Settled, error) {
	return s.turn().Complete(ctx, o, a)
}

func (s *turns) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[*memstore.Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	return s.turn().Atomic(ctx, req, fn)
}

func (s *turns) Finish(ctx context.Context, o onlyonce.Owner, fn onlyonce.TxFunc[*memstore.Tx]) (onlyonce.Settled, error) {
	return s.turn().Finish(ctx, o, fn)
}

// B89, C1, C6, O8: the whole contract holds behind the cache.
func TestContract(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *ground) {
		t.Helper()
		g.examined(t)
		storetest.Run(t, storetest.Backend{Open: g.open})
	})
}

// names is business data beside a store.
type names struct {
	mu   sync.Mutex
	seen map[string]int
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen[name]++
}

func (n *names) count(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen[name]
}

// O: transactions keep their rules behind the cache.
func TestTransactions(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *ground) {
		t.Helper()
		g.examined(t)
		var tables sync.Map // of *names, by memory store
		of := func(mem *memstore.Store) *names {
			v, _ := tables.LoadOrStore(mem, &names{seen: map[string]int{}})
			return v.(*names)
		}
		storetest.RunTx(t, storetest.TxBackend[*memstore.Tx]{
			Open: g.open,
			Write: func(_ context.Context, tx *memstore.Tx, name string) error {
				tx.OnCommit(func() { of(tx.Store()).add(name) })
				return nil
			},
			Count: func(t *testing.T, in storetest.Instance, name string) int {
				t.Helper()
				return of(in.Store.(*turns).mem).count(name)
			},
			Do: func(_ context.Context, in storetest.Instance, fn func(*memstore.Tx) error) error {
				return in.Store.(*turns).mem.Do(fn)
			},
		})
	})
}

// B89: no random list of operations tells the cache from the store alone.
func TestModel(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *ground) {
		t.Helper()
		storetest.RunModel(t, storetest.Backend{Open: g.open}, func(now func() time.Time) onlyonce.Store { return newMemory(t, now) })
	})
}

// C1: concurrent callers see one order of steps.
func TestHistory(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, g *ground) {
		t.Helper()
		storetest.RunHistory(t, storetest.Backend{Open: g.open})
	})
}
