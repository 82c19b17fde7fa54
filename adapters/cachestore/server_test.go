package cachestore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// redisServer is a Redis of a test's own, as a cache is run: without a disk.
type redisServer struct {
	*testserver.RedisServer
	client *redis.Client // to look at it with
}

func startRedis(t *testing.T) *redisServer {
	t.Helper()
	r := &redisServer{RedisServer: testserver.NewRedis(t, "appendonly no", `save ""`)}
	r.client = redis.NewClient(&redis.Options{Addr: r.Address(), MaxRetries: -1})
	t.Cleanup(func() { r.client.Close() })
	return r
}

// shared is a shared tier on the server, patient enough for a busy machine.
func (r *redisServer) shared() *cachestore.Shared {
	return &cachestore.Shared{Redis: &redis.UniversalOptions{Addrs: []string{r.Address()}}, Timeout: 10 * time.Second}
}

// must fails the test when a server could not be killed, started or paused.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
