package onlyonce_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// C8: Close may meet operations that are under way, as a shutdown whose drain
// took too long does. It is the race detector that finds fault with it.
func TestCloseMeetsRunningOperations(t *testing.T) {
	t.Parallel()
	for i := range 100 {
		once := storefault.Fault{Before: storefault.ErrDown, Hold: func(ctx context.Context) { <-ctx.Done() }}
		w := newWorldWith(t, storefault.Script(faults{storefault.Complete: {once}}), onlyonce.Config{SettleTimeout: 2 * time.Millisecond})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = w.Wrap(t.Context(), charge(), keyed("k", "x"), responds(201, "x")) })
		for begun := time.Now(); time.Since(begun) < 2*time.Millisecond+time.Duration(i)*10*time.Microsecond; {
			continue // busy, so that nothing orders Close behind the operation
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		wg.Wait()
	}
}

// C8: what was closed runs nothing any more, and tells its callers to come
// back, to another process.
func TestClosedEngineRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	op := charge()
	op.FailOpen = true
	_, err := w.Wrap(t.Context(), op, keyed("k", "x"), never(t))
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
	_, err = w.Steps(t.Context(), op, keyed("k", "x"), never(t))
	if e := wantCode(t, err, onlyonce.CodeStoreUnavailable); e.RetryAfter <= 0 || !onlyonce.SafeToRetry(err) {
		t.Errorf("refusal: %+v", e)
	}
	l := &ledger{}
	_, err = w.Atomic(t.Context(), op, keyed("k", "x"), l.insert(201))
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
	l.want(t, 0)
	_, err = w.Settle(t.Context(), settlement(nil))
	wantCode(t, err, onlyonce.CodeStoreUnavailable)
	if err := w.Close(t.Context()); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

// C8: Close waits for a handler that runs, and the answer is stored.
func TestCloseWaitsForHandlers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		var wg sync.WaitGroup
		wg.Go(func() {
			res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), func(context.Context) (onlyonce.Answer, error) {
				<-time.After(time.Minute)
				return answer(201, "done"), nil
			})
			wantResult(t, res, err, onlyonce.Executed, "done")
		})
		synctest.Wait()
		begun := time.Now()
		if err := w.Close(t.Context()); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("closed after %v: %v", time.Since(begun), err)
		}
		w.wantState(t, "k", onlyonce.Completed)
		wg.Wait()
	})
}
