package onlyonce_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// six is a fault for every try of one request.
func six(f storefault.Fault) []storefault.Fault { return []storefault.Fault{f, f, f, f, f, f} }

// C10: a claim whose reply stays lost is given back as the key was: a doubtful
// one stays in doubt, a crashed attempt's is left to its lease, and none of
// them looks as if its handler had run.
func TestLostClaimLeavesTheKeyAsItWas(t *testing.T) {
	t.Parallel()
	lost := faults{storefault.Claim: six(storefault.Fault{After: onlyonce.ErrUncertain})}
	recovers, rerun := charge(), charge()
	recovers.Recover = func(context.Context, onlyonce.Record) (onlyonce.Answer, error) { return answer(201, "found"), nil }
	rerun.AfterCrash = onlyonce.Rerun
	synctest.Test(t, func(t *testing.T) {
		w, eff := newWorld(t, nil), &effect{}

		_, err := w.Wrap(t.Context(), charge(), keyed("doubt", "x"), responds(503, ""))
		if err != nil {
			t.Fatal(err)
		}
		// The first claim is told that the key is in doubt; those that resolve are lost.
		script := append([]storefault.Fault{{}}, lost[storefault.Claim]...)
		resolving := worldOn(t, w.mem, storefault.Script(faults{storefault.Claim: script}), onlyonce.Config{})
		_, err = resolving.Wrap(t.Context(), recovers, keyed("doubt", "x"), never(t))
		wantCode(t, err, onlyonce.CodeStoreUnavailable)
		<-time.After(time.Second)
		w.wantState(t, "doubt", onlyonce.InDoubt)
		res, err := w.Wrap(t.Context(), recovers, keyed("doubt", "x"), never(t))
		wantResult(t, res, err, onlyonce.Executed, "found")

		w.crash(t, rerun, keyed("crashed", "x"), eff.handler)
		<-time.After(onlyonce.DefaultLease)
		taking := worldOn(t, w.mem, storefault.Script(lost), onlyonce.Config{})
		_, err = taking.Wrap(t.Context(), rerun, keyed("crashed", "x"), never(t))
		wantCode(t, err, onlyonce.CodeStoreUnavailable)
		<-time.After(time.Second)
		w.wantState(t, "crashed", onlyonce.InProgress)
		<-time.After(onlyonce.DefaultLease)
		res, err = w.Wrap(t.Context(), rerun, keyed("crashed", "x"), eff.handler)
		wantResult(t, res, err, onlyonce.Executed, "run 2")
	})
}

// C5, C6: an attempt that learns from its renewal that it has lost the key is
// cancelled then, not when its lease would end.
func TestRenewalTellsOfATakeover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, begun := newWorld(t, nil), time.Now()
		rec := func() onlyonce.Owner {
			r, _, err := w.mem.Get(t.Context(), onlyonce.Key{Scope: "acct", Value: "k"})
			if err != nil {
				t.Fatal(err)
			}
			return r.Owner()
		}
		op := charge()
		_, err := w.Wrap(t.Context(), op, keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
			// An operator's settlement takes the key away, without waiting for the lease.
			if held, err := w.mem.Park(ctx, onlyonce.ParkRequest{Owner: rec(), Reason: "by hand"}); err != nil || !held {
				t.Errorf("park: %v, %v", held, err)
			}
			if _, err := w.Settle(ctx, settlement(nil)); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			if cause, took := context.Cause(ctx), time.Since(begun); !errors.Is(cause, onlyonce.ErrLeaseLost) || took != onlyonce.DefaultLease/3 {
				t.Errorf("cause %v after %v", cause, took)
			}
			return onlyonce.Answer{}, context.Cause(ctx)
		})
		wantCode(t, err, onlyonce.CodeInProgress) // freed by the operator: come back
		w.wantState(t, "k", onlyonce.FailedRetryable)
	})
}

// X3: an operator whose store fails is told so, and the key is in doubt as
// before.
func TestSettleFails(t *testing.T) {
	t.Parallel()
	down := storefault.Fault{Before: storefault.ErrDown}
	for m, script := range map[storefault.Method][]storefault.Fault{
		storefault.Get:      {down},
		storefault.Claim:    {{}, down}, // the first is the operation's own
		storefault.AddAudit: {down},
		storefault.Steps:    {down},
		storefault.EndStep:  {down},
	} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, p := newWorld(t, faults{m: script}), newProvider()
				p.drop = 1
				e := p.effect("charge")
				e.Check, e.Memory = nil, 0
				_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(e))
				wantCode(t, err, onlyonce.CodeOutcomeUnknown)
				_, err = w.Settle(t.Context(), settlement(nil))
				if wantCode(t, err, onlyonce.CodeStoreUnavailable); !errors.Is(err, storefault.ErrDown) {
					t.Errorf("settle: %v", err)
				}
				w.wantState(t, "k", onlyonce.InDoubt)
				if _, err := w.Settle(t.Context(), settlement(nil)); err != nil {
					t.Errorf("settled again: %v", err)
				}
				w.wantState(t, "k", onlyonce.FailedRetryable)
			})
		})
	}
}

// O1, C11: a peek that cannot read the record says so.
func TestPeekFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, faults{storefault.Get: {{Before: storefault.ErrDown}}})
	_, found, err := w.Peek(t.Context(), charge(), keyed("k", "x"))
	if wantCode(t, err, onlyonce.CodeStoreUnavailable); found {
		t.Error("nothing was found")
	}
	_, _, err = w.Peek(t.Context(), charge(), keyed("", "x"))
	wantCode(t, err, onlyonce.CodeKeyInvalid)
	// A key that is free, or in doubt, has no answer.
	for status, code := range map[int]onlyonce.Code{429: "", 503: onlyonce.CodeOutcomeUnknown} {
		key := string(rune('a' + status%26))
		if _, err := w.Wrap(t.Context(), charge(), keyed(key, "x"), responds(status, "")); err != nil {
			t.Fatal(err)
		}
		_, found, err := w.Peek(t.Context(), charge(), keyed(key, "x"))
		if onlyonce.CodeOf(err) != code || found != (code != "") {
			t.Errorf("after %d: found %v, %v", status, found, err)
		}
	}
}

// Steps that could not be read are taken for unfinished: nothing runs, and the
// key goes in doubt.
func TestStepsCannotBeRead(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, faults{storefault.Steps: {{Before: errors.New("disk error")}}}), newProvider()
	p.refuse = 1
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(p.effect("charge")))
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	_, err = w.Steps(t.Context(), charge(), keyed("k", "x"), never(t))
	if !onlyonce.SafeToRetry(err) {
		t.Errorf("refusal: %v", err)
	}
	w.wantState(t, "k", onlyonce.InDoubt)
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(p.effect("charge")))
	wantResult(t, res, err, onlyonce.Executed, "charge for 100 EUR")
	p.want(t, 1)
}

// A recorded result that no longer fits its type is said to be so, and not
// taken for a zero value.
func TestStepResultNoLongerFits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	step := func(ctx context.Context) (onlyonce.Answer, error) {
		_, err := onlyonce.Step(ctx, "charge", func(context.Context) (string, error) { return "ch_1", nil })
		return answer(429, ""), err
	}
	if _, err := w.Steps(t.Context(), charge(), keyed("k", "x"), step); err != nil {
		t.Fatal(err)
	}
	_, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		n, err := onlyonce.Step(ctx, "charge", func(context.Context) (int, error) {
			t.Error("a finished step ran again")
			return 0, nil
		})
		if e := wantCode(t, err, onlyonce.CodeStepChanged); n != 0 || !strings.Contains(e.Op, "charge") {
			t.Errorf("%d, %v", n, err)
		}
		return onlyonce.Answer{}, err
	})
	if err == nil {
		t.Error("an operation whose step has changed was answered")
	}
}

// A step that no store could keep, or that has nothing to do, is refused before
// anything is recorded of it.
func TestEffectIsValidated(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		for field, breaking := range map[string]func(*onlyonce.Effect){
			"Effect.Name":     func(e *onlyonce.Effect) { e.Name = "" },
			"Effect.Provider": func(e *onlyonce.Effect) { e.Provider = "ac\xffme" },
			"Effect.Send":     func(e *onlyonce.Effect) { e.Send = nil },
		} {
			e := p.effect("charge")
			breaking(&e)
			_, err := onlyonce.Call(ctx, e)
			if e := wantCode(t, err, onlyonce.CodeConfig); !strings.HasPrefix(e.Hint, field) {
				t.Errorf("%s: %v", field, err)
			}
		}
		return answer(201, "done"), nil
	})
	wantResult(t, res, err, onlyonce.Executed, "done")
	p.want(t, 0)
	if _, err := w.Steps(t.Context(), onlyonce.Op{}, keyed("k", "x"), never(t)); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("an operation without a name: %v", err)
	}
}

// D2, O2: Finish comes last and alone: not with an unfinished step, not inside
// itself, not twice.
func TestFinishComesLast(t *testing.T) {
	t.Parallel()
	w, p, l := newWorld(t, nil), newProvider(), &ledger{}
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		a, err := w.Finish(ctx, func(inner context.Context, tx tx) (onlyonce.Answer, error) {
			_, err := w.Finish(ctx, l.insert(201))
			wantCode(t, err, onlyonce.CodeInTx)
			return l.insert(201)(inner, tx)
		})
		if err != nil {
			return a, err
		}
		_, err = w.Finish(ctx, l.insert(201))
		wantCode(t, err, onlyonce.CodeInTx)
		return a, nil
	})
	wantResult(t, res, err, onlyonce.Executed, "row")
	l.want(t, 1)

	p.lose = 1
	_, err = w.Steps(t.Context(), charge(), keyed("unfinished", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		if _, err := onlyonce.Call(ctx, p.effect("charge")); !errors.Is(err, onlyonce.ErrOutcomeUnknown) {
			t.Errorf("call: %v", err)
		}
		return w.Finish(ctx, l.insert(201))
	})
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	w.wantState(t, "unfinished", onlyonce.InDoubt)
	l.want(t, 1)
}

// What cannot be made says why.
func TestNewTxFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	_, err := onlyonce.NewTx(storefault.NewTx(w.mem, noFaults), onlyonce.Config{SettleTimeout: -1})
	wantCode(t, err, onlyonce.CodeConfig)
	if w.Store().Features().Name != "memory" {
		t.Error("an engine gives its store")
	}
}

// A store that gives no verdict is broken: nothing runs.
func TestStoreWithoutVerdict(t *testing.T) {
	t.Parallel()
	e, err := onlyonce.New(silent{newBare(t)}, onlyonce.Config{Secrets: onlyonce.Keyring{Current: secret("a")}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
}

type silent struct{ bare }

func (silent) Claim(context.Context, onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	return onlyonce.Claim{}, nil
}

// A key whose state changes under every claim does not keep its caller for
// ever.
func TestRestlessKeyIsBusy(t *testing.T) {
	t.Parallel()
	e, err := onlyonce.New(restless{newBare(t)}, onlyonce.Config{Secrets: onlyonce.Keyring{Current: secret("a")}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
	wantCode(t, err, onlyonce.CodeInProgress)
}

// restless has a key that is abandoned whenever it is claimed.
type restless struct{ bare }

func (restless) Claim(_ context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	return onlyonce.Claim{Verdict: onlyonce.Abandoned, Record: onlyonce.Record{Key: req.Key, State: onlyonce.InProgress}}, nil
}

func (restless) Park(context.Context, onlyonce.ParkRequest) (bool, error) { return false, nil }
