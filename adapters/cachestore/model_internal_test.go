package cachestore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// world is a store behind several caches, whose processes' clocks all differ from
// the store's, and the same store without any.
type world struct {
	ctx    context.Context //nolint:containedctx // lives as long as one check
	clock  *storetest.Clock
	caches []*TxStore[*memstore.Tx]
	plain  *memstore.Store
	tier   *hostile
	owners []onlyonce.Owner
	done   []onlyonce.Record
}

func newWorld(t *rapid.T, ctx context.Context) *world {
	w := &world{ctx: ctx, clock: storetest.NewClock(), tier: newHostile()}
	w.plain = memory(t, w.clock.Now)
	real := memory(t, w.clock.Now)
	w.tier.pick = func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "mood") }
	for i, skew := range []time.Duration{0, -7 * time.Hour, 400 * 24 * time.Hour} {
		cfg := Config{
			Now: func() time.Time { return w.clock.Now().Add(skew) }, MaxAge: 2 * time.Hour,
			ReadBack: i == 1, MaxBytes: []int64{64 << 20, 2500, 64 << 20}[i],
		}
		w.caches = append(w.caches, &TxStore[*memstore.Tx]{Store: behind(t, real, cfg, w.tier), tx: real})
	}
	return w
}

func memory(t fataler, now func() time.Time) *memstore.Store {
	t.Helper()
	m, err := memstore.New(memstore.Config{SingleProcess: true, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// both does the same behind one of the caches and without, and wants the same.
func (w *world) both(t *rapid.T, what string, fn func(s onlyonce.TxStore[*memstore.Tx]) (any, error)) any {
	want, wantErr := fn(w.plain)
	got, gotErr := fn(rapid.SampledFrom(w.caches).Draw(t, "process"))
	if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) {
		t.Fatalf("%s: plain %v, cached %v", what, wantErr, gotErr)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-plain +cached):\n%s", what, diff)
	}
	return got
}

func (w *world) request(t *rapid.T) onlyonce.ClaimRequest {
	req := onlyonce.ClaimRequest{
		Key:       onlyonce.Key{Scope: rapid.SampledFrom([]string{"s", "s", "S"}).Draw(t, "scope"), Value: rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "key")},
		Operation: "POST /charges", Attempt: onlyonce.NewToken(), Lease: 30 * time.Second,
		Retention: rapid.SampledFrom([]time.Duration{6 * time.Second, time.Hour, 24 * time.Hour}).Draw(t, "retention"),
		Abandon:   onlyonce.AbandonRerun, Resolve: rapid.Bool().Draw(t, "resolve"),
	}
	req.Fingerprint.Parts = []byte("parts")
	req.Fingerprint.Sum[0] = rapid.SampledFrom([]byte{1, 1, 1, 1, 2}).Draw(t, "request")
	return req
}

func (w *world) own(claim onlyonce.Claim) {
	if claim.Verdict.Owns() {
		w.owners = append(w.owners, claim.Record.Owner())
	}
}

func (w *world) claim(t *rapid.T) {
	req := w.request(t)
	w.own(w.both(t, "claim", func(s onlyonce.TxStore[*memstore.Tx]) (any, error) { return s.Claim(w.ctx, req) }).(onlyonce.Claim))
}

// retry claims a key again that was completed, perhaps long ago.
func (w *world) retry(t *rapid.T) {
	if len(w.done) == 0 {
		t.Skip("nothing was completed yet")
	}
	req := w.request(t)
	rec := rapid.SampledFrom(w.done).Draw(t, "completed")
	req.Key, req.Fingerprint = rec.Key, rec.Fingerprint
	for range rapid.IntRange(1, 4).Draw(t, "times") {
		req.Attempt = onlyonce.NewToken()
		w.own(w.both(t, "retry", func(s onlyonce.TxStore[*memstore.Tx]) (any, error) { return s.Claim(w.ctx, req) }).(onlyonce.Claim))
	}
}

// note keeps what is completed.
func (w *world) note(t *rapid.T, key onlyonce.Key) {
	rec, found, err := w.plain.Get(w.ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if found && rec.State == onlyonce.Completed {
		w.done = append(w.done, rec)
	}
}

func (w *world) complete(t *rapid.T) {
	if len(w.owners) == 0 {
		t.Skip("nobody owned anything yet")
	}
	o := rapid.SampledFrom(w.owners).Draw(t, "owner")
	a := onlyonce.Answer{Status: 200, Body: fmt.Append(nil, rapid.IntRange(0, 1000).Draw(t, "body"))}
	finish := rapid.Bool().Draw(t, "finish")
	w.both(t, "complete", func(s onlyonce.TxStore[*memstore.Tx]) (any, error) {
		if finish {
			return s.Finish(w.ctx, o, func(context.Context, *memstore.Tx) (*onlyonce.Answer, error) { return &a, nil })
		}
		return s.Complete(w.ctx, o, a)
	})
	w.note(t, o.Key)
}

func (w *world) atomic(t *rapid.T) {
	req := w.request(t)
	a := &onlyonce.Answer{Status: 201, Body: fmt.Append(nil, rapid.IntRange(0, 1000).Draw(t, "body"))}
	if rapid.IntRange(0, 4).Draw(t, "answers") == 0 {
		a = nil
	}
	w.both(t, "atomic", func(s onlyonce.TxStore[*memstore.Tx]) (any, error) {
		ran := false
		claim, settled, err := s.Atomic(w.ctx, req, func(context.Context, *memstore.Tx) (*onlyonce.Answer, error) { ran = true; return a, nil })
		return []any{claim, settled, ran}, err
	})
	w.note(t, req.Key)
}

// life is done to an attempt by its owner.
func (w *world) life(t *rapid.T) {
	if len(w.owners) == 0 {
		t.Skip("nobody owned anything yet")
	}
	o := rapid.SampledFrom(w.owners).Draw(t, "owner")
	what := rapid.SampledFrom([]string{"renew", "release", "park"}).Draw(t, "what")
	w.both(t, what, func(s onlyonce.TxStore[*memstore.Tx]) (any, error) {
		switch what {
		case "renew":
			return s.Renew(w.ctx, o, 30*time.Second)
		case "release":
			return s.Release(w.ctx, o, "r")
		default:
			return s.Park(w.ctx, onlyonce.ParkRequest{Owner: o, Reason: "p"})
		}
	})
}

func (w *world) read(t *rapid.T) {
	key := w.request(t).Key
	w.both(t, "get", func(s onlyonce.TxStore[*memstore.Tx]) (any, error) {
		rec, found, err := s.Get(w.ctx, key)
		return []any{rec, found}, err
	})
}

func (w *world) sweep(t *rapid.T) {
	req := onlyonce.SweepRequest{Limit: 100, Grace: time.Minute, StepRetention: time.Hour}
	w.both(t, "sweep", func(s onlyonce.TxStore[*memstore.Tx]) (any, error) { return s.Sweep(w.ctx, req) })
}

func (w *world) advance(t *rapid.T) {
	w.clock.Advance(rapid.SampledFrom([]time.Duration{
		time.Microsecond, time.Second, 5 * time.Second, 30 * time.Second, time.Hour - 5*time.Second, time.Hour, 24 * time.Hour,
	}).Draw(t, "by"))
}

func (w *world) forget(t *rapid.T) {
	s := rapid.SampledFrom(w.caches).Draw(t, "process")
	_ = s.Forget(w.ctx, w.request(t).Key) // it may fail, and harms nobody
}

// B89, C6, T2: whatever the shared tier gives, keeps too long, loses or delays,
// and wherever the processes' clocks stand, nobody is ever told anything else than
// the store alone would have told; fences, times and what remains included.
func TestAHostileTierChangesNothing(t *testing.T) {
	t.Parallel()
	var hits, shared, rejected, skipped int64
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, t.Context())
		rt.Repeat(map[string]func(*rapid.T){
			"claim": w.claim, "retry": w.retry, "retry again": w.retry, "complete": w.complete, "atomic": w.atomic,
			"life": w.life, "get": w.read, "sweep": w.sweep, "advance": w.advance, "forget": w.forget,
			"late writes arrive": func(*rapid.T) { w.tier.arrive() },
		})
		for _, s := range w.caches {
			n := s.Stats()
			hits, shared, rejected, skipped = hits+n.Hits, shared+n.SharedHits, rejected+n.Rejected, skipped+n.SharedSkipped
		}
	})
	t.Logf("%d hits, %d shared, %d values rejected, %d calls skipped", hits, shared, rejected, skipped)
	if hits == 0 || shared == 0 || rejected == 0 {
		t.Error("the model has not met the cache")
	}
}
