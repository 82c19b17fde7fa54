package routestore_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
)

func drawMap(t *rapid.T) routestore.Map {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9._-]{1,8}`), 1, 12, rapid.ID[string]).Draw(t, "homes")
	return routestore.Map{Version: 1, Homes: names, By: rapid.SampledFrom([]routestore.Spread{routestore.ByScope, routestore.ByKey}).Draw(t, "by")}
}

// A home more takes its share of the keys, about one in n, and no other key moves; a
// home less gives up its own, and no other key moves.
func TestHomesMoreOrLess(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := drawMap(rt)
		more := m
		more.Homes = slices.Concat(m.Homes, []string{"another-one"})
		const keys = 2000
		moved := 0
		for i := range keys {
			key := onlyonce.Key{Scope: fmt.Sprint("acct_", i), Value: fmt.Sprint(rapid.Uint64().Draw(rt, "seed"), i)}
			if i > 0 {
				key.Value = fmt.Sprint(i) // one draw is enough: it must not be slow
			}
			was, is := routestore.HomeByMap(m, key), routestore.HomeByMap(more, key)
			switch {
			case is == "another-one":
				moved++
			case is != was:
				rt.Fatalf("%v moved from %s to %s", key, was, is)
			}
		}
		share := keys / len(more.Homes)
		if moved < share/2 || moved > share*2 {
			rt.Fatalf("%d of %d keys moved to one of %d homes", moved, keys, len(more.Homes))
		}
	})
}

// The order in which homes are named does not matter: two processes agree.
func TestHomesInAnyOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := drawMap(rt)
		other := m
		other.Homes = rapid.Permutation(m.Homes).Draw(rt, "order")
		key := onlyonce.Key{Scope: rapid.String().Draw(rt, "scope"), Value: rapid.String().Draw(rt, "value")}
		if a, b := routestore.HomeByMap(m, key), routestore.HomeByMap(other, key); a != b {
			rt.Fatalf("%v lives at %s and at %s", key, a, b)
		}
	})
}

// What is spread by scope stays together, what is spread by key does not, and all homes
// get about as much.
func TestSpread(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d"}
	for by, together := range map[routestore.Spread]bool{routestore.ByScope: true, routestore.ByKey: false} {
		m := routestore.Map{Version: 1, Homes: names, By: by}
		homes, shares := map[string]bool{}, map[string]int{}
		for i := range 4000 {
			homes[routestore.HomeByMap(m, onlyonce.Key{Scope: "acct\x00ü", Value: fmt.Sprint(i)})] = true
			shares[routestore.HomeByMap(m, onlyonce.Key{Scope: fmt.Sprint(i), Value: "k"})]++
		}
		if (len(homes) == 1) != together {
			t.Errorf("by %d: the keys of one scope live at %v", by, slices.Sorted(maps.Keys(homes)))
		}
		for name, n := range shares {
			if n < 800 || n > 1200 {
				t.Errorf("by %d: %s has %d of 4000", by, name, n)
			}
		}
	}
}

// The hash is for good: with another, every key would move without being told.
func TestRanksNeverChange(t *testing.T) {
	t.Parallel()
	m := routestore.Map{Version: 1, Homes: []string{"eu-1", "eu-2", "us-1"}}
	var got []string
	for i := range 12 {
		m.By = routestore.Spread(i % 2)
		got = append(got, routestore.HomeByMap(m, onlyonce.Key{Scope: fmt.Sprint("acct_", i), Value: "k"}))
	}
	want := strings.Fields("eu-2 us-1 eu-2 eu-1 eu-1 eu-2 us-1 us-1 eu-2 eu-1 us-1 eu-1")
	if !slices.Equal(got, want) {
		t.Errorf("homes %q, want %q", got, want)
	}
}

func TestTableComesFirst(t *testing.T) {
	t.Parallel()
	m := routestore.Map{Version: 1, Homes: []string{"a"}, Table: map[string]string{"acct": "b"}}
	if got := routestore.HomeByMap(m, onlyonce.Key{Scope: "acct", Value: "k"}); got != "b" {
		t.Errorf("a scope of the table lives at %s", got)
	}
	if got := routestore.HomeByMap(m, onlyonce.Key{Scope: "acct2", Value: "k"}); got != "a" {
		t.Errorf("any other scope lives at %s", got)
	}
}
