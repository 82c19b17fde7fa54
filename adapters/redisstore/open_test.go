package redisstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/redisstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// wantConfig checks that a setting is refused with what to do about it.
func wantConfig(t *testing.T, err error, hint string) {
	t.Helper()
	if e, ok := errors.AsType[*onlyonce.Error](err); !ok || e.Code != onlyonce.CodeConfig || !strings.Contains(e.Hint, hint) {
		t.Errorf("%v, want invalid_config about %q", err, hint)
	}
}

func TestOpenRefusesURLs(t *testing.T) {
	t.Parallel()
	for url, hint := range map[string]string{
		"":                                  "redis://user",
		"postgres://localhost":              "redis://",
		"redis+magic://localhost":           "redis+sentinel",
		"redis://u:hunter2@host:port/0":     "redis://user",
		"redis://u:hunter2@h:1/zero":        "redis://user",
		"redis://u:hunter2@h:1?nonsense=1":  "redis://user",
		"redis+sentinel://u:hunter2@h:1":    "master_name",
		"redis+sentinel://h:1,i:2?master=m": "addr=host:port",
		"redis+cluster://u:hunter2@h:x":     "addr=host:port",
	} {
		_, err := redisstore.Open(t.Context(), url, redisstore.Config{})
		wantConfig(t, err, hint)
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the password is shown: %v", err)
		}
	}
}

func TestOpenRefusesSettings(t *testing.T) {
	t.Parallel()
	url := testserver.Redis(t)
	for hint, cfg := range map[string]redisstore.Config{
		"Prefix":        {Prefix: "{tenant}:"},
		"letters":       {Prefix: "once*"},
		"at most 64":    {Prefix: strings.Repeat("x", 65)},
		"WaitReplicas":  {WaitReplicas: -1},
		"WaitTimeout":   {WaitTimeout: time.Microsecond},
		"StepRetention": {StepRetention: -1},
		"SweepKeys":     {SweepKeys: -1},
	} {
		_, err := redisstore.Open(t.Context(), url, cfg)
		wantConfig(t, errors.Join(err), hint)
	}
}

func TestNewRefusesClients(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	_, err := redisstore.New(t.Context(), ring, redisstore.Config{})
	wantConfig(t, err, "*redis.ClusterClient")
}

// A server that would answer every other key with MOVED, or no write at all, is
// found out when the store is opened.
func TestOpenRefusesServers(t *testing.T) {
	t.Parallel()
	cluster := testserver.NewRedisCluster(t)
	_, err := redisstore.Open(t.Context(), cluster.Masters[0].URL(), redisstore.Config{})
	wantConfig(t, err, "redis+cluster://")

	replica := testserver.NewRedis(t, "replicaof 127.0.0.1 1")
	_, err = redisstore.Open(t.Context(), replica.URL(), redisstore.Config{})
	wantConfig(t, err, "is a replica")

	locked := testserver.NewRedis(t)
	must(t, locked, "CONFIG", "SET", "requirepass", "hunter2")
	_, err = redisstore.Open(t.Context(), locked.URL(), redisstore.Config{})
	if e, ok := errors.AsType[*onlyonce.Error](err); !ok || !strings.Contains(e.Hint, "password") {
		t.Errorf("without a password: %v", err)
	}
	right := strings.Replace(locked.URL(), "redis://", "redis://:hunter2@", 1)
	complete(t, openAt(t, right, redisstore.Config{}), claimOf("k"), "paid")
}

// What the servers say decides what is promised.
func TestDurable(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]bool{
		"appendfsync always": true, "appendfsync everysec": false, "appendonly no": false, "no-appendfsync-on-rewrite yes": false,
	} {
		s := openAt(t, testserver.NewRedis(t, setting).URL(), redisstore.Config{})
		if f := s.Features(); f.Durable != want || f.Name != "redis" {
			t.Errorf("%s: %+v", setting, f)
		}
		if notes := strings.Join(s.Notes(), "\n"); !strings.Contains(notes, "failover") || strings.Contains(notes, "appendfsync") == want {
			t.Errorf("%s: %s", setting, notes)
		}
	}
}

// Claims that this store cannot keep are refused before anything is sent.
func TestClaimRefuses(t *testing.T) {
	t.Parallel()
	s := openAt(t, testserver.Redis(t), redisstore.Config{})
	const tooLong = 101 * 365 * 24 * time.Hour
	for hint, change := range map[string]func(*onlyonce.ClaimRequest){
		"Resource":  func(r *onlyonce.ClaimRequest) { r.Resource = "order/1" },
		"Lease":     func(r *onlyonce.ClaimRequest) { r.Lease = tooLong },
		"Retention": func(r *onlyonce.ClaimRequest) { r.Retention = tooLong },
	} {
		req := claimOf("k")
		change(&req)
		_, err := s.Claim(t.Context(), req)
		wantConfig(t, err, hint)
	}
	owner := mustClaim(t, s, claimOf("k"), onlyonce.Won).Record.Owner()
	for _, lease := range []time.Duration{0, -1, tooLong} {
		_, err := s.Renew(t.Context(), owner, lease)
		wantConfig(t, err, "lease")
	}
	_, err := s.EndStep(t.Context(), owner, onlyonce.StepEnd{Name: "s", State: onlyonce.StepBegun})
	wantConfig(t, err, "StepEnd.State")
	_, err = s.BeginStep(t.Context(), owner, onlyonce.Intent{Name: "s", SendWithin: tooLong})
	wantConfig(t, err, "SendWithin")
	_, err = s.Sweep(t.Context(), onlyonce.SweepRequest{})
	wantConfig(t, err, "Limit")
	_, err = s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 1, Grace: tooLong})
	wantConfig(t, err, "Grace")
}

// Closing twice is harmless, and a client that was handed in stays open.
func TestClose(t *testing.T) {
	t.Parallel()
	url := testserver.Redis(t)
	s := openAt(t, url, redisstore.Config{})
	borrowed, err := redisstore.New(t.Context(), redisstore.ClientOf(s), redisstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := borrowed.Close(); err != nil {
		t.Fatal(err)
	}
	mustClaim(t, s, claimOf("k"), onlyonce.Won)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Claim(t.Context(), claimOf("k")); err == nil || errors.Is(err, onlyonce.ErrUnreachable) || errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("claim on a closed store: %v", err)
	}
}
