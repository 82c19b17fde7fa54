package routestore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// ways are the maps under which the contract must hold.
func ways() map[string]routestore.Config {
	names := spreading()
	homes := []routestore.Home{{Name: names[0]}, {Name: names[1]}}
	old := routestore.Map{Version: 1, Homes: names, By: routestore.ByKey}
	back := routestore.Map{Version: 1, Homes: names[:1]}
	// Markers outlive the suite, which moves the clock by years; a sweep would count
	// those that it ends.
	until := storetest.NewClock().Now().AddDate(200, 0, 0)
	return map[string]routestore.Config{
		"by_scope": {Homes: homes, Map: routestore.Map{Version: 1, Homes: names}},
		"by_key":   {Homes: homes, Map: old},
		"by_table": {Homes: homes, Map: routestore.Map{Version: 1, Homes: names[:1], Table: map[string]string{"acct": names[1], "y": names[1]}}},
		// In the middle of a change every key moves, or those that ranked other than b.
		"while_scopes_move": {Homes: homes, Map: routestore.Map{Version: 2, Homes: names[1:]}, Previous: &back, Until: until},
		"while_keys_move":   {Homes: homes, Map: routestore.Map{Version: 2, Homes: names[1:]}, Previous: &old, Until: until},
	}
}

// spreading gives names of two homes between which the suite's keys are spread, and
// by which those whose order of turns the suite looks at live together: turns are in
// order within a home only.
func spreading() []string {
	for i := 0; ; i++ {
		names := []string{fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)}
		m := routestore.Map{Version: 1, Homes: names, By: routestore.ByKey}
		at := map[string]string{}
		for _, value := range []string{"a", "b", "c", "A", "k", "0", "1", "2", "3", "completed", "freed"} {
			at[value] = routestore.HomeByMap(m, onlyonce.Key{Scope: "acct", Value: value})
		}
		together := at["a"] == at["b"] && at["b"] == at["c"]
		if together && at["k"] != at["a"] && at["A"] != at["a"] && at["0"] != at["1"] && at["completed"] != at["freed"] {
			return names
		}
	}
}

// backend opens two homes in memory and two processes on them.
func backend(cfg routestore.Config) storetest.Backend {
	return storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		cfg := cfg
		cfg.Homes, cfg.Now = nil, now
		for _, name := range spreading() {
			cfg.Homes = append(cfg.Homes, routestore.Home{Name: name, Store: memory(t, now)})
		}
		var stores [2]onlyonce.Store
		for i := range stores {
			s, err := routestore.NewTx[*memstore.Tx](cfg)
			if err != nil {
				t.Fatal(err)
			}
			stores[i] = s
		}
		return storetest.Instance{Store: stores[0], Another: stores[1]}
	}}
}

// S, F, C, O, T, X: every rule of the contract holds over several homes, and in the
// middle of a change of the map.
func TestContract(t *testing.T) {
	t.Parallel()
	for name, cfg := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, backend(cfg))
		})
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	for name, cfg := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.RunHistory(t, backend(cfg))
		})
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	for name, cfg := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.RunModel(t, backend(cfg), func(now func() time.Time) onlyonce.Store { return memory(t, now) })
		})
	}
}

// business is names that transactions have written, whichever home's.
type business struct {
	mu    sync.Mutex
	names map[string]int
}

func TestContractTx(t *testing.T) {
	t.Parallel()
	for name, cfg := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var written sync.Map // memstore → business
			of := func(s *memstore.Store) *business {
				b, _ := written.LoadOrStore(s, &business{names: map[string]int{}})
				return b.(*business)
			}
			storetest.RunTx(t, storetest.TxBackend[*memstore.Tx]{
				Open: backend(cfg).Open,
				Write: func(_ context.Context, tx *memstore.Tx, name string) error {
					b := of(tx.Store())
					tx.OnCommit(func() {
						b.mu.Lock()
						defer b.mu.Unlock()
						b.names[name]++
					})
					return nil
				},
				Count: func(t *testing.T, in storetest.Instance, name string) int {
					t.Helper()
					sum := 0
					for _, h := range routestore.HomesOf(in.Store.(*routestore.TxStore[*memstore.Tx]).Store) {
						b := of(h.Store.(*memstore.Store))
						b.mu.Lock()
						sum += b.names[name]
						b.mu.Unlock()
					}
					return sum
				},
				Do: func(ctx context.Context, in storetest.Instance, fn func(*memstore.Tx) error) error {
					home, err := in.Store.(*routestore.TxStore[*memstore.Tx]).Where(ctx, onlyonce.Key{Scope: "acct", Value: "k"})
					if err != nil {
						return err
					}
					return home.Store.(*memstore.Store).Do(fn)
				},
			})
		})
	}
}
