package onlyonce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// charged is a handler whose step is done before then.
func charged(calls *int, then onlyonce.HandlerFunc) onlyonce.HandlerFunc {
	return func(ctx context.Context) (onlyonce.Answer, error) {
		_, err := onlyonce.Call(ctx, onlyonce.Effect{
			Name: "charge", Provider: "bank", Request: []byte("x"),
			Send: func(context.Context, onlyonce.Sending) ([]byte, error) { *calls++; return []byte("ok"), nil },
		})
		if err != nil {
			return onlyonce.Answer{}, err
		}
		return then(ctx)
	}
}

// unheard is a handler whose step has begun, and of which nothing more is known.
func unheard(ctx context.Context) (onlyonce.Answer, error) {
	_, err := onlyonce.Call(ctx, onlyonce.Effect{
		Name: "charge", Provider: "bank", Request: []byte("x"),
		Send: func(context.Context, onlyonce.Sending) ([]byte, error) { return nil, errBroken },
	})
	return onlyonce.Answer{}, err
}

// meanwhile does something once, when the reply to a method's n-th call is on its way.
func meanwhile(method storefault.Method, n int, do func()) storefault.Injector {
	script := make([]storefault.Fault, n)
	script[n-1] = storefault.Fault{HoldReply: func(context.Context) { do() }}
	return storefault.Script(map[storefault.Method][]storefault.Fault{method: script})
}

// D6, C1: what a request has decided about one doubt it does not do about another one:
// a key that is held meanwhile stays held.
func TestAnotherDoubtIsNotResolved(t *testing.T) {
	t.Parallel()
	for name, req := range map[string]onlyonce.Request{"a retry": keyed("k", "x"), "one that holds": held("k")} {
		first := newWorld(t, nil)
		if res, _ := first.Steps(t.Context(), charge(), keyed("k", "x"), unheard); res.State != onlyonce.InDoubt {
			t.Fatalf("%+v", res)
		}
		w := worldOn(t, first.mem, meanwhile(storefault.Claim, 1, func() {
			if res, err := first.Steps(t.Context(), charge(), resolving("k"), fails); res.State != onlyonce.InDoubt {
				t.Errorf("%+v, %v", res, err)
			}
		}), onlyonce.Config{})
		_, err := w.Steps(t.Context(), charge(), req, never(t))
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		rec, _, _ := first.mem.Get(t.Context(), req.Key)
		if rec.Reason == onlyonce.ReasonUnfinishedStep {
			t.Errorf("%s: %q", name, rec.Reason)
		}
	}
}

// D6, C1: between the two claims by which a freed key comes to be held, somebody else may
// run it, and leave it held: then it is not run.
func TestHeldMeanwhileBehindSteps(t *testing.T) {
	t.Parallel()
	first, calls := newWorld(t, nil), 0
	if _, err := first.Steps(t.Context(), charge(), keyed("k", "x"), charged(&calls, fails)); onlyonce.CodeOf(err) != onlyonce.CodeHandlerFailed {
		t.Fatal(err)
	}
	w := worldOn(t, first.mem, meanwhile(storefault.Park, 1, func() {
		if res, err := first.Steps(t.Context(), charge(), resolving("k"), charged(&calls, fails)); res.State != onlyonce.InDoubt {
			t.Errorf("%+v, %v", res, err)
		}
	}), onlyonce.Config{})
	_, err := w.Steps(t.Context(), charge(), held("k"), never(t))
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	first.wantHeld(t, "k", "held: because broken")
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

// C10: a freed key that could not be put in doubt, to be held, is free again at once.
func TestHoldingFailsBehindSteps(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]storefault.Fault{
		"request lost": {Before: storefault.ErrDown},
		"no answer":    {Hold: func(ctx context.Context) { <-ctx.Done() }, Before: storefault.ErrDown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				w := newWorld(t, faults{storefault.Park: {fault}})
				_, _ = w.Steps(t.Context(), charge(), keyed("k", "x"), charged(&calls, fails))
				begun := time.Now()
				_, err := w.Steps(t.Context(), charge(), held("k"), never(t))
				wantCode(t, err, onlyonce.CodeStoreUnavailable)
				synctest.Wait()
				if took := time.Since(begun); took > 10*time.Second {
					t.Errorf("it took %v", took)
				}
				w.wantState(t, "k", onlyonce.FailedRetryable)
				res, err := w.Steps(t.Context(), charge(), held("k"), charged(&calls, responds(201, "done")))
				wantResult(t, res, err, onlyonce.Executed, "done")
				if calls != 1 {
					t.Errorf("%d calls", calls)
				}
			})
		})
	}
}

// D6, C10: a claim on a held key that is given back, since its reply was lost, leaves it
// held, for the same reason.
func TestGivenBackClaimLeavesTheReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first := newWorld(t, nil)
		op := charge()
		op.Recover = func(context.Context, onlyonce.Record) (onlyonce.Answer, error) { return answer(200, "recovered"), nil }
		if _, err := first.Wrap(t.Context(), op, held("k"), fails); err == nil {
			t.Fatal("it did not fail")
		}
		lost := storefault.Fault{After: onlyonce.ErrUncertain}
		w := worldOn(t, first.mem, storefault.Script(faults{storefault.Claim: {{}, lost, lost, lost, lost, lost, lost}}), onlyonce.Config{})
		_, err := w.Wrap(t.Context(), op, resolving("k"), never(t))
		wantCode(t, err, onlyonce.CodeStoreUnavailable)
		time.Sleep(time.Second)
		first.wantHeld(t, "k", "held: because broken")
		_, err = first.Wrap(t.Context(), op, keyed("k", "x"), never(t))
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	})
}

// D6: a reason that cannot be given lets no key go.
func TestHoldThatPanics(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for mode, run := range w.modes() {
		req := held(mode)
		req.Hold = func(error) string { panic("no reason") }
		if res, err := run(t.Context(), charge(), req, fails); res.State != onlyonce.InDoubt || !errors.Is(err, errBroken) {
			t.Errorf("%+v, %v", res, err)
		}
		w.wantHeld(t, mode, "held: broken")
	}
}

// X3, D6: an operator's word that nothing has happened does not lose a held key's
// request, without which nobody could run it; other words settle it as ever.
func TestSettleHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for mode, run := range w.modes() {
		if res, err := run(t.Context(), charge(), held(mode), fails); res.State != onlyonce.InDoubt {
			t.Fatalf("%+v, %v", res, err)
		}
		nothing := settlement(nil)
		nothing.Key.Value = mode
		for range 2 {
			if rec, err := w.Settle(t.Context(), nothing); err != nil || rec.State != onlyonce.InDoubt {
				t.Errorf("%+v, %v", rec, err)
			}
			w.wantHeld(t, mode, "held: settled as not applied: "+nothing.Reason)
		}
		_, err := run(t.Context(), charge(), keyed(mode, "x"), never(t))
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		res, err := run(t.Context(), charge(), resolving(mode), responds(201, "done"))
		wantResult(t, res, err, onlyonce.Executed, "done")
	}
}

// X3: what a settlement has freed behind a held key's step keeps its request, and can be
// settled otherwise as long as nobody has gone on.
func TestSettleStepOfHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	if res, err := w.Steps(t.Context(), charge(), held("k"), unheard); res.State != onlyonce.InDoubt {
		t.Fatalf("%+v, %v", res, err)
	}
	result := settlement(nil)
	result.Results = []onlyonce.StepResult{{Name: "charge", Result: []byte("ok")}}
	if rec, err := w.Settle(t.Context(), result); err != nil || rec.State != onlyonce.FailedRetryable {
		t.Fatalf("%+v, %v", rec, err)
	}
	if _, has, err := w.mem.Kept(t.Context(), result.Key); !has || err != nil {
		t.Errorf("kept: %v, %v", has, err)
	}
	done := answer(201, "done")
	if rec, err := w.Settle(t.Context(), settlement(&done)); err != nil || rec.State != onlyonce.Completed {
		t.Errorf("%+v, %v", rec, err)
	}
}
