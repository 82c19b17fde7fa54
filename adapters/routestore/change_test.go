package routestore_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// owned claims the key at the old home by the old map, as it was before the change.
func (s *scene) owned() onlyonce.Owner {
	claim, err := s.a.Claim(s.t.Context(), s.request())
	if err != nil || claim.Verdict != onlyonce.Won {
		s.t.Fatalf("claim: %v, %v", claim.Verdict, err)
	}
	return claim.Record.Owner()
}

func (s *scene) must(held bool, err error) {
	if err != nil || !held {
		s.t.Fatalf("bring the key into its state: %v, %v", held, err)
	}
}

func (s *scene) completed() {
	settled, err := s.a.Complete(s.t.Context(), s.owned(), onlyonce.Answer{Status: 201})
	s.must(settled.Held, err)
}

func (s *scene) freed() {
	held, err := s.a.Release(s.t.Context(), s.owned(), "freed")
	s.must(held, err)
}

// marked has a process with the new map claim another request under the key, which
// moves it, and give it back.
func (s *scene) marked() onlyonce.Claim {
	store := s.open(2, func(m *memstore.Store) onlyonce.Store { return m })
	claim, err := store.Claim(s.t.Context(), s.request())
	if err != nil || claim.Verdict != onlyonce.Won {
		s.t.Fatalf("claim by the new map: %v, %v", claim.Verdict, err)
	}
	return claim
}

// states are all that a key can be in before the processes of a play claim it, and how
// many effects it has had.
func states() []before {
	over := func(s *scene) { s.clock.Advance(lease) }
	return []before{
		{"absent", func(*scene) {}},
		{"in progress", func(s *scene) { s.owned(); s.effects = 1 }},
		{"in progress, lease over", func(s *scene) { s.owned(); s.effects = 1; over(s) }},
		{"completed", func(s *scene) { s.completed(); s.effects = 1 }},
		{"completed, expires now", func(s *scene) { s.completed(); s.clock.Advance(retention - time.Second); s.soon = true }},
		{"completed, expired", func(s *scene) { s.completed(); s.clock.Advance(retention) }},
		{"freed", func(s *scene) { s.freed() }},
		{"freed, expires now", func(s *scene) { s.freed(); s.clock.Advance(retention - time.Second); s.soon = true }},
		{"freed, expired", func(s *scene) { s.freed(); s.clock.Advance(retention) }},
		{"freed behind a step", func(s *scene) {
			owner, ctx := s.owned(), s.t.Context()
			held, err := s.a.BeginStep(ctx, owner, onlyonce.Intent{Name: "charge", Provider: "p", DerivedKey: "d"})
			s.must(held, err)
			held, err = s.a.Release(ctx, owner, "freed")
			s.must(held, err)
		}},
		{"in doubt", func(s *scene) {
			held, err := s.a.Park(s.t.Context(), onlyonce.ParkRequest{Owner: s.owned(), Reason: "?"})
			s.must(held, err)
			s.effects = 1
		}},
		{"moved, in progress", func(s *scene) { s.marked(); s.effects = 1 }},
		{"moved, completed", func(s *scene) {
			settled, err := s.b.Complete(s.t.Context(), s.marked().Record.Owner(), onlyonce.Answer{Status: 201})
			s.must(settled.Held, err)
			s.effects = 1
		}},
		{"moved, freed", func(s *scene) {
			held, err := s.b.Release(s.t.Context(), s.marked().Record.Owner(), "freed")
			s.must(held, err)
		}},
		{"marker alone", func(s *scene) {
			held, err := s.b.Release(s.t.Context(), s.marked().Record.Owner(), "freed")
			s.must(held, err)
			s.clock.Advance(retention)
		}},
	}
}

// C1, C6: whatever stands at the old home, and in whatever order processes with the
// old and the new map ask the homes, and die between two calls, the effect happens at
// most once.
func TestEveryOrder(t *testing.T) {
	t.Parallel()
	for name, pl := range map[string]play{
		"old and new":       {cast: cast{1, 2}, deaths: 1},
		"new and new":       {cast: cast{2, 2}, deaths: 1},
		"old, new and new":  {cast: cast{1, 2, 2}},
		"new and back":      {cast: cast{2, 3}, deaths: 1},
		"back and back":     {cast: cast{3, 3}, deaths: 1},
		"old, new and back": {cast: cast{1, 2, 3}},
		"back and forth":    {cast: cast{3, 4}, deaths: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if os.Getenv("ONLYONCE_SOAK") != "" {
				pl.deaths++
			}
			plays := 0
			for _, pl.start = range states() {
				if pl.long() {
					continue // TestSomeOrders
				}
				n, fault := pl.explore(t)
				if plays += n; fault != "" {
					t.Fatal(fault)
				}
			}
			t.Logf("%d plays", plays)
			if plays < 100 {
				t.Errorf("%d plays: the processes did not meet", plays)
			}
		})
	}
}

// C1, C6: so it is in any of the orders that are too many to play them all.
func TestSomeOrders(t *testing.T) {
	t.Parallel()
	var plays []play
	for _, c := range []cast{{2, 2}, {1, 2, 2}, {2, 3}, {3, 3}, {1, 2, 3}, {3, 4}} {
		for _, start := range states() {
			if pl := (play{cast: c, start: start}); pl.long() {
				plays = append(plays, pl)
			}
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		pl := rapid.SampledFrom(plays).Draw(rt, "play")
		s, deaths := pl.begin(t), rapid.IntRange(0, 2).Draw(rt, "deaths")
		for {
			n, _ := s.act(-1, deaths)
			if n == 0 {
				break
			}
			_, died := s.act(rapid.IntRange(0, n-1).Draw(rt, "next"), deaths)
			deaths -= died
		}
		if fault := pl.end(s); fault != "" {
			rt.Fatal(fault)
		}
	})
}

// lookThenClaim is what must not be done: it reads where the record is, and then
// claims.
type lookThenClaim struct {
	onlyonce.Store // the new home

	old onlyonce.Store
}

func (s lookThenClaim) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	if _, found, err := s.old.Get(ctx, req.Key); found || err != nil {
		return s.old.Claim(ctx, req)
	}
	return s.Store.Claim(ctx, req)
}

// The search finds what is wrong where something is: between looking and claiming, a
// process with the old map claims.
func TestEveryOrderFindsCheckThenAct(t *testing.T) {
	t.Parallel()
	pl := play{cast: cast{1, 2}, start: states()[0], router: func(version int, a, b onlyonce.Store) onlyonce.Store {
		if version == 1 {
			return a
		}
		return lookThenClaim{Store: b, old: a}
	}}
	if _, fault := pl.explore(t); !strings.Contains(fault, "2 effects") {
		t.Errorf("found %q", fault)
	}
}

// C6: a process that slept through a whole change wakes up and takes back an old
// marker, which one with a later map has met: that one relies on a marker of its own.
func TestSleeperTakesNothingBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, cast{3, 3, 4}, nil)
	states()[len(states())-1].make(s) // a marker of map 2 stands at a, and nothing at b
	s.start()
	sleeper, second, later := s.procs[0], s.procs[1], s.procs[2]
	s.step(sleeper, true) // moves the key away from b
	s.step(sleeper, true) // meets the old marker at a, and is about to take it back
	s.step(second, true)  // finds the key moved away from b, and is about to claim it at a
	for !later.over {
		s.step(later, true)
	}
	if s.effects != 1 {
		t.Fatalf("%d effects of the process with the last map", s.effects)
	}
	s.step(sleeper, true)
	for _, p := range []*process{second, sleeper} {
		for !p.over {
			s.step(p, true)
		}
	}
	if s.afterwards(cast{3, 4}); len(s.faults) > 0 {
		t.Errorf("%q\n%s", s.faults, strings.Join(s.log, "\n"))
	}
}
