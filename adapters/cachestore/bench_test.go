package cachestore_test

import (
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// hitter is a cache that has the answer to a claim.
func hitter(tb testing.TB) (*cachestore.Store, onlyonce.ClaimRequest) {
	tb.Helper()
	mem, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		tb.Fatal(err)
	}
	s, err := cachestore.New(mem, cachestore.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	req := request("k")
	claim, err := s.Claim(tb.Context(), req)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := s.Complete(tb.Context(), claim.Record.Owner(), created()); err != nil {
		tb.Fatal(err)
	}
	if _, err := s.Claim(tb.Context(), again(req)); err != nil {
		tb.Fatal(err)
	}
	return s, again(req)
}

// maxAllocs is what a hit may allocate: the answer, its body, its headers (a map of
// two parts and one list of all values) and the fingerprint's parts.
const maxAllocs = 6

// A hit allocates what its caller may write to, and nothing else.
func TestHitAllocates(t *testing.T) {
	s, req := hitter(t)
	ctx := t.Context()
	allocs := testing.AllocsPerRun(1000, func() {
		if c, err := s.Claim(ctx, req); err != nil || c.Verdict != onlyonce.Replay {
			t.Fatalf("%v, %v", c.Verdict, err)
		}
	})
	if allocs > maxAllocs || s.Stats().Hits < 1000 {
		t.Errorf("a hit makes %v allocations, at most %d are allowed (%+v)", allocs, maxAllocs, s.Stats())
	}
}

func BenchmarkHit(b *testing.B) {
	s, req := hitter(b)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if c, err := s.Claim(ctx, req); err != nil || c.Verdict != onlyonce.Replay {
			b.Fatal(c.Verdict, err)
		}
	}
}

func BenchmarkHitParallel(b *testing.B) {
	s, req := hitter(b)
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if c, err := s.Claim(ctx, req); err != nil || c.Verdict != onlyonce.Replay {
				b.Error(c.Verdict, err)
			}
		}
	})
}
