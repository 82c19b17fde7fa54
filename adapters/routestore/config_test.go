package routestore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// lesser is a store that promises less than the one beneath.
type lesser struct{ *memstore.Store }

func (s lesser) Features() onlyonce.Features {
	f := s.Store.Features()
	f.Steps, f.Name = false, "lesser"
	return f
}

func TestConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	old := all(1, "a")
	same := all(2, "b")
	for want, change := range map[string]func(c *routestore.Config){
		"at least one must have a store":               func(c *routestore.Config) { c.Homes = []routestore.Home{{Name: "a"}, {Name: "b"}} },
		`got "a b"`:                                    func(c *routestore.Config) { c.Homes[0].Name = "a b" },
		`two have the name "a"`:                        func(c *routestore.Config) { c.Homes[1].Name = "a" },
		"must be an absolute URL":                      func(c *routestore.Config) { c.Homes[0].Address = "eu.example.com" },
		"all must promise the same, and b":             func(c *routestore.Config) { c.Homes[1].Store = lesser{w.stores["b"]} },
		"Map.Version must be positive":                 func(c *routestore.Config) { c.Map.Version = 0 },
		"Map.Homes must name at least one":             func(c *routestore.Config) { c.Map.Homes = nil },
		`Map.Homes: "x" is not one of Homes`:           func(c *routestore.Config) { c.Map.Homes = []string{"x"} },
		`Map.Homes: "b" is not one of Homes, or is`:    func(c *routestore.Config) { c.Map.Homes = []string{"b", "b"} },
		"Map.By must be":                               func(c *routestore.Config) { c.Map.By = 7 },
		`Map.Table: the home "x" of scope "acct"`:      func(c *routestore.Config) { c.Map.Table = map[string]string{"acct": "x"} },
		"Map.Version must be higher than":              func(c *routestore.Config) { c.Previous = &same },
		`Previous.Homes: "y" is not one of`:            func(c *routestore.Config) { c.Previous.Homes = []string{"y"} },
		"Until says when Previous ends to count":       func(c *routestore.Config) { c.Previous, c.Until = nil, time.Unix(1, 0) },
		`Arbiter must be a home with a store, got "c"`: func(c *routestore.Config) { c.Arbiter = "c" },
		"without user and password":                    func(c *routestore.Config) { c.Homes[0].Address = "https://user:secret@eu.example.com" },
		"keys move to b from a, which has no store":    func(c *routestore.Config) { c.Homes[0].Store = nil },
		"Patience must not be negative":                func(c *routestore.Config) { c.Patience = -1 },
	} {
		previous := old
		cfg := routestore.Config{Homes: append([]routestore.Home(nil), w.homes...), Map: same, Previous: &previous}
		change(&cfg)
		_, err := routestore.New(cfg)
		if _, txErr := routestore.NewTx[*memstore.Tx](cfg); (err == nil) != (txErr == nil) {
			t.Errorf("%s: New says %v, NewTx %v", want, err, txErr)
		}
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want one that says: %s", err, want)
		}
	}
	if _, err := routestore.NewTx[int](routestore.Config{Homes: w.homes, Map: same}); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "transactions of type int") {
		t.Errorf("another driver's transactions: %v", err)
	}
}

func TestFeatures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	plain, err := routestore.New(routestore.Config{Homes: w.homes, Map: all(1, "a")})
	if err != nil {
		t.Fatal(err)
	}
	f := w.stores["a"].Features()
	f.Name = "routed memory"
	if got := w.open(t, all(1, "a"), nil).Features(); got != f {
		t.Errorf("with transactions: %+v, want %+v", got, f)
	}
	f.Transactions = false
	if got := plain.Features(); got != f {
		t.Errorf("without: %+v, want %+v", got, f)
	}
}

// What the homes lack is refused by name, not by a crash.
func TestLackingPowers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	bare := bareStore{w.stores["a"]}
	s, err := routestore.New(routestore.Config{Homes: []routestore.Home{{Name: "a", Store: bare}}, Map: all(1, "a")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, key := t.Context(), request("k").Key
	_, err1 := s.BeginStep(ctx, onlyonce.Owner{Key: key}, onlyonce.Intent{})
	_, err2 := s.EndStep(ctx, onlyonce.Owner{Key: key}, onlyonce.StepEnd{})
	_, err3 := s.Steps(ctx, key)
	_, err4 := s.Due(ctx, onlyonce.DueRequest{Limit: 1})
	_, _, err5 := s.Kept(ctx, key)
	_, err6 := s.Requeue(ctx, key)
	_, _, err7 := s.Setting(ctx, "k", "i")
	_, err8 := s.AddSetting(ctx, "k", "i", nil)
	_, err9 := s.List(ctx, onlyonce.ListFilter{})
	_, err10 := s.Left(ctx, 1)
	err11 := s.AddAudit(ctx, onlyonce.AuditEntry{Key: key})
	_, err12 := s.Audit(ctx, key)
	for i, err := range []error{err1, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11, err12} {
		if e, ok := errors.AsType[*onlyonce.Error](err); !ok || e.Code != onlyonce.CodeConfig || !strings.Contains(e.Hint, "do not promise") {
			t.Errorf("power %d: %v", i+1, err)
		}
	}
}

// bareStore is a store without optional powers.
type bareStore struct{ onlyonce.Store }

func (bareStore) Features() onlyonce.Features { return onlyonce.Features{Name: "bare"} }
