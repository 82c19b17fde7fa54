package onlyonce_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// A handler can name the attempt it runs in: the very owner that the record
// names, and a reference that gives nothing away.
func TestAttemptInAHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	if onlyonce.AttemptFrom(t.Context()) != nil {
		t.Error("there is no attempt outside a run")
	}
	req := keyed("k", "x")
	check := func(ctx context.Context) (onlyonce.Answer, error) {
		a := onlyonce.AttemptFrom(ctx)
		if a == nil {
			t.Error("the handler has no attempt")
			return answer(500, ""), nil
		}
		rec, _, err := w.mem.Get(ctx, req.Key)
		if err != nil || a.Owner() != rec.Owner() || a.Owner().Key != req.Key {
			t.Errorf("owner %+v, of record %+v, %v", a.Owner(), rec.Owner(), err)
		}
		if a.Operation() != req.Key.Operation() {
			t.Errorf("operation %s", a.Operation())
		}
		return answer(429, "later"), nil
	}
	first, err := w.Wrap(t.Context(), charge(), req, check)
	wantResult(t, first, err, onlyonce.Executed, "later")
	second, err := w.Steps(t.Context(), charge(), req, check)
	wantResult(t, second, err, onlyonce.Executed, "later")
	if second.Fence <= first.Fence || second.Attempt == first.Attempt {
		t.Errorf("each attempt has its own token and a higher fence: %+v, %+v", first, second)
	}
}

// The context's values reach the handler, its end does not, and nor does
// an attempt that it runs inside of.
func TestOperationInsideAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	type traceKey struct{}
	ctx := context.WithValue(t.Context(), traceKey{}, "trace")
	res, err := w.Wrap(ctx, charge(), keyed("outer", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		outer := onlyonce.AttemptFrom(ctx)
		if ctx.Value(traceKey{}) != "trace" {
			t.Error("the handler's context has lost its values")
		}
		res, err := w.Steps(ctx, charge(), keyed("inner", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
			if inner := onlyonce.AttemptFrom(ctx); inner == outer || inner.Owner().Key.Value != "inner" {
				t.Error("the inner handler has the outer attempt")
			}
			return answer(201, "inner"), nil
		})
		wantResult(t, res, err, onlyonce.Executed, "inner")
		return answer(201, "outer"), nil
	})
	wantResult(t, res, err, onlyonce.Executed, "outer")
}

// O5, B14: a Recover function that cannot find out what happened proves
// nothing: the key stays in doubt and the handler does not run.
func TestRecoverFails(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(context.Context, onlyonce.Record) (onlyonce.Answer, error){
		"error": func(context.Context, onlyonce.Record) (onlyonce.Answer, error) {
			return onlyonce.Answer{}, errors.New("the provider does not answer")
		},
		"panic":   func(context.Context, onlyonce.Record) (onlyonce.Answer, error) { panic("broken") },
		"503":     func(context.Context, onlyonce.Record) (onlyonce.Answer, error) { return answer(503, ""), nil },
		"unknown": recoverNothing,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, eff := newWorld(t, nil), &effect{}
				op := charge()
				op.Recover = fails
				w.crash(t, op, keyed("k", "x"), eff.handler)
				<-time.After(onlyonce.DefaultLease)
				for range 3 {
					_, _ = w.Wrap(t.Context(), op, keyed("k", "x"), never(t))
					w.wantState(t, "k", onlyonce.InDoubt)
				}
				op.Recover = func(context.Context, onlyonce.Record) (onlyonce.Answer, error) { return answer(201, "found"), nil }
				res, err := w.Wrap(t.Context(), op, keyed("k", "x"), never(t))
				wantResult(t, res, err, onlyonce.Executed, "found")
				eff.want(t, 1)
			})
		})
	}
}

// C1: of several duplicates of a doubtful key one asks, the others wait.
func TestOneRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, eff := newWorld(t, nil), &effect{}
		op := charge()
		asked := 0
		op.Recover = func(context.Context, onlyonce.Record) (onlyonce.Answer, error) {
			asked++ // the race detector tells if two do
			<-time.After(time.Second)
			return answer(201, "found"), nil
		}
		w.crash(t, op, keyed("k", "x"), eff.handler)
		<-time.After(onlyonce.DefaultLease)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				res, err := w.Wrap(t.Context(), op, keyed("k", "x"), never(t))
				if err == nil {
					wantResult(t, res, err, onlyonce.Executed, "found")
					return
				}
				if onlyonce.CodeOf(err) != onlyonce.CodeInProgress {
					t.Errorf("duplicate: %v", err)
				}
			})
		}
		wg.Wait()
		if asked != 1 {
			t.Errorf("the provider was asked %d times", asked)
		}
	})
}

// C1, O2: of many duplicates one commits, and every answer is its.
func TestAtomicDuplicates(t *testing.T) {
	t.Parallel()
	w, l := newWorld(t, faults{storefault.Atomic: {{Before: onlyonce.ErrConflict}, {After: onlyonce.ErrUncertain}, {}, {After: onlyonce.ErrUncertain}}}), &ledger{}
	start := make(chan struct{})
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			<-start
			res, err := w.Atomic(t.Context(), charge(), keyed("k", "x"), l.insert(201))
			if err != nil {
				if onlyonce.CodeOf(err) != onlyonce.CodeInProgress {
					t.Errorf("duplicate: %v", err)
				}
				return
			}
			if string(res.Answer.Body) != "row" {
				t.Errorf("answer: %+v", res)
			}
		})
	}
	close(start)
	wg.Wait()
	l.want(t, 1)
	w.wantState(t, "k", onlyonce.Completed)
}

// O8: what is stored and what the caller gets is what Op.Stored makes of the
// answer, the same on the first run and on a replay.
func TestStored(t *testing.T) {
	t.Parallel()
	op := charge()
	op.Stored = func(a onlyonce.Answer) onlyonce.Answer {
		a.Header = map[string][]string{"Location": a.Header["Location"]}
		a.Body = a.Body[:3]
		return a
	}
	full := onlyonce.Answer{Status: 201, Header: map[string][]string{"Location": {"/1"}, "Set-Cookie": {"x"}}, Body: []byte("abcdef")}
	w, l := newWorld(t, nil), &ledger{}
	run := map[string]func() (onlyonce.Result, error){
		"wrap": func() (onlyonce.Result, error) {
			return w.Wrap(t.Context(), op, keyed("wrap", "x"), func(context.Context) (onlyonce.Answer, error) { return full, nil })
		},
		"atomic": func() (onlyonce.Result, error) {
			return w.Atomic(t.Context(), op, keyed("atomic", "x"), func(context.Context, tx) (onlyonce.Answer, error) { return full, nil })
		},
		"finish": func() (onlyonce.Result, error) {
			return w.Steps(t.Context(), op, keyed("finish", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
				return w.Finish(ctx, func(ctx context.Context, tx tx) (onlyonce.Answer, error) {
					_, err := l.insert(201)(ctx, tx)
					return full, err
				})
			})
		},
	}
	for name, attempt := range run {
		for _, status := range []onlyonce.Status{onlyonce.Executed, onlyonce.Replayed} {
			res, err := attempt()
			wantResult(t, res, err, status, "abc")
			if len(res.Answer.Header) != 1 || res.Answer.Header["Location"][0] != "/1" {
				t.Errorf("%s, %s: header %v", name, status, res.Answer.Header)
			}
		}
	}
}

// O5, B14: only NotApplied lets the handler run again. That the provider cannot
// be asked now (an error, a 429, a 401), or that the handler's own failures are
// harmless (ReleaseKey), says nothing of the run that crashed.
func TestRecoverThatCannotAskProvesNothing(t *testing.T) {
	t.Parallel()
	fails := func(context.Context, onlyonce.Record) (onlyonce.Answer, error) {
		return onlyonce.Answer{}, errors.New("the provider does not answer")
	}
	status := func(s int) func(context.Context, onlyonce.Record) (onlyonce.Answer, error) {
		return func(context.Context, onlyonce.Record) (onlyonce.Answer, error) { return answer(s, ""), nil }
	}
	for name, c := range map[string]struct {
		on5xx   onlyonce.On5xx
		recover func(context.Context, onlyonce.Record) (onlyonce.Answer, error)
	}{
		"error, with ReleaseKey": {onlyonce.ReleaseKey, fails},
		"503, with ReleaseKey":   {onlyonce.ReleaseKey, status(503)},
		"429":                    {onlyonce.Hold, status(429)},
		"401":                    {onlyonce.Hold, status(401)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, eff := newWorld(t, nil), &effect{}
				op := charge()
				op.On5xx, op.Recover = c.on5xx, c.recover
				w.crash(t, op, keyed("k", "x"), eff.handler)
				<-time.After(onlyonce.DefaultLease)
				_, _ = w.Wrap(t.Context(), op, keyed("k", "x"), eff.handler)
				eff.want(t, 1)
				w.wantState(t, "k", onlyonce.InDoubt)
			})
		})
	}
}
