package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/redisstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// B87: braces in a caller's key decide about nothing. Every script touches one
// name, which is a digest, so no cluster refuses it (CROSSSLOT) and keys spread
// over all masters.
func TestBracesInKeys(t *testing.T) {
	t.Parallel()
	cluster := testserver.NewRedisCluster(t)
	s := openAt(t, cluster.URL(), redisstore.Config{})
	values := []string{"{", "}", "{}", "{a}", "a{b}c", "{}{x}", "}{", "{{a}}", "{same}1", "{same}2", "{same}3"}
	for i := range 30 {
		values = append(values, fmt.Sprintf("{one slot}%d", i))
	}
	for _, v := range values {
		for _, scope := range []string{"acct", "{acct}", "{}"} {
			lifecycle(t, s, onlyonce.Key{Scope: scope, Value: v})
		}
	}
	total := 0
	for _, m := range cluster.Masters {
		names, err := m.Do("KEYS", "*")
		if err != nil {
			t.Fatal(err)
		}
		n := strings.Count(names, "\n")
		if n < len(values)/2 {
			t.Errorf("%s has %d of %d keys", m.Address(), n, 3*len(values))
		}
		if strings.ContainsAny(names, "{}") || strings.Contains(names, "acct") {
			t.Errorf("callers' text in names: %s", names)
		}
		total += n
	}
	if total != 3*len(values) {
		t.Errorf("%d names for %d keys", total, 3*len(values))
	}
}

// lifecycle runs every script on a key.
func lifecycle(t *testing.T, s *redisstore.Store, key onlyonce.Key) {
	t.Helper()
	req := claimOf("")
	req.Key, req.Abandon = key, onlyonce.AbandonResume
	for _, name := range []string{"renew", "begin step", "end step", "release", "renew", "park", "complete"} {
		req = anotherOf(req)
		c, err := s.Claim(t.Context(), req)
		if err != nil {
			t.Fatalf("claim %q: %v", key.Value, err)
		}
		owner := c.Record.Owner()
		if held, err := writes()[name](t.Context(), s, owner); !held || err != nil {
			t.Fatalf("%s %q: %v, %v", name, key.Value, held, err)
		}
		req.Attempt = owner.Attempt
	}
	if _, err := s.Steps(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if rec, found, err := s.Get(t.Context(), key); !found || err != nil || rec.Key != key || rec.State != onlyonce.Completed {
		t.Fatalf("get %q: %+v, %v, %v", key.Value, rec, found, err)
	}
}

// A key whose slot is being moved to another master, and then has moved, is found.
func TestSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := testserver.NewRedisCluster(t)
	s := openAt(t, cluster.URL(), redisstore.Config{})
	waiting := openAt(t, cluster.URL(), redisstore.Config{WaitReplicas: 1, WaitTimeout: time.Millisecond})
	req, other := keyIn(s, 0), claimOf("elsewhere")
	owner := mustClaim(t, s, req, onlyonce.Won).Record.Owner()
	name := redisstore.RecordName(s, req.Key.Digest())
	slot := must(t, cluster.Masters[0], "CLUSTER", "KEYSLOT", name)
	from, to := must(t, cluster.Masters[0], "CLUSTER", "MYID"), must(t, cluster.Masters[1], "CLUSTER", "MYID")
	must(t, cluster.Masters[1], "CLUSTER", "SETSLOT", slot, "IMPORTING", from)
	must(t, cluster.Masters[0], "CLUSTER", "SETSLOT", slot, "MIGRATING", to)
	mustClaim(t, s, anotherOf(req), onlyonce.Busy) // not moved yet

	host, port, _ := strings.Cut(cluster.Masters[1].Address(), ":")
	must(t, cluster.Masters[0], "MIGRATE", host, port, name, "0", "5000")
	mustClaim(t, s, anotherOf(req), onlyonce.Busy) // ASK
	if held, err := s.Renew(t.Context(), owner, time.Minute); !held || err != nil {
		t.Errorf("renew while the slot moves: %v, %v", held, err)
	}
	if _, err := waiting.Claim(t.Context(), anotherOf(req)); !errors.Is(err, onlyonce.ErrConflict) {
		t.Errorf("a claim that waits for replicas while the slot moves: %v", err)
	}
	for _, m := range cluster.Masters {
		must(t, m, "CLUSTER", "SETSLOT", slot, "NODE", to)
	}
	mustClaim(t, s, anotherOf(req), onlyonce.Busy) // MOVED
	mustClaim(t, s, other, onlyonce.Won)
	if settled, err := s.Complete(t.Context(), owner, answerOf("paid")); !settled.Held || err != nil {
		t.Errorf("complete after the slot has moved: %+v, %v", settled, err)
	}
	waitFor(t, "the waiting client finds the slot", func() bool {
		c, err := waiting.Claim(t.Context(), anotherOf(req))
		return err == nil && c.Verdict == onlyonce.Replay
	})
}

// keyIn is a claim of a key of the i-th third of the slots.
func keyIn(s *redisstore.Store, i int) onlyonce.ClaimRequest {
	for n := 0; ; n++ {
		req := claimOf(fmt.Sprint(n))
		if slotOf(redisstore.RecordName(s, req.Key.Digest()))/5462 == i {
			return req
		}
	}
}

// slotOf is CRC16 (XMODEM) of a name without braces, modulo the number of slots.
func slotOf(name string) int {
	crc := 0
	for _, b := range []byte(name) {
		crc ^= int(b) << 8
		for range 8 {
			crc <<= 1
			if crc&0x10000 != 0 {
				crc ^= 0x11021
			}
		}
	}
	return crc % 16384
}

func must(t *testing.T, s *testserver.RedisServer, args ...string) string {
	t.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// A cluster that has lost a master refuses the keys of all, and says what is wrong;
// nothing has happened. One that serves what it still has goes on with the rest.
func TestMasterDown(t *testing.T) {
	t.Parallel()
	cluster := testserver.NewRedisCluster(t, "cluster-require-full-coverage yes", "cluster-node-timeout 500")
	s := openAt(t, cluster.URL()+"&max_redirects=1&max_retries=-1", redisstore.Config{})
	gone, left := keyIn(s, 2), keyIn(s, 0)
	mustClaim(t, s, gone, onlyonce.Won)
	if err := cluster.Masters[2].Kill(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the others know that one is gone", func() bool {
		info, err := cluster.Masters[0].Do("CLUSTER", "INFO")
		return err == nil && strings.Contains(info, "cluster_state:fail")
	})
	_, err := s.Claim(t.Context(), left)
	if redisErr, ok := errors.AsType[redis.Error](err); !ok || !strings.HasPrefix(redisErr.Error(), "CLUSTERDOWN") {
		t.Errorf("claim on a cluster that is down: %v", err)
	}
	if _, err := s.Claim(t.Context(), anotherOf(gone)); err == nil || onlyonce.CodeOf(err) == "" {
		t.Errorf("claim of a key whose master is gone: %v", err)
	}
	if err := cluster.Masters[2].Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the cluster is whole again", func() bool {
		c, err := s.Claim(t.Context(), anotherOf(gone))
		return err == nil && c.Verdict == onlyonce.Busy
	})
	waitFor(t, "the others take claims again", func() bool {
		c, err := s.Claim(t.Context(), left)
		return err == nil && c.Verdict == onlyonce.Won
	})
}
