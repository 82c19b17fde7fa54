package onlyonce_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// paying is a request that pays an order.
func paying(value string) onlyonce.Request {
	req := keyed(value, "x")
	req.Resource = "order/1"
	return req
}

// modes are the ways to run a handler that may name a resource.
func modes() map[string]func(ctx context.Context, w *world, req onlyonce.Request, h onlyonce.HandlerFunc) (onlyonce.Result, error) {
	type run = func(ctx context.Context, w *world, req onlyonce.Request, h onlyonce.HandlerFunc) (onlyonce.Result, error)
	return map[string]run{
		"wrap": func(ctx context.Context, w *world, req onlyonce.Request, h onlyonce.HandlerFunc) (onlyonce.Result, error) {
			return w.Wrap(ctx, charge(), req, h)
		},
		"steps": func(ctx context.Context, w *world, req onlyonce.Request, h onlyonce.HandlerFunc) (onlyonce.Result, error) {
			return w.Steps(ctx, charge(), req, h)
		},
	}
}

// wantBusy checks a refusal because of the resource, which names its holder's
// operation and nothing else of it.
func (w *world) wantBusy(t *testing.T, err error, holder string) *onlyonce.Error {
	t.Helper()
	e := wantCode(t, err, onlyonce.CodeResourceBusy)
	key := onlyonce.Key{Scope: "acct", Value: holder}
	if e.Operation != key.Operation() {
		t.Errorf("the refusal names %s, the holder is %s", e.Operation, key.Operation())
	}
	if e.RetryAfter < time.Second || e.RetryAfter > onlyonce.DefaultLease {
		t.Errorf("come back in %v", e.RetryAfter)
	}
	if strings.Contains(e.Error(), holder) || len(e.Differs) > 0 {
		t.Errorf("the refusal gives away: %v", e)
	}
	if !errors.Is(err, onlyonce.ErrResourceBusy) || !onlyonce.SafeToRetry(err) {
		t.Errorf("the same request may be sent again later: %v", err)
	}
	return e
}

// C12: while one key works on a resource every other key is told so at once, and
// leaves no trace; afterwards it may work on it.
func TestOneKeyPerResource(t *testing.T) {
	t.Parallel()
	for name, run := range modes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			res, err := run(t.Context(), w, paying("the-first"), func(ctx context.Context) (onlyonce.Answer, error) {
				_, err := run(ctx, w, paying("second"), never(t))
				if e := w.wantBusy(t, err, "the-first"); !strings.Contains(e.Hint, "is working on") {
					t.Errorf("a caller is told %q", e.Hint)
				}
				if _, found, err := w.mem.Get(ctx, onlyonce.Key{Scope: "acct", Value: "second"}); found || err != nil {
					t.Errorf("a refused claim left a record: %v, %v", found, err)
				}
				_, err = run(ctx, w, paying("the-first"), never(t)) // its own key is busy, not its resource
				wantCode(t, err, onlyonce.CodeInProgress)
				other := paying("third")
				other.Resource = "order/2"
				res, err := run(ctx, w, other, responds(201, "another order"))
				wantResult(t, res, err, onlyonce.Executed, "another order")
				foreign := paying("the-first")
				foreign.Key.Scope = "other"
				res, err = run(ctx, w, foreign, responds(201, "another tenant"))
				wantResult(t, res, err, onlyonce.Executed, "another tenant")
				return answer(201, "paid"), nil
			})
			wantResult(t, res, err, onlyonce.Executed, "paid")
			if n := w.events.count(onlyonce.EventRefused); n != 2 {
				t.Errorf("%d refusals were told of", n)
			}
			res, err = run(t.Context(), w, paying("second"), responds(201, "paid again"))
			wantResult(t, res, err, onlyonce.Executed, "paid again")
		})
	}
}

// C12: of two modes and of many callers one has the resource.
func TestResourceAcrossModes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	res, err := w.Steps(t.Context(), charge(), paying("steps"), func(ctx context.Context) (onlyonce.Answer, error) {
		_, err := w.Wrap(ctx, charge(), paying("wrap"), never(t))
		w.wantBusy(t, err, "steps")
		return answer(201, "paid"), nil
	})
	wantResult(t, res, err, onlyonce.Executed, "paid")
}

// C12: doubt keeps the resource for as long as it lasts; whoever settles it lets
// the next key pay.
func TestDoubtKeepsTheResource(t *testing.T) {
	t.Parallel()
	for name, run := range modes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				_, err := run(t.Context(), w, paying("holder"), func(context.Context) (onlyonce.Answer, error) {
					return onlyonce.Answer{Status: 202, Outcome: onlyonce.Unknown}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				<-time.After(30 * 24 * time.Hour)
				_, err = run(t.Context(), w, paying("second"), never(t))
				if e := w.wantBusy(t, err, "holder"); !strings.Contains(e.Hint, "not known") {
					t.Errorf("a caller is told %q", e.Hint)
				}
				refuted := settlement(nil)
				refuted.Key.Value = "holder"
				if _, err := w.Settle(t.Context(), refuted); err != nil {
					t.Fatal(err)
				}
				res, err := run(t.Context(), w, paying("second"), responds(201, "paid"))
				wantResult(t, res, err, onlyonce.Executed, "paid")
				res, err = run(t.Context(), w, paying("holder"), responds(201, "paid after all"))
				wantResult(t, res, err, onlyonce.Executed, "paid after all")
			})
		})
	}
}

// C12: a key that is freed behind a step holds on: money has moved. Its own retry
// lets go.
func TestFreedBehindAStepKeepsTheResource(t *testing.T) {
	t.Parallel()
	w, p := newWorld(t, nil), newProvider()
	_, err := w.Steps(t.Context(), charge(), paying("holder"), breaking(doing(p, "charge")))
	wantCode(t, err, onlyonce.CodeHandlerFailed)
	w.wantState(t, "holder", onlyonce.FailedRetryable)
	_, err = w.Steps(t.Context(), charge(), paying("second"), never(t))
	w.wantBusy(t, err, "holder")
	res, err := w.Steps(t.Context(), charge(), paying("holder"), doing(p, "charge"))
	wantResult(t, res, err, onlyonce.Executed, "charge for charge")
	res, err = w.Steps(t.Context(), charge(), paying("second"), responds(409, "paid already"))
	wantResult(t, res, err, onlyonce.Executed, "paid already")
	p.want(t, 1)
}

// C7, C12: a holder that was abandoned is decided by whoever wants its resource,
// at once and as a sweeper would: what has left no effect is freed, everything
// else is in doubt.
func TestAbandonedHolder(t *testing.T) {
	t.Parallel()
	rerun := charge()
	rerun.AfterCrash = onlyonce.Rerun
	type crash = func(t *testing.T, w *world, p *provider)
	steps := func(h func(*provider) onlyonce.HandlerFunc) crash {
		return func(t *testing.T, w *world, p *provider) {
			t.Helper()
			w.crashSteps(t, charge(), paying("holder"), h(p))
		}
	}
	for name, c := range map[string]struct {
		crash  crash
		reason string
		state  onlyonce.State
	}{
		"no step": {
			steps(func(*provider) onlyonce.HandlerFunc { return responds(201, "lost") }),
			onlyonce.ReasonSweptFree, onlyonce.FailedRetryable,
		},
		"a step has begun": {
			steps(func(p *provider) onlyonce.HandlerFunc { return doing(p, "charge") }),
			onlyonce.ReasonUnfinishedStep, onlyonce.InDoubt,
		},
		"wrapped": {
			func(t *testing.T, w *world, _ *provider) {
				t.Helper()
				w.crash(t, charge(), paying("holder"), responds(201, "lost"))
			},
			onlyonce.ReasonAbandoned, onlyonce.InDoubt,
		},
		"wrapped, and may rerun": {
			func(t *testing.T, w *world, _ *provider) {
				t.Helper()
				w.crash(t, rerun, paying("holder"), responds(201, "lost"))
			},
			onlyonce.ReasonSweptFree, onlyonce.FailedRetryable,
		},
		"a step is done": {
			func(t *testing.T, w *world, p *provider) {
				t.Helper()
				_, err := w.Steps(t.Context(), charge(), paying("holder"), breaking(doing(p, "charge")))
				wantCode(t, err, onlyonce.CodeHandlerFailed)
				w.crashSteps(t, charge(), paying("holder"), doing(p, "charge"))
			},
			onlyonce.ReasonUnansweredStep, onlyonce.InDoubt,
		},
		"its step was refused": {
			func(t *testing.T, w *world, p *provider) {
				t.Helper()
				p.refuse = 1
				_, err := w.Steps(t.Context(), charge(), paying("holder"), doing(p, "charge"))
				wantCode(t, err, onlyonce.CodeHandlerFailed)
				w.crashSteps(t, charge(), paying("holder"), responds(201, "lost"))
			},
			onlyonce.ReasonSweptFree, onlyonce.FailedRetryable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, p := newWorld(t, nil), newProvider()
				c.crash(t, w, p)
				_, err := w.Steps(t.Context(), charge(), paying("second"), never(t))
				w.wantBusy(t, err, "holder") // its lease is not over: it may be alive
				w.wantState(t, "holder", onlyonce.InProgress)
				<-time.After(onlyonce.DefaultLease)

				before, told := w.record(t, "holder"), len(w.events.seen)
				res, err := w.Steps(t.Context(), charge(), paying("second"), responds(201, "paid"))
				after := w.record(t, "holder")
				if after.State != c.state || after.Reason != c.reason {
					t.Errorf("the holder is %s because %q", after.State, after.Reason)
				}
				kind := onlyonce.EventReleased
				if c.state == onlyonce.InDoubt {
					kind = onlyonce.EventParked
					w.wantBusy(t, err, "holder")
				} else {
					wantResult(t, res, err, onlyonce.Executed, "paid")
				}
				ev := w.events.seen[told]
				if ev.Kind != kind || ev.Operation != before.Key.Operation() || ev.Op != charge().Name || ev.Reason != c.reason {
					t.Errorf("told first: %+v", ev)
				}
				if before.Abandon != onlyonce.AbandonHold && after.Fence <= before.Fence {
					t.Error("the fence did not rise: the holder could still write")
				}
			})
		})
	}
}

// sleeper is an operation in a process that cannot keep its lease and is deaf to
// its loss: it holds the resource, sleeps before its step until it is woken, and
// then goes on as if nothing had happened.
type sleeper struct {
	asleep, wake chan struct{}
	waking       sync.Once
	res          onlyonce.Result
	err, callErr error
	done         sync.WaitGroup
}

func (w *world) sleeper(t *testing.T, p *provider) *sleeper {
	t.Helper()
	slow := worldOn(t, w.mem, func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
		if m == storefault.Renew {
			return storefault.Fault{Before: storefault.ErrDown}
		}
		return storefault.Fault{}
	}, onlyonce.Config{})
	s := &sleeper{asleep: make(chan struct{}), wake: make(chan struct{})}
	s.done.Go(func() {
		s.res, s.err = slow.Steps(t.Context(), charge(), paying("holder"), func(ctx context.Context) (onlyonce.Answer, error) {
			close(s.asleep)
			<-s.wake
			a, err := doing(p, "charge")(context.WithoutCancel(ctx))
			s.callErr = err
			return a, err
		})
	})
	t.Cleanup(s.wakeUp)
	<-s.asleep
	<-time.After(onlyonce.DefaultLease + time.Second)
	return s
}

// wakeUp lets it go on, if it has not been woken yet, and waits for its end.
func (s *sleeper) wakeUp() {
	s.waking.Do(func() { close(s.wake) })
	s.done.Wait()
}

// between is a world whose second claim, which decides the abandoned holder, is
// preceded, or whose reading of its steps is, by what fn does.
func (w *world) between(t *testing.T, at storefault.Method, call int, fn func()) *world {
	t.Helper()
	script := make([]storefault.Fault, call+1)
	script[call].Hold = func(context.Context) { fn() }
	return worldOn(t, w.mem, storefault.Script(faults{at: script}), onlyonce.Config{})
}

// C6, C12: a holder that wakes up while, or after, it is decided sends nothing and
// changes nothing.
func TestHolderWakesUpTooLate(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]storefault.Method{"while it is decided": storefault.Steps, "afterwards": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, p, q := newWorld(t, nil), newProvider(), newProvider()
				s := w.sleeper(t, q)
				other := w
				if at != "" {
					other = w.between(t, at, 0, s.wakeUp)
				}
				res, err := other.Steps(t.Context(), charge(), paying("second"), doing(p, "charge"))
				wantResult(t, res, err, onlyonce.Executed, "charge for charge")
				if at == "" {
					s.wakeUp()
				}
				wantIs(t, s.callErr, onlyonce.ErrLeaseLost)
				if s.err == nil || !onlyonce.SafeToRetry(s.err) {
					t.Errorf("its caller got %+v, %v", s.res, s.err)
				}
				q.wantSends(t, 0)
				p.want(t, 1)
				w.wantState(t, "holder", onlyonce.FailedRetryable)
			})
		})
	}
}

// C12: whatever becomes of the holder between the refusal and the decision counts
// instead of it.
func TestHolderMovesBeforeItIsDecided(t *testing.T) {
	t.Parallel()
	const decision = 1 // the first claim was told that the resource is taken
	for name, c := range map[string]struct {
		move  func(t *testing.T, w *world, s *sleeper, p *provider)
		state onlyonce.State // the holder's, afterwards
		busy  bool
	}{
		"it begins its step": {func(_ *testing.T, _ *world, s *sleeper, _ *provider) { s.wakeUp() }, onlyonce.InDoubt, true},
		"it was retried and completed": {func(t *testing.T, w *world, _ *sleeper, p *provider) {
			t.Helper()
			res, err := w.Steps(t.Context(), charge(), paying("holder"), doing(p, "charge"))
			wantResult(t, res, err, onlyonce.Executed, "charge for charge")
		}, onlyonce.Completed, false},
		"it was retried and fails behind a step": {func(t *testing.T, w *world, _ *sleeper, p *provider) {
			t.Helper()
			_, err := w.Steps(t.Context(), charge(), paying("holder"), breaking(doing(p, "charge")))
			wantCode(t, err, onlyonce.CodeHandlerFailed)
		}, onlyonce.FailedRetryable, true},
		"it was taken over by a live attempt": {func(t *testing.T, w *world, _ *sleeper, _ *provider) {
			t.Helper()
			w.claimAgain(t, "holder")
		}, onlyonce.InProgress, true},
		"it was parked": {func(t *testing.T, w *world, _ *sleeper, _ *provider) {
			t.Helper()
			if _, err := w.mem.Park(t.Context(), onlyonce.ParkRequest{Owner: w.record(t, "holder").Owner(), Reason: "by hand"}); err != nil {
				t.Error(err)
			}
		}, onlyonce.InDoubt, true},
		"it was swept": {func(t *testing.T, w *world, _ *sleeper, _ *provider) {
			t.Helper()
			if sum, err := (onlyonce.Sweeper{Store: w.mem, Grace: 1}).Once(t.Context()); err != nil || sum.Freed != 1 {
				t.Errorf("swept %+v, %v", sum, err)
			}
		}, onlyonce.FailedRetryable, false},
		"it was swept, and a third has the resource": {func(t *testing.T, w *world, _ *sleeper, p *provider) {
			t.Helper()
			_, _ = onlyonce.Sweeper{Store: w.mem, Grace: 1}.Once(t.Context())
			_, err := w.Steps(t.Context(), charge(), paying("third"), breaking(doing(p, "charge")))
			wantCode(t, err, onlyonce.CodeHandlerFailed)
		}, onlyonce.FailedRetryable, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, p, q := newWorld(t, nil), newProvider(), newProvider()
				s := w.sleeper(t, q)
				other := w.between(t, storefault.Claim, decision, func() { c.move(t, w, s, p) })
				res, err := other.Steps(t.Context(), charge(), paying("second"), responds(201, "paid"))
				if c.busy {
					wantCode(t, err, onlyonce.CodeResourceBusy)
				} else {
					wantResult(t, res, err, onlyonce.Executed, "paid")
				}
				if rec := w.record(t, "holder"); rec.State != c.state {
					t.Errorf("the holder is %s: %s", rec.State, rec.Reason)
				}
				s.wakeUp()
				q.wantSends(t, 0) // it slept through its deadline, or was fenced
			})
		})
	}
}

// claimAgain takes an abandoned key over, for an attempt that lives on.
func (w *world) claimAgain(t *testing.T, key string) {
	t.Helper()
	rec := w.record(t, key)
	claim, err := w.mem.Claim(t.Context(), onlyonce.ClaimRequest{
		Key: rec.Key, Operation: rec.Operation, Fingerprint: rec.Fingerprint, Attempt: onlyonce.NewToken(),
		Lease: onlyonce.DefaultLease, Retention: rec.Retention, Abandon: rec.Abandon, Resource: rec.Resource,
	})
	if err != nil || claim.Verdict != onlyonce.Resumed {
		t.Errorf("taken over: %s, %v", claim.Verdict, err)
	}
}

// C11, C12: a store that fails while a holder is decided refuses the caller, and
// the holder is decided by the next that comes.
func TestStoreFailsWhileAHolderIsDecided(t *testing.T) {
	t.Parallel()
	down := storefault.Fault{Before: storefault.ErrDown}
	for name, c := range map[string]struct {
		script faults
		crash  func(*testing.T, *world)
	}{
		"claim":   {faults{storefault.Claim: {{}, down}}, crashSleeping},
		"steps":   {faults{storefault.Steps: {down}}, crashSleeping},
		"release": {faults{storefault.Release: {down}}, crashSleeping},
		"park": {faults{storefault.Park: {down}}, func(t *testing.T, w *world) {
			t.Helper()
			w.crash(t, charge(), paying("holder"), responds(201, "lost"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				c.crash(t, w)
				<-time.After(onlyonce.DefaultLease)
				failing := worldOn(t, w.mem, storefault.Script(c.script), onlyonce.Config{})
				_, err := failing.Steps(t.Context(), charge(), paying("second"), never(t))
				if wantCode(t, err, onlyonce.CodeStoreUnavailable); !errors.Is(err, storefault.ErrDown) {
					t.Errorf("cause: %v", err)
				}
				<-time.After(onlyonce.DefaultLease) // the decision may have been claimed
				res, err := failing.Steps(t.Context(), charge(), paying("second"), responds(201, "paid"))
				if name == "park" {
					w.wantBusy(t, err, "holder")
					w.wantParked(t, "holder", onlyonce.ReasonAbandoned)
					return
				}
				wantResult(t, res, err, onlyonce.Executed, "paid")
				w.wantState(t, "holder", onlyonce.FailedRetryable)
			})
		})
	}
}

// crashSleeping leaves a holder that has begun no step.
func crashSleeping(t *testing.T, w *world) {
	t.Helper()
	w.crashSteps(t, charge(), paying("holder"), responds(201, "lost"))
}

// C2, C12: many keys that want an abandoned holder's resource at once: one gets it.
func TestManyWantAnAbandonedResource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, eff := newWorld(t, nil), &effect{}
		crashSleeping(t, w)
		<-time.After(onlyonce.DefaultLease)
		gate := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				_, err := w.Steps(t.Context(), charge(), paying(string(rune('a'+i))), func(ctx context.Context) (onlyonce.Answer, error) {
					<-gate
					return eff.handler(ctx)
				})
				if err != nil && !onlyonce.SafeToRetry(err) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		eff.want(t, 1)
		w.wantState(t, "holder", onlyonce.FailedRetryable)
	})
}

// C12: what cannot guard a resource says so before anything is claimed.
func TestResourceIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	_, err := w.Atomic(t.Context(), charge(), paying("k"), func(context.Context, tx) (onlyonce.Answer, error) {
		t.Error("the handler ran")
		return onlyonce.Answer{}, nil
	})
	wantCode(t, err, onlyonce.CodeConfig)
	e, err := onlyonce.New(unguarded{w.mem}, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Wrap(t.Context(), charge(), paying("k"), never(t))
	if refusal := wantCode(t, err, onlyonce.CodeConfig); !strings.Contains(refusal.Hint, "Request.Resource") {
		t.Errorf("the refusal says %q", refusal.Hint)
	}
	_, err = e.Steps(t.Context(), charge(), paying("k"), never(t))
	wantCode(t, err, onlyonce.CodeConfig)
	res, err := e.Steps(t.Context(), charge(), keyed("k", "x"), responds(201, "without"))
	wantResult(t, res, err, onlyonce.Executed, "without")
}

// unguarded is a store that guards no resources.
type unguarded struct{ *memstore.Store }

func (u unguarded) Features() onlyonce.Features {
	f := u.Store.Features()
	f.Resources = false
	return f
}

// O1, C12: a name that no store can keep is the caller's mistake, and uses no key
// up; it is no fault of the store's.
func TestResourceNameIsChecked(t *testing.T) {
	t.Parallel()
	for name, run := range modes() {
		w := newWorld(t, nil)
		for _, bad := range []string{strings.Repeat("x", 256), "order\n1", "\xff"} {
			req := paying("k")
			req.Resource = bad
			_, err := run(t.Context(), w, req, never(t))
			if wantCode(t, err, onlyonce.CodeInvalidRequest); onlyonce.SafeToRetry(err) {
				t.Errorf("%s: %q will never be accepted", name, bad)
			}
		}
		if n := w.events.count(onlyonce.EventStoreFailed); n != 0 {
			t.Errorf("%s: %d store faults were counted", name, n)
		}
		req := paying("k")
		req.Resource = strings.Repeat("x", 255)
		res, err := run(t.Context(), w, req, responds(201, "paid"))
		wantResult(t, res, err, onlyonce.Executed, "paid")
	}
}

// C12: a holder that changes under every look does not keep a caller for ever, and
// it is the resource that the caller is told of.
func TestRestlessHolderIsBusy(t *testing.T) {
	t.Parallel()
	e, err := onlyonce.New(restlessHolder{newBare(t)}, onlyonce.Config{Secrets: onlyonce.Keyring{Current: secret("a")}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Wrap(t.Context(), charge(), paying("k"), never(t))
	wantCode(t, err, onlyonce.CodeResourceBusy)
}

// restlessHolder has a holder that is abandoned whenever it is looked at.
type restlessHolder struct{ bare }

func (restlessHolder) Claim(context.Context, onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	holder := onlyonce.Record{Key: onlyonce.Key{Scope: "acct", Value: "holder"}, State: onlyonce.InProgress, Abandon: onlyonce.AbandonHold}
	return onlyonce.Claim{Verdict: onlyonce.ResourceBusy, Record: holder}, nil
}

func (restlessHolder) Park(context.Context, onlyonce.ParkRequest) (bool, error) { return false, nil }
