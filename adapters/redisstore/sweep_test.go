package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/redisstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// clock is a clock that stands still until it is moved.
type clock struct{ t time.Time }

func newClock() *clock { return &clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time { return c.t }

func sweepOf(limit int) onlyonce.SweepRequest {
	return onlyonce.SweepRequest{Limit: limit, Grace: time.Minute, StepRetention: onlyonce.FreedStepRetention}
}

// T3: a sweep looks at a bounded number of keys and the next one goes on behind
// them, so that all are reached, on one server and on all masters of a cluster.
func TestSweepGoesRound(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"server": testserver.Redis(t), "cluster": testserver.NewRedisCluster(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			s := openAt(t, url, redisstore.Config{Now: c.now, SweepKeys: 600})
			const keys = 3000
			for i := range keys {
				mustClaim(t, s, claimOf(fmt.Sprint(i)), onlyonce.Won)
			}
			c.t = c.t.Add(time.Hour)
			total, rounds := 0, 0
			for more := true; more; rounds++ {
				r, err := s.Sweep(t.Context(), sweepOf(5000))
				if err != nil || r.Freed > 2000 || rounds > keys {
					t.Fatalf("sweep %d: %+v, %v", rounds, r, err)
				}
				total += r.Freed
				more = r.More
			}
			if total != keys || rounds < 3 {
				t.Errorf("%d of %d keys in %d sweeps", total, keys, rounds)
			}
		})
	}
}

// T3: one sweeper at a time, and one that has crashed keeps others out for a
// while only.
func TestOneSweeper(t *testing.T) {
	t.Parallel()
	s := openAt(t, testserver.Redis(t), redisstore.Config{})
	client := redisstore.ClientOf(s)
	if err := client.Set(t.Context(), "onlyonce:sweeper", "somebody", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Sweep(t.Context(), sweepOf(1)); err != nil || !r.Busy {
		t.Errorf("beside another sweeper: %+v, %v", r, err)
	}
	redisstore.Unlock(s, t.Context(), onlyonce.NewToken()) // one that came too late
	if got := client.Get(t.Context(), "onlyonce:sweeper").Val(); got != "somebody" {
		t.Errorf("somebody else's lock was given back: %q", got)
	}
	if err := client.PExpire(t.Context(), "onlyonce:sweeper", 50*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the lock ends by itself", func() bool {
		r, err := s.Sweep(t.Context(), sweepOf(1))
		return err == nil && !r.Busy
	})
	if n, err := client.Exists(t.Context(), "onlyonce:sweeper").Result(); n != 0 || err != nil {
		t.Errorf("the lock was not given back: %d, %v", n, err)
	}
}

// X2: steps of many lives under one key go in bounded batches, the living stay.
func TestSweepSteps(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := openAt(t, testserver.Redis(t), redisstore.Config{Now: c.now})
	req := claimOf("k")
	req.Abandon = onlyonce.AbandonResume
	for range 3 {
		owner := mustClaim(t, s, anotherOf(req), onlyonce.Won).Record.Owner()
		for i := range 4 {
			in := onlyonce.Intent{Name: "line\nbreak \x00 and: colon", Occurrence: i, Request: []byte{}}
			if held, err := s.BeginStep(t.Context(), owner, in); !held || err != nil {
				t.Fatal(held, err)
			}
		}
		if settled, err := s.Complete(t.Context(), owner, answerOf("paid")); !settled.Held || err != nil {
			t.Fatal(settled, err)
		}
		c.t = c.t.Add(time.Hour)
	}
	mustClaim(t, s, anotherOf(req), onlyonce.Won)
	c.t = c.t.Add(onlyonce.FreedStepRetention + 10*time.Hour)
	swept := 0
	for range 20 {
		r, err := s.Sweep(t.Context(), sweepOf(5))
		if err != nil || r.Steps > 5 {
			t.Fatalf("%+v, %v", r, err)
		}
		swept += r.Steps
		if !r.More {
			break
		}
	}
	if swept != 12 {
		t.Errorf("%d steps were swept, want 12", swept)
	}
	if steps, err := s.Steps(t.Context(), req.Key); len(steps) != 0 || err != nil {
		t.Errorf("steps: %+v, %v", steps, err)
	}
}

// A name that is swept clean is gone: nothing is left of keys that have expired.
func TestSweptNamesAreGone(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := openAt(t, testserver.Redis(t), redisstore.Config{Now: c.now})
	owner := mustClaim(t, s, claimOf("k"), onlyonce.Won).Record.Owner()
	if held, err := writes()["end step"](t.Context(), s, owner); !held || err != nil {
		t.Fatal(held, err)
	}
	if held, err := writes()["complete"](t.Context(), s, owner); !held || err != nil {
		t.Fatal(held, err)
	}
	c.t = c.t.Add(2 * onlyonce.FreedStepRetention)
	if r, err := s.Sweep(t.Context(), sweepOf(5)); err != nil || r.Deleted != 1 || r.Steps != 1 {
		t.Errorf("swept %+v, %v", r, err)
	}
	if names, err := redisstore.ClientOf(s).Keys(t.Context(), "*").Result(); len(names) != 0 || err != nil {
		t.Errorf("left: %q, %v", names, err)
	}
}

// A hash that was changed by hand is named in the error and left alone; the others
// are swept all the same.
func TestSweepPassesDamagedKeys(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := openAt(t, testserver.Redis(t), redisstore.Config{Now: c.now})
	for i := range 5 {
		mustClaim(t, s, claimOf(fmt.Sprint(i)), onlyonce.Won)
	}
	name := redisstore.RecordName(s, keyOf("2").Digest())
	if err := redisstore.ClientOf(s).HSet(t.Context(), name, "lease", "soon").Err(); err != nil {
		t.Fatal(err)
	}
	c.t = c.t.Add(time.Hour)
	if _, err := s.Sweep(t.Context(), sweepOf(100)); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable || !strings.Contains(err.Error(), name) {
		t.Errorf("sweep past a damaged key: %v", err)
	}
	for i := range 5 {
		state, err := redisstore.ClientOf(s).HGet(t.Context(), redisstore.RecordName(s, keyOf(fmt.Sprint(i)).Digest()), "state").Result()
		want := string(onlyonce.FailedRetryable)
		if i == 2 {
			want = string(onlyonce.InProgress)
		}
		if state != want || err != nil {
			t.Errorf("%d: %q, %v, want %q", i, state, err, want)
		}
	}
}
