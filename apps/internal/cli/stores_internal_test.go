package cli

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
)

// eachStore runs a test on a store of keys alone, of every kind that keeps them.
func eachStore(t *testing.T, fn func(t *testing.T, url string)) {
	t.Helper()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			if err := keystore.Migrate(t.Context(), url); err != nil {
				t.Fatal(err)
			}
			fn(t, url)
		})
	}
}

// onStore works on a store directly.
func onStore(t *testing.T, url string, fn func(s *keystore.Store)) {
	t.Helper()
	s, err := keystore.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	fn(s)
}

// claimOf claims a key of the scope acct.
func claimOf(value string, lease, retention time.Duration) onlyonce.ClaimRequest {
	return onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: "acct", Value: value}, Operation: "POST /charges", Attempt: onlyonce.NewToken(),
		Fingerprint: onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: 1, Secret: "s", Policy: "p"}, Sum: [32]byte{1}},
		Lease:       lease, Retention: retention,
	}
}

// answered makes keys and completes them, with answers that are kept for so long.
func answered(t *testing.T, url, prefix string, n int, retention time.Duration) {
	t.Helper()
	onStore(t, url, func(s *keystore.Store) {
		const writers = 4
		var all sync.WaitGroup
		for w := range min(writers, n) {
			all.Go(func() {
				for i := w; i < n && !t.Failed(); i += writers {
					c, err := s.Claim(t.Context(), claimOf(fmt.Sprint(prefix, i), time.Minute, retention))
					if err == nil && c.Verdict == onlyonce.Won {
						_, err = s.Complete(t.Context(), c.Record.Owner(), onlyonce.Answer{Status: 201, Body: make([]byte, 500)})
					}
					if err != nil || c.Verdict != onlyonce.Won {
						t.Errorf("%s, %v", c.Verdict, err)
					}
				}
			})
		}
		all.Wait()
	})
}

// expired makes keys whose answers are over at once.
func expired(t *testing.T, url string, n int) {
	t.Helper()
	answered(t, url, "old", n, time.Microsecond)
}

// left counts the keys of a store's table, those that have expired too.
func left(t *testing.T, url string) (n int64) {
	t.Helper()
	onStore(t, url, func(s *keystore.Store) {
		size, err := s.Size(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n = size.Keys
	})
	return n
}

// scripted is a store whose sweeps are a test's.
type scripted struct {
	onlyonce.Store
	sweep func(ctx context.Context, call int) (onlyonce.SweepResult, error)
	calls int
}

func (s *scripted) Sweep(ctx context.Context, _ onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	s.calls++
	return s.sweep(ctx, s.calls)
}
