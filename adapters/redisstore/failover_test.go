package redisstore_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/redisstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// B86: Redis confirms a claim that its replica does not have. When the master is
// lost then, so is the claim, and a second attempt wins: the operation runs twice.
// This is what the package's documentation, its notes and Features.Durable warn of.
// The test proves that the warning is true, and that the store goes on by itself.
func TestFailoverLosesAClaim(t *testing.T) {
	t.Parallel()
	servers := testserver.NewRedisFailover(t)
	var log strings.Builder
	s := openAt(t, servers.URL(), redisstore.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if s.Features().Durable {
		t.Error("a master with a replica is called durable")
	}
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "a failover may lose a claim") {
		t.Errorf("what was said when the store was opened: %s", log.String())
	}

	early, late, done := claimOf("early"), claimOf("late"), claimOf("done")
	mustClaim(t, s, early, onlyonce.Won)
	lost := mustClaim(t, s, done, onlyonce.Won).Record.Owner()
	waitFor(t, "the replica has the early claims", func() bool {
		reply, err := servers.Replica.Do("EXISTS",
			redisstore.RecordName(s, early.Key.Digest()), redisstore.RecordName(s, done.Key.Digest()))
		return err == nil && reply == "2"
	})
	if err := servers.HoldReplication(); err != nil {
		t.Fatal(err)
	}
	mustClaim(t, s, late, onlyonce.Won) // confirmed, and on one server only
	if settled, err := s.Complete(t.Context(), lost, answerOf("paid")); !settled.Held || err != nil {
		t.Fatal(settled, err)
	}
	if err := servers.Master.Kill(); err != nil {
		t.Fatal(err)
	}

	var second onlyonce.Claim
	again := anotherOf(late)
	waitFor(t, "the store goes on with the new master", func() bool {
		var err error
		second, err = s.Claim(t.Context(), again)
		return err == nil
	})
	if second.Verdict != onlyonce.Won {
		t.Errorf("the lost claim's second attempt: %v; the warning would be wrong", second.Verdict)
	}
	mustClaim(t, s, anotherOf(early), onlyonce.Busy) // the replica had it
	mustClaim(t, s, anotherOf(done), onlyonce.Busy)  // its answer is lost, its claim is not
	if settled, err := s.Complete(t.Context(), lost, answerOf("paid")); !settled.Held || err != nil {
		t.Errorf("the owner's repeated completion: %+v, %v", settled, err)
	}
}

// B86: waiting for replicas tells that a write may yet be lost, and repeating it
// waits for the write that was made before. What it cannot tell is which replica
// will be promoted.
func TestWaitForReplicas(t *testing.T) {
	t.Parallel()
	master := testserver.NewRedis(t)
	_, port, _ := strings.Cut(master.Address(), ":")
	replica := testserver.NewRedis(t, "replicaof 127.0.0.1 "+port)
	waitFor(t, "the replica is in sync", func() bool {
		info, err := replica.Do("INFO", "replication")
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	patient := openAt(t, master.URL()+"?read_timeout=60s", redisstore.Config{WaitReplicas: 1, WaitTimeout: 30 * time.Second})
	hasty := redisstore.Config{WaitReplicas: 1, WaitTimeout: 20 * time.Millisecond}
	s := openAt(t, master.URL(), hasty)
	settle := writes()
	confirmed := map[string]onlyonce.Owner{}
	for name := range settle {
		confirmed[name] = mustClaim(t, patient, claimOf(name), onlyonce.Won).Record.Owner()
	}
	complete(t, patient, claimOf("answered"), "paid")

	if err := replica.Pause(); err != nil {
		t.Fatal(err)
	}
	req := claimOf("k")
	if c, err := s.Claim(t.Context(), req); !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("a claim that no replica has: %v, %v", c.Verdict, err)
	}
	if c, err := openAt(t, master.URL(), hasty).Claim(t.Context(), req); !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("the same, repeated on another connection: %v, %v", c.Verdict, err)
	}
	mustClaim(t, s, anotherOf(req), onlyonce.Busy) // losing needs no replica
	mustClaim(t, s, anotherOf(claimOf("answered")), onlyonce.Replay)
	for name, w := range settle {
		// Repeated on another connection, which has written nothing yet.
		for _, by := range []*redisstore.Store{s, openAt(t, master.URL(), hasty)} {
			if held, err := w(t.Context(), by, confirmed[name]); !errors.Is(err, onlyonce.ErrUncertain) {
				t.Errorf("%s that no replica has: %v, %v", name, held, err)
			}
		}
	}
	if err := replica.Resume(); err != nil {
		t.Fatal(err)
	}
	if c := mustClaim(t, patient, req, onlyonce.Won); c.Record.Attempts != 1 {
		t.Errorf("repeated: %+v", c.Record)
	}
	for name, w := range settle {
		if held, err := w(t.Context(), patient, confirmed[name]); !held || err != nil {
			t.Errorf("%s repeated: %v, %v", name, held, err)
		}
	}
	if len(s.Notes()) != 2 || s.Features().Durable {
		t.Errorf("notes: %q", s.Notes())
	}
}
