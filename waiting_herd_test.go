package onlyonce_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// C2, B103: a key that is free again only one can have, so one asks for it: run after
// run that leaves nothing costs each of those who wait a few claims, however many they
// are.
func TestWaitersOfFailingRunsAreNoHerd(t *testing.T) {
	t.Parallel()
	const many = 200
	recovers := func(context.Context, onlyonce.Record) (onlyonce.Answer, error) {
		<-time.After(time.Second)
		return onlyonce.Answer{Outcome: onlyonce.Unknown}, nil
	}
	for name, tt := range map[string]struct {
		recover func(context.Context, onlyonce.Record) (onlyonce.Answer, error)
		handler onlyonce.HandlerFunc
	}{
		"freed":    {nil, responds(429, "later")},
		"in doubt": {recovers, responds(500, "broken")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				seen := &looks{}
				w := newWorldWith(t, seen.inject, onlyonce.Config{})
				op := patient()
				op.Wait, op.Recover = 10*time.Minute, tt.recover
				together(many, func() {
					_, _ = w.Wrap(t.Context(), op, keyed("k", "pay"), func(ctx context.Context) (onlyonce.Answer, error) {
						time.Sleep(time.Second)
						return tt.handler(ctx)
					})
				})()
				if claims, gets := seen.claims.Load(), seen.gets.Load(); claims > 6*many || gets > 2*many {
					t.Errorf("%d runs cost %d claims and %d reads", many, claims, gets)
				}
			})
		})
	}
}

// C2: what nobody who waits can have, all are told at once.
func TestWaitersLearnOfDoubtTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		begun := time.Now()
		together(200, func() {
			res, err := w.Wrap(t.Context(), patient(), keyed("k", "pay"), func(context.Context) (onlyonce.Answer, error) {
				time.Sleep(time.Second)
				return answer(500, "broken"), nil
			})
			if res.State != onlyonce.InDoubt && onlyonce.CodeOf(err) != onlyonce.CodeOutcomeUnknown {
				t.Errorf("got %+v, %v", res, err)
			}
		})()
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// C2, B103: one who waits alone for an atomic attempt, which is not seen before it
// commits, asks at growing pauses, too.
func TestLoneWaiterOfAtomic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := &looks{}
		w := newWorldWith(t, seen.inject, onlyonce.Config{})
		atomics := atomic.Int32{}
		other := worldOn(t, w.mem, func(m storefault.Method, k onlyonce.Key) storefault.Fault {
			if m == storefault.Atomic {
				atomics.Add(1)
			}
			return seen.inject(m, k)
		}, onlyonce.Config{})
		op := patient()
		op.Deadline = 10 * time.Second
		handler := func(context.Context, *memstore.Tx) (onlyonce.Answer, error) {
			time.Sleep(9 * time.Second)
			return answer(201, "done"), nil
		}
		first := together(1, func() { _, _ = w.Atomic(t.Context(), op, keyed("k", "pay"), handler) })
		synctest.Wait()
		res, err := other.Atomic(t.Context(), op, keyed("k", "pay"), handler)
		wantResult(t, res, err, onlyonce.Replayed, "done")
		first()
		if gets, asked := seen.gets.Load(), atomics.Load(); gets > 20 || asked > 20 {
			t.Errorf("a waiter cost %d reads and %d transactions", gets, asked)
		}
	})
}

// C8: a service that is shutting down keeps nobody waiting for what others do; what is
// under way ends.
func TestDrainEndsWaiting(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]func(context.Context, *world) error{
		"drain": func(_ context.Context, w *world) error { w.Drain(); w.Drain(); return nil },
		"close": func(ctx context.Context, w *world) error { return w.Close(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				op := patient()
				begun := time.Now()
				first := together(1, func() {
					res, err := w.Wrap(t.Context(), op, keyed("k", "pay"), func(context.Context) (onlyonce.Answer, error) {
						time.Sleep(20 * time.Second)
						return answer(201, "done"), nil
					})
					wantResult(t, res, err, onlyonce.Executed, "done")
				})
				synctest.Wait()
				others := together(10, func() {
					_, err := w.Wrap(t.Context(), op, keyed("k", "pay"), never(t))
					if onlyonce.CodeOf(err) != onlyonce.CodeInProgress || time.Since(begun) > time.Second {
						t.Errorf("%v after %v", err, time.Since(begun))
					}
				})
				synctest.Wait()
				time.Sleep(time.Second)
				closing := together(1, func() {
					if err := drain(t.Context(), w); err != nil {
						t.Error(err)
					}
				})
				others()
				_, err := w.Wrap(t.Context(), op, keyed("k", "pay"), never(t))
				if name == "drain" && onlyonce.CodeOf(err) != onlyonce.CodeInProgress || time.Since(begun) != time.Second {
					t.Errorf("one who came later: %v after %v", err, time.Since(begun))
				}
				first()
				closing()
			})
		})
	}
}

// C2: the one that was sent to ask may fail to: its caller hangs up, or its claim does
// not come through. Another one is sent.
func TestTheOneThatWasSentFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		claims := atomic.Int32{}
		w := newWorldWith(t, func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
			if m == storefault.Claim && claims.Add(1) == 4 { // behind the first of each
				return storefault.Fault{Hold: func(ctx context.Context) { <-ctx.Done() }, Before: storefault.ErrDown}
			}
			return storefault.Fault{}
		}, onlyonce.Config{})
		begun := time.Now()
		executed, failed := atomic.Int32{}, atomic.Int32{}
		runs := atomic.Int32{}
		handler := func(context.Context) (onlyonce.Answer, error) {
			time.Sleep(time.Second)
			if runs.Add(1) == 1 {
				return answer(429, "later"), nil
			}
			return answer(201, "done"), nil
		}
		together(3, func() {
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			switch res, err := w.Wrap(ctx, patient(), keyed("k", "pay"), handler); {
			case res.Answer.Status == 201 && time.Since(begun) < 5*time.Second:
				executed.Add(1)
			case err != nil:
				failed.Add(1)
			}
		})()
		if executed.Load() != 1 || failed.Load() != 1 || runs.Load() != 2 {
			t.Errorf("%d executed, %d failed, %d runs", executed.Load(), failed.Load(), runs.Load())
		}
	})
}

// C2: who waits while the store is away waits on, and is answered when it is back.
func TestWaitersOutlastAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := newWorld(t, nil)
		w := worldOn(t, mem.mem, outage(storefault.Get, 5*time.Second), onlyonce.Config{})
		first := together(1, func() {
			_, _ = mem.Wrap(t.Context(), patient(), keyed("k", "pay"), func(context.Context) (onlyonce.Answer, error) {
				time.Sleep(3 * time.Second)
				return answer(201, "done"), nil
			})
		})
		synctest.Wait()
		together(20, func() {
			res, err := w.Wrap(t.Context(), patient(), keyed("k", "pay"), never(t))
			wantResult(t, res, err, onlyonce.Replayed, "done")
		})()
		first()
	})
}
