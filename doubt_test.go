package onlyonce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// outage makes a method fail from the first call until the time is over.
func outage(method storefault.Method, d time.Duration) storefault.Injector {
	var begun time.Time
	return func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
		if m != method {
			return storefault.Fault{}
		}
		if begun.IsZero() {
			begun = time.Now()
		}
		if time.Since(begun) < d {
			return storefault.Fault{Before: storefault.ErrDown}
		}
		return storefault.Fault{}
	}
}

// O2, O6: doubt that cannot be written in time is written behind the request,
// and until then nobody takes the key over, however harmless a rerun may be
// called.
func TestDoubtOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	unknown := func(eff *effect) onlyonce.HandlerFunc {
		return func(ctx context.Context) (onlyonce.Answer, error) {
			a, err := eff.handler(ctx)
			a.Outcome = onlyonce.Unknown
			return a, err
		}
	}
	rerun := charge()
	rerun.AfterCrash = onlyonce.Rerun
	runs := map[string]func(ctx context.Context, w *world, h onlyonce.HandlerFunc) (onlyonce.Result, error){
		"wrap, rerun": func(ctx context.Context, w *world, h onlyonce.HandlerFunc) (onlyonce.Result, error) {
			return w.Wrap(ctx, rerun, keyed("k", "x"), h)
		},
		"steps": func(ctx context.Context, w *world, h onlyonce.HandlerFunc) (onlyonce.Result, error) {
			return w.Steps(ctx, charge(), keyed("k", "x"), h)
		},
		"atomic": func(ctx context.Context, w *world, h onlyonce.HandlerFunc) (onlyonce.Result, error) {
			return w.Atomic(ctx, charge(), keyed("k", "x"), func(ctx context.Context, _ tx) (onlyonce.Answer, error) { return h(ctx) })
		},
	}
	for name, run := range runs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, eff := newWorldWith(t, outage(storefault.Park, 5*time.Minute), onlyonce.Config{}), &effect{}
				_, _ = run(t.Context(), w, unknown(eff))
				eff.want(t, 1)
				for range 60 {
					<-time.After(10 * time.Second)
					if _, err := run(t.Context(), w, unknown(eff)); !onlyonce.SafeToRetry(err) {
						t.Fatalf("retry: %v", err)
					}
				}
				eff.want(t, 1)
				w.wantState(t, "k", onlyonce.InDoubt)
			})
		})
	}
}

// O6: the key of a finished operation stays its owner's while its answer waits
// to be stored, also where a rerun is allowed.
func TestAnswerOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, eff := newWorldWith(t, outage(storefault.Complete, 5*time.Minute), onlyonce.Config{}), &effect{}
		op := charge()
		op.AfterCrash = onlyonce.Rerun
		for range 60 {
			_, _ = w.Wrap(t.Context(), op, keyed("k", "x"), eff.handler)
			<-time.After(10 * time.Second)
		}
		res, err := w.Wrap(t.Context(), op, keyed("k", "x"), never(t))
		wantResult(t, res, err, onlyonce.Replayed, "run 1")
		eff.want(t, 1)
	})
}

// O2: what is known to be free is freed behind the request.
func TestReleaseOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorldWith(t, outage(storefault.Release, time.Minute), onlyonce.Config{})
		res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), responds(429, "slow down"))
		wantResult(t, res, err, onlyonce.Executed, "slow down")
		<-time.After(2 * time.Minute)
		w.wantState(t, "k", onlyonce.FailedRetryable)
	})
}

// X3: a settlement that fails on the way leaves the doubt, whatever the
// operation allows after a crash.
func TestFailedSettlementLeavesTheDoubt(t *testing.T) {
	t.Parallel()
	found := answer(201, "found")
	for _, m := range []storefault.Method{storefault.AddAudit, storefault.Complete} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, eff := newWorldWith(t, outage(m, time.Minute), onlyonce.Config{}), &effect{}
				op := charge()
				op.AfterCrash = onlyonce.Rerun
				res, err := w.Wrap(t.Context(), op, keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
					_, _ = eff.handler(ctx)
					return answer(500, "broken"), nil
				})
				wantResult(t, res, err, onlyonce.Executed, "broken")
				_, err = w.Settle(t.Context(), settlement(&found))
				wantCode(t, err, onlyonce.CodeStoreUnavailable)
				w.wantState(t, "k", onlyonce.InDoubt)
				<-time.After(2 * time.Minute)
				_, err = w.Wrap(t.Context(), op, keyed("k", "x"), eff.handler)
				wantCode(t, err, onlyonce.CodeOutcomeUnknown)
				eff.want(t, 1)
				if _, err := w.Settle(t.Context(), settlement(&found)); err != nil {
					t.Fatal(err)
				}
				res, err = w.Wrap(t.Context(), op, keyed("k", "x"), never(t))
				wantResult(t, res, err, onlyonce.Replayed, "found")
			})
		})
	}
}

// D2: a step that no longer fits its record is a person's affair, also when it
// was finished: the key is parked, and can be settled.
func TestChangedFinishedStepIsParked(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		_, err := onlyonce.Call(ctx, p.effect("charge"))
		return onlyonce.Answer{}, errors.Join(err, errors.New("broken behind the step"))
	})
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	changed := p.effect("charge")
	changed.Request = []byte("200 EUR")
	_, err = w.Steps(t.Context(), charge(), keyed("k", "x"), charges(changed))
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	w.wantState(t, "k", onlyonce.InDoubt)
	a := answer(201, "settled")
	if _, err := w.Settle(t.Context(), settlement(&a)); err != nil {
		t.Fatal(err)
	}
	p.want(t, 1)
}

// C7: what was begun by steps is not run again as something else after a
// deploy: its finished steps would be repeated.
func TestStepsAreNotContinuedByAnotherMode(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		_, err := onlyonce.Call(ctx, p.effect("charge"))
		return onlyonce.Answer{}, errors.Join(err, errors.New("broken behind the step"))
	})
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	_, err = w.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	_, err = w.Atomic(t.Context(), charge(), keyed("k", "x"), func(context.Context, *memstore.Tx) (onlyonce.Answer, error) {
		t.Error("the handler ran")
		return onlyonce.Answer{}, nil
	})
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(p.effect("charge")))
	wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
	p.want(t, 1)
}

// D2: a begin mark that may stand is taken to stand, whatever the last try of
// writing it says.
func TestUncertainBeginIsUnfinished(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, faults{storefault.BeginStep: {{After: onlyonce.ErrUncertain}, {Before: storefault.ErrDown}}}), newProvider()
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(p.effect("charge")))
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	w.wantState(t, "k", onlyonce.InDoubt)
	p.want(t, 0)
}

// C11: a store that does not answer is as good as one that is down: the caller
// is told so in time, and what the claim may have done is given back.
func TestStoreThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := storefault.Fault{Hold: func(ctx context.Context) { <-ctx.Done() }, Before: onlyonce.ErrUncertain}
		w, eff := newWorld(t, faults{storefault.Claim: {hang}}), &effect{}
		begun := time.Now()
		_, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
		wantCode(t, err, onlyonce.CodeStoreUnavailable)
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("the caller waited %v", took)
		}
		<-time.After(time.Minute)
		res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), eff.handler)
		wantResult(t, res, err, onlyonce.Executed, "run 1")
	})
}

// B02: a caller that hangs up while its key is claimed is no fault of the store's.
func TestHangingUpIsNoStoreFault(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	_, err := w.Wrap(ctx, charge(), keyed("k", "x"), never(t))
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
	if n := w.events.count(onlyonce.EventStoreFailed); n != 0 {
		t.Errorf("%d store faults were counted", n)
	}
}

// endedTx is a store whose handler has ended the transaction by itself.
type endedTx struct{ *memstore.Store }

func (s endedTx) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[*memstore.Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	_, _ = fn(ctx, &memstore.Tx{})
	return onlyonce.Claim{Verdict: onlyonce.Won, Record: onlyonce.Record{Key: req.Key}}, onlyonce.Settled{}, onlyonce.ErrTxEnded
}

// O: a handler that commits by itself leaves doubt, not a free key.
func TestHandlerThatEndsItsTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	e, err := onlyonce.NewTx(endedTx{w.mem}, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Atomic(t.Context(), charge(), keyed("k", "x"), func(context.Context, *memstore.Tx) (onlyonce.Answer, error) {
		return answer(201, "written"), nil
	})
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	w.wantState(t, "k", onlyonce.InDoubt)
}
