package cachestore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// one is an injector that fails every call of one method.
func one(method storefault.Method, fault storefault.Fault) storefault.Injector {
	return func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
		if m == method {
			return fault
		}
		return storefault.Fault{}
	}
}

func none(storefault.Method, onlyonce.Key) storefault.Fault { return storefault.Fault{} }

// completions are the ways of completing a key, with an answer "a".
func completions(s *cached) map[storefault.Method]func(context.Context, onlyonce.Owner) (onlyonce.Settled, error) {
	return map[storefault.Method]func(context.Context, onlyonce.Owner) (onlyonce.Settled, error){
		storefault.Complete: func(ctx context.Context, o onlyonce.Owner) (onlyonce.Settled, error) {
			return s.Complete(ctx, o, onlyonce.Answer{Status: 201, Body: []byte("a")})
		},
		storefault.Finish: func(ctx context.Context, o onlyonce.Owner) (onlyonce.Settled, error) {
			return s.Finish(ctx, o, answers("a"))
		},
	}
}

// C10, B89: a completion whose outcome is not known puts nothing into the cache,
// whether it happened or not; repeated, it puts there what stands.
func TestUncertainCompletionsAreNotCached(t *testing.T) {
	t.Parallel()
	faults := map[string]storefault.Fault{"lost reply": {After: onlyonce.ErrUncertain}, "lost request": {Before: onlyonce.ErrUncertain}}
	for name, fault := range faults {
		c := newCounting(t)
		s := c.cache(t, cachestore.Config{ReadBack: true})
		for method, completes := range completions(s) {
			c.failing(none)
			req := request(string(method))
			owner := want(t, s, req, onlyonce.Won).Record.Owner()
			c.failing(one(method, fault))
			if settled, err := completes(t.Context(), owner); settled.Held || !errors.Is(err, onlyonce.ErrUncertain) {
				t.Fatalf("%s of %s: %+v, %v", name, method, settled, err)
			}
			asked := c.asked(storefault.Claim)
			if claim, err := s.Claim(t.Context(), again(req)); err != nil || (claim.Verdict == onlyonce.Replay) != (fault.After != nil) || c.asked(storefault.Claim) == asked {
				t.Errorf("%s of %s: %v, %v", name, method, claim.Verdict, err)
			}
			c.failing(none)
			if settled, err := completes(t.Context(), owner); !settled.Held || err != nil {
				t.Fatalf("repeated %s: %+v, %v", method, settled, err)
			}
			if !replays(t, c, s, req, "a") {
				t.Errorf("%s: the repeated %s was not cached", name, method)
			}
		}
	}
}

// C10: of two completions of one attempt the first stands, in the cache as well.
func TestTheFirstCompletionStands(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s, req := c.cache(t, cachestore.Config{ReadBack: true}), request("k")
	owner := want(t, s, req, onlyonce.Won).Record.Owner()
	for _, body := range []string{"first", "second"} {
		if settled, err := s.Complete(t.Context(), owner, onlyonce.Answer{Status: 200, Body: []byte(body)}); err != nil || !settled.Held {
			t.Fatalf("complete: %+v, %v", settled, err)
		}
		if !replays(t, c, s, req, "first") {
			t.Error("not cached")
		}
	}
}

// An atomic attempt whose commit's reply is lost finds its answer by its token; it
// is cached only then.
func TestUncertainAtomic(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s, req := c.cache(t, cachestore.Config{ReadBack: true}), request("k")
	c.failing(one(storefault.Atomic, storefault.Fault{After: onlyonce.ErrUncertain}))
	if _, settled, err := s.Atomic(t.Context(), req, answers("a")); settled.Held || !errors.Is(err, onlyonce.ErrUncertain) {
		t.Fatalf("atomic: %+v, %v", settled, err)
	}
	if n := s.Stats(); n.Entries != 0 {
		t.Errorf("cached: %+v", n)
	}
	c.failing(none)
	for range 2 {
		claim, settled, err := s.Atomic(t.Context(), req, answers("b"))
		if err != nil || claim.Verdict != onlyonce.Replay || settled.Held || string(claim.Record.Answer.Body) != "a" {
			t.Errorf("repeated: %v, %+v, %v", claim.Verdict, settled, err)
		}
	}
	if n, asked := s.Stats(), c.asked(storefault.Atomic); n.Entries != 1 || asked != 2 {
		t.Errorf("cached: %+v after %d calls", n, asked)
	}
}

// A replay whose reply is lost is not cached; neither is anything else that a
// failed call brings.
func TestFailedClaimsAreNotCached(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s, req := c.cache(t, cachestore.Config{}), request("k")
	complete(t, s, req, "a")
	for _, fault := range []storefault.Fault{{After: onlyonce.ErrUncertain}, {Before: onlyonce.ErrConflict}, {Before: storefault.ErrDown}} {
		c.failing(one(storefault.Claim, fault))
		if claim, err := s.Claim(t.Context(), again(req)); err == nil {
			t.Errorf("%+v: %v", fault, claim.Verdict)
		}
	}
	c.failing(none)
	if hit := replays(t, c, s, req, "a"); hit {
		t.Error("what a failed call brought was cached")
	}
}

// A completion is a completion, although it cannot be read back.
func TestReadBackMayFail(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	s, req := c.cache(t, cachestore.Config{ReadBack: true}), request("k")
	c.failing(one(storefault.Get, storefault.Fault{Before: storefault.ErrDown}))
	complete(t, s, req, "a")
	if hit := replays(t, c, s, req, "a"); hit {
		t.Error("cached what could not be read")
	}
}
