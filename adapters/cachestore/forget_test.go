package cachestore_test

import (
	"context"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// B89: what a claim under way has read before a key was forgotten does not come back
// afterwards.
func TestForgetBesideAClaim(t *testing.T) {
	t.Parallel()
	mem, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	var cached *cachestore.Store
	held := false
	inner := storefault.New(mem, func(method storefault.Method, key onlyonce.Key) storefault.Fault {
		if method != storefault.Claim || !held {
			return storefault.Fault{}
		}
		held = false
		return storefault.Fault{HoldReply: func(ctx context.Context) {
			if err := cached.Forget(ctx, key); err != nil {
				t.Errorf("forget: %v", err)
			}
		}}
	})
	if cached, err = cachestore.New(inner, cachestore.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cached.Close() })
	req := onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: "acct", Value: "k"}, Operation: "POST /charges", Attempt: onlyonce.NewToken(),
		Lease: onlyonce.DefaultLease, Retention: onlyonce.DefaultRetention, Abandon: onlyonce.AbandonRerun,
	}
	claim, err := cached.Claim(t.Context(), req)
	if err != nil || claim.Verdict != onlyonce.Won {
		t.Fatalf("claim: %v, %v", claim.Verdict, err)
	}
	if _, err := cached.Complete(t.Context(), claim.Record.Owner(), onlyonce.Answer{Status: 200, Body: []byte("a")}); err != nil {
		t.Fatal(err)
	}
	for look, wantHits := range []uint64{0, 0, 0, 1} {
		held = look == 0 // the key is forgotten while this one is on its way
		req.Attempt = onlyonce.NewToken()
		if c, err := cached.Claim(t.Context(), req); err != nil || c.Verdict != onlyonce.Replay {
			t.Fatalf("look %d: %v, %v", look, c.Verdict, err)
		}
		if hits := uint64(cached.Stats().Hits); look < 2 && hits != 0 || look == 3 && hits < wantHits {
			t.Errorf("look %d: %d hits", look, hits)
		}
	}
}
