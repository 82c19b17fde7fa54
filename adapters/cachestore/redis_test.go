package cachestore_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// knows has a handle learn the store's clock, by a claim of its own.
func knows(t *testing.T, s onlyonce.Store) {
	t.Helper()
	want(t, s, request("of "+onlyonce.NewToken().String()), onlyonce.Won)
}

// value is the name of a key's value.
func value(key onlyonce.Key) string {
	d := key.Digest()
	return "onlyonce:answer:" + hex.EncodeToString(d[:])
}

// Processes share what one of them has read; what is in Redis says nothing of the
// caller's own (B87), and dies there before the answer does.
func TestProcessesShare(t *testing.T) {
	t.Parallel()
	r, c, ctx := startRedis(t), newCounting(t), t.Context()
	one, two := c.cache(t, cachestore.Config{Shared: r.shared()}), c.cache(t, cachestore.Config{Shared: r.shared()})
	req := request("{a} } {")
	complete(t, one, req, "a")
	if hit := replays(t, c, two, req, "a"); hit {
		t.Fatal("nobody has read it yet")
	}
	fresh := c.cache(t, cachestore.Config{Shared: r.shared()})
	if hit := replays(t, c, fresh, req, "a"); hit {
		t.Error("a process that does not know the store's clock trusted an answer from elsewhere")
	}
	another := c.cache(t, cachestore.Config{Shared: r.shared()})
	knows(t, another)
	for range 2 {
		if !replays(t, c, another, req, "a") {
			t.Error("the store was asked for what is in Redis")
		}
	}
	if n := another.Stats(); n.SharedHits != 1 || n.Hits != 1 || n.SharedErrors != 0 {
		t.Errorf("stats: %+v", n)
	}
	names := r.client.Keys(ctx, "*").Val()
	if len(names) != 1 || names[0] != value(req.Key) {
		t.Errorf("values %q, want %s", names, value(req.Key))
	}
	if ttl := r.client.PTTL(ctx, names[0]).Val(); ttl <= 0 || ttl > time.Hour {
		t.Errorf("time to live %v", ttl)
	}
	if err := another.Forget(ctx, req.Key); err != nil || r.client.Exists(ctx, names[0]).Val() != 0 {
		t.Errorf("forget: %v", err)
	}
}

// A value lives no longer in Redis than the answer, less the margin.
func TestValuesDieWithTheirAnswers(t *testing.T) {
	t.Parallel()
	r, c := startRedis(t), newCounting(t)
	s := c.cache(t, cachestore.Config{Shared: r.shared()})
	for _, left := range []time.Duration{10 * time.Minute, 6 * time.Second, 5 * time.Second} {
		req := request(left.String())
		req.Retention = 20 * time.Minute
		complete(t, s, req, "a")
		c.clock.Advance(req.Retention - left)
		replays(t, c, s, req, "a")
		ttl := r.client.PTTL(t.Context(), value(req.Key)).Val()
		if most := left - 5*time.Second; ttl > most || (most > 0) != (ttl > 0) {
			t.Errorf("%v left: time to live %v", left, ttl)
		}
	}
}

// B89: Redis goes down, keys are completed, Redis comes back, as it was and then
// empty; every process says what the database says, all the time.
func TestRedisUpDownUp(t *testing.T) {
	t.Parallel()
	r, c := startRedis(t), newCounting(t)
	one, two := c.cache(t, cachestore.Config{Shared: r.shared()}), c.cache(t, cachestore.Config{Shared: r.shared()})
	all := func(req onlyonce.ClaimRequest, body string) {
		t.Helper()
		for range 2 {
			for _, s := range []*cached{one, two} {
				replays(t, c, s, req, body)
			}
		}
	}
	short := request("short")
	short.Retention = time.Minute
	complete(t, one, request("before"), "before")
	complete(t, one, short, "old life")
	all(request("before"), "before")
	all(short, "old life")
	must(t, r.Pause()) // a partition: nobody answers
	hung := &cachestore.Shared{Redis: &redis.UniversalOptions{Addrs: []string{r.Address()}}, Timeout: 20 * time.Millisecond}
	three := c.cache(t, cachestore.Config{Shared: hung})
	knows(t, three)
	replays(t, c, three, request("before"), "before")
	c.clock.Advance(time.Minute)
	complete(t, three, request("during"), "during")
	complete(t, three, again(short), "new life")
	for range 3 {
		replays(t, c, three, request("during"), "during")
		replays(t, c, three, short, "new life")
	}
	if n := three.Stats(); n.SharedErrors == 0 || n.SharedSkipped == 0 {
		t.Errorf("with Redis down: %+v", n)
	}
	must(t, r.Resume())
	if r.client.Exists(t.Context(), value(short.Key)).Val() != 1 {
		t.Fatal("the old life's answer should still be in Redis")
	}
	all(request("during"), "during")
	all(short, "new life") // the old row is still in Redis
	all(request("before"), "before")
	must(t, r.Kill())
	c.clock.Advance(mostPause)
	complete(t, one, request("dead"), "dead")
	all(request("dead"), "dead")
	must(t, r.Start())
	c.clock.Advance(mostPause)
	four := c.cache(t, cachestore.Config{Shared: r.shared()})
	knows(t, four)
	complete(t, one, request("after"), "after")
	all(request("after"), "after")
	if !replays(t, c, four, request("after"), "after") {
		t.Errorf("Redis is back, and not used: %+v", one.Stats())
	}
}

// mostPause is longer than Redis is ever left alone.
const mostPause = 20 * time.Second

// A Redis that is not there is tried now and then and costs nothing in between.
func TestADeadRedisIsLeftAlone(t *testing.T) {
	t.Parallel()
	r, c := startRedis(t), newCounting(t)
	must(t, r.Kill())
	s := c.cache(t, cachestore.Config{Shared: r.shared()})
	for i := range 100 {
		req := request(fmt.Sprint(i))
		complete(t, s, req, "a")
		replays(t, c, s, req, "a")
	}
	if n := s.Stats(); n.SharedErrors != 1 || n.SharedSkipped < 100 {
		t.Errorf("with the clock standing still: %+v", n)
	}
	if err := s.Forget(t.Context(), request("1").Key); !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("forgotten in a Redis that is not there: %v", err)
	}
}

// A caller that goes away in the middle of a call does not make Redis look dead.
func TestACallerThatGoesIsNoFailure(t *testing.T) {
	t.Parallel()
	r, c := startRedis(t), newCounting(t)
	s := c.cache(t, cachestore.Config{Shared: r.shared()})
	knows(t, s)
	must(t, r.Pause())
	// A busy machine may be over the caller's time before Redis is asked.
	for patience := 20 * time.Millisecond; s.Stats().SharedErrors == 0; patience *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if _, err := s.Claim(ctx, request("k")); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
	}
	must(t, r.Resume())
	want(t, s, request("l"), onlyonce.Won)
	if n := s.Stats(); n.SharedSkipped != 0 || n.SharedErrors != 1 {
		t.Errorf("stats: %+v", n)
	}
}

// B89: whatever somebody writes under a value's name is not believed.
func TestForeignValuesAreMisses(t *testing.T) {
	t.Parallel()
	r, ctx := startRedis(t), t.Context()
	c, elsewhere := newCounting(t), newCounting(t)
	s := c.cache(t, cachestore.Config{Shared: r.shared()})
	req, other := request("k"), request("other")
	stranger := elsewhere.cache(t, cachestore.Config{Shared: r.shared()})
	for _, one := range []struct {
		s *cached
		c *counting
	}{{stranger, elsewhere}, {s, c}} {
		complete(t, one.s, req, "of one database")
		complete(t, one.s, other, "another key's")
		if one.c == elsewhere {
			replays(t, one.c, one.s, req, "of one database")
		}
	}
	foreign := r.client.Get(ctx, value(req.Key)).Val()
	replays(t, c, s, req, "of one database")
	replays(t, c, s, other, "another key's")
	good, others := r.client.Get(ctx, value(req.Key)).Val(), r.client.Get(ctx, value(other.Key)).Val()
	values := map[string]string{
		"another database's": foreign, "another key's": others, "truncated": good[:len(good)-1], "longer": good + "\x00",
		"text": "hello", "one byte": "\x01", "of another version": "\x02" + good[1:], "huge": strings.Repeat("x", 8<<20), "changed": strings.Replace(good, "of one", "of two", 1),
	}
	for name, v := range values {
		fresh := c.cache(t, cachestore.Config{Shared: r.shared()})
		knows(t, fresh)
		if err := r.client.Set(ctx, value(req.Key), v, 0).Err(); err != nil {
			t.Fatal(err)
		}
		asked := c.asked(storefault.Claim)
		replays(t, c, fresh, req, "of one database")
		if n := fresh.Stats(); n.Rejected != 1 || c.asked(storefault.Claim) != asked+1 {
			t.Errorf("%s: %+v", name, n)
		}
		if healed := r.client.Get(ctx, value(req.Key)).Val(); healed != good {
			t.Errorf("%s: not replaced by the answer that stands", name)
		}
	}
	r.client.Del(ctx, value(req.Key))
	r.client.LPush(ctx, value(req.Key), "a list")
	fresh := c.cache(t, cachestore.Config{Shared: r.shared()})
	knows(t, fresh)
	replays(t, c, fresh, req, "of one database")
	replays(t, c, fresh, other, "another key's")
	if n := fresh.Stats(); n.SharedErrors != 1 || n.SharedHits != 1 || n.SharedSkipped != 0 {
		t.Errorf("a list: %+v", n)
	}
}

// Processes may be given the secret; without one they do not believe each other.
func TestSecrets(t *testing.T) {
	t.Parallel()
	r, c := startRedis(t), newCounting(t)
	with := func(secret string) *cached {
		shared := r.shared()
		shared.Secret = []byte(secret)
		s := c.cache(t, cachestore.Config{Shared: shared})
		knows(t, s)
		return s
	}
	one, two, stranger := with("sixteen bytes, 1"), with("sixteen bytes, 1"), with("sixteen bytes, 2")
	complete(t, one, request("k"), "a")
	replays(t, c, one, request("k"), "a")
	if !replays(t, c, two, request("k"), "a") || replays(t, c, stranger, request("k"), "a") {
		t.Error("the secret does not decide")
	}
	if n := c.asked(storefault.AddSetting); n != 0 {
		t.Errorf("%d settings were made", n)
	}
	if n := stranger.Stats(); n.Rejected != 1 {
		t.Errorf("stats: %+v", n)
	}
}

// B87: in a cluster each value has a place of its own, whatever is in its key.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster, c := testserver.NewRedisCluster(t, "appendonly no"), newCounting(t)
	shared := &cachestore.Shared{Redis: &redis.UniversalOptions{}, Timeout: 10 * time.Second}
	for _, m := range cluster.Masters {
		shared.Redis.Addrs = append(shared.Redis.Addrs, m.Address())
	}
	one, two := c.cache(t, cachestore.Config{Shared: shared}), c.cache(t, cachestore.Config{Shared: shared})
	knows(t, two)
	for _, value := range []string{"{", "}", "{}", "{a}b", "a{b", "plain"} {
		complete(t, one, request(value), value)
		replays(t, c, one, request(value), value)
		if !replays(t, c, two, request(value), value) {
			t.Errorf("%q is not shared: %+v", value, two.Stats())
		}
	}
}

// A database that cannot give the secret costs the shared tier, and no more.
func TestNoSecretNoSharedTier(t *testing.T) {
	t.Parallel()
	r, c := startRedis(t), newCounting(t)
	s := c.cache(t, cachestore.Config{Shared: r.shared()})
	c.failing(one(storefault.AddSetting, storefault.Fault{Before: storefault.ErrDown}))
	complete(t, s, request("k"), "a")
	replays(t, c, s, request("k"), "a")
	if n := r.client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d values without a secret", n)
	}
	c.failing(none)
	complete(t, s, request("l"), "a")
	replays(t, c, s, request("l"), "a")
	if n := r.client.DBSize(t.Context()).Val(); n != 1 {
		t.Errorf("%d values, want 1", n)
	}
}

// A server that takes connections and never says a word is no worse than one that
// is down.
func TestASilentServer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := newCounting(t)
	s := c.cache(t, cachestore.Config{Shared: &cachestore.Shared{
		Redis: &redis.UniversalOptions{Addrs: []string{l.Addr().String()}}, Timeout: 10 * time.Millisecond,
	}})
	knows(t, s)
	for range 20 {
		knows(t, s)
	}
	if n := s.Stats(); n.SharedErrors != 1 || n.SharedSkipped != 19 {
		t.Errorf("stats: %+v", n)
	}
}
