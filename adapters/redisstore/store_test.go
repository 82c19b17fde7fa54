package redisstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/redisstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// backend opens stores on fresh names of the servers behind the URL, two clients
// each.
func backend(url string) storetest.Backend {
	var opened atomic.Int64
	return storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		cfg := redisstore.Config{Prefix: fmt.Sprintf("test-%d:", opened.Add(1)), Now: now}
		return storetest.Instance{Store: openAt(t, url, cfg), Another: openAt(t, url, cfg)}
	}}
}

// model runs the model against stores on one client, which all its checks share.
func model(t *testing.T, url string) {
	t.Helper()
	var opened atomic.Int64
	shared := openAt(t, url, redisstore.Config{})
	storetest.RunModel(t, storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		cfg := redisstore.Config{Prefix: fmt.Sprintf("model-%d:", opened.Add(1)), Now: now}
		s, err := redisstore.New(t.Context(), redisstore.ClientOf(shared), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return storetest.Instance{Store: s}
	}}, func(now func() time.Time) onlyonce.Store {
		m, err := memstore.New(memstore.Config{SingleProcess: true, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, backend(testserver.Redis(t)))
}

func TestHistory(t *testing.T) {
	t.Parallel()
	storetest.RunHistory(t, backend(testserver.Redis(t)))
}

func TestModel(t *testing.T) {
	t.Parallel()
	model(t, testserver.Redis(t))
}

// The same on a cluster of three masters, where every key has a node of its own.
func TestCluster(t *testing.T) {
	t.Parallel()
	url := testserver.NewRedisCluster(t).URL()
	t.Run("Store", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, backend(url))
	})
	t.Run("History", func(t *testing.T) {
		t.Parallel()
		storetest.RunHistory(t, backend(url))
	})
	t.Run("Model", func(t *testing.T) {
		t.Parallel()
		model(t, url)
	})
}
