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

// B75: a handler that swallows a doubt and turns to another provider sends nothing
// there, and a later run does not send the first again beside it.
func TestNothingIsBegunBehindADoubt(t *testing.T) {
	t.Parallel()
	w, first, second := newWorld(t, nil), newProvider(), newProvider()
	fallback := func(ctx context.Context) (onlyonce.Answer, error) {
		e := first.effect("charge")
		e.Check, e.Memory = nil, 0
		result, err := onlyonce.Call(ctx, e)
		if err != nil {
			result, err = onlyonce.Call(ctx, second.effect("charge elsewhere"))
		}
		return answer(201, string(result)), err
	}
	first.lose = 1
	for range 2 {
		_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), fallback)
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	}
	first.want(t, 1)
	second.want(t, 0)
	w.wantState(t, "k", onlyonce.InDoubt)
}

// D3: of a send that was tried in two ways, one without effect proves nothing of the
// other.
func TestProofOfEveryBranch(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	e := p.effect("charge")
	e.Check, e.Memory = nil, 0
	e.Send = func(ctx context.Context, s onlyonce.Sending) ([]byte, error) {
		p.lose = 1
		_, err := p.send(ctx, s)
		return nil, errors.Join(err, onlyonce.NotAppliedError(errors.New("connection refused")))
	}
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	if steps := w.steps(t, "k"); len(steps) != 1 || steps[0].State != onlyonce.StepBegun {
		t.Errorf("recorded: %+v", steps)
	}
}

// D4: what a provider has said when it refused is recorded, and a handler that went
// on from there is told the same again.
func TestRefusalIsReplayed(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	var heard []string
	handler := func(fail bool) onlyonce.HandlerFunc {
		return func(ctx context.Context) (onlyonce.Answer, error) {
			e := p.effect("first choice")
			e.Send = func(context.Context, onlyonce.Sending) ([]byte, error) {
				return nil, onlyonce.NotAppliedError(&onlyonce.RefusalError{Result: []byte("card not taken here"), Err: errLost})
			}
			_, err := onlyonce.Call(ctx, e)
			refusal, ok := errors.AsType[*onlyonce.RefusalError](err)
			if !onlyonce.IsNotApplied(err) || !ok || refusal.Error() == "" {
				t.Errorf("got %v", err)
				return onlyonce.Answer{}, err
			}
			heard = append(heard, string(refusal.Result))
			result, err := onlyonce.Call(ctx, p.effect("second choice"))
			if err == nil && fail {
				err = errBehind
			}
			return answer(201, string(result)), err
		}
	}
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), handler(true))
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), handler(false))
	wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
	if len(heard) != 2 || heard[0] != heard[1] {
		t.Errorf("the handler heard %q", heard)
	}
	p.want(t, 1)
}

// X1, X3, C12: an operation that nobody can finish behind its charge is put in doubt
// when its turns are over, holds its resource until then and after, and can be
// settled.
func TestGivenUpBehindAStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		broken := func(ctx context.Context) (onlyonce.Answer, error) {
			if _, err := onlyonce.Call(ctx, p.effect("charge")); err != nil {
				return onlyonce.Answer{}, err
			}
			return onlyonce.Answer{}, errBehind
		}
		req, other := kept("k", "x"), kept("another", "x")
		req.Resource, other.Resource = "order/1", "order/1"
		_, err := w.Steps(t.Context(), charge(), req, broken)
		wantCode(t, err, onlyonce.CodeHandlerFailed)
		r, _ := recoverer(w, broken)
		r.Attempts = 2
		for _, want := range []onlyonce.RecoverySum{{Pending: 1}, {Pending: 1}, {GivenUp: 1}} {
			<-time.After(24 * time.Hour)
			wantSum(t, look(t, r), want)
		}
		w.wantParked(t, "k", onlyonce.ReasonGivenUp)
		_, err = w.Steps(t.Context(), charge(), other, never(t))
		wantCode(t, err, onlyonce.CodeResourceBusy)
		applied := answer(201, "booked by hand")
		if rec, err := w.Settle(t.Context(), settlement(&applied)); err != nil || rec.State != onlyonce.Completed {
			t.Fatalf("settled: %+v, %v", rec, err)
		}
		res, err := w.Steps(t.Context(), charge(), other, doing(p, "charge"))
		wantResult(t, res, err, onlyonce.Executed, "charge for charge")
	})
}

// X3: a key that is free behind a finished step may be settled with an answer at
// once; that nothing has happened is refused, and one without steps has nothing to
// settle.
func TestSettleBehindAStep(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	_, err := w.Steps(t.Context(), charge(), kept("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		_, err := onlyonce.Call(ctx, p.effect("charge"))
		return onlyonce.Answer{}, errors.Join(err, errBehind)
	})
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	before := w.record(t, "k")
	_, err = w.Settle(t.Context(), settlement(nil))
	wantCode(t, err, onlyonce.CodeConfig)
	stop := settlement(nil)
	stop.If = func(rec onlyonce.Record, steps []onlyonce.StepRecord) error {
		if rec.State != onlyonce.FailedRetryable || len(steps) != 1 || steps[0].State != onlyonce.StepDone {
			t.Errorf("asked about %s with %+v", rec.State, steps)
		}
		return errLost
	}
	if _, err = w.Settle(t.Context(), stop); !errors.Is(err, errLost) {
		t.Errorf("got %v, want the error of If", err)
	}
	if rec := w.record(t, "k"); rec.State != before.State || rec.Reason != before.Reason {
		t.Errorf("it was %s (%s), and is %s (%s)", before.State, before.Reason, rec.State, rec.Reason)
	}
	applied := answer(201, "booked by hand")
	if rec, err := w.Settle(t.Context(), settlement(&applied)); err != nil || rec.State != onlyonce.Completed {
		t.Fatalf("settled: %+v, %v", rec, err)
	}
	audit, err := w.mem.Audit(t.Context(), settlement(nil).Key)
	if err != nil || len(audit) != 1 {
		t.Errorf("audit %+v, %v: want what was done, and nothing else", audit, err)
	}
	free := settlement(&applied)
	free.Key.Value = "free"
	_, err = w.Steps(t.Context(), charge(), kept("free", "x"), responds(503, ""))
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Settle(t.Context(), free)
	wantCode(t, err, onlyonce.CodeNotInDoubt)
}

// O6: a handler that answers although a step in the store may have been committed,
// or not, is not believed: the next run finds out.
func TestUncertainTxStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := storefault.Fault{After: &onlyonce.Error{Code: onlyonce.CodeUncertain, Op: "test"}}
		failing := true
		w := newWorldWith(t, func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
			if m == storefault.StepTx && failing {
				return lost
			}
			return storefault.Fault{}
		}, onlyonce.Config{})
		l := &ledger{}
		handler := func(ctx context.Context) (onlyonce.Answer, error) {
			if _, err := onlyonce.StepTx(ctx, w.TxEngine, "reserve", l.step("row")); err != nil {
				return answer(409, "out of stock"), nil //nolint:nilerr // what a careless handler does
			}
			return answer(201, "reserved"), nil
		}
		_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), handler)
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		w.wantState(t, "k", onlyonce.InDoubt)
		failing = false
		res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), handler)
		wantResult(t, res, err, onlyonce.Executed, "reserved")
		l.want(t, 1)
	})
}
