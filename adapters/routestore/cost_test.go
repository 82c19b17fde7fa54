package routestore_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// calls notes which homes are called, in order.
type calls struct {
	mu    sync.Mutex
	notes []string
}

func (c *calls) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := strings.Join(c.notes, ", ")
	c.notes = nil
	return got
}

// What does not move costs its home's own calls; what moves costs one more, two with a
// resource, and a write of an attempt one more where it began at the old home.
func TestCost(t *testing.T) {
	t.Parallel()
	w, seen := newWorld(t, "a", "b"), &calls{}
	for i, h := range w.homes {
		w.homes[i].Store = storefault.NewTx[*memstore.Tx](w.stores[h.Name], func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
			seen.mu.Lock()
			defer seen.mu.Unlock()
			seen.notes = append(seen.notes, string(m)+" at "+h.Name)
			return storefault.Fault{}
		})
	}
	before, after := w.change(t)
	spent := func(what, want string) {
		t.Helper()
		if got := seen.take(); got != want {
			t.Errorf("%s: %s; want %s", what, got, want)
		}
	}
	stays := w.want(t, before, request("stays"), onlyonce.Won).Record.Owner()
	spent("a claim", "claim at a")
	if _, _, err := before.Get(t.Context(), stays.Key); err != nil {
		t.Fatal(err)
	}
	spent("a read", "get at a")
	w.want(t, after, request("stays"), onlyonce.Busy)
	spent("a claim of a key that stays", "claim at a, claim at a")
	done(t, after, stays)
	spent("an answer at the old home", "complete at b, complete at a")
	moves := w.want(t, after, request("moves"), onlyonce.Won).Record.Owner()
	spent("a claim of a key that moves", "claim at a, claim at b")
	done(t, after, moves)
	spent("an answer at the new home", "complete at b")
	with := request("with")
	with.Resource = "order 7"
	w.want(t, after, with, onlyonce.Won)
	spent("a claim for a resource", "claim at a, claim at a, claim at b")
	if _, _, err := after.Get(t.Context(), moves.Key); err != nil {
		t.Fatal(err)
	}
	spent("a read of a key that has moved", "get at a, get at b")
}
