package memstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, now func() time.Time) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Config{SingleProcess: true, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		return storetest.Instance{Store: open(t, now)}
	}})
}

// B07: two processes with a memory store each would run an operation twice.
func TestNewAsksForASingleProcess(t *testing.T) {
	t.Parallel()
	if _, err := memstore.New(memstore.Config{}); err == nil {
		t.Error("a memory store was opened without the word that there is one process")
	}
}

// table is business data beside a store.
type table struct {
	mu    sync.Mutex
	names map[string]int
}

func TestTx(t *testing.T) {
	var tables sync.Map // of *table, by store
	storetest.RunTx(t, storetest.TxBackend[*memstore.Tx]{
		Open: func(t *testing.T, now func() time.Time) storetest.Instance {
			t.Helper()
			s := open(t, now)
			tables.Store(onlyonce.Store(s), &table{names: map[string]int{}})
			return storetest.Instance{Store: s}
		},
		Write: func(_ context.Context, tx *memstore.Tx, name string) error {
			tx.OnCommit(func() {
				v, _ := tables.Load(onlyonce.Store(tx.Store()))
				rows := v.(*table)
				rows.mu.Lock()
				defer rows.mu.Unlock()
				rows.names[name]++
			})
			return nil
		},
		Count: func(t *testing.T, in storetest.Instance, name string) int {
			t.Helper()
			v, _ := tables.Load(in.Store)
			rows := v.(*table)
			rows.mu.Lock()
			defer rows.mu.Unlock()
			return rows.names[name]
		},
		Do: func(_ context.Context, in storetest.Instance, fn func(*memstore.Tx) error) error {
			return in.Store.(*memstore.Store).Do(fn)
		},
	})
}

func TestModelAgainstItself(t *testing.T) {
	t.Parallel()
	fresh := func(now func() time.Time) onlyonce.Store { return open(t, now) }
	storetest.RunModel(t, storetest.Backend{Open: func(_ *testing.T, now func() time.Time) storetest.Instance {
		return storetest.Instance{Store: fresh(now)}
	}}, fresh)
}

func TestHistory(t *testing.T) {
	t.Parallel()
	storetest.RunHistory(t, storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		return storetest.Instance{Store: open(t, now)}
	}})
}
