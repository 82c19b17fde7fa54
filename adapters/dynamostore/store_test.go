package dynamostore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// oneClock is for handles that share a clock: ages are told as they are.
func oneClock(now func() time.Time) dynamostore.Config {
	return dynamostore.Config{Now: now, MaxClockSkew: -1}
}

// twoHandles opens the same fresh table by two clients.
func twoHandles(t *testing.T, now func() time.Time) storetest.Instance {
	t.Helper()
	cfg := oneClock(now)
	s, tb := migrated(t, cfg)
	return storetest.Instance{Store: s, Another: tb.open(t, cfg)}
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Backend{Open: twoHandles})
}

func TestHistory(t *testing.T) {
	t.Parallel()
	storetest.RunHistory(t, storetest.Backend{Open: twoHandles})
}

func TestModel(t *testing.T) {
	t.Parallel()
	storetest.RunModel(t, storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		s, _ := migrated(t, oneClock(now))
		return storetest.Instance{Store: s}
	}}, func(now func() time.Time) onlyonce.Store {
		m, err := memstore.New(memstore.Config{SingleProcess: true, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
}

func TestTx(t *testing.T) {
	t.Parallel()
	var known sync.Map // of *tables, by store
	tablesOf := func(s onlyonce.Store) *tables {
		v, _ := known.Load(s)
		return v.(*tables)
	}
	storetest.RunTx(t, storetest.TxBackend[*dynamostore.Tx]{
		Open: func(t *testing.T, now func() time.Time) storetest.Instance {
			t.Helper()
			cfg := oneClock(now)
			s, tb := migrated(t, cfg)
			tb.addBusiness(t)
			other := tb.open(t, cfg)
			known.Store(onlyonce.Store(s), tb)
			known.Store(onlyonce.Store(other), tb)
			return storetest.Instance{Store: s, Another: other}
		},
		Write: func(_ context.Context, tx *dynamostore.Tx, name string) error {
			return tx.Put(tablesOf(tx.Store()).put(name))
		},
		Count: func(t *testing.T, in storetest.Instance, name string) int {
			t.Helper()
			return tablesOf(in.Store).rows(t, name)
		},
		Do: func(ctx context.Context, in storetest.Instance, fn func(*dynamostore.Tx) error) error {
			return in.Store.(*dynamostore.Store).Do(ctx, fn)
		},
	})
}
