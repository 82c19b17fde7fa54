package routestore_test

import (
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// takes claims a key for the resource.
func (s *scene) takes(store onlyonce.Store, req onlyonce.ClaimRequest) onlyonce.Owner {
	claim, err := store.Claim(s.t.Context(), req)
	if err != nil || !claim.Verdict.Owns() {
		s.t.Fatalf("claim of %s: %v, %v", req.Key.Value, claim.Verdict, err)
	}
	return claim.Record.Owner()
}

func (s *scene) another() onlyonce.ClaimRequest {
	req := request("another")
	req.Resource = s.resource
	return req
}

// C12: while a scope moves, its resources move with it: in whatever order processes
// with the old and the new map claim different keys for one resource, one has it.
func TestEveryOrderOfResources(t *testing.T) {
	t.Parallel()
	plain := func(m *memstore.Store) onlyonce.Store { return m }
	starts := []before{
		{"free", func(*scene) {}},
		{"held at the old home, in doubt", func(s *scene) {
			held, err := s.a.Park(s.t.Context(), onlyonce.ParkRequest{Owner: s.takes(s.a, s.another()), Reason: "?"})
			s.must(held, err)
			s.effects = 1
		}},
		{"let go at the old home", func(s *scene) {
			held, err := s.a.Release(s.t.Context(), s.takes(s.a, s.another()), "freed")
			s.must(held, err)
		}},
		{"the first key stays at the old home", func(s *scene) {
			held, err := s.a.Release(s.t.Context(), s.takes(s.a, s.holding(0)), "freed")
			s.must(held, err)
		}},
		{"the last key stays at the old home", func(s *scene) {
			held, err := s.a.Release(s.t.Context(), s.takes(s.a, s.holding(len(s.procs)-1)), "freed")
			s.must(held, err)
		}},
		{"held at the new home", func(s *scene) {
			s.takes(s.open(2, plain), s.another())
			s.effects = 1
		}},
		{"let go at the new home", func(s *scene) {
			store := s.open(2, plain)
			held, err := store.Release(s.t.Context(), s.takes(store, s.another()), "freed")
			s.must(held, err)
		}},
	}
	for name, pl := range map[string]play{
		"old and new":      {cast: cast{1, 2}},
		"new and old":      {cast: cast{2, 1}},
		"new and new":      {cast: cast{2, 2}},
		"old, new and new": {cast: cast{1, 2, 2}},
		"new and back":     {cast: cast{2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plays := 0
			pl.resource = "order 7"
			for _, pl.start = range starts {
				n, fault := pl.explore(t)
				if plays += n; fault != "" {
					t.Fatal(fault)
				}
			}
			t.Logf("%d plays", plays)
		})
	}
}

// C12: who is refused because of a resource that has moved is told so in the form of
// any other refusal, and nothing of the marker.
func TestResourceHasMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	before, after := w.change(t)
	stays, moves := request("stays"), request("moves")
	stays.Resource, moves.Resource = "order 7", "order 7"
	c := w.want(t, before, stays, onlyonce.Won)
	if held, err := before.Release(t.Context(), c.Record.Owner(), "freed"); !held || err != nil {
		t.Fatal(held, err)
	}
	owner := w.want(t, after, moves, onlyonce.Won).Record.Owner()
	c = w.want(t, after, again(stays), onlyonce.ResourceBusy)
	if c.Record.State != onlyonce.InProgress || c.Record.Attempt != (onlyonce.Token{}) || c.Remaining <= 0 || routestore.IsMarker(c.Record) {
		t.Errorf("the holder is shown as %+v, %v", c.Record, c.Remaining)
	}
	w.misdirected(t, before, again(stays), "b", "")
	done(t, after, owner)
	next := request("next")
	next.Resource = "order 7"
	w.want(t, after, next, onlyonce.Won)
	// A key that was freed where the resource is no more waits until it is forgotten.
	w.clock.Advance(retention)
	w.want(t, after, again(stays), onlyonce.ResourceBusy)
	if rec, found := w.here(t, "a", stays.Key); !found || !routestore.IsMarker(rec) {
		t.Errorf("it has not moved: %+v, %v", rec, found)
	}
}

// C12: what is spread by key has no resources, and says so.
func TestNoResourcesByKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	byKey := routestore.Map{Version: 1, Homes: []string{"a", "b"}, By: routestore.ByKey}
	for name, s := range map[string]onlyonce.Store{
		"now":    w.open(t, byKey, nil),
		"before": w.open(t, all(2, "a"), &byKey),
	} {
		if s.Features().Resources {
			t.Errorf("%s: resources are promised", name)
		}
		req := request("k")
		req.Resource = "order 7"
		if _, err := s.Claim(t.Context(), req); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("%s: claim for a resource: %v", name, err)
		}
	}
	whole := routestore.Map{Version: 1, Homes: []string{"a"}, By: routestore.ByKey}
	if !w.open(t, whole, nil).Features().Resources {
		t.Error("all keys have one home, and resources are not promised")
	}
}

// C12: a caller's key may have the name of a resource's marker. It is a key like any
// other, and neither its record nor its marker is taken for the resource's.
func TestKeyOfAResourceMarker(t *testing.T) {
	t.Parallel()
	named, other := request("k"), request("other")
	named.Key = routestore.ResourceKey("acct", "order 7")
	other.Resource = "order 7"
	t.Run("its record stays", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "a", "b")
		before, after := w.change(t)
		w.want(t, before, named, onlyonce.Won)
		w.want(t, after, other, onlyonce.ResourceBusy)
		w.want(t, after, request("free"), onlyonce.Won)
	})
	t.Run("it has moved before", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "a", "b")
		before, after := w.change(t)
		w.want(t, after, named, onlyonce.Won)
		w.want(t, after, other, onlyonce.ResourceBusy) // it is not moved, so:
		holder := again(other)
		holder.Key.Value = "holder"
		w.want(t, before, holder, onlyonce.Won)
	})
	t.Run("it moves behind the resource", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "a", "b")
		before, after := w.change(t)
		w.want(t, after, other, onlyonce.Won)
		w.misdirected(t, before, again(named), "b", "")
		w.want(t, after, named, onlyonce.Won)
		holder := again(other)
		holder.Key.Value = "holder"
		w.misdirected(t, before, holder, "b", "")
	})
}
