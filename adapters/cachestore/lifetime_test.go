package cachestore_test

import (
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// T1, T2: an answer is given from memory until the margin before its expiry, and
// until then only.
func TestAnswersDieBeforeTheyExpire(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s, req := c.cache(t, cachestore.Config{MaxAge: 1000 * time.Hour}), request("k")
	complete(t, s, req, "a")
	c.clock.Advance(time.Hour)
	replays(t, c, s, req, "a")
	c.clock.Advance(retention - time.Hour - margin - time.Microsecond)
	if !replays(t, c, s, req, "a") {
		t.Error("the store was asked before it had to be")
	}
	c.clock.Advance(time.Microsecond)
	if hit := replays(t, c, s, req, "a"); hit {
		t.Error("an answer was given within the margin before its expiry")
	}
	c.clock.Advance(margin)
	want(t, s, again(req), onlyonce.Won)
}

// The store is asked again once an answer has been in memory for MaxAge.
func TestTheStoreIsAskedAgain(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s, req := c.cache(t, cachestore.Config{MaxAge: time.Minute}), request("k")
	complete(t, s, req, "a")
	for range 3 {
		if hit := replays(t, c, s, req, "a"); hit {
			t.Error("an answer was older than MaxAge")
		}
		c.clock.Advance(time.Minute)
		if hit := replays(t, c, s, req, "a"); !hit {
			t.Error("the store was asked before it had to be")
		}
		c.clock.Advance(time.Microsecond)
	}
}

// B89, C6: a key expires, is swept and begins a new life in another process; this
// one never gives the old life's answer.
func TestANewLifeElsewhere(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	here, there := c.cache(t, cachestore.Config{MaxAge: 1000 * time.Hour}), c.cache(t, cachestore.Config{})
	req := request("k")
	complete(t, here, req, "old")
	for range 2 {
		replays(t, c, here, req, "old")
	}
	c.clock.Advance(retention)
	if r, err := there.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10, StepRetention: time.Hour}); err != nil || r.Deleted != 1 {
		t.Fatalf("sweep: %+v, %v", r, err)
	}
	complete(t, there, again(req), "new")
	for range 3 {
		replays(t, c, here, req, "new")
	}
}

// A sweep lets go of the dead here, too.
func TestSweepLetsGo(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s := c.cache(t, cachestore.Config{})
	for _, value := range []string{"a", "b"} {
		complete(t, s, request(value), value)
		replays(t, c, s, request(value), value)
		c.clock.Advance(40 * time.Minute)
	}
	if _, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10, StepRetention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats(); n.Entries != 1 || !replays(t, c, s, request("b"), "b") {
		t.Errorf("after a sweep: %+v", n)
	}
}

// T2, B89: a process whose clock jumps, or differs by whatever, gives no answer
// for longer, nor says that more of it remains.
func TestClocksThatJump(t *testing.T) {
	t.Parallel()
	for name, jump := range map[string]time.Duration{"ahead": retention, "a little ahead": time.Minute, "back": -time.Hour, "far back": -1000 * retention} {
		c, mine := newCounting(t), storetest.NewClock()
		mine.Advance(-12345 * time.Hour)
		s := before(t, c, cachestore.Config{Now: mine.Now, MaxAge: 1000 * time.Hour, Margin: margin})
		req := request("k")
		complete(t, s, req, "a")
		replays(t, c, s, req, "a")
		mine.Advance(jump)
		c.clock.Advance(time.Minute) // what really passes
		claim := want(t, s, again(req), onlyonce.Replay)
		if left := retention - time.Minute; claim.Remaining > left {
			t.Errorf("%s: %v remain, of %v", name, claim.Remaining, left)
		}
	}
}
