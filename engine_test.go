package onlyonce_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// C1, R1, R3: the first run's answer is every later attempt's answer.
func TestWrapRunsOnceAndReplays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, eff := newWorld(t, nil), &effect{}
		first, err := w.Wrap(t.Context(), charge(), keyed("k", "pay 100"), eff.handler)
		wantResult(t, first, err, onlyonce.Executed, "run 1")
		if first.State != onlyonce.Completed || !first.ExpiresAt.Equal(time.Now().Add(24*time.Hour)) {
			t.Errorf("result: %+v", first)
		}
		again, err := w.Wrap(t.Context(), charge(), keyed("k", "pay 100"), eff.handler)
		wantResult(t, again, err, onlyonce.Replayed, "run 1")
		if again.Fence != first.Fence || again.Attempt != first.Attempt {
			t.Errorf("a replay must name the run it comes from (case B124)")
		}
		eff.want(t, 1)

		// T2: after its retention the key is new.
		<-time.After(24 * time.Hour)
		res, err := w.Wrap(t.Context(), charge(), keyed("k", "pay 100"), eff.handler)
		wantResult(t, res, err, onlyonce.Executed, "run 2")
	})
}

// F6, B47, S4, B25: another request under the key is refused, whatever the
// state, and neither runs nor shows the first one's answer.
func TestAnotherRequestUnderTheKey(t *testing.T) {
	t.Parallel()
	w, eff := newWorld(t, nil), &effect{}
	res, err := w.Wrap(t.Context(), charge(), keyed("k", "pay 100"), eff.handler)
	wantResult(t, res, err, onlyonce.Executed, "run 1")
	_, err = w.Wrap(t.Context(), charge(), keyed("k", "pay 200"), eff.handler)
	if e := wantCode(t, err, onlyonce.CodeKeyReused); !slices.Equal(e.Differs, []string{"body"}) {
		t.Errorf("differs: %v", e.Differs)
	}
	_, err = w.Wrap(t.Context(), onlyonce.Op{Name: "POST /cancel"}, keyed("k", "pay 100"), eff.handler)
	if e := wantCode(t, err, onlyonce.CodeKeyReused); !slices.Contains(e.Differs, "operation") {
		t.Errorf("differs: %v", e.Differs)
	}
	// B26: another tenant is not concerned.
	other := keyed("k", "pay 100")
	other.Key.Scope = "another"
	res, err = w.Wrap(t.Context(), charge(), other, eff.handler)
	wantResult(t, res, err, onlyonce.Executed, "run 2")
}

// S2, K3: no scope, no key: nothing runs.
func TestBadIdentityIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for value, code := range map[string]onlyonce.Code{"": onlyonce.CodeKeyInvalid, "tab\t": onlyonce.CodeKeyInvalid, "é": onlyonce.CodeKeyInvalid} {
		_, err := w.Wrap(t.Context(), charge(), keyed(value, "x"), never(t))
		wantCode(t, err, code)
	}
	req := keyed("k", "x")
	req.Key.Scope = ""
	_, err := w.Wrap(t.Context(), charge(), req, never(t))
	wantCode(t, err, onlyonce.CodeUnauthenticated)
	_, err = w.Wrap(t.Context(), onlyonce.Op{}, keyed("k", "x"), never(t))
	wantCode(t, err, onlyonce.CodeConfig)
	_, err = w.Wrap(t.Context(), charge(), onlyonce.Request{Key: onlyonce.Key{Scope: "acct", Value: "k"}}, never(t))
	wantCode(t, err, onlyonce.CodeConfig)
	_, err = onlyonce.New(nil, onlyonce.Config{})
	wantCode(t, err, onlyonce.CodeConfig)
}

// C2, C5, B17: a slow handler keeps its key for as long as it lives, and
// duplicates are told when to come back.
func TestSlowHandlerKeepsItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, eff := newWorld(t, nil), &effect{}
		op := charge()
		op.Deadline = 10 * time.Minute
		var wg sync.WaitGroup
		wg.Go(func() {
			res, err := w.Wrap(t.Context(), op, keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
				<-time.After(5 * time.Minute)
				return eff.handler(ctx)
			})
			wantResult(t, res, err, onlyonce.Executed, "run 1")
		})
		synctest.Wait()
		for range 290 {
			_, err := w.Wrap(t.Context(), op, keyed("k", "x"), never(t))
			e := wantCode(t, err, onlyonce.CodeInProgress)
			if e.RetryAfter < time.Second || e.RetryAfter > 30*time.Second {
				t.Fatalf("retry after %v", e.RetryAfter)
			}
			<-time.After(time.Second)
		}
		wg.Wait()
		eff.want(t, 1)
	})
}

// C5, B18: renewal ends with the handler on every way out, and never goes past
// the deadline. A leaked renewal would keep the bubble from ending.
func TestRenewalStopsOnEveryWayOut(t *testing.T) {
	t.Parallel()
	ways := map[string]onlyonce.HandlerFunc{
		"return": responds(200, "ok"),
		"error":  func(context.Context) (onlyonce.Answer, error) { return onlyonce.Answer{}, errors.New("broken") },
		"panic":  func(context.Context) (onlyonce.Answer, error) { panic("broken") },
		"goexit": func(context.Context) (onlyonce.Answer, error) { runtime.Goexit(); return onlyonce.Answer{}, nil },
		"deadline": func(ctx context.Context) (onlyonce.Answer, error) {
			<-ctx.Done()
			return onlyonce.Answer{}, context.Cause(ctx)
		},
	}
	for name, handler := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				begun := time.Now()
				_, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), handler)
				if name == "return" {
					w.wantState(t, "k", onlyonce.Completed)
					return
				}
				wantCode(t, err, onlyonce.CodeOutcomeUnknown)
				w.wantState(t, "k", onlyonce.InDoubt)
				if name == "deadline" && time.Since(begun) != onlyonce.DefaultDeadline {
					t.Errorf("the handler's context ended after %v", time.Since(begun))
				}
				if name == "panic" {
					if p, ok := errors.AsType[*onlyonce.PanicError](err); !ok || len(p.Stack) == 0 {
						t.Errorf("a panic must come back with its stack, got %v", err)
					}
				}
			})
		})
	}
}

// C5: a lease that cannot be renewed cancels the handler, before it ends.
func TestLeaseLostCancelsTheHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorldWith(t, func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
			if m == storefault.Renew {
				return storefault.Fault{Before: storefault.ErrDown}
			}
			return storefault.Fault{}
		}, onlyonce.Config{})
		begun := time.Now()
		_, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, onlyonce.ErrLeaseLost) {
				t.Errorf("cause: %v", cause)
			}
			if took := time.Since(begun); took >= onlyonce.DefaultLease || took < onlyonce.DefaultLease/2 {
				t.Errorf("cancelled after %v of a lease of %v", took, onlyonce.DefaultLease)
			}
			return onlyonce.Answer{}, context.Cause(ctx)
		})
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	})
}

// C6, B16: a worker that slept through its lease changes nothing when it
// wakes, and its caller gets the new owner's answer, never its own.
func TestZombie(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cut := func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
			if m == storefault.Renew {
				return storefault.Fault{Before: storefault.ErrDown}
			}
			return storefault.Fault{}
		}
		w1 := newWorldWith(t, cut, onlyonce.Config{})
		w2 := worldOn(t, w1.mem, noFaults, onlyonce.Config{})
		op := charge()
		op.AfterCrash = onlyonce.Rerun
		var wg sync.WaitGroup
		wg.Go(func() {
			res, err := w1.Wrap(t.Context(), op, keyed("k", "x"), func(context.Context) (onlyonce.Answer, error) {
				<-time.After(45 * time.Second)
				return answer(201, "A"), nil
			})
			wantResult(t, res, err, onlyonce.Replayed, "B")
		})
		<-time.After(31 * time.Second)
		res, err := w2.Wrap(t.Context(), op, keyed("k", "x"), responds(201, "B"))
		wantResult(t, res, err, onlyonce.Executed, "B")
		wg.Wait()
		if w1.events.count(onlyonce.EventContradiction) != 1 {
			t.Error("an effect that contradicts the key's answer must raise an alarm")
		}
		res, err = w2.Wrap(t.Context(), op, keyed("k", "x"), never(t))
		wantResult(t, res, err, onlyonce.Replayed, "B")
	})
}

// C7, B10, B11, B14: after a crash the key is held in doubt by default, runs
// again where the operation says so, or is settled by Recover; the lease and
// the retention are two clocks.
func TestAfterACrash(t *testing.T) {
	t.Parallel()
	hold, rerun := charge(), charge()
	rerun.AfterCrash = onlyonce.Rerun
	synctest.Test(t, func(t *testing.T) {
		w, eff := newWorld(t, nil), &effect{}
		w.crash(t, hold, keyed("hold", "x"), eff.handler)
		w.crash(t, rerun, keyed("rerun", "x"), eff.handler)
		_, err := w.Wrap(t.Context(), rerun, keyed("rerun", "x"), never(t))
		wantCode(t, err, onlyonce.CodeInProgress)
		<-time.After(onlyonce.DefaultLease)
		e := wantCode(t, second(w.Wrap(t.Context(), hold, keyed("hold", "x"), never(t))), onlyonce.CodeOutcomeUnknown)
		if e.RetryAfter <= 0 || !errors.Is(e, onlyonce.ErrOutcomeUnknown) {
			t.Errorf("refusal: %+v", e)
		}
		w.wantState(t, "hold", onlyonce.InDoubt)
		res, err := w.Wrap(t.Context(), rerun, keyed("rerun", "x"), eff.handler)
		wantResult(t, res, err, onlyonce.Executed, "run 3")
	})
}

func second[A, B any](_ A, b B) B { return b }

// The Recover function of a wrapped operation decides a crashed key as its one
// owner: the answer, proof of nothing, or still unknown.
func TestRecover(t *testing.T) {
	t.Parallel()
	outcomes := map[string]struct {
		found  onlyonce.Answer
		state  onlyonce.State
		body   string
		runs   int
		refuse onlyonce.Code
	}{
		"applied":     {answer(201, "found"), onlyonce.Completed, "found", 1, ""},
		"not applied": {onlyonce.Answer{Outcome: onlyonce.NotApplied}, onlyonce.Completed, "run 2", 2, ""},
		"unknown":     {onlyonce.Answer{Status: 503, Outcome: onlyonce.Unknown}, onlyonce.InDoubt, "", 1, onlyonce.CodeOutcomeUnknown},
	}
	for name, want := range outcomes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, eff := newWorld(t, nil), &effect{}
				op := charge()
				op.Recover = func(_ context.Context, rec onlyonce.Record) (onlyonce.Answer, error) {
					if rec.Key.Value != "k" || rec.State != onlyonce.InProgress {
						t.Errorf("record: %+v", rec)
					}
					return want.found, nil
				}
				w.crash(t, op, keyed("k", "x"), eff.handler)
				<-time.After(onlyonce.DefaultLease)
				res, err := w.Wrap(t.Context(), op, keyed("k", "x"), eff.handler)
				if want.refuse == "" {
					wantResult(t, res, err, onlyonce.Executed, want.body)
				} else if err == nil && res.State != onlyonce.InDoubt {
					t.Errorf("recovered: %+v", res)
				}
				w.wantState(t, "k", want.state)
				eff.want(t, want.runs)
			})
		})
	}
}

// C8, B69, B70: a caller that hangs up aborts neither the handler nor the
// storing of its answer.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	w, eff := newWorld(t, nil), &effect{}
	ctx, hangUp := context.WithCancel(t.Context())
	_, err := w.Wrap(ctx, charge(), keyed("k", "x"), func(hctx context.Context) (onlyonce.Answer, error) {
		hangUp()
		if hctx.Err() != nil {
			t.Error("the caller's hanging up cancelled the handler")
		}
		return eff.handler(hctx)
	})
	if err != nil {
		t.Fatalf("wrap: %v", err)
	}
	res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
	wantResult(t, res, err, onlyonce.Replayed, "run 1")
}

// C11, B88: a store that cannot be reached refuses the request, unless the
// operation says otherwise, and then the result says so.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	w, eff := newWorldWith(t, func(storefault.Method, onlyonce.Key) storefault.Fault {
		return storefault.Fault{Before: storefault.ErrDown}
	}, onlyonce.Config{}), &effect{}
	_, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
	if e := wantCode(t, err, onlyonce.CodeStoreUnavailable); !errors.Is(e, storefault.ErrDown) {
		t.Errorf("cause: %v", e.Err)
	}
	open := charge()
	open.FailOpen = true
	res, err := w.Wrap(t.Context(), open, keyed("k", "x"), eff.handler)
	wantResult(t, res, err, onlyonce.Unprotected, "run 1")
	if w.events.count(onlyonce.EventUnprotected) != 1 {
		t.Error("an unprotected run must be counted")
	}
}

// F7: after a change of policy or secret a record is checked under what it was
// written with; what this process does not know is a 503, never a 422 or a run.
func TestFingerprintVersions(t *testing.T) {
	t.Parallel()
	old := onlyonce.Secret{ID: "2025", Key: []byte("0123456789abcdef0123456789abcdef")}
	next := onlyonce.Secret{ID: "2026", Key: []byte("fedcba9876543210fedcba9876543210")}
	before := newWorldWith(t, noFaults, onlyonce.Config{Secrets: onlyonce.Keyring{Current: old}})
	eff := &effect{}
	op := charge()
	op.Policy = []byte("lower")
	res, err := before.Wrap(t.Context(), op, keyed("k", "Pay"), eff.handler)
	wantResult(t, res, err, onlyonce.Executed, "run 1")

	rotated := worldOn(t, before.mem, noFaults, onlyonce.Config{Secrets: onlyonce.Keyring{Current: next, Old: []onlyonce.Secret{old}}})
	for _, policy := range []string{"lower", "exact", ""} {
		op.Policy = []byte(policy)
		// Equal under the recorded policy, though not under the present one.
		res, err = rotated.Wrap(t.Context(), op, keyed("k", "pAY"), never(t))
		wantResult(t, res, err, onlyonce.Replayed, "run 1")
		_, err = rotated.Wrap(t.Context(), op, keyed("k", "pay more"), never(t))
		wantCode(t, err, onlyonce.CodeKeyReused)
	}
	forgot := worldOn(t, before.mem, noFaults, onlyonce.Config{Secrets: onlyonce.Keyring{Current: next}})
	op.FailOpen = true // the store can be reached, so this is no licence to run
	_, err = forgot.Wrap(t.Context(), op, keyed("k", "Pay"), never(t))
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
}

// F7: processes that were given no secret share the one in the store.
func TestSecretIsSharedThroughTheStore(t *testing.T) {
	t.Parallel()
	w, eff := newWorld(t, nil), &effect{}
	res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), eff.handler)
	wantResult(t, res, err, onlyonce.Executed, "run 1")
	other := worldOn(t, w.mem, noFaults, onlyonce.Config{})
	res, err = other.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
	wantResult(t, res, err, onlyonce.Replayed, "run 1")
}

// O2, B48, B49, B50: what a wrapped handler's answer leaves behind.
func TestWrapOutcomes(t *testing.T) {
	t.Parallel()
	free := charge()
	free.On5xx = onlyonce.ReleaseKey
	cases := []struct {
		op     onlyonce.Op
		answer onlyonce.Answer
		state  onlyonce.State
	}{
		{charge(), answer(201, "x"), onlyonce.Completed},
		{charge(), answer(402, "x"), onlyonce.Completed},
		{charge(), answer(429, "x"), onlyonce.FailedRetryable},
		{charge(), answer(401, "x"), onlyonce.FailedRetryable},
		{charge(), answer(503, "x"), onlyonce.InDoubt},
		{free, answer(503, "x"), onlyonce.FailedRetryable},
		{charge(), onlyonce.Answer{Status: 503, Outcome: onlyonce.NotApplied}, onlyonce.FailedRetryable},
		{charge(), onlyonce.Answer{Status: 500, Outcome: onlyonce.Final}, onlyonce.Completed},
		{charge(), onlyonce.Answer{Status: 202, Outcome: onlyonce.Unknown}, onlyonce.InDoubt},
	}
	for i, c := range cases {
		w := newWorld(t, nil)
		res, err := w.Wrap(t.Context(), c.op, keyed("k", "x"), func(context.Context) (onlyonce.Answer, error) { return c.answer, nil })
		if err != nil || res.Answer.Status != c.answer.Status || res.State != c.state {
			t.Errorf("case %d: %+v, %v", i, res, err)
		}
		w.wantState(t, "k", c.state)
		res, err = w.Wrap(t.Context(), c.op, keyed("k", "x"), responds(200, "later"))
		switch c.state {
		case onlyonce.Completed:
			wantResult(t, res, err, onlyonce.Replayed, string(c.answer.Body))
		case onlyonce.FailedRetryable:
			wantResult(t, res, err, onlyonce.Executed, "later")
		default:
			wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		}
	}
}

// Declare is a wrapped handler's word where it has no Answer to say it with.
func TestDeclare(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		onlyonce.Declare(ctx, onlyonce.NotApplied)
		return answer(500, "no effect"), nil
	})
	wantResult(t, res, err, onlyonce.Executed, "no effect")
	w.wantState(t, "k", onlyonce.FailedRetryable)
	onlyonce.Declare(t.Context(), onlyonce.Unknown) // outside a run: nothing happens
}

// O1: Peek answers from a record and never makes one.
func TestPeek(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	if _, found, err := w.Peek(t.Context(), charge(), keyed("k", "x")); found || err != nil {
		t.Fatalf("an unknown key: found %v, %v", found, err)
	}
	w.wantState(t, "k", "")
	res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		_, found, err := w.Peek(ctx, charge(), keyed("k", "x"))
		if !found {
			t.Error("a running attempt was not found")
		}
		wantCode(t, err, onlyonce.CodeInProgress)
		return answer(200, "done"), nil
	})
	wantResult(t, res, err, onlyonce.Executed, "done")
	res, found, err := w.Peek(t.Context(), charge(), keyed("k", "x"))
	wantResult(t, res, err, onlyonce.Replayed, "done")
	_, _, err = w.Peek(t.Context(), charge(), keyed("k", "y"))
	wantCode(t, err, onlyonce.CodeKeyReused)
	if !found {
		t.Error("a completed key was not found")
	}
}

// F6: a caller that keeps guessing is told no more what it got right.
func TestMismatchesAreNamedOnlySoOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		res, err := w.Wrap(t.Context(), charge(), keyed("k", "secret"), responds(200, "ok"))
		wantResult(t, res, err, onlyonce.Executed, "ok")
		guess := func() int {
			_, err := w.Wrap(t.Context(), charge(), keyed("k", "guess"), never(t))
			return len(wantCode(t, err, onlyonce.CodeKeyReused).Differs)
		}
		named := 0
		for range 100 {
			named += guess()
		}
		if named != 30 {
			t.Errorf("%d of 100 mismatches were named, want 30", named)
		}
		<-time.After(time.Minute)
		if guess() != 1 {
			t.Error("after a minute a mismatch must be named again")
		}
	})
}
