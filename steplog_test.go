package onlyonce_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

var errBehind = errors.New("broken behind the steps")

// doing is a handler that makes the named calls in order, and answers with their
// results.
func doing(p *provider, names string) onlyonce.HandlerFunc {
	return func(ctx context.Context) (onlyonce.Answer, error) {
		var results []string
		for name := range strings.FieldsSeq(names) {
			e := p.effect(name)
			e.Request = []byte(name)
			result, err := onlyonce.Call(ctx, e)
			if err != nil {
				return onlyonce.Answer{}, err
			}
			results = append(results, string(result))
		}
		return answer(201, strings.Join(results, ", ")), nil
	}
}

// breaking is a handler that fails when it has done its work.
func breaking(h onlyonce.HandlerFunc) onlyonce.HandlerFunc {
	return func(ctx context.Context) (onlyonce.Answer, error) {
		_, err := h(ctx)
		return onlyonce.Answer{}, errors.Join(err, errBehind)
	}
}

func (p *provider) wantSends(t *testing.T, n int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.sends) != n {
		t.Errorf("%d sends, want %d", len(p.sends), n)
	}
}

// keys are the derived keys of all sends, in order.
func (p *provider) keys() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var keys []string
	for _, s := range p.sends {
		keys = append(keys, s.Key)
	}
	return keys
}

func (w *world) record(t *testing.T, key string) onlyonce.Record {
	t.Helper()
	rec, found, err := w.mem.Get(t.Context(), onlyonce.Key{Scope: "acct", Value: key})
	if err != nil || !found {
		t.Fatalf("record of %s: found %v, %v", key, found, err)
	}
	return rec
}

// wantParked checks that the key is in doubt for a reason that says all this.
func (w *world) wantParked(t *testing.T, key string, says ...string) {
	t.Helper()
	rec := w.record(t, key)
	if rec.State != onlyonce.InDoubt {
		t.Errorf("key %s is %s", key, rec.State)
	}
	for _, text := range says {
		if !strings.Contains(rec.Reason, text) {
			t.Errorf("key %s is in doubt because %q, which does not say %q", key, rec.Reason, text)
		}
	}
}

func (w *world) steps(t *testing.T, key string) []onlyonce.StepRecord {
	t.Helper()
	steps, err := w.mem.Steps(t.Context(), onlyonce.Key{Scope: "acct", Value: key})
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// D2: a handler that is run again asks for what is recorded, in that order. One
// that was changed sends nothing and is told why; the key goes in doubt, and the
// code that recorded it goes on where it stopped.
func TestHandlerThatNoLongerFits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after string
		says          []string // empty: it fits
	}{
		"unchanged":           {"reserve charge", "reserve charge", nil},
		"renamed":             {"reserve charge", "reserve pay", []string{`step "charge" is recorded next`, `step "pay" was asked for`}},
		"moved":               {"reserve charge", "charge reserve", []string{`step "reserve" is recorded next`, `step "charge" was asked for`}},
		"put before the rest": {"reserve charge", "check reserve charge", []string{`step "reserve" is recorded next`, `step "check" was asked for`}},
		"put in between":      {"reserve charge", "reserve check charge", []string{`step "charge" is recorded next`, `step "check" was asked for`}},
		"put behind the rest": {"reserve charge", "reserve charge receipt", nil},
		"first left out":      {"reserve charge", "charge", []string{`step "reserve" is recorded next`, `step "charge" was asked for`}},
		"last left out":       {"reserve charge", "reserve", []string{`step "charge" is recorded`, "answered without it"}},
		"all left out":        {"reserve charge", "", []string{`step "reserve" is recorded`, "answered without it"}},
		"same loop":           {"charge charge charge", "charge charge charge", nil},
		"longer loop":         {"charge charge charge", "charge charge charge charge", nil},
		"shorter loop":        {"charge charge charge", "charge charge", []string{`step "charge" (use 3) is recorded`, "answered without it"}},
		"split loop":          {"charge charge", "charge check charge", []string{`step "charge" (use 2) is recorded next`, `step "check" was asked for`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := newWorld(t, nil), newProvider()
			_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), breaking(doing(p, c.before)))
			wantCode(t, err, onlyonce.CodeHandlerFailed)
			sent := len(p.sends)
			if len(c.says) == 0 {
				res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), doing(p, c.after))
				if err != nil || res.State != onlyonce.Completed {
					t.Fatalf("got %+v, %v", res, err)
				}
				p.wantSends(t, len(strings.Fields(c.after)))
				return
			}
			for range 2 { // the wrong code may come more than once
				_, err = w.Steps(t.Context(), charge(), keyed("k", "x"), doing(p, c.after))
				e := wantCode(t, err, onlyonce.CodeOutcomeUnknown)
				for _, text := range c.says {
					if !strings.Contains(e.Error(), text) {
						t.Errorf("the caller's error is logged as %q", e)
					}
				}
				w.wantParked(t, "k", append(c.says, onlyonce.ReasonChangedSteps)...)
			}
			p.wantSends(t, sent)
			res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), doing(p, c.before))
			if err != nil || res.State != onlyonce.Completed {
				t.Fatalf("the right code got %+v, %v", res, err)
			}
			p.wantSends(t, sent)
		})
	}
}

// D2: what a handler makes of the refusal is no matter: it cannot answer its way
// out of it, nor go on with another step or transaction.
func TestHandlerThatIgnoresThatItNoLongerFits(t *testing.T) {
	t.Parallel()
	w, p, l := newWorld(t, nil), newProvider(), &ledger{}
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), breaking(doing(p, "reserve")))
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	_, err = w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		for _, name := range []string{"other", "reserve"} { // the second would have fitted
			if _, err := onlyonce.Call(ctx, p.effect(name)); !errors.Is(err, onlyonce.ErrStepChanged) {
				t.Errorf("step %s: %v", name, err)
			}
		}
		if _, err := onlyonce.StepTx(ctx, w.TxEngine, "row", l.step("1")); !errors.Is(err, onlyonce.ErrStepChanged) {
			t.Errorf("a step in a transaction: %v", err)
		}
		_, err := w.Finish(ctx, l.insert(201))
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		onlyonce.Declare(ctx, onlyonce.Final)
		return answer(201, "all is well"), nil
	})
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	w.wantParked(t, "k", onlyonce.ReasonChangedSteps)
	p.wantSends(t, 1)
	l.want(t, 0)
}

// D2, O2: an answer that leaves a recorded effect out is not stored, also not by
// Finish, whose transaction is rolled back.
func TestFinishWithoutARecordedStep(t *testing.T) {
	t.Parallel()
	w, p, l := newWorld(t, nil), newProvider(), &ledger{}
	finishes := func(names string) onlyonce.HandlerFunc {
		return func(ctx context.Context) (onlyonce.Answer, error) {
			if _, err := doing(p, names)(ctx); err != nil {
				return onlyonce.Answer{}, err
			}
			return w.Finish(ctx, l.insert(201))
		}
	}
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), breaking(doing(p, "reserve charge")))
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	_, err = w.Steps(t.Context(), charge(), keyed("k", "x"), finishes("reserve"))
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	w.wantParked(t, "k", onlyonce.ReasonChangedSteps, `step "charge"`)
	l.want(t, 0)
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), finishes("reserve charge"))
	wantResult(t, res, err, onlyonce.Executed, "row")
	l.want(t, 1)
	p.wantSends(t, 2)
}

// O3: a refusal leaves the finished steps for the next attempt, asked for or not.
func TestRefusalMayLeaveStepsOut(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), breaking(doing(p, "charge")))
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), responds(429, "slow down"))
	wantResult(t, res, err, onlyonce.Executed, "slow down")
	w.wantState(t, "k", onlyonce.FailedRetryable)
	res, err = w.Steps(t.Context(), charge(), keyed("k", "x"), doing(p, "charge"))
	wantResult(t, res, err, onlyonce.Executed, "charge for charge")
	p.wantSends(t, 1)
}

// D2: steps may depend on what earlier ones gave: the same way is taken again.
func TestConditionalSteps(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		risk, err := onlyonce.Step(ctx, "risk", func(context.Context) (int, error) { return 9, nil })
		if err != nil {
			return onlyonce.Answer{}, err
		}
		if risk > 5 {
			return doing(p, "challenge charge")(ctx)
		}
		return doing(p, "charge")(ctx)
	}
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), breaking(handler))
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), handler)
	wantResult(t, res, err, onlyonce.Executed, "charge for challenge, charge for charge")
	p.wantSends(t, 2)
}

// D2: a step of which nothing came may be left out, or be another one now.
func TestRefusedStepMayBeLeftOut(t *testing.T) {
	t.Parallel()
	elsewhere := func(p *provider) onlyonce.HandlerFunc {
		return func(ctx context.Context) (onlyonce.Answer, error) {
			if _, err := doing(p, "reserve")(ctx); err != nil {
				return onlyonce.Answer{}, err
			}
			e := p.effect("charge")
			e.Provider, e.Request = "other", []byte("another form")
			return charges(e)(ctx)
		}
	}
	for name, c := range map[string]struct {
		after func(*provider) onlyonce.HandlerFunc
		sends int
		body  string
	}{
		"left out":             {func(p *provider) onlyonce.HandlerFunc { return doing(p, "reserve") }, 2, "charge for reserve"},
		"another in its place": {func(p *provider) onlyonce.HandlerFunc { return doing(p, "reserve pay") }, 3, "charge for reserve, charge for pay"},
		"sent elsewhere":       {elsewhere, 3, "charge for another form"},
		"tried again":          {func(p *provider) onlyonce.HandlerFunc { return doing(p, "reserve charge") }, 3, "charge for reserve, charge for charge"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, p := newWorld(t, nil), newProvider()
			_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
				if _, err := doing(p, "reserve")(ctx); err != nil {
					return onlyonce.Answer{}, err
				}
				p.refuse = 1
				return doing(p, "charge")(ctx)
			})
			wantCode(t, err, onlyonce.CodeHandlerFailed)
			res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), c.after(p))
			wantResult(t, res, err, onlyonce.Executed, c.body)
			p.wantSends(t, c.sends)
			if keys := p.keys(); len(slices.Compact(slices.Sorted(slices.Values(keys)))) != len(keys) {
				t.Errorf("two sends had one derived key: %q", keys) // D1: a new epoch, or another step
			}
		})
	}
}

// D1, D4: where the handler went on behind a refused step, the refusal was its
// answer. Sending it again in the next attempt would take the money twice.
func TestRefusedStepThatWasPassedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	again := func(p *provider) onlyonce.HandlerFunc {
		return func(ctx context.Context) (onlyonce.Answer, error) {
			for {
				a, err := charges(p.effect("charge"))(ctx)
				if !onlyonce.IsNotApplied(err) {
					return a, err
				}
			}
		}
	}
	elsewhere := func(p *provider) onlyonce.HandlerFunc {
		return func(ctx context.Context) (onlyonce.Answer, error) {
			a, err := charges(p.effect("charge"))(ctx)
			if onlyonce.IsNotApplied(err) {
				a, err = charges(p.effect("charge at another"))(ctx)
			}
			return a, err
		}
	}
	for name, handler := range map[string]func(*provider) onlyonce.HandlerFunc{"tried again": again, "tried elsewhere": elsewhere} {
		for _, lost := range []int{0, 1} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w, p := newWorld(t, nil), newProvider()
				p.refuse, p.lose = 1, lost
				_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), breaking(handler(p)))
				if err == nil {
					t.Fatal("the handler did not fail")
				}
				res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), handler(p))
				wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
				p.want(t, 1)
				p.wantSends(t, 2)
			})
		}
	}
}

// D2: the steps of a run come one after the other. A second beside the first is
// refused, sends nothing and leaves nothing behind.
func TestStepsBesideEachOther(t *testing.T) {
	t.Parallel()
	w, p, l := newWorld(t, nil), newProvider(), &ledger{}
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		entered, leave := make(chan struct{}), make(chan struct{})
		slow := p.effect("slow")
		slow.Send = func(ctx context.Context, s onlyonce.Sending) ([]byte, error) {
			close(entered)
			<-leave
			return p.send(ctx, s)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := onlyonce.Call(ctx, slow); err != nil {
				t.Errorf("the first step: %v", err)
			}
		})
		<-entered
		_, err := onlyonce.Call(ctx, p.effect("beside"))
		if e := wantCode(t, err, onlyonce.CodeConfig); !strings.Contains(e.Hint, "one after the other") {
			t.Errorf("the second step is told %q", e.Hint)
		}
		_, err = onlyonce.StepTx(ctx, w.TxEngine, "row", l.step("1"))
		wantCode(t, err, onlyonce.CodeConfig)
		_, err = w.Finish(ctx, l.insert(201)) // not while a step is under way
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		close(leave)
		wg.Wait()
		return doing(p, "then")(ctx)
	})
	wantResult(t, res, err, onlyonce.Executed, "charge for then")
	p.wantSends(t, 2)
	l.want(t, 0)
	if steps := w.steps(t, "k"); len(steps) != 2 || steps[0].Name != "slow" || steps[1].Name != "then" {
		t.Errorf("recorded: %+v", steps)
	}
}

// D2: neither does a step begin inside another, whatever it is.
func TestStepsInsideEachOther(t *testing.T) {
	t.Parallel()
	w, p, l := newWorld(t, nil), newProvider(), &ledger{}
	e := p.effect("outer")
	e.Send = func(ctx context.Context, s onlyonce.Sending) ([]byte, error) {
		_, err := onlyonce.Call(ctx, p.effect("inner"))
		wantCode(t, err, onlyonce.CodeConfig)
		_, err = onlyonce.Step(ctx, "inner", func(context.Context) (int, error) { t.Error("it ran"); return 0, nil })
		wantCode(t, err, onlyonce.CodeConfig)
		_, err = onlyonce.StepTx(ctx, w.TxEngine, "inner", l.step("1"))
		wantCode(t, err, onlyonce.CodeConfig)
		return p.send(ctx, s)
	}
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
	wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
	p.wantSends(t, 1)
	l.want(t, 0)
	if steps := w.steps(t, "k"); len(steps) != 1 {
		t.Errorf("recorded: %+v", steps)
	}
}

// D3: the proof of no effect is the caller's own mark, whatever code its error
// bears; a doubt of ours that has such an error for its cause is none.
func TestIsNotApplied(t *testing.T) {
	t.Parallel()
	coded := &onlyonce.Error{Code: "refused_by_the_bank"}
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":            {nil, false},
		"any error":          {errLost, false},
		"marked":             {onlyonce.NotAppliedError(errLost), true},
		"marked and wrapped": {fmt.Errorf("charge card: %w", onlyonce.NotAppliedError(errLost)), true},
		"beside another":     {errors.Join(errBehind, onlyonce.NotAppliedError(errLost)), false},
		"both are marked":    {errors.Join(onlyonce.NotAppliedError(errBehind), onlyonce.NotAppliedError(errLost)), true},
		"marked with a code": {onlyonce.NotAppliedError(coded), true},
		"the cause of doubt": {&onlyonce.Error{Code: onlyonce.CodeOutcomeUnknown, Err: onlyonce.NotAppliedError(errLost)}, false},
		"a coded one too":    {&onlyonce.Error{Code: onlyonce.CodeOutcomeUnknown, Err: onlyonce.NotAppliedError(coded)}, false},
	} {
		if got := onlyonce.IsNotApplied(c.err); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
