package onlyonce_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// O6, B52: an answer that cannot be stored is not sent and not lost: the key
// stays claimed, storing goes on behind the request, the retry replays.
func TestCompletingGoesOnBehindTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var up atomic.Bool
		w, eff := newWorldWith(t, func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
			if m == storefault.Complete && !up.Load() {
				return storefault.Fault{Before: storefault.ErrDown}
			}
			return storefault.Fault{}
		}, onlyonce.Config{}), &effect{}
		_, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), eff.handler)
		if e := wantCode(t, err, onlyonce.CodeStoreUnavailable); !onlyonce.SafeToRetry(e) {
			t.Error("the caller must be told to retry with the same key")
		}
		w.wantState(t, "k", onlyonce.InProgress)
		_, err = w.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
		wantCode(t, err, onlyonce.CodeInProgress)
		synctest.Wait()
		up.Store(true)
		<-time.After(10 * time.Second)
		res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
		wantResult(t, res, err, onlyonce.Replayed, "run 1")
		eff.want(t, 1)
	})
}

// B52 and its kind: whichever call to the store fails, and however, the effect
// happens at most once for as long as nobody says that a rerun is harmless, and
// the key ends in a state that the next attempt can act on.
func TestFaultMatrix(t *testing.T) {
	t.Parallel()
	kinds := map[string]storefault.Fault{
		"request lost":  {Before: storefault.ErrDown},
		"reply lost":    {After: onlyonce.ErrUncertain},
		"conflict":      {Before: onlyonce.ErrConflict},
		"maybe happens": {Before: onlyonce.ErrUncertain},
	}
	methods := []storefault.Method{storefault.AddSetting, storefault.Claim, storefault.Renew, storefault.BeginStep, storefault.EndStep, storefault.Complete, storefault.Steps}
	for _, m := range methods {
		for name, fault := range kinds {
			for _, times := range []int{1, 2, 50} {
				t.Run(fmt.Sprintf("%s/%s/%d", m, name, times), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						var script []storefault.Fault
						for range times {
							script = append(script, fault)
						}
						faulty(t, faults{m: script})
					})
				})
			}
		}
	}
}

// faulty runs an operation against a faulty store until it is answered, as a
// patient client would.
func faulty(t *testing.T, script faults) {
	t.Helper()
	w, p := newWorld(t, script), newProvider()
	slow := p.effect("charge")
	slow.Send = func(ctx context.Context, s onlyonce.Sending) ([]byte, error) {
		<-time.After(15 * time.Second) // long enough to be renewed
		return p.send(ctx, s)
	}
	for range 200 {
		res, err := w.Steps(t.Context(), charge(), keyed("k", "x"), charges(slow))
		if err == nil {
			if string(res.Answer.Body) != "charge for 100 EUR" {
				t.Fatalf("answer: %+v", res)
			}
			w.wantState(t, "k", onlyonce.Completed)
			p.want(t, 1)
			return
		}
		if !onlyonce.SafeToRetry(err) {
			t.Fatalf("a retry was refused: %v", err)
		}
		<-time.After(5 * time.Second)
	}
	t.Fatal("never answered")
}

// C10: a claim whose reply stays lost is given back: the handler did not run,
// so the key must not look like a crashed attempt.
func TestLostClaimIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var script []storefault.Fault
		for range 6 {
			script = append(script, storefault.Fault{After: onlyonce.ErrUncertain})
		}
		w, eff := newWorld(t, faults{storefault.Claim: script}), &effect{}
		_, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), never(t))
		wantCode(t, err, onlyonce.CodeStoreUnavailable)
		<-time.After(time.Second)
		w.wantState(t, "k", onlyonce.FailedRetryable)
		res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), eff.handler)
		wantResult(t, res, err, onlyonce.Executed, "run 1")
	})
}

// Close waits for what is still being stored, and says so when it cannot.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		dead := w.dying(t)
		_, err := dead.Wrap(t.Context(), charge(), keyed("k", "x"), responds(200, "x"))
		wantCode(t, err, onlyonce.CodeStoreUnavailable)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		if err := dead.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Minute {
			t.Errorf("close: %v after %v", err, time.Since(begun))
		}
	})
}
