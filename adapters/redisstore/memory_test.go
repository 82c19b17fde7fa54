package redisstore_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/redisstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// A full server refuses what would begin, in words, and changes nothing; what is
// under way can be ended, and answers are replayed.
func TestMemoryFull(t *testing.T) {
	t.Parallel()
	server := testserver.NewRedis(t)
	s := openAt(t, server.URL(), redisstore.Config{})
	complete(t, s, claimOf("answered"), "paid")
	freed, doubt, stepped := claimOf("freed"), claimOf("doubt"), claimOf("stepped")
	for name, w := range map[string]write{"freed": writes()["release"], "doubt": writes()["park"]} {
		owner := mustClaim(t, s, claimOf(name), onlyonce.Won).Record.Owner()
		if held, err := w(t.Context(), s, owner); !held || err != nil {
			t.Fatal(held, err)
		}
	}
	owners := map[string]onlyonce.Owner{}
	for name := range writes() {
		owners[name] = mustClaim(t, s, claimOf(name), onlyonce.Won).Record.Owner()
	}
	owner := mustClaim(t, s, stepped, onlyonce.Won).Record.Owner()
	if held, err := writes()["begin step"](t.Context(), s, owner); !held || err != nil {
		t.Fatal(held, err)
	}
	if _, err := server.Do("CONFIG", "SET", "maxmemory", "1"); err != nil {
		t.Fatal(err)
	}

	doubt.Resolve = true
	before := records(t, s, "freed", "doubt", "begin step")
	for _, req := range []onlyonce.ClaimRequest{claimOf("new"), freed, doubt} {
		wantFull(t, "claim of "+req.Key.Value, func() error { _, err := s.Claim(t.Context(), anotherOf(req)); return err })
	}
	wantFull(t, "begin step", func() error { _, err := writes()["begin step"](t.Context(), s, owners["begin step"]); return err })
	if diff := cmp.Diff(before, records(t, s, "freed", "doubt", "begin step")); diff != "" {
		t.Errorf("what was refused changed something (-before +after):\n%s", diff)
	}
	if _, found, err := s.Get(t.Context(), keyOf("new")); found || err != nil {
		t.Errorf("a refused claim left a record: %v, %v", found, err)
	}

	mustClaim(t, s, anotherOf(claimOf("answered")), onlyonce.Replay)
	for _, name := range []string{"renew", "complete", "release", "park"} {
		for range 2 {
			if held, err := writes()[name](t.Context(), s, owners[name]); !held || err != nil {
				t.Errorf("%s with a full memory: %v, %v", name, held, err)
			}
		}
	}
	if held, err := s.EndStep(t.Context(), owner, onlyonce.StepEnd{Name: "charge", State: onlyonce.StepDone}); !held || err != nil {
		t.Errorf("end step with a full memory: %v, %v", held, err)
	}
}

func wantFull(t *testing.T, what string, do func() error) {
	t.Helper()
	err := do()
	if e, ok := errors.AsType[*onlyonce.Error](err); !ok || e.Code != onlyonce.CodeStoreUnavailable || !strings.Contains(e.Hint, "memory is full") {
		t.Errorf("%s with a full memory: %v", what, err)
	}
}

func records(t *testing.T, s *redisstore.Store, values ...string) []onlyonce.Record {
	t.Helper()
	var all []onlyonce.Record
	for _, v := range values {
		all = append(all, stateOf(t, s, v))
	}
	return all
}

// Every policy that may drop a key is refused, also those that drop only keys with
// a time to live: answers have one.
func TestEvictionIsRefused(t *testing.T) {
	t.Parallel()
	server := testserver.NewRedis(t)
	for _, policy := range []string{
		"allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
	} {
		setPolicy(t, server, policy)
		_, err := redisstore.Open(t.Context(), server.URL(), redisstore.Config{})
		e, ok := errors.AsType[*onlyonce.Error](err)
		if !ok || e.Code != onlyonce.CodeConfig || !strings.Contains(e.Hint, policy) || !strings.Contains(e.Hint, "CONFIG SET maxmemory-policy noeviction") {
			t.Errorf("%s: %v", policy, err)
		}
	}
	openAt(t, server.URL(), redisstore.Config{AssumeNoEviction: true})
}

func setPolicy(t *testing.T, server *testserver.RedisServer, policy string) {
	t.Helper()
	if _, err := server.Do("CONFIG", "SET", "maxmemory-policy", policy); err != nil {
		t.Fatal(err)
	}
}

// A server that begins to evict later is found by a sweep: nobody claims there
// until it has stopped. What is under way is ended.
func TestEvictionIsFoundLater(t *testing.T) {
	t.Parallel()
	server := testserver.NewRedis(t)
	s := openAt(t, server.URL(), redisstore.Config{})
	owner := mustClaim(t, s, claimOf("under way"), onlyonce.Won).Record.Owner()
	sweep := onlyonce.SweepRequest{Limit: 10}
	setPolicy(t, server, "allkeys-lru")
	if _, err := s.Sweep(t.Context(), sweep); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("sweep of a server that evicts: %v", err)
	}
	if _, err := s.Claim(t.Context(), claimOf("k")); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("claim on a server that evicts: %v", err)
	}
	if settled, err := s.Complete(t.Context(), owner, answerOf("paid")); !settled.Held || err != nil {
		t.Errorf("complete: %+v, %v", settled, err)
	}
	setPolicy(t, server, "noeviction")
	if _, err := s.Sweep(t.Context(), sweep); err != nil {
		t.Errorf("sweep: %v", err)
	}
	mustClaim(t, s, claimOf("k"), onlyonce.Won)
}

// A server that lets nobody look is refused, unless somebody has looked.
func TestPolicyUnknown(t *testing.T) {
	t.Parallel()
	server := testserver.NewRedis(t)
	if _, err := server.Do("ACL", "SETUSER", "default", "-info", "-config"); err != nil {
		t.Fatal(err)
	}
	_, err := redisstore.Open(t.Context(), server.URL(), redisstore.Config{})
	if e, ok := errors.AsType[*onlyonce.Error](err); !ok || !strings.Contains(e.Hint, "INFO") {
		t.Errorf("a server that refuses INFO: %v", err)
	}
	s := openAt(t, server.URL(), redisstore.Config{AssumeNoEviction: true})
	if s.Features().Durable || len(s.Notes()) != 2 {
		t.Errorf("what a server that says nothing promises: %+v, %q", s.Features(), s.Notes())
	}
	complete(t, s, claimOf("k"), "paid")
}

// O8: a big answer comes back byte for byte.
func TestBigAnswer(t *testing.T) {
	t.Parallel()
	s := openAt(t, testserver.Redis(t), redisstore.Config{})
	big := bytes.Repeat([]byte("0123456789abcde\x00"), 1<<20) // 16 MiB
	complete(t, s, claimOf("k"), string(big))
	c := mustClaim(t, s, anotherOf(claimOf("k")), onlyonce.Replay)
	if !bytes.Equal(c.Record.Answer.Body, big) {
		t.Errorf("%d bytes came back as %d others", len(big), len(c.Record.Answer.Body))
	}
}
