package testserver

import (
	"strings"
	"testing"
)

func redisMust(t *testing.T, s *RedisServer, args ...string) string {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

func TestRedis(t *testing.T) {
	t.Parallel()
	first, second := Redis(t), Redis(t)
	if first == second || !strings.HasPrefix(first, "redis://127.0.0.1:") {
		t.Fatalf("databases %s and %s", first, second)
	}
	if first[:strings.LastIndex(first, "/")] != second[:strings.LastIndex(second, "/")] {
		t.Errorf("two servers were started for %s and %s", first, second)
	}
}

// What was confirmed with appendfsync always is there after a kill.
func TestRedisKill(t *testing.T) {
	t.Parallel()
	s := NewRedis(t, "maxmemory 64mb")
	redisMust(t, s, "SET", "charge", "1")
	before := s.Address()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do("PING"); err == nil {
		t.Error("the server answers after Kill")
	}
	if err := s.Kill(); err != nil {
		t.Errorf("Kill of a dead server: %v", err)
	}
	if s.Pause() == nil {
		t.Error("a dead server was paused")
	}
	for range 2 {
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if got := redisMust(t, s, "GET", "charge"); got != "1" || s.Address() != before {
		t.Errorf("after a crash: %q at %s", got, s.Address())
	}
	if got := redisMust(t, s, "CONFIG", "GET", "maxmemory"); got != "maxmemory\n67108864\n" {
		t.Errorf("the test's setting: %q", got)
	}
}

func TestRedisStartReportsItsLog(t *testing.T) {
	t.Parallel()
	if _, err := findRedis(); err != nil {
		unavailable(t, err)
	}
	_, err := startRedis(nil, "appendfsync nonsense")
	if err == nil {
		t.Fatal("started with a broken setting")
	}
	wantContains(t, err.Error(), "ended before it was ready", "appendfsync")
}

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	c := NewRedisCluster(t)
	for _, s := range c.Masters {
		wantContains(t, redisMust(t, s, "CLUSTER", "INFO"), "cluster_state:ok", "cluster_size:3", "cluster_slots_ok:16384")
	}
	if _, err := c.Masters[0].Do("SET", "foo", "x"); err == nil || !strings.Contains(err.Error(), "MOVED 12182") {
		t.Errorf("a key of another master: %v", err)
	}
	redisMust(t, c.Masters[2], "SET", "foo", "x")
}

func TestRedisFailover(t *testing.T) {
	t.Parallel()
	f := NewRedisFailover(t)
	redisMust(t, f.Master, "SET", "both", "1")
	if got := redisMust(t, f.Master, "WAIT", "1", "5000"); got != "1" {
		t.Fatalf("replicas that have it: %s", got)
	}
	if err := f.HoldReplication(); err != nil {
		t.Fatal(err)
	}
	redisMust(t, f.Master, "SET", "one", "1")
	if err := f.Master.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica is promoted", func() bool {
		info, err := f.Replica.Do("INFO", "replication")
		return err == nil && strings.Contains(info, "role:master")
	})
	if both, one := redisMust(t, f.Replica, "GET", "both"), redisMust(t, f.Replica, "GET", "one"); both != "1" || one != "" {
		t.Errorf("the new master has %q and %q", both, one)
	}
}
