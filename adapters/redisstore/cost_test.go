package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/redisstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// trips counts round trips: a command, or a pipeline of them.
type trips struct{ n atomic.Int64 }

func (*trips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return next(ctx, network, address)
	}
}

func (c *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "hello" && cmds[0].Name() != "client" { // greetings of a new connection
			c.n.Add(1)
		}
		return next(ctx, cmds)
	}
}

// Every call is one round trip, whatever it decides.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	opt, err := redis.ParseURL(testserver.Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opt)
	defer client.Close()
	counter := &trips{}
	client.AddHook(counter)
	s, err := redisstore.New(t.Context(), client, redisstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	everything := func(round int) map[string]int64 {
		cost := map[string]int64{}
		count := func(what string, do func()) {
			before := counter.n.Load()
			do()
			cost[what] = counter.n.Load() - before
		}
		req := claimOf(fmt.Sprint(round))
		var owner onlyonce.Owner
		count("claim", func() { owner = mustClaim(t, s, req, onlyonce.Won).Record.Owner() })
		count("busy", func() { mustClaim(t, s, anotherOf(req), onlyonce.Busy) })
		for _, name := range []string{"renew", "begin step"} {
			count(name, func() { _, _ = writes()[name](t.Context(), s, owner) })
		}
		count("end step", func() {
			_, _ = s.EndStep(t.Context(), owner, onlyonce.StepEnd{Name: "charge", State: onlyonce.StepDone})
		})
		count("steps", func() { _, _ = s.Steps(t.Context(), req.Key) })
		count("release", func() { _, _ = writes()["release"](t.Context(), s, owner) })
		count("resume", func() { owner = mustClaim(t, s, anotherOf(req), onlyonce.Resumed).Record.Owner() })
		count("complete", func() { _, _ = writes()["complete"](t.Context(), s, owner) })
		count("replay", func() { mustClaim(t, s, anotherOf(req), onlyonce.Replay) })
		count("get", func() { _, _, _ = s.Get(t.Context(), req.Key) })
		return cost
	}
	everything(0) // the server is told the scripts
	for what, n := range everything(1) {
		if n != 1 {
			t.Errorf("%s: %d round trips", what, n)
		}
	}
}

// T2: what is not settled has no time to live; what is settled outlives its expiry
// by a little, a key behind a finished step by its steps' retention.
func TestTimeToLive(t *testing.T) {
	t.Parallel()
	s := openAt(t, testserver.Redis(t), redisstore.Config{})
	ttl := func(value string) time.Duration {
		t.Helper()
		d, err := redisstore.ClientOf(s).PTTL(t.Context(), redisstore.RecordName(s, keyOf(value).Digest())).Result()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	const none = -1
	want := func(value string, low time.Duration) {
		t.Helper()
		if got := ttl(value); (low == none && got != none) || (low != none && (got <= low || got > low+2*time.Minute)) {
			t.Errorf("%s: lives for %v, want %v and a little", value, got, low)
		}
	}
	for _, name := range []string{"park", "release", "complete", "begin step"} {
		owner := mustClaim(t, s, claimOf(name), onlyonce.Won).Record.Owner()
		want(name, none)
		if held, err := writes()[name](t.Context(), s, owner); !held || err != nil {
			t.Fatal(held, err)
		}
	}
	want("park", none)
	want("begin step", none)
	want("release", time.Hour)
	want("complete", time.Hour)
	owner := mustClaim(t, s, anotherOf(claimOf("release")), onlyonce.Resumed).Record.Owner()
	want("release", none)
	if held, err := writes()["end step"](t.Context(), s, owner); !held || err != nil {
		t.Fatal(held, err)
	}
	if held, err := writes()["release"](t.Context(), s, owner); !held || err != nil {
		t.Fatal(held, err)
	}
	want("release", onlyonce.FreedStepRetention)
	stepped := mustClaim(t, s, claimOf("stepped"), onlyonce.Won).Record.Owner()
	for _, name := range []string{"end step", "complete"} {
		if held, err := writes()[name](t.Context(), s, stepped); !held || err != nil {
			t.Fatal(held, err)
		}
	}
	want("stepped", onlyonce.FreedStepRetention)
}

// C6: fences are exact for as long as a server's clock is believed, and a clock that
// would make them inexact is refused.
func TestLateClock(t *testing.T) {
	t.Parallel()
	url := testserver.Redis(t)
	for _, odd := range []time.Duration{0, time.Microsecond} {
		now := time.Date(2149, 12, 31, 23, 59, 59, 999_998_000, time.UTC).Add(odd)
		s := openAt(t, url, redisstore.Config{Prefix: fmt.Sprintf("late%d:", odd), Now: func() time.Time { return now }})
		req := claimOf("k")
		req.Retention = 100 * 365 * 24 * time.Hour
		c := mustClaim(t, s, req, onlyonce.Won)
		if c.Record.Fence != now.UnixMicro() {
			t.Errorf("fence %d, want %d", c.Record.Fence, now.UnixMicro())
		}
		for i := range int64(4) {
			owner := c.Record.Owner()
			owner.Fence += []int64{1, -1, 1 << 53, -1 << 62}[i]
			if held, err := s.Renew(t.Context(), owner, time.Minute); held || err != nil {
				t.Errorf("renewed with fence %d in place of %d: %v", owner.Fence, c.Record.Fence, err)
			}
		}
		settled, err := s.Complete(t.Context(), c.Record.Owner(), answerOf("paid"))
		if want := now.Add(req.Retention); err != nil || !settled.ExpiresAt.Equal(want) {
			t.Errorf("expires %v, want %v (%v)", settled.ExpiresAt, want, err)
		}
	}
	s := openAt(t, url, redisstore.Config{Now: func() time.Time { return time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC) }})
	if c, err := s.Claim(t.Context(), claimOf("k")); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
		t.Errorf("claim in 2150: %v, %v", c.Verdict, err)
	}
}
