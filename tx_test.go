package onlyonce_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

type tx = *memstore.Tx

// ledger is business data that is written in transactions.
type ledger struct {
	mu   sync.Mutex
	rows int
	runs int
}

func (l *ledger) insert(status int) onlyonce.TxHandlerFunc[tx] {
	return func(_ context.Context, tx tx) (onlyonce.Answer, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.runs++
		tx.OnCommit(func() { l.rows++ })
		return answer(status, "row"), nil
	}
}

func (l *ledger) want(t *testing.T, rows int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rows != rows {
		t.Errorf("%d rows, want %d", l.rows, rows)
	}
}

// O2, B54: claim, write and answer are one.
func TestAtomic(t *testing.T) {
	t.Parallel()
	w, l := newWorld(t, nil), &ledger{}
	res, err := w.Atomic(t.Context(), charge(), keyed("k", "x"), l.insert(201))
	wantResult(t, res, err, onlyonce.Executed, "row")
	if res.ExpiresAt.IsZero() || res.State != onlyonce.Completed {
		t.Errorf("result: %+v", res)
	}
	res, err = w.Atomic(t.Context(), charge(), keyed("k", "x"), l.insert(201))
	wantResult(t, res, err, onlyonce.Replayed, "row")
	_, err = w.Atomic(t.Context(), charge(), keyed("k", "y"), l.insert(201))
	wantCode(t, err, onlyonce.CodeKeyReused)
	l.want(t, 1)
}

// O2: a declined charge is stored, with its row; a failure is rolled back and
// the key is free, but not for another request.
func TestAtomicOutcomes(t *testing.T) {
	t.Parallel()
	failing := func(err error) onlyonce.TxHandlerFunc[tx] {
		return func(_ context.Context, tx tx) (onlyonce.Answer, error) {
			tx.OnCommit(func() { t.Error("a failed transaction was committed") })
			if err == nil {
				panic("broken")
			}
			return onlyonce.Answer{}, err
		}
	}
	w, l := newWorld(t, nil), &ledger{}
	res, err := w.Atomic(t.Context(), charge(), keyed("402", "x"), l.insert(402))
	wantResult(t, res, err, onlyonce.Executed, "row")
	w.wantState(t, "402", onlyonce.Completed)
	l.want(t, 1)
	for name, handler := range map[string]onlyonce.TxHandlerFunc[tx]{"503": l.insert(503), "429": l.insert(429), "error": failing(errors.New("broken")), "panic": failing(nil)} {
		res, err := w.Atomic(t.Context(), charge(), keyed(name, "x"), handler)
		if (err != nil) != (name == "error" || name == "panic") || res.State != onlyonce.FailedRetryable {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
		l.want(t, 1)
		w.wantState(t, name, onlyonce.FailedRetryable)
		_, err = w.Atomic(t.Context(), charge(), keyed(name, "other"), l.insert(201))
		wantCode(t, err, onlyonce.CodeKeyReused)
		res, err = w.Atomic(t.Context(), charge(), keyed(name, "x"), func(context.Context, tx) (onlyonce.Answer, error) { return answer(200, "again"), nil })
		wantResult(t, res, err, onlyonce.Executed, "again")
	}
	res, err = w.Atomic(t.Context(), charge(), keyed("unknown", "x"), func(context.Context, tx) (onlyonce.Answer, error) {
		return onlyonce.Answer{Status: 202, Outcome: onlyonce.Unknown}, nil
	})
	if err != nil || res.State != onlyonce.InDoubt {
		t.Errorf("unknown: %+v, %v", res, err)
	}
	w.wantState(t, "unknown", onlyonce.InDoubt)
}

// C10: a commit whose reply is lost is settled by repeating it with the same
// token; a conflict is repeated; in neither case is anything written twice.
func TestAtomicRepeats(t *testing.T) {
	t.Parallel()
	for name, f := range map[string][]storefault.Fault{
		"reply lost":    {{After: onlyonce.ErrUncertain}, {After: onlyonce.ErrUncertain}},
		"request lost":  {{Before: onlyonce.ErrUncertain}, {After: onlyonce.ErrUncertain}},
		"conflict":      {{Before: onlyonce.ErrConflict}, {Before: onlyonce.ErrConflict}},
		"conflict, too": {{After: onlyonce.ErrUncertain}, {Before: onlyonce.ErrConflict}},
	} {
		w, l := newWorld(t, faults{storefault.Atomic: f}), &ledger{}
		res, err := w.Atomic(t.Context(), charge(), keyed("k", "x"), l.insert(201))
		wantResult(t, res, err, onlyonce.Executed, "row")
		l.want(t, 1)
		if w.events.count(onlyonce.EventStoreRetried) != 2 {
			t.Errorf("%s: %d repeats", name, w.events.count(onlyonce.EventStoreRetried))
		}
	}
}

// Rule O of modes: a transaction may take at most a third of a lease.
func TestAtomicDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		op := charge()
		op.Deadline = 11 * time.Second
		_, err := w.Atomic(t.Context(), op, keyed("k", "x"), func(context.Context, tx) (onlyonce.Answer, error) { return answer(200, ""), nil })
		wantCode(t, err, onlyonce.CodeConfig)
		begun := time.Now()
		_, err = w.Atomic(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context, _ tx) (onlyonce.Answer, error) {
			<-ctx.Done()
			return onlyonce.Answer{}, ctx.Err()
		})
		wantCode(t, err, onlyonce.CodeHandlerFailed)
		if took := time.Since(begun); took != onlyonce.DefaultLease/3 {
			t.Errorf("the transaction was given %v", took)
		}
	})
}

// The business write and the answer of steps share the last transaction.
func TestFinish(t *testing.T) {
	t.Parallel()
	w, p, l := newWorld(t, nil), newProvider(), &ledger{}
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		if _, err := onlyonce.Call(ctx, p.effect("charge")); err != nil {
			return onlyonce.Answer{}, err
		}
		return w.Finish(ctx, l.insert(201))
	}
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), handler)
	wantResult(t, res, err, onlyonce.Executed, "row")
	if res.ExpiresAt.IsZero() {
		t.Error("a finished answer must say when it expires")
	}
	res, err = w.Steps(t.Context(), charge(), keyed("k", "x"), handler)
	wantResult(t, res, err, onlyonce.Replayed, "row")
	l.want(t, 1)
	p.want(t, 1)
}

// C10, C6: Finish survives a lost reply, and rolls back when fenced.
func TestFinishFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(t, faults{storefault.Finish: {{After: onlyonce.ErrUncertain}, {Before: onlyonce.ErrConflict}}}), &ledger{}
		res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
			return w.Finish(ctx, l.insert(201))
		})
		wantResult(t, res, err, onlyonce.Executed, "row")
		l.want(t, 1)

		slow := worldOn(t, w.mem, storefault.Script(faults{storefault.Renew: {{Before: storefault.ErrDown, Hold: func(context.Context) { <-time.After(time.Hour) }}}}), onlyonce.Config{})
		var wg sync.WaitGroup
		wg.Go(func() {
			res, err := slow.Steps(t.Context(), charge(), keyed("zombie", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
				<-time.After(2 * onlyonce.DefaultLease)
				a, err := slow.Finish(context.WithoutCancel(ctx), l.insert(201))
				if !errors.Is(err, onlyonce.ErrLeaseLost) {
					t.Errorf("finish of a fenced attempt: %v", err)
				}
				return a, err
			})
			wantResult(t, res, err, onlyonce.Replayed, "row")
		})
		<-time.After(onlyonce.DefaultLease + time.Second)
		res, err = w.Steps(t.Context(), charge(), keyed("zombie", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
			return w.Finish(ctx, l.insert(201))
		})
		wantResult(t, res, err, onlyonce.Executed, "row")
		wg.Wait()
		l.want(t, 2)
	})
}

// An answer that would not be stored rolls the last transaction back.
func TestFinishRollsBack(t *testing.T) {
	t.Parallel()
	w, l := newWorld(t, nil), &ledger{}
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		return w.Finish(ctx, l.insert(503))
	})
	wantResult(t, res, err, onlyonce.Executed, "row")
	w.wantState(t, "k", onlyonce.FailedRetryable)
	l.want(t, 0)
	_, err = w.Finish(t.Context(), l.insert(201))
	wantCode(t, err, onlyonce.CodeConfig)
}

// A Finish that was told nothing six times over has committed all the same:
// asking again gives the answer, and nothing is written twice.
func TestFinishAskedAgain(t *testing.T) {
	t.Parallel()
	lost := make([]storefault.Fault, 6)
	for i := range lost {
		lost[i].After = onlyonce.ErrUncertain
	}
	w, l := newWorld(t, faults{storefault.Finish: lost}), &ledger{}
	res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		if _, err := w.Finish(ctx, l.insert(201)); !errors.Is(err, onlyonce.ErrUncertain) {
			t.Errorf("finish: %v", err)
		}
		return w.Finish(ctx, l.insert(201))
	})
	wantResult(t, res, err, onlyonce.Executed, "row")
	l.want(t, 1)
}
