package stripeproc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/stripeproc"
	"github.com/onlyonce-go/onlyonce/provider"
)

// D4, D5: a random sequence of faults, of retries at random times and of a search
// that is behind by up to a day never charges twice; an answer that is given is the
// truth, and says the same ever after; and once nothing goes wrong any more the key
// is settled within two days, without a person.
func TestNeverTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w, end, err := makeWorld(stripeproc.Config{})
		if err != nil {
			rt.Fatal(err)
		}
		defer end()
		r := &run{w: w, ctx: context.Background()} //nolint:usetesting // rapid's tests have none
		r.req = euros(rapid.SampledFrom([]string{"pm_visa", "pm_visa", "pm_declined"}).Draw(rt, "card"))
		w.set(func(s *server) { s.lag = hours(rapid.IntRange(0, 20).Draw(rt, "hours search is behind")) })
		for range rapid.IntRange(1, 8).Draw(rt, "attempts") {
			w.will(rapid.SampledFrom([]fault{
				works, resetAfter, resetBefore, gatewayAfter, htmlAfter, htmlBefore, cutAfter, error500After, error500Before,
				inUse, rateLimit, lockTimeout, badKey, redirect, emptyAnswer, foreignAnswer, failedDep,
			}).Draw(rt, "fault"))
			w.clock.advance(hours(rapid.SampledFrom([]int{0, 0, 0, 1, 5, 12, 23, 25, 50}).Draw(rt, "hours later")))
			r.attempt(rt)
		}
		w.set(func(s *server) { s.faults, s.lag = nil, 0 })
		w.clock.advance(hours(50))
		r.attempt(rt)
		if r.first == nil {
			rt.Errorf("the key is still not settled: %v", r.err)
		}
	})
}

func hours(n int) time.Duration { return time.Duration(n) * time.Hour }

// run is one key and what it has answered.
type run struct {
	w     *world
	ctx   context.Context //nolint:containedctx // for the length of one check
	req   provider.ChargeRequest
	first *provider.Outcome
	err   error
}

func (r *run) attempt(rt *rapid.T) {
	var out provider.Outcome
	out, _, r.err = r.w.charge(r.ctx, "k", r.req)
	charged := r.w.charged()
	if charged > 1 {
		rt.Fatalf("%d charges", charged)
	}
	if r.err != nil {
		if r.first != nil {
			rt.Fatalf("after %+v: %v", *r.first, r.err)
		}
		if onlyonce.CodeOf(r.err) == onlyonce.CodeHandlerFailed && charged > 0 {
			rt.Fatalf("said to be free to run again, after a charge: %v", r.err)
		}
		if !errors.Is(r.err, onlyonce.ErrOutcomeUnknown) && onlyonce.CodeOf(r.err) != onlyonce.CodeHandlerFailed {
			rt.Fatalf("unexpected: %v", r.err)
		}
		return
	}
	if (out.Status == provider.Succeeded) != (charged == 1) {
		rt.Fatalf("answered %+v, %d charges", out, charged)
	}
	if r.first == nil {
		r.first = &out
	}
	if out != *r.first {
		rt.Fatalf("answered %+v, then %+v", *r.first, out)
	}
}
