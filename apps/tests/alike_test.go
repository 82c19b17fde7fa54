package tests_test

import (
	"maps"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// S, F, C, O, X: of one list of random operations, every store there is says the same of
// each: verdicts, records, fences, what is left of leases and answers.
// In the second group are the stores that keep resources and what recovery needs.
func TestAlike(t *testing.T) {
	t.Parallel()
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		all := able(t)
		all["redis"], all["dynamodb"] = redisNames(t), dynamoTables(t)
		storetest.RunAlike(t, all, reference(t))
	})
	t.Run("with_every_power", func(t *testing.T) {
		t.Parallel()
		storetest.RunAlike(t, able(t), reference(t))
	})
}

// able are the stores with every power. DynamoDB has them too; what it is tested
// with here has not.
func able(t *testing.T) map[string]storetest.Backend {
	t.Helper()
	stores := relational(t)
	maps.Copy(stores, layered(t))
	return stores
}

func relational(t *testing.T) map[string]storetest.Backend {
	t.Helper()
	return map[string]storetest.Backend{
		"sqlite":               sqliteFiles().reused(t),
		"postgres":             postgresPlaces(t, plainPostgres(pgstore.Partition{})).reused(t),
		"postgres partitioned": postgresPlaces(t, plainPostgres(pgstore.Partition{Every: 60 * 24 * time.Hour, Ahead: 1})).reused(t),
		"portable, one clock":  postgresPlaces(t, portablePostgres(portable.Config{OneClock: true})).reused(t),
		"portable, watching":   postgresPlaces(t, portablePostgres(portable.Config{MaxClockSkew: -1})).reused(t),
		"mysql":                mysqlDatabases(t).reused(t),
	}
}

// layered are stores before stores.
func layered(t *testing.T) map[string]storetest.Backend {
	t.Helper()
	shared := cachestore.Config{ReadBack: true, Shared: sharedIn(testserver.NewRedis(t, "appendonly no"))}
	r := newRouted(t)
	return map[string]storetest.Backend{
		"cache, sqlite":          sqliteFiles().cachedReused(t, cachestore.Config{ReadBack: true}),
		"shared cache, postgres": postgresPlaces(t, plainPostgres(pgstore.Partition{})).cachedReused(t, shared),
		"cache, mysql":           mysqlDatabases(t).cachedReused(t, cachestore.Config{}),
		"two databases":          r.reused(t, routestore.Config{Map: routestore.Map{Version: 1, Homes: r.names[:], By: routestore.ByKey}}),
	}
}

// reference makes the store that the others are compared to.
func reference(t *testing.T) func(now func() time.Time) onlyonce.Store {
	t.Helper()
	return func(now func() time.Time) onlyonce.Store { return memory(t, now) }
}
