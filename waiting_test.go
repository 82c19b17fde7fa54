package onlyonce_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// patient is an operation whose callers may wait.
func patient() onlyonce.Op {
	op := charge()
	op.Wait, op.MaxWait = 20*time.Second, time.Minute
	return op
}

// looks counts a store's reads and claims.
type looks struct{ gets, claims atomic.Int32 }

func (l *looks) inject(m storefault.Method, _ onlyonce.Key) storefault.Fault {
	switch m {
	case storefault.Get:
		l.gets.Add(1)
	case storefault.Claim:
		l.claims.Add(1)
	default:
	}
	return storefault.Fault{}
}

// together calls n requests side by side.
func together(n int, one func()) (wait func()) {
	var wg sync.WaitGroup
	for range n {
		wg.Go(one)
	}
	return wg.Wait
}

// C2, B103: however many wait for a key, one looks, whoever it is that runs: this
// process or another one.
func TestWaitersCostOneWatcher(t *testing.T) {
	t.Parallel()
	for _, elsewhere := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			seen := &looks{}
			w := newWorldWith(t, seen.inject, onlyonce.Config{})
			runner := w
			if elsewhere {
				runner = worldOn(t, w.mem, noFaults, onlyonce.Config{})
			}
			var done effect
			first := together(1, func() {
				_, err := runner.Wrap(t.Context(), patient(), keyed("k", "pay"), func(ctx context.Context) (onlyonce.Answer, error) {
					time.Sleep(10 * time.Second)
					return done.handler(ctx)
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			seen.gets.Store(0)
			seen.claims.Store(0)
			asked := time.Now()
			others := together(1000, func() {
				res, err := w.Wrap(t.Context(), patient(), keyed("k", "pay"), done.handler)
				if err != nil || res.Status != onlyonce.Replayed {
					t.Errorf("a waiter got %+v, %v", res, err)
				}
			})
			others()
			if waited := time.Since(asked); waited > 12*time.Second {
				t.Errorf("they waited %v for what took 10s", waited)
			}
			first()
			done.want(t, 1)
			if gets, claims := seen.gets.Load(), seen.claims.Load(); gets > 30 || claims > 2001 {
				t.Errorf("1000 waiters cost %d reads and %d claims", gets, claims)
			}
		})
	}
}

// C2: when the first fails, one of those who wait claims anew, and the others get its
// answer.
func TestWaitersClaimAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		var runs atomic.Int32
		handler := func(context.Context) (onlyonce.Answer, error) {
			time.Sleep(time.Second)
			if runs.Add(1) == 1 {
				return answer(429, "later"), nil
			}
			return answer(201, "done"), nil
		}
		first := together(1, func() {
			if res, err := w.Wrap(t.Context(), patient(), keyed("k", "pay"), handler); err != nil || res.Answer.Status != 429 {
				t.Errorf("the first got %+v, %v", res, err)
			}
		})
		synctest.Wait()
		executed := atomic.Int32{}
		others := together(20, func() {
			res, err := w.Wrap(t.Context(), patient(), keyed("k", "pay"), handler)
			if err != nil || res.Answer.Status != 201 {
				t.Errorf("a waiter got %+v, %v", res, err)
			}
			if res.Status == onlyonce.Executed {
				executed.Add(1)
			}
		})
		others()
		first()
		if runs.Load() != 2 || executed.Load() != 1 {
			t.Errorf("%d runs, %d waiters ran it", runs.Load(), executed.Load())
		}
	})
}

// C2: patience ends, and so does a caller's; a request may ask for less, and for no
// more than the operation allows.
func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		op    onlyonce.Op
		asks  time.Duration
		wants time.Duration
	}{
		"default":                {patient(), 0, 20 * time.Second},
		"asks for less":          {patient(), 3 * time.Second, 3 * time.Second},
		"asks for more":          {patient(), time.Hour, time.Minute},
		"nothing is waited":      {charge(), 0, 0},
		"nothing may be asked":   {charge(), time.Minute, 0},
		"only what is asked for": {onlyonce.Op{Name: "POST /charges", MaxWait: 5 * time.Second}, 4 * time.Second, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				release := make(chan struct{})
				first := together(1, func() {
					_, _ = w.Wrap(t.Context(), tt.op, keyed("k", "pay"), func(context.Context) (onlyonce.Answer, error) {
						<-release
						return answer(201, "done"), nil
					})
				})
				synctest.Wait()
				asked := time.Now()
				req := keyed("k", "pay")
				req.Wait = tt.asks
				_, err := w.Wrap(t.Context(), tt.op, req, nil)
				if onlyonce.CodeOf(err) != onlyonce.CodeInProgress || time.Since(asked) != tt.wants {
					t.Errorf("%v after %v, want %s after %v", err, time.Since(asked), onlyonce.CodeInProgress, tt.wants)
				}
				if tt.wants > 0 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					asked = time.Now()
					if _, err := w.Wrap(ctx, tt.op, req, nil); onlyonce.CodeOf(err) != onlyonce.CodeInProgress || time.Since(asked) != time.Second {
						t.Errorf("a caller who hung up: %v after %v", err, time.Since(asked))
					}
				}
				close(release)
				first()
			})
		})
	}
}

// C2, C7: who waits for an attempt that has crashed takes it over when its lease is
// over, as the operation allows.
func TestWaitersTakeOver(t *testing.T) {
	t.Parallel()
	for name, rerun := range map[string]onlyonce.AfterCrash{"rerun": onlyonce.Rerun, "hold": onlyonce.HoldKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				op := patient()
				op.Lease, op.AfterCrash = 5*time.Second, rerun
				crashed, err := w.mem.Claim(t.Context(), claimLike(t, w, op))
				if err != nil || !crashed.Verdict.Owns() {
					t.Fatalf("%+v, %v", crashed, err)
				}
				var done effect
				wait := together(10, func() {
					res, err := w.Wrap(t.Context(), op, keyed("k", "pay"), done.handler)
					if rerun == onlyonce.Rerun && (err != nil || res.Answer.Status != 201) {
						t.Errorf("got %+v, %v", res, err)
					}
					if rerun == onlyonce.HoldKey && onlyonce.CodeOf(err) != onlyonce.CodeOutcomeUnknown {
						t.Errorf("got %+v, %v", res, err)
					}
				})
				wait()
				if rerun == onlyonce.Rerun {
					done.want(t, 1)
				} else {
					done.want(t, 0)
				}
			})
		})
	}
}

// claimLike is the claim that a request of this operation makes: one attempt is run
// and its claim read back, under a key of another scope.
func claimLike(t *testing.T, w *world, op onlyonce.Op) onlyonce.ClaimRequest {
	t.Helper()
	var rec onlyonce.Record
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		var err error
		rec, _, err = w.mem.Get(ctx, keyed("k", "pay").Key)
		return answer(429, ""), err
	}
	if _, err := w.Wrap(t.Context(), op, keyed("k", "pay"), handler); err != nil {
		t.Fatal(err)
	}
	return onlyonce.ClaimRequest{
		Key: rec.Key, Operation: rec.Operation, Fingerprint: rec.Fingerprint, Attempt: onlyonce.NewToken(),
		Lease: op.Lease, Retention: rec.Retention, Abandon: rec.Abandon,
	}
}

// C2: an atomic attempt is not seen before it commits; who waits for it gets its
// answer all the same.
func TestWaitersOfAtomic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		op := patient()
		op.Deadline = 9 * time.Second
		var runs atomic.Int32
		handler := func(context.Context, *memstore.Tx) (onlyonce.Answer, error) {
			runs.Add(1)
			time.Sleep(5 * time.Second)
			return answer(201, "done"), nil
		}
		all := together(100, func() {
			if res, err := w.Atomic(t.Context(), op, keyed("k", "pay"), handler); err != nil || res.Answer.Status != 201 {
				t.Errorf("got %+v, %v", res, err)
			}
		})
		all()
		if runs.Load() != 1 {
			t.Errorf("%d runs", runs.Load())
		}
	})
}

func TestWaitIsBounded(t *testing.T) {
	t.Parallel()
	for _, op := range []onlyonce.Op{{Name: "x", Wait: -1}, {Name: "x", MaxWait: -1}, {Name: "x", Wait: time.Hour}, {Name: "x", MaxWait: time.Hour}} {
		if err := op.Validate(); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("%+v: %v", op, err)
		}
	}
}
