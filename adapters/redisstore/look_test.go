package redisstore_test

import (
	"math"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/redisstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// A store that never sweeps finds out as well that its server has begun to evict.
func TestEvictionIsNoticedWithoutASweep(t *testing.T) {
	t.Parallel()
	server := testserver.NewRedis(t)
	s := openAt(t, server.URL(), redisstore.Config{})
	mustClaim(t, s, claimOf("before"), onlyonce.Won)
	setPolicy(t, server, "allkeys-lru")
	redisstore.LookAgain(s)
	if c, err := s.Claim(t.Context(), claimOf("evicting")); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("a claim on a server that evicts: %v, %v", c.Verdict, err)
	}
	setPolicy(t, server, "noeviction")
	redisstore.LookAgain(s)
	mustClaim(t, s, claimOf("after"), onlyonce.Won)
}

// F7: a setting counts only once replicas have it, on a repeat too: a secret that a
// failover loses would make every retry a mismatch.
func TestSettingsWaitForReplicas(t *testing.T) {
	t.Parallel()
	s := openAt(t, testserver.NewRedis(t).URL(), redisstore.Config{WaitReplicas: 1, WaitTimeout: time.Millisecond})
	for try := range 2 {
		if value, err := s.AddSetting(t.Context(), "kind", "id", []byte("v")); onlyonce.CodeOf(err) != onlyonce.CodeUncertain {
			t.Errorf("try %d: %q, %v; want it uncertain, there is no replica", try, value, err)
		}
	}
	if _, err := redisstore.New(t.Context(), redisstore.ClientOf(s), redisstore.Config{WaitReplicas: 1, WaitTimeout: time.Hour}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("replicas may take longer than the client waits: %v", err)
	}
}

func TestListIsBounded(t *testing.T) {
	t.Parallel()
	s := openAt(t, testserver.Redis(t), redisstore.Config{})
	mustClaim(t, s, claimOf("k"), onlyonce.Won)
	page, err := s.List(t.Context(), onlyonce.ListFilter{Limit: math.MaxInt})
	if err != nil || len(page.Records) != 1 {
		t.Errorf("list: %d records, %v", len(page.Records), err)
	}
}
