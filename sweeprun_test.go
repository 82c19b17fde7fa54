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

// sweepFor runs a sweeper for a while and returns what it was heard to say.
func sweepFor(t *testing.T, s onlyonce.Sweeper, d time.Duration) (heard []onlyonce.SweepEvent) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	s.Observe = func(_ context.Context, e onlyonce.SweepEvent) { heard = append(heard, e) }
	s.Run(ctx)
	return heard
}

// T3: a store that hangs does not hold the sweeper for ever: the batch is given
// up, that is said, and the next run goes on.
func TestSweeperGivesUpAHangingStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &swept{
			begun: time.Now(),
			hang: func(ctx context.Context, call int) error {
				if call == 1 {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			},
			sweep: func(int) (onlyonce.SweepResult, error) { return onlyonce.SweepResult{Deleted: 3}, nil },
		}
		heard := sweepFor(t, onlyonce.Sweeper{Store: store, Timeout: 20 * time.Second}, 90*time.Second)
		if len(heard) != 2 {
			t.Fatalf("heard %+v", heard)
		}
		first, second := heard[0], heard[1]
		if !errors.Is(first.Err, context.DeadlineExceeded) || onlyonce.CodeOf(first.Err) != onlyonce.CodeStoreUnavailable ||
			!strings.Contains(first.Err.Error(), "given up after 20s") {
			t.Errorf("the batch that hung: %v", first.Err)
		}
		if first.Took != 20*time.Second || first.Failures != 1 || first.Lag != 20*time.Second {
			t.Errorf("the batch that hung: %+v", first)
		}
		if want := (onlyonce.SweepEvent{Result: onlyonce.SweepResult{Deleted: 3}}); second != want {
			t.Errorf("the next one: %+v", second)
		}
	})
}

// Without a limit a batch takes as long as it takes.
func TestSweeperWithoutTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &swept{begun: time.Now(), hang: func(ctx context.Context, _ int) error {
			if _, limited := ctx.Deadline(); limited {
				t.Error("the batch has a deadline")
			}
			<-time.After(time.Hour)
			return nil
		}, sweep: func(int) (onlyonce.SweepResult, error) { return onlyonce.SweepResult{}, nil }}
		if _, err := (onlyonce.Sweeper{Store: store, Timeout: -1}).Once(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A store that is down is asked less and less often, up to a bound, and as often
// as ever once it is back. What is behind is counted from the last run that left
// nothing to do.
func TestSweeperBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &swept{begun: time.Now(), sweep: func(call int) (onlyonce.SweepResult, error) {
			if call >= 2 && call <= 6 {
				return onlyonce.SweepResult{}, storefault.ErrDown
			}
			return onlyonce.SweepResult{}, nil
		}}
		heard := sweepFor(t, onlyonce.Sweeper{Store: store, Every: time.Minute, MaxBackoff: 5 * time.Minute}, 18*time.Minute+time.Second)
		// 1 min after the first failure, then 2, 4, 5 and 5.
		want := []time.Duration{0, 1, 2, 4, 8, 13, 18}
		for i := range want {
			want[i] *= time.Minute
		}
		if diff := cmp.Diff(want, store.at); diff != "" {
			t.Errorf("swept at (-want +got):\n%s", diff)
		}
		for i, e := range heard[:6] {
			if e.Failures != i || e.Lag != store.at[i] || (e.Err == nil) != (i == 0) {
				t.Errorf("batch %d: %+v", i+1, e)
			}
		}
		if last := heard[6]; last != (onlyonce.SweepEvent{}) {
			t.Errorf("back again: %+v", last)
		}
	})
}

// An hour's back-off is not shorter than the pause between two runs.
func TestSweeperBackOffOfOneFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &swept{begun: time.Now(), sweep: func(int) (onlyonce.SweepResult, error) { return onlyonce.SweepResult{}, storefault.ErrDown }}
		sweepFor(t, onlyonce.Sweeper{Store: store, Every: time.Hour, MaxBackoff: time.Second}, 150*time.Minute)
		if diff := cmp.Diff([]time.Duration{0, time.Hour, 2 * time.Hour}, store.at); diff != "" {
			t.Errorf("swept at (-want +got):\n%s", diff)
		}
	})
}

// A store that shows a part of its table at a time is done when a whole round
// has left nothing to do; what is found on the way begins the round anew.
func TestSweeperQuiet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		quiet int
		more  []bool
		calls int
	}{
		"one":               {0, []bool{true, false, true}, 2},
		"three at once":     {3, []bool{false, false, false, true}, 3},
		"three, found late": {3, []bool{false, false, true, false, false, false, true}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &swept{begun: time.Now(), sweep: func(call int) (onlyonce.SweepResult, error) {
					return onlyonce.SweepResult{Deleted: 1, More: c.more[call-1]}, nil
				}}
				sum, err := onlyonce.Sweeper{Store: store, Quiet: c.quiet}.Once(t.Context())
				if err != nil || sum != (onlyonce.SweepResult{Deleted: c.calls}) || len(store.asked) != c.calls {
					t.Errorf("%d calls, want %d: %+v, %v", len(store.asked), c.calls, sum, err)
				}
			})
		})
	}
}

// Busy ends a run, and is told; the lag goes on, since somebody else's work is not
// known to be done.
func TestSweeperObservesABusyStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &swept{begun: time.Now(), sweep: func(int) (onlyonce.SweepResult, error) { return onlyonce.SweepResult{Busy: true}, nil }}
		heard := sweepFor(t, onlyonce.Sweeper{Store: store}, 150*time.Second)
		want := []onlyonce.SweepEvent{
			{Result: onlyonce.SweepResult{Busy: true}},
			{Result: onlyonce.SweepResult{Busy: true}, Lag: time.Minute},
			{Result: onlyonce.SweepResult{Busy: true}, Lag: 2 * time.Minute},
		}
		if diff := cmp.Diff(want, heard); diff != "" {
			t.Errorf("heard (-want +got):\n%s", diff)
		}
	})
}

// The counter adds up what it is told, from any number of goroutines.
func TestSweepCounter(t *testing.T) {
	t.Parallel()
	var c onlyonce.SweepCounter
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			c.Observe(t.Context(), onlyonce.SweepEvent{Result: onlyonce.SweepResult{Deleted: 1, Freed: 2, Parked: 3, Steps: 4}, Took: time.Second})
		})
	}
	all.Wait()
	c.Observe(t.Context(), onlyonce.SweepEvent{Result: onlyonce.SweepResult{Busy: true}, Took: time.Minute})
	c.Observe(t.Context(), onlyonce.SweepEvent{Err: storefault.ErrDown, Failures: 1, Lag: time.Hour, Took: 2 * time.Second})
	want := onlyonce.SweepTotals{
		Batches: 11, Busy: 1, Errors: 1, Deleted: 10, Freed: 20, Parked: 30, Steps: 40,
		Failures: 1, Lag: time.Hour, Took: 2 * time.Second, Longest: time.Minute,
	}
	if diff := cmp.Diff(want, c.Totals()); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
}
