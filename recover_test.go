package onlyonce_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// turns remembers what a recoverer says.
type turns struct {
	mu    sync.Mutex
	begun time.Time
	seen  []onlyonce.Recovery
	at    []time.Duration
}

func (r *turns) told(_ context.Context, turn onlyonce.Recovery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, turn)
	r.at = append(r.at, time.Since(r.begun))
}

// recoverer is one whose operations are run by the handler, and what it says.
func recoverer(w *world, h onlyonce.HandlerFunc) (onlyonce.Recoverer, *turns) {
	seen := &turns{begun: time.Now()}
	return onlyonce.Recoverer{Engine: w.Engine, Resume: resumes(w, h), Recovered: seen.told}, seen
}

// look is one look of a recoverer, which has to come off.
func look(t *testing.T, r onlyonce.Recoverer) onlyonce.RecoverySum {
	t.Helper()
	sum, err := r.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func wantSum(t *testing.T, got, want onlyonce.RecoverySum) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
}

// grace is the first moment at which a recoverer looks at what has crashed now.
const grace = onlyonce.DefaultLease + time.Minute

// X1, D6: what crashed, is in doubt or was freed behind a call is brought to its
// end without its caller, after the grace and not before; the money moves once,
// and the caller's retry gets the answer.
func TestRecoverer(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, w *world, p *provider){
		"crashed before its step": func(t *testing.T, w *world, _ *provider) {
			t.Helper()
			w.crashSteps(t, charge(), kept("k", "x"), responds(201, "lost"))
		},
		"crashed in its step": func(t *testing.T, w *world, p *provider) {
			t.Helper()
			w.crashSteps(t, charge(), kept("k", "x"), doing(p, "charge"))
		},
		"in doubt": func(t *testing.T, w *world, p *provider) {
			t.Helper()
			p.lose = 1
			_, err := w.Steps(t.Context(), charge(), kept("k", "x"), doing(p, "charge"))
			wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		},
		"freed behind a call": func(t *testing.T, w *world, p *provider) {
			t.Helper()
			_, err := w.Steps(t.Context(), charge(), kept("k", "x"), breaking(doing(p, "charge")))
			wantCode(t, err, onlyonce.CodeHandlerFailed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, p := newWorld(t, nil), newProvider()
				leave(t, w, p)
				r, seen := recoverer(w, doing(p, "charge"))
				<-time.After(time.Until(w.record(t, "k").LeaseEnd) + time.Minute - time.Microsecond)
				wantSum(t, look(t, r), onlyonce.RecoverySum{})
				<-time.After(time.Microsecond)
				wantSum(t, look(t, r), onlyonce.RecoverySum{Completed: 1})
				p.want(t, 1)
				if turn := seen.seen[0]; turn.Due.Turn != 1 || turn.GivenUp || turn.Err != nil || string(turn.Result.Answer.Body) != "charge for charge" {
					t.Errorf("told: %+v", turn)
				}
				wantSum(t, look(t, r), onlyonce.RecoverySum{})
				res, err := w.Steps(t.Context(), charge(), kept("k", "x"), never(t))
				wantResult(t, res, err, onlyonce.Replayed, "charge for charge")
			})
		})
	}
}

// X1: where nothing has left the caller's retry decides; what has ended or keeps
// nothing is nobody's business.
func TestNothingToRecover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		_, err := w.Steps(t.Context(), charge(), kept("freed", "x"), breaking(responds(201, "")))
		wantCode(t, err, onlyonce.CodeHandlerFailed)
		res, err := w.Steps(t.Context(), charge(), kept("completed", "x"), responds(201, "done"))
		wantResult(t, res, err, onlyonce.Executed, "done")
		w.crashSteps(t, charge(), keyed("not kept", "x"), doing(p, "charge"))
		w.crash(t, charge(), kept("wrapped", "x"), responds(201, "lost"))
		<-time.After(24 * time.Hour)
		r, _ := recoverer(w, never(t))
		wantSum(t, look(t, r), onlyonce.RecoverySum{})
	})
}

// X1: turns come at growing pauses and a bounded number of times; then the key is
// left in doubt, and each look says so.
func TestRecovererIsPatient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		p.drop = 1
		e := p.effect("charge")
		e.Check, e.Memory = nil, 0
		_, err := w.Steps(t.Context(), charge(), kept("k", "x"), charges(e))
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)

		r, seen := recoverer(w, charges(e))
		r.Every, r.Grace, r.Pause, r.MaxPause, r.Attempts = time.Second, time.Second, time.Minute, 5*time.Minute, 4
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx, func(err error) { t.Error(err) }) })
		<-time.After(30 * time.Minute)
		stop()
		running.Wait()

		minute := func(m ...time.Duration) (at []time.Duration) {
			for _, m := range m {
				at = append(at, m*time.Minute)
			}
			return at
		}
		// The lease, then pauses of 1, 2, 4 and 5 minutes, each with its grace.
		want := minute(0, 1, 3, 7, 12, 17, 22, 27)
		for i := range seen.at {
			seen.at[i] = (seen.at[i] - onlyonce.DefaultLease).Truncate(time.Minute)
		}
		if diff := cmp.Diff(want, seen.at); diff != "" {
			t.Errorf("turns at (-want +got):\n%s", diff)
		}
		for i, turn := range seen.seen {
			if turn.Due.Turn != i+1 || turn.GivenUp != (i >= 4) || onlyonce.CodeOf(turn.Err) != onlyonce.CodeOutcomeUnknown {
				t.Errorf("turn %d: %+v", i+1, turn)
			}
		}
		w.wantState(t, "k", onlyonce.InDoubt)
		p.wantSends(t, 1)
	})
}

// X1: an operation that never gets as far as its claim is given up too: its key is
// left in doubt, says why, and can still be resumed by its caller.
func TestRecovererGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		w.crashSteps(t, charge(), kept("k", "x"), doing(p, "charge"))
		r, seen := recoverer(w, never(t))
		unreadable := errors.New("cannot be decoded any more")
		r.Resume[charge().Name] = func(context.Context, onlyonce.Due) (onlyonce.Result, error) {
			return onlyonce.Result{}, unreadable
		}
		r.Attempts = 2
		for turn, want := range []onlyonce.RecoverySum{{Pending: 1}, {Pending: 1}, {GivenUp: 1}, {GivenUp: 1}} {
			<-time.After(24 * time.Hour)
			wantSum(t, look(t, r), want)
			state := onlyonce.InProgress
			if want.GivenUp > 0 {
				state = onlyonce.InDoubt
			}
			w.wantState(t, "k", state)
			if last := seen.seen[turn]; errors.Is(last.Err, unreadable) == last.GivenUp || last.GivenUp != (want.GivenUp > 0) {
				t.Errorf("turn %d: %+v", turn+1, last)
			}
		}
		w.wantParked(t, "k", onlyonce.ReasonGivenUp)
		if err := seen.seen[3].Err; !strings.Contains(err.Error(), "2 times") {
			t.Errorf("told: %v", err)
		}
		res, err := w.Steps(t.Context(), charge(), kept("k", "x"), doing(p, "charge"))
		wantResult(t, res, err, onlyonce.Executed, "charge for charge")
		p.want(t, 1)
	})
}

// X1: an operation that is not known here is left alone, and spends no turn: another
// program on the same store may know it.
func TestRecovererDoesNotKnowTheOperation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		w.crashSteps(t, charge(), kept("crashed", "x"), doing(p, "charge"))
		p.lose = 1
		_, err := w.Steps(t.Context(), charge(), kept("doubt", "x"), doing(p, "charge"))
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		before := w.record(t, "doubt")
		r, seen := recoverer(w, never(t))
		r.Resume = map[string]onlyonce.ResumeFunc{"POST /refunds": nil}
		for range 2 {
			<-time.After(time.Hour)
			wantSum(t, look(t, r), onlyonce.RecoverySum{})
		}
		if len(seen.seen) != 0 {
			t.Errorf("told: %+v", seen.seen)
		}
		w.wantState(t, "crashed", onlyonce.InProgress)
		if diff := cmp.Diff(before, w.record(t, "doubt")); diff != "" {
			t.Errorf("a key in doubt was changed (-before +after):\n%s", diff)
		}
		knowing, _ := recoverer(w, doing(p, "charge"))
		<-time.After(time.Hour)
		wantSum(t, look(t, knowing), onlyonce.RecoverySum{Completed: 2})
		p.want(t, 2)
	})
}

// X1, C1: of several recoverers each key's turn goes to one, and runs once.
func TestTwoRecoverers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		const keys = 30
		for i := range keys {
			w.crashSteps(t, charge(), kept(string(rune('A'+i)), "x"), doing(p, "charge"))
		}
		<-time.After(grace)
		var mu sync.Mutex
		runs := 0
		handler := func(ctx context.Context) (onlyonce.Answer, error) {
			mu.Lock()
			runs++
			mu.Unlock()
			return doing(p, "charge")(ctx)
		}
		var completed onlyonce.RecoverySum
		var wg sync.WaitGroup
		for range 3 {
			r, _ := recoverer(worldOn(t, w.mem, noFaults, onlyonce.Config{}), handler)
			wg.Go(func() {
				sum, err := r.Once(t.Context())
				mu.Lock()
				defer mu.Unlock()
				if completed.Completed += sum.Completed; err != nil || sum.Pending+sum.GivenUp > 0 {
					t.Errorf("%+v, %v", sum, err)
				}
			})
		}
		wg.Wait()
		if completed.Completed != keys || runs != keys {
			t.Errorf("%d completed in %d runs, want %d in as many", completed.Completed, runs, keys)
		}
		p.want(t, keys)
		p.wantSends(t, keys)
	})
}

// C1, B75: the caller's retry and the recoverer come at the same moment: one of
// them runs, whichever, and there is one effect.
func TestRecovererMeetsTheRetry(t *testing.T) {
	t.Parallel()
	for name, recovererFirst := range map[string]bool{"the recoverer is first": true, "the retry is first": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, p := newWorld(t, nil), newProvider()
				p.drop = 1
				w.crashSteps(t, charge(), kept("k", "x"), doing(p, "charge"))
				<-time.After(grace)
				entered, leave := make(chan struct{}), make(chan struct{})
				slow := func(ctx context.Context) (onlyonce.Answer, error) {
					close(entered)
					<-leave
					return doing(p, "charge")(ctx)
				}
				given, late := make(chan struct{}), make(chan struct{})
				hold := storefault.Fault{Hold: func(context.Context) { close(given); <-late }}
				other := worldOn(t, w.mem, storefault.Script(faults{storefault.Claim: {hold}}), onlyonce.Config{})
				recovers := func(h onlyonce.HandlerFunc) error {
					r, seen := recoverer(other, h)
					look(t, r)
					return seen.seen[0].Err
				}
				retry := func(h onlyonce.HandlerFunc) error {
					_, err := w.Steps(t.Context(), charge(), kept("k", "x"), h)
					return err
				}
				recovererRuns, retryRuns := never(t), slow
				if recovererFirst {
					recovererRuns, retryRuns = slow, never(t)
				}
				var wg sync.WaitGroup
				errs := make(chan error, 2) // the winner's comes last
				wg.Go(func() { errs <- recovers(recovererRuns) })
				<-given // the turn is the recoverer's, the key not yet
				if recovererFirst {
					close(late)
					<-entered
				}
				wg.Go(func() { errs <- retry(retryRuns) })
				if !recovererFirst {
					<-entered
					close(late)
				}
				wantCode(t, <-errs, onlyonce.CodeInProgress)
				close(leave)
				wg.Wait()
				if err := <-errs; err != nil {
					t.Errorf("the first: %v", err)
				}
				res, err := w.Steps(t.Context(), charge(), kept("k", "x"), never(t))
				wantResult(t, res, err, onlyonce.Replayed, "charge for charge")
				p.want(t, 1)
			})
		})
	}
}

// X1: at its start a service looks at what a crash has left before it takes new
// work, without the grace; a lease that is not over may be another process's.
func TestRecovererAtTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		w.crashSteps(t, charge(), kept("old", "x"), doing(p, "charge"))
		<-time.After(onlyonce.DefaultLease)
		w.crashSteps(t, charge(), kept("new", "x"), doing(p, "charge"))
		r, _ := recoverer(w, doing(p, "charge"))
		wantSum(t, look(t, r), onlyonce.RecoverySum{})
		sum, err := r.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantSum(t, sum, onlyonce.RecoverySum{Completed: 1})
		w.wantState(t, "old", onlyonce.Completed)
		w.wantState(t, "new", onlyonce.InProgress)
	})
}

// X3: a person gives one key its turn now, whatever turns it has had.
func TestRecovererKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		name := func(value string) onlyonce.Key { return onlyonce.Key{Scope: "acct", Value: value} }
		r, seen := recoverer(w, doing(p, "charge"))
		_, err := r.Key(t.Context(), name("absent"))
		wantCode(t, err, onlyonce.CodeNotFound)

		p.lose = 1
		_, err = w.Steps(t.Context(), charge(), kept("k", "x"), doing(p, "charge"))
		wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		r.Attempts = 1
		stubborn, _ := recoverer(w, responds(503, "not now"))
		stubborn.Attempts = 1
		<-time.After(24 * time.Hour)
		wantSum(t, look(t, stubborn), onlyonce.RecoverySum{Pending: 1})
		<-time.After(24 * time.Hour)
		wantSum(t, look(t, r), onlyonce.RecoverySum{GivenUp: 1})
		res, err := r.Key(t.Context(), name("k"))
		wantResult(t, res, err, onlyonce.Executed, "charge for charge")
		if len(seen.seen) != 1 {
			t.Error("a turn that somebody asked for is told to who asked")
		}
		_, err = r.Key(t.Context(), name("k")) // settled: nothing is kept
		wantCode(t, err, onlyonce.CodeNotFound)

		_, err = w.Steps(t.Context(), charge(), keyed("not kept", "x"), breaking(doing(p, "charge")))
		wantCode(t, err, onlyonce.CodeHandlerFailed)
		_, err = r.Key(t.Context(), name("not kept"))
		wantCode(t, err, onlyonce.CodeNotFound)

		w.crashSteps(t, charge(), kept("live", "x"), doing(p, "charge"))
		_, err = r.Key(t.Context(), name("live")) // its lease is not over
		wantCode(t, err, onlyonce.CodeInProgress)
		r.Resume = nil
		_, err = r.Key(t.Context(), name("live"))
		wantCode(t, err, onlyonce.CodeConfig)
		p.want(t, 3)
	})
}

// X1: a look that the store fails says so, and the next one goes on; a conflict is
// no more than repeated.
func TestRecovererOnAFailingStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		w.crashSteps(t, charge(), kept("k", "x"), doing(p, "charge"))
		<-time.After(grace)
		script := []storefault.Fault{{Before: storefault.ErrDown}, {Before: storefault.ErrDown}, {Before: onlyonce.ErrConflict}}
		failing := worldOn(t, w.mem, storefault.Script(faults{storefault.Due: script}), onlyonce.Config{})
		r, _ := recoverer(failing, doing(p, "charge"))
		sum, err := r.Once(t.Context())
		if e := wantCode(t, err, onlyonce.CodeStoreUnavailable); !strings.Contains(e.Hint, "nothing is lost") {
			t.Errorf("told: %v", e)
		}
		wantSum(t, sum, onlyonce.RecoverySum{})

		ctx, stop := context.WithCancel(t.Context())
		var failures []error
		var running sync.WaitGroup
		running.Go(func() { r.Run(ctx, func(err error) { failures = append(failures, err) }) })
		<-time.After(time.Minute)
		stop()
		running.Wait()
		if len(failures) != 1 || !errors.Is(failures[0], storefault.ErrDown) {
			t.Errorf("failures: %v", failures)
		}
		w.wantState(t, "k", onlyonce.Completed)
		p.want(t, 1)
	})
}

// X1: what the store fails for one key costs that key a turn, and no other.
func TestRecovererKeyOnAFailingStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		w.crashSteps(t, charge(), kept("k", "x"), doing(p, "charge"))
		<-time.After(grace)
		down := storefault.Fault{Before: storefault.ErrDown}
		for method, script := range map[storefault.Method]faults{
			"get": {storefault.Get: {down}}, "kept": {storefault.Kept: {down}},
		} {
			r, _ := recoverer(worldOn(t, w.mem, storefault.Script(script), onlyonce.Config{}), never(t))
			_, err := r.Key(t.Context(), onlyonce.Key{Scope: "acct", Value: "k"})
			if wantCode(t, err, onlyonce.CodeStoreUnavailable); !errors.Is(err, storefault.ErrDown) {
				t.Errorf("%s: %v", method, err)
			}
		}
		parking := worldOn(t, w.mem, storefault.Script(faults{storefault.Park: {down}}), onlyonce.Config{})
		r, seen := recoverer(parking, never(t))
		r.Attempts = 1
		r.Resume[charge().Name] = func(context.Context, onlyonce.Due) (onlyonce.Result, error) {
			return onlyonce.Result{}, errLost
		}
		wantSum(t, look(t, r), onlyonce.RecoverySum{Pending: 1})
		for _, code := range []onlyonce.Code{onlyonce.CodeStoreUnavailable, onlyonce.CodeOutcomeUnknown} {
			<-time.After(24 * time.Hour)
			wantSum(t, look(t, r), onlyonce.RecoverySum{GivenUp: 1})
			if got := onlyonce.CodeOf(seen.seen[len(seen.seen)-1].Err); got != code {
				t.Errorf("told %s, want %s", got, code)
			}
		}
		w.wantParked(t, "k", onlyonce.ReasonGivenUp)
	})
}

// X1: an operation that panics ends its own turn and nothing else.
func TestRecoveredOperationPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		for _, key := range []string{"bad", "good"} {
			w.crashSteps(t, charge(), kept(key, "x"), doing(p, "charge"))
		}
		r, seen := recoverer(w, doing(p, "charge"))
		run := r.Resume[charge().Name]
		r.Resume[charge().Name] = func(ctx context.Context, due onlyonce.Due) (onlyonce.Result, error) {
			if due.Record.Key.Value == "bad" {
				panic("index out of range")
			}
			return run(ctx, due)
		}
		<-time.After(grace)
		wantSum(t, look(t, r), onlyonce.RecoverySum{Completed: 1, Pending: 1})
		for _, turn := range seen.seen {
			_, panicked := errors.AsType[*onlyonce.PanicError](turn.Err)
			if panicked != (turn.Due.Record.Key.Value == "bad") {
				t.Errorf("told: %+v", turn)
			}
		}
		_, err := r.Key(t.Context(), onlyonce.Key{Scope: "acct", Value: "bad"})
		if _, panicked := errors.AsType[*onlyonce.PanicError](err); !panicked {
			t.Errorf("key: %v", err)
		}
	})
}

// C8: when its time is over a recoverer ends what is under way and begins nothing
// more. What it did not get to has its next turn later.
func TestRecovererEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, p := newWorld(t, nil), newProvider()
		for _, key := range []string{"a", "b", "c"} {
			w.crashSteps(t, charge(), kept(key, "x"), doing(p, "charge"))
		}
		<-time.After(grace)
		entered, leave := make(chan struct{}), make(chan struct{})
		r, seen := recoverer(w, func(ctx context.Context) (onlyonce.Answer, error) {
			close(entered) // a second time would panic
			<-leave
			return doing(p, "charge")(ctx)
		})
		r.Workers = 1
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Run(ctx, func(err error) { t.Errorf("the end of its time is no failure: %v", err) })
		}()
		<-entered
		stop()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("it returned while an operation was under way")
		default:
		}
		close(leave)
		<-ended
		if len(seen.seen) != 1 || seen.seen[0].Result.State != onlyonce.Completed {
			t.Errorf("told: %+v", seen.seen)
		}
		sum, err := r.Once(ctx)
		if wantSum(t, sum, onlyonce.RecoverySum{}); !errors.Is(err, context.Canceled) {
			t.Errorf("a look without time: %v", err)
		}
		next, _ := recoverer(w, doing(p, "charge"))
		<-time.After(time.Hour)
		wantSum(t, look(t, next), onlyonce.RecoverySum{Completed: 2})
		p.want(t, 3)
	})
}

// The defaults are in the documentation, and what is missing is said.
func TestRecovererConfig(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	d := onlyonce.Recoverer{}.WithDefaults()
	if d.Every != 10*time.Second || d.Grace != time.Minute || d.Pause != time.Minute || d.MaxPause != 6*time.Hour || d.Attempts != 10 || d.Workers != 4 {
		t.Errorf("defaults: %+v", d)
	}
	d.Recovered(t.Context(), onlyonce.Recovery{})
	set := onlyonce.Recoverer{Every: 1, Grace: 2, Pause: 3, MaxPause: 4, Attempts: 5, Workers: 6}.WithDefaults()
	if set.Every != 1 || set.Grace != 2 || set.Pause != 3 || set.MaxPause != 4 || set.Attempts != 5 || set.Workers != 6 {
		t.Errorf("set: %+v", set)
	}
	forgetful, err := onlyonce.New(newBare(t), onlyonce.Config{Secrets: onlyonce.Keyring{Current: secret("a")}})
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]onlyonce.Recoverer{"no engine": {}, "a store that keeps nothing": {Engine: forgetful}} {
		_, err := r.Once(t.Context())
		wantCode(t, err, onlyonce.CodeConfig)
		_, err = r.Start(t.Context())
		wantCode(t, err, onlyonce.CodeConfig)
		_, err = r.Key(t.Context(), onlyonce.Key{Scope: "acct", Value: "k"})
		if e := wantCode(t, err, onlyonce.CodeConfig); !strings.Contains(e.Hint, "Recoverer.Engine") {
			t.Errorf("%s: %v", name, e)
		}
	}
	sum, err := onlyonce.Recoverer{Engine: w.Engine}.Once(t.Context())
	if err != nil {
		t.Error(err)
	}
	wantSum(t, sum, onlyonce.RecoverySum{})
}
