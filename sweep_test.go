package onlyonce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// swept is a store of which only Sweep is used, and what it is asked.
type swept struct {
	onlyonce.Store
	begun time.Time
	asked []onlyonce.SweepRequest
	at    []time.Duration
	sweep func(call int) (onlyonce.SweepResult, error)
	// hang, if it is set, comes before the answer and may wait for ctx.
	hang func(ctx context.Context, call int) error
}

func (s *swept) Sweep(ctx context.Context, req onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	s.asked = append(s.asked, req)
	s.at = append(s.at, time.Since(s.begun))
	if s.hang != nil {
		if err := s.hang(ctx, len(s.asked)); err != nil {
			return onlyonce.SweepResult{}, err
		}
	}
	return s.sweep(len(s.asked))
}

// told is what a Sweeper says.
type told struct {
	Result onlyonce.SweepResult
	Err    error
}

// T3: a sweeper runs every so often until it is told to end; a run ends early
// while another sweeper is at work, and an error ends no more than its run.
// A goroutine left over would keep the bubble from ending.
func TestSweeperRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		results := map[int]told{
			1: {Result: onlyonce.SweepResult{Deleted: 10, More: true}},
			2: {Result: onlyonce.SweepResult{Freed: 1, Parked: 2, Steps: 3}},
			3: {Result: onlyonce.SweepResult{Busy: true, More: true}},
			4: {Err: storefault.ErrDown},
			5: {},
		}
		store := &swept{begun: time.Now(), sweep: func(call int) (onlyonce.SweepResult, error) {
			return results[call].Result, results[call].Err
		}}
		var heard []told
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			onlyonce.Sweeper{Store: store, Every: time.Hour, Pause: time.Second, Batch: 10, Swept: func(r onlyonce.SweepResult, err error) {
				heard = append(heard, told{r, err})
			}}.Run(ctx)
		}()
		<-time.After(4*time.Hour + time.Minute)
		stop()
		<-done
		want := []time.Duration{0, time.Second, time.Hour + time.Second, 2*time.Hour + time.Second, 3*time.Hour + time.Second}
		if diff := cmp.Diff(want, store.at[:5]); diff != "" {
			t.Errorf("swept at (-want +got):\n%s", diff)
		}
		if len(store.at) != 6 {
			t.Errorf("%d sweeps, want 6", len(store.at))
		}
		wantHeard := []told{results[1], results[2], results[4]}
		if diff := cmp.Diff(wantHeard, heard, cmp.Comparer(func(a, b error) bool { return errors.Is(a, b) || errors.Is(b, a) })); diff != "" {
			t.Errorf("heard (-want +got):\n%s", diff)
		}
	})
}

// A sweep that fails because its time is over is no fault of the store.
func TestSweeperRunStoppedInTheMiddle(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	store := &swept{begun: time.Now(), sweep: func(int) (onlyonce.SweepResult, error) {
		stop()
		return onlyonce.SweepResult{}, context.Canceled
	}}
	onlyonce.Sweeper{Store: store, Swept: func(r onlyonce.SweepResult, err error) { t.Errorf("heard %+v, %v", r, err) }}.Run(ctx)
}

// T3: Once adds its batches up, and stops at an error, a busy store or the end
// of its time.
func TestSweeperOnce(t *testing.T) {
	t.Parallel()
	batch := onlyonce.SweepResult{Deleted: 1, Freed: 2, Parked: 3, Steps: 4, More: true}
	for name, c := range map[string]struct {
		last  onlyonce.SweepResult
		err   error
		calls int
		want  onlyonce.SweepResult
	}{
		"done":  {onlyonce.SweepResult{Deleted: 5}, nil, 3, onlyonce.SweepResult{Deleted: 7, Freed: 4, Parked: 6, Steps: 8}},
		"busy":  {onlyonce.SweepResult{Busy: true}, nil, 3, onlyonce.SweepResult{Busy: true, Deleted: 2, Freed: 4, Parked: 6, Steps: 8}},
		"error": {onlyonce.SweepResult{Deleted: 9}, storefault.ErrDown, 3, onlyonce.SweepResult{Deleted: 11, Freed: 4, Parked: 6, Steps: 8, More: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &swept{begun: time.Now(), sweep: func(call int) (onlyonce.SweepResult, error) {
					if call < 3 {
						return batch, nil
					}
					return c.last, c.err
				}}
				got, err := onlyonce.Sweeper{Store: store}.Once(t.Context())
				if diff := cmp.Diff(c.want, got); diff != "" || !errors.Is(err, c.err) || len(store.asked) != c.calls {
					t.Errorf("%d calls, %v (-want +got):\n%s", len(store.asked), err, diff)
				}
				// The defaults, as documented.
				want := onlyonce.SweepRequest{Limit: 5000, Grace: 5 * time.Minute, StepRetention: 90 * 24 * time.Hour}
				if diff := cmp.Diff(want, store.asked[0]); diff != "" {
					t.Errorf("asked (-want +got):\n%s", diff)
				}
				if store.at[1] != 100*time.Millisecond {
					t.Errorf("paused %v", store.at[1])
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer stop()
		store := &swept{begun: time.Now(), sweep: func(int) (onlyonce.SweepResult, error) { return batch, nil }}
		got, err := onlyonce.Sweeper{Store: store}.Once(ctx)
		if err != nil || got.Deleted != 2 || !got.More {
			t.Errorf("stopped: %+v, %v", got, err)
		}
	})
}

// The defaults are in the documentation, and what is set stands.
func TestSweeperDefaults(t *testing.T) {
	t.Parallel()
	s := onlyonce.Sweeper{}.WithDefaults()
	if s.Batch != 5000 || s.Pause != 100*time.Millisecond || s.Every != time.Minute || s.Grace != 5*time.Minute || s.StepRetention != 90*24*time.Hour {
		t.Errorf("defaults %+v", s)
	}
	if s.Timeout != time.Minute || s.Quiet != 1 || s.MaxBackoff != 10*time.Minute {
		t.Errorf("defaults %+v", s)
	}
	if s := (onlyonce.Sweeper{Every: time.Hour, MaxBackoff: time.Minute}).WithDefaults(); s.MaxBackoff != time.Hour {
		t.Errorf("a back-off below the pause between runs: %v", s.MaxBackoff)
	}
	s.Swept(onlyonce.SweepResult{}, nil)
	s.Observe(t.Context(), onlyonce.SweepEvent{})
	set := onlyonce.Sweeper{Batch: 1, Pause: 2, Every: 3, Grace: 4, StepRetention: 5}.WithDefaults()
	if set.Batch != 1 || set.Pause != 2 || set.Every != 3 || set.Grace != 4 || set.StepRetention != 5 {
		t.Errorf("set %+v", set)
	}
}

// C7, B12, B51: an abandoned attempt that nobody retries is decided by the sweeper,
// as a takeover would decide it: not before its grace, and what has left an
// effect is never freed.
func TestSweeperDecidesAbandonedAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		rerun := charge()
		rerun.AfterCrash = onlyonce.Rerun
		begins := func(ctx context.Context) (onlyonce.Answer, error) {
			_, err := onlyonce.Step(ctx, "charge", func(context.Context) (string, error) { return "charged", nil })
			return onlyonce.Answer{}, err
		}
		w.crash(t, charge(), keyed("hold", "x"), responds(201, "lost"))
		w.crash(t, rerun, keyed("rerun", "x"), responds(201, "lost"))
		w.crashSteps(t, charge(), keyed("no step", "x"), responds(201, "lost"))
		w.crashSteps(t, charge(), keyed("step begun", "x"), begins)
		s := onlyonce.Sweeper{Store: w.mem}
		<-time.After(onlyonce.DefaultLease + 5*time.Minute - time.Second)
		if sum, err := s.Once(t.Context()); err != nil || sum != (onlyonce.SweepResult{}) {
			t.Errorf("swept before the grace was over: %+v, %v", sum, err)
		}
		<-time.After(time.Second)
		sum, err := s.Once(t.Context())
		if diff := cmp.Diff(onlyonce.SweepResult{Freed: 2, Parked: 2}, sum); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		for key, state := range map[string]onlyonce.State{
			"hold": onlyonce.InDoubt, "rerun": onlyonce.FailedRetryable,
			"no step": onlyonce.FailedRetryable, "step begun": onlyonce.InDoubt,
		} {
			w.wantState(t, key, state)
		}
	})
}
