package onlyonce_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

var errBroken = errors.New("broken")

// held is a request that is not let go before there is an answer.
func held(value string) onlyonce.Request {
	req := keyed(value, "x")
	req.Keep = []byte("what it takes")
	req.Hold = func(err error) string { return "because " + err.Error() }
	return req
}

// resolving is a held request by somebody who says that it may run again.
func resolving(value string) onlyonce.Request {
	req := held(value)
	req.Resolve = true
	return req
}

func fails(context.Context) (onlyonce.Answer, error) { return onlyonce.Answer{}, errBroken }

// wantHeld checks that a key is in doubt, for this reason, with what was kept.
func (w *world) wantHeld(t *testing.T, key, reason string) {
	t.Helper()
	at := onlyonce.Key{Scope: "acct", Value: key}
	rec, _, err := w.mem.Get(t.Context(), at)
	if err != nil || rec.State != onlyonce.InDoubt || rec.Reason != reason {
		t.Errorf("key %s is %q for %q, %v; want in doubt for %q", key, rec.State, rec.Reason, err, reason)
	}
	if keep, has, err := w.mem.Kept(t.Context(), at); err != nil || !has || string(keep) != "what it takes" {
		t.Errorf("kept with %s: %q, %v, %v", key, keep, has, err)
	}
}

// modes are the two ways to run a handler under a claim that is committed first.
func (w *world) modes() map[string]func(context.Context, onlyonce.Op, onlyonce.Request, onlyonce.HandlerFunc) (onlyonce.Result, error) {
	return map[string]func(context.Context, onlyonce.Op, onlyonce.Request, onlyonce.HandlerFunc) (onlyonce.Result, error){
		"wrap": w.Wrap, "steps": w.Steps,
	}
}

// D6: a held key is in doubt after whatever is no answer, with what was kept; a retry
// does not run it, a request that resolves it does, and its answer ends that.
func TestHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	op := charge()
	op.On5xx = onlyonce.ReleaseKey
	for mode, run := range w.modes() {
		for name, handler := range map[string]onlyonce.HandlerFunc{
			"an error": fails,
			"a panic":  func(context.Context) (onlyonce.Answer, error) { panic("broken") },
			"no effect": func(context.Context) (onlyonce.Answer, error) {
				return onlyonce.Answer{Status: 409, Outcome: onlyonce.NotApplied}, nil
			},
			"a refusal":   responds(429, "later"),
			"not known":   func(context.Context) (onlyonce.Answer, error) { return onlyonce.Answer{Outcome: onlyonce.Unknown}, nil },
			"a breakdown": responds(503, "down"),
		} {
			key := mode + " " + name
			res, err := run(t.Context(), op, held(key), handler)
			if res.State != onlyonce.InDoubt {
				t.Errorf("%s: %+v, %v", key, res, err)
			}
			rec, _, err := w.mem.Get(t.Context(), onlyonce.Key{Scope: "acct", Value: key})
			if err != nil || !strings.HasPrefix(rec.Reason, onlyonce.ReasonHeld+"because ") {
				t.Errorf("%s: reason %q, %v", key, rec.Reason, err)
			}
			w.wantHeld(t, key, rec.Reason)

			for _, req := range []onlyonce.Request{keyed(key, "x"), held(key)} {
				_, err = run(t.Context(), op, req, never(t))
				wantCode(t, err, onlyonce.CodeOutcomeUnknown)
			}
			res, err = run(t.Context(), op, resolving(key), fails)
			if res.State != onlyonce.InDoubt || !errors.Is(err, errBroken) {
				t.Errorf("%s again: %+v, %v", key, res, err)
			}
			w.wantHeld(t, key, "held: because broken")
			res, err = run(t.Context(), op, resolving(key), responds(201, "done"))
			wantResult(t, res, err, onlyonce.Executed, "done")
			res, err = run(t.Context(), op, resolving(key), never(t))
			wantResult(t, res, err, onlyonce.Replayed, "done")
			if _, has, _ := w.mem.Kept(t.Context(), onlyonce.Key{Scope: "acct", Value: key}); has {
				t.Errorf("%s: something is kept of a completed key", key)
			}
		}
	}
}

// D6, X1: a crash leaves a held key in doubt, and no sweep frees it: what was kept is
// there for whoever goes on.
func TestCrashWhileHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		op := charge()
		op.AfterCrash = onlyonce.Rerun // of a request that is not held
		w.crash(t, op, held("wrap"), fails)
		w.crashSteps(t, op, held("steps"), fails)
		time.Sleep(onlyonce.DefaultLease)
		if _, err := w.mem.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10}); err != nil {
			t.Fatal(err)
		}
		for key, run := range w.modes() {
			w.wantHeld(t, key, onlyonce.ReasonAbandoned)
			_, err := run(t.Context(), op, held(key), never(t))
			wantCode(t, err, onlyonce.CodeOutcomeUnknown)
			res, err := run(t.Context(), op, resolving(key), responds(201, "done"))
			wantResult(t, res, err, onlyonce.Executed, "done")
		}
	})
}

// D6: a key that a failure in steps has freed can be held, and goes on behind its
// finished step.
func TestHoldBehindSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	calls := 0
	withStep := func(then onlyonce.HandlerFunc) onlyonce.HandlerFunc {
		return func(ctx context.Context) (onlyonce.Answer, error) {
			_, err := onlyonce.Call(ctx, onlyonce.Effect{
				Name: "charge", Provider: "bank", Request: []byte("x"),
				Send: func(context.Context, onlyonce.Sending) ([]byte, error) { calls++; return []byte("ok"), nil },
			})
			if err != nil {
				return onlyonce.Answer{}, err
			}
			return then(ctx)
		}
	}
	if _, err := w.Steps(t.Context(), charge(), keyed("k", "x"), withStep(fails)); onlyonce.CodeOf(err) != onlyonce.CodeHandlerFailed {
		t.Fatal(err)
	}
	w.wantState(t, "k", onlyonce.FailedRetryable)
	if res, err := w.Steps(t.Context(), charge(), held("k"), withStep(fails)); res.State != onlyonce.InDoubt {
		t.Fatalf("%+v, %v", res, err)
	}
	w.wantHeld(t, "k", "held: because broken")
	w.crashSteps(t, charge(), resolving("k"), withStep(fails))
	if rec, _, _ := w.mem.Get(t.Context(), keyed("k", "x").Key); rec.Abandon != onlyonce.AbandonHold {
		t.Errorf("a crash is decided by %v", rec.Abandon)
	}
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

// O2: who resolves a key says that its handler may run, so Recover is not asked; a held
// key is not recovered behind anybody's back.
func TestResolveRunsTheHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	op := charge()
	op.Recover = func(context.Context, onlyonce.Record) (onlyonce.Answer, error) { return answer(200, "recovered"), nil }
	if _, err := w.Wrap(t.Context(), op, held("k"), fails); err == nil {
		t.Fatal("it did not fail")
	}
	_, err := w.Wrap(t.Context(), op, keyed("k", "x"), never(t))
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	res, err := w.Wrap(t.Context(), op, resolving("k"), responds(201, "done"))
	wantResult(t, res, err, onlyonce.Executed, "done")
}

// C6: the business write of a held run comes with its answer, or not at all.
func TestFinishWhileHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	rows := 0
	write := func(err error) onlyonce.HandlerFunc {
		return func(ctx context.Context) (onlyonce.Answer, error) {
			return w.Finish(ctx, func(_ context.Context, tx *memstore.Tx) (onlyonce.Answer, error) {
				tx.OnCommit(func() { rows++ })
				return answer(201, "done"), err
			})
		}
	}
	if res, err := w.Wrap(t.Context(), charge(), held("k"), write(errBroken)); res.State != onlyonce.InDoubt || rows != 0 {
		t.Fatalf("%+v, %v, %d rows", res, err, rows)
	}
	res, err := w.Wrap(t.Context(), charge(), resolving("k"), write(nil))
	wantResult(t, res, err, onlyonce.Executed, "done")
	if rows != 1 {
		t.Errorf("%d rows", rows)
	}
}

// E6: where the doubt cannot be written, who counts on it is told; it is written behind.
func TestHoldThroughAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorldWith(t, outage(storefault.Park, 15*time.Second), onlyonce.Config{})
		res, err := w.Wrap(t.Context(), charge(), held("k"), fails)
		wantCode(t, err, onlyonce.CodeStoreUnavailable)
		if res.State != "" {
			t.Errorf("%+v", res)
		}
		time.Sleep(time.Minute)
		w.wantHeld(t, "k", "held: because broken")
	})
}

// Where it cannot be promised that a key is held, that is refused.
func TestHoldIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	unheld := keyed("k", "x")
	unheld.Resolve = true
	_, err := w.Wrap(t.Context(), charge(), unheld, never(t))
	wantCode(t, err, onlyonce.CodeConfig)
	_, err = w.Atomic(t.Context(), charge(), held("k"), func(context.Context, *memstore.Tx) (onlyonce.Answer, error) {
		t.Error("the handler ran")
		return onlyonce.Answer{}, nil
	})
	wantCode(t, err, onlyonce.CodeConfig)

	e, err := onlyonce.New(forgetful{w.mem}, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Wrap(t.Context(), charge(), held("k"), never(t))
	wantCode(t, err, onlyonce.CodeConfig)
	w.wantState(t, "k", "")
}

// forgetful is a store that keeps no requests.
type forgetful struct{ *memstore.Store }

func (f forgetful) Features() onlyonce.Features {
	features := f.Store.Features()
	features.Recovery = false
	return features
}
