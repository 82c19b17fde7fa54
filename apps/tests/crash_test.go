package tests_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// sources gives the keys cards that make the processor misbehave in every way
// that leaves an outcome unknown, and some that are declined.
func sources(key int) string {
	cards := []string{"tok_visa", "tok_visa", "tok_timeout", "tok_error_before", "tok_error_after", "tok_chargeDeclined", "tok_visa", "tok_reset_after"}
	return cards[key%len(cards)]
}

// declined is how many keys have a card that is declined.
func (f *fleet) declined() int {
	n := 0
	for key := range f.keys {
		if f.source(key) == "tok_chargeDeclined" {
			n++
		}
	}
	return n
}

// kills is how often a server is killed in one storm: a few times, or for as
// long as ONLYONCE_SOAK says.
func kills(t *testing.T) (rounds int, until time.Time) {
	t.Helper()
	soak := os.Getenv("ONLYONCE_SOAK")
	if soak == "" {
		return 4, time.Time{}
	}
	d, err := time.ParseDuration(soak)
	if err != nil {
		t.Fatalf("ONLYONCE_SOAK: %v", err)
	}
	return 1 << 30, time.Now().Add(d / 4)
}

// A server is killed with SIGKILL at random moments of a storm and started
// again. Afterwards: one charge a key, a ledger that sums to zero, one answer a
// key, and, since the processor can be asked, no key in doubt. (C7, D4, O6)
func TestKill(t *testing.T) {
	t.Parallel()
	stores := map[string]func(t *testing.T) (store string, servers int){
		"sqlite": func(t *testing.T) (string, int) {
			t.Helper()
			return "sqlite:" + filepath.Join(t.TempDir(), "payments.db"), 1
		},
		"postgres": func(t *testing.T) (string, int) {
			t.Helper()
			return testserver.Postgres(t), 2
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, servers := open(t)
			f := newFleet(t, store, servers, window/2)
			f.source = sources
			s := newSeen()
			f.stormWithKills(t, s)
			f.settle(t.Context(), t, s)
			s.check(t, f.keys)
			f.judge(t, f.keys-f.declined())
		})
	}
}

// stormWithKills keeps clients going while servers are killed, each time after
// a random number of answers.
func (f *fleet) stormWithKills(t *testing.T, s *seen) {
	t.Helper()
	rounds, until := kills(t)
	f.stormWhile(t, s, func(round int, r *rand.Rand) (more bool) {
		f.restart(t, r.IntN(len(f.servers)))
		return round+1 < rounds && (until.IsZero() || time.Now().Before(until))
	})
}

// stormWhile keeps clients going while they are disturbed, each time after a random
// number of answers, for as long as there is more of that.
func (f *fleet) stormWhile(t *testing.T, s *seen, disturb func(round int, r *rand.Rand) (more bool)) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var attempts atomic.Int64
	woken := make(chan struct{}, 1)
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(c+2)))
			for i := 0; ctx.Err() == nil; i++ {
				f.random(ctx, s, r, c+i)
				attempts.Add(1)
				select {
				case woken <- struct{}{}:
				default:
				}
			}
		})
	}
	for round, more := 0, true; more; round++ {
		for next := attempts.Load() + 1 + r.Int64N(60); attempts.Load() < next; {
			<-woken
		}
		more = disturb(round, r)
		f.mu.Lock()
		f.keys += window / 4 // new keys all the time, or kills would meet replays only
		f.mu.Unlock()
	}
	stop()
	wg.Wait()
	t.Logf("%d attempts", attempts.Load())
}
