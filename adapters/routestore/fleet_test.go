package routestore_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// fleet is processes that come and go while the map is changed, beside one store that
// is told of the same requests: callers must not be able to tell which of the two they
// talk to.
type fleet struct {
	*world
	t     *testing.T
	model *memstore.Store
	// newest has the last map, older the one before, or is gone.
	newest, older *routestore.TxStore[*memstore.Tx]
	current       routestore.Map
	attempts      []attempt
}

// attempt is one that once owned its key, in both.
type attempt struct {
	by              onlyonce.Store
	routed, modeled onlyonce.Owner
}

func (f *fleet) someMap(t *rapid.T, version int) routestore.Map {
	m := routestore.Map{Version: version, By: routestore.Spread(rapid.IntRange(0, 1).Draw(t, "by"))}
	names := rapid.Permutation([]string{"a", "b", "c"}).Draw(t, "homes")
	m.Homes = names[:rapid.IntRange(1, 3).Draw(t, "how many")]
	if rapid.Bool().Draw(t, "table") {
		m.Table = map[string]string{"acct": names[0]}
	}
	return m
}

// change gives the newest processes another map, once nothing is left of the change
// before, as operators are told to do it.
func (f *fleet) change(t *rapid.T) {
	f.older = nil
	left, err := f.newest.Left(f.t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Skip("records are left at their old homes")
	}
	previous := f.current
	f.current = f.someMap(t, previous.Version+1)
	f.older, f.newest = f.newest, f.open(f.t, f.current, &previous)
}

// someone is a process of either map.
func (f *fleet) someone(t *rapid.T) onlyonce.Store {
	if f.older != nil && rapid.Bool().Draw(t, "by the old map") {
		return f.older
	}
	return f.newest
}

func (f *fleet) someKey(t *rapid.T) onlyonce.ClaimRequest {
	req := request(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "key"))
	req.Key.Scope = rapid.SampledFrom([]string{"acct", "other"}).Draw(t, "scope")
	return req
}

func (f *fleet) claims(t *rapid.T) {
	by, req := f.someone(t), f.someKey(t)
	if rapid.IntRange(0, 4).Draw(t, "request") == 0 {
		req.Fingerprint.Sum[0]++
	}
	req.Abandon = rapid.SampledFrom([]onlyonce.Abandon{onlyonce.AbandonHold, onlyonce.AbandonRerun}).Draw(t, "abandon")
	req.Resolve = rapid.Bool().Draw(t, "resolve")
	got, err := f.claim(f.t.Context(), by, req)
	if onlyonce.CodeOf(err) == onlyonce.CodeMisdirected && by == f.older {
		return // nothing was done, and nothing is to be done in the model
	}
	want, _ := f.model.Claim(f.t.Context(), req)
	if err != nil || got.Verdict != want.Verdict || got.From != want.From || got.Record.State != want.Record.State || routestore.IsMarker(got.Record) {
		t.Fatalf("claim of %v: %v from %q, %q, %v; one store says %v from %q, %q",
			req.Key, got.Verdict, got.From, got.Record.State, err, want.Verdict, want.From, want.Record.State)
	}
	if got.Verdict.Owns() {
		f.attempts = append(f.attempts, attempt{by, got.Record.Owner(), want.Record.Owner()})
	}
}

// writes has an attempt write by the process that it is of, or by a newer one.
func (f *fleet) writes(t *rapid.T) {
	if len(f.attempts) == 0 {
		t.Skip("nobody owned anything yet")
	}
	a := rapid.SampledFrom(f.attempts).Draw(t, "attempt")
	by := a.by
	if by != f.older || rapid.Bool().Draw(t, "by the new map") {
		by = f.newest
	}
	what := rapid.SampledFrom([]string{"renew", "complete", "release", "park"}).Draw(t, "what")
	write := func(s onlyonce.Store, o onlyonce.Owner) (held bool, err error) {
		ctx := f.t.Context()
		switch what {
		case "renew":
			return s.Renew(ctx, o, lease)
		case "release":
			return s.Release(ctx, o, "r")
		case "park":
			return s.Park(ctx, onlyonce.ParkRequest{Owner: o, Reason: "p"})
		default:
			settled, err := s.Complete(ctx, o, onlyonce.Answer{Status: 200})
			return settled.Held, err
		}
	}
	rec, found, _ := f.model.Get(f.t.Context(), a.modeled.Key)
	want, _ := write(f.model, a.modeled)
	got, err := write(by, a.routed)
	if err != nil || (got != want && found) {
		t.Fatalf("%s by %v: %v, %v; one store says %v of a key that is %s", what, a.routed.Key, got, err, want, rec.State)
	}
}

func (f *fleet) reads(t *rapid.T) {
	by, key := f.someone(t), f.someKey(t).Key
	got, found, err := by.Get(f.t.Context(), key)
	if onlyonce.CodeOf(err) == onlyonce.CodeMisdirected && by == f.older {
		return
	}
	want, there, _ := f.model.Get(f.t.Context(), key)
	if by == f.older && !found {
		return // what it cannot see may have moved where it does not look
	}
	if err != nil || found != there || got.State != want.State {
		t.Fatalf("get %v: %q, %v, %v; one store says %q", key, got.State, found, err, want.State)
	}
}

func (f *fleet) sweeps(t *rapid.T) {
	req := onlyonce.SweepRequest{Limit: 100, Grace: time.Minute, StepRetention: retention}
	if _, err := f.newest.Sweep(f.t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if _, err := f.model.Sweep(f.t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// C1, C6, O: whoever talks to processes whose map is changed again and again, old and
// new ones side by side, is told what one store would tell: no key lives twice.
func TestFleet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f := &fleet{world: newWorld(t, "a", "b", "c"), t: t}
		f.model = memory(t, f.clock.Now)
		f.current = f.someMap(rt, 1)
		f.newest = f.open(t, f.current, nil)
		rt.Repeat(map[string]func(*rapid.T){
			"change": f.change,
			"claim":  f.claims, "claim again": f.claims,
			"write": f.writes, "write again": f.writes,
			"read":  f.reads,
			"sweep": f.sweeps,
			"time passes": func(rt *rapid.T) {
				f.clock.Advance(rapid.SampledFrom([]time.Duration{time.Millisecond, lease, retention}).Draw(rt, "by"))
			},
		})
	})
}
