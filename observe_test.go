package onlyonce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// story is what the events say, one line each: kind, and code or reason.
func (e *events) story() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, ev := range e.seen {
		line := string(ev.Kind)
		if ev.Code != "" {
			line += ": " + string(ev.Code)
		}
		if ev.Reason != "" && ev.Kind != onlyonce.EventContradiction {
			line += ": " + ev.Reason
		}
		out = append(out, line)
	}
	return out
}

// flow is a world and the test that it is in.
type flow struct {
	*world
	t *testing.T
}

// R4, E: the events of each way an operation can go. They are what metrics and
// alarms are made of.
func TestEvents(t *testing.T) {
	t.Parallel()
	hold, free, rerun, open, recovers := charge(), charge(), charge(), charge(), charge()
	free.On5xx = onlyonce.ReleaseKey
	rerun.AfterCrash = onlyonce.Rerun
	open.FailOpen = true
	recovers.Recover = func(context.Context, onlyonce.Record) (onlyonce.Answer, error) {
		return onlyonce.Answer{Outcome: onlyonce.NotApplied}, nil
	}
	down := storefault.Fault{Before: storefault.ErrDown}
	ok := responds(201, "ok")
	fails := func(context.Context) (onlyonce.Answer, error) { return onlyonce.Answer{}, errors.New("broken") }
	step := func(ctx context.Context) (onlyonce.Answer, error) {
		_, err := onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { return 0, errors.New("reply lost") })
		return onlyonce.Answer{}, err
	}
	for name, c := range map[string]struct {
		script faults
		flow   func(w flow)
		want   []string
	}{
		"completed and replayed": {nil, func(w flow) {
			w.Wrap(w.t.Context(), hold, keyed("k", "x"), ok)
			w.Wrap(w.t.Context(), hold, keyed("k", "x"), ok)
		}, []string{"claimed", "completed", "replayed"}},
		"reused": {nil, func(w flow) {
			w.Wrap(w.t.Context(), hold, keyed("k", "x"), ok)
			w.Wrap(w.t.Context(), hold, keyed("k", "y"), ok)
		}, []string{"claimed", "completed", "refused: idempotency_key_reused"}},
		"running": {nil, func(w flow) {
			w.Wrap(w.t.Context(), hold, keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
				w.Wrap(ctx, hold, keyed("k", "x"), ok)
				return ok(ctx)
			})
		}, []string{"claimed", "refused: request_in_progress", "completed"}},
		"failed, held": {nil, func(w flow) {
			w.Wrap(w.t.Context(), hold, keyed("k", "x"), fails)
			w.Wrap(w.t.Context(), hold, keyed("k", "x"), ok)
		}, []string{"claimed", "parked: " + onlyonce.ReasonFailed, "refused: outcome_unknown"}},
		"failed, released, resumed": {nil, func(w flow) {
			w.Wrap(w.t.Context(), free, keyed("k", "x"), fails)
			w.Wrap(w.t.Context(), free, keyed("k", "x"), ok)
		}, []string{"claimed", "released: the handler failed", "resumed", "completed"}},
		"refused by the handler": {nil, func(w flow) {
			w.Wrap(w.t.Context(), hold, keyed("k", "x"), responds(429, "later"))
		}, []string{"claimed", "released: refused by the handler"}},
		"declared": {nil, func(w flow) {
			for _, o := range []onlyonce.Outcome{onlyonce.NotApplied, onlyonce.Unknown} {
				w.Wrap(w.t.Context(), hold, keyed("k", "x"), func(context.Context) (onlyonce.Answer, error) {
					return onlyonce.Answer{Status: 200, Outcome: o}, nil
				})
			}
		}, []string{"claimed", "released: the handler declared that it had no effect", "resumed", "parked: " + onlyonce.ReasonDeclared}},
		"unfinished step": {nil, func(w flow) {
			w.Steps(w.t.Context(), hold, keyed("k", "x"), step)
			w.Steps(w.t.Context(), hold, keyed("k", "x"), step)
		}, []string{"claimed", "parked: " + onlyonce.ReasonUnfinishedStep, "resumed", "parked: " + onlyonce.ReasonUnfinishedStep}},
		"abandoned, held": {nil, func(w flow) {
			w.crash(w.t, hold, keyed("k", "x"), ok)
			<-time.After(onlyonce.DefaultLease)
			w.Wrap(w.t.Context(), hold, keyed("k", "x"), ok)
		}, []string{"parked: " + onlyonce.ReasonAbandoned, "refused: outcome_unknown"}},
		"abandoned, taken over": {nil, func(w flow) {
			w.crash(w.t, rerun, keyed("k", "x"), ok)
			<-time.After(onlyonce.DefaultLease)
			w.Wrap(w.t.Context(), rerun, keyed("k", "x"), ok)
		}, []string{"resumed", "completed"}},
		"abandoned, recovered": {nil, func(w flow) {
			w.crash(w.t, recovers, keyed("k", "x"), ok)
			<-time.After(onlyonce.DefaultLease)
			w.Wrap(w.t.Context(), recovers, keyed("k", "x"), ok)
		}, []string{
			"parked: " + onlyonce.ReasonAbandoned, "resumed",
			"released: recovering it proved that it had no effect", "resumed", "completed",
		}},
		"conflict": {
			faults{storefault.Claim: {{Before: onlyonce.ErrConflict}, {After: onlyonce.ErrUncertain}}},
			func(w flow) { w.Wrap(w.t.Context(), hold, keyed("k", "x"), ok) },
			[]string{"store_retried", "store_retried", "claimed", "completed"},
		},
		"store down": {
			faults{storefault.Claim: {down}},
			func(w flow) { w.Wrap(w.t.Context(), hold, keyed("k", "x"), ok) },
			[]string{"store_failed", "refused: idempotency_store_unavailable"},
		},
		"store down, open": {
			faults{storefault.Claim: {down}},
			func(w flow) { w.Wrap(w.t.Context(), open, keyed("k", "x"), ok) },
			[]string{"store_failed", "unprotected"},
		},
		"atomic": {nil, func(w flow) {
			l := &ledger{}
			w.Atomic(w.t.Context(), hold, keyed("k", "x"), l.insert(503))
			w.Atomic(w.t.Context(), hold, keyed("k", "x"), l.insert(201))
			w.Atomic(w.t.Context(), hold, keyed("k", "x"), l.insert(201))
			w.Atomic(w.t.Context(), hold, keyed("k", "y"), l.insert(201))
		}, []string{"released: the handler failed", "completed", "replayed", "refused: idempotency_key_reused"}},
		"atomic, store down": {
			faults{storefault.Atomic: {down}},
			func(w flow) { w.Atomic(w.t.Context(), open, keyed("k", "x"), (&ledger{}).insert(201)) },
			[]string{"store_failed"},
		},
		"finish": {nil, func(w flow) {
			w.Steps(w.t.Context(), hold, keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
				return w.Finish(ctx, (&ledger{}).insert(201))
			})
		}, []string{"claimed", "completed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, c.script)
				c.flow(flow{w, t})
				if diff := cmp.Diff(c.want, w.events.story()); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// C6, B16: an attempt that finishes after its key was taken raises the alarm,
// and only then.
func TestEventsOfALostLease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler onlyonce.HandlerFunc
		want    []string
	}{
		"finished": {responds(201, "A"), []string{"claimed", "contradiction", "lease_lost", "replayed"}},
		"refused":  {responds(429, "A"), []string{"claimed", "lease_lost", "replayed"}},
		"failed":   {responds(503, "A"), []string{"claimed", "lease_lost", "replayed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, faults{storefault.Renew: {{Hold: func(ctx context.Context) { <-ctx.Done() }, Before: storefault.ErrDown}}})
				other := worldOn(t, w.mem, noFaults, onlyonce.Config{})
				op := charge()
				op.AfterCrash = onlyonce.Rerun
				var wg sync.WaitGroup
				wg.Go(func() {
					res, err := w.Wrap(t.Context(), op, keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
						<-time.After(time.Minute)
						return c.handler(ctx)
					})
					wantResult(t, res, err, onlyonce.Replayed, "B")
				})
				<-time.After(onlyonce.DefaultLease)
				res, err := other.Wrap(t.Context(), op, keyed("k", "x"), responds(201, "B"))
				wantResult(t, res, err, onlyonce.Executed, "B")
				wg.Wait()
				if diff := cmp.Diff(c.want, w.events.story()); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// An event names the operation, the run and how long it took; never the key.
func TestEventFields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		req := keyed("very-secret-key", "x")
		res, err := w.Wrap(t.Context(), charge(), req, func(context.Context) (onlyonce.Answer, error) {
			<-time.After(3 * time.Second)
			return answer(201, "ok"), nil
		})
		wantResult(t, res, err, onlyonce.Executed, "ok")
		ref := req.Key.Operation()
		want := []onlyonce.Event{
			{Kind: onlyonce.EventClaimed, Op: "POST /charges", Operation: ref, Fence: res.Fence, Attempt: res.Attempt},
			{Kind: onlyonce.EventCompleted, Op: "POST /charges", Operation: ref, Fence: res.Fence, Attempt: res.Attempt, Took: 3 * time.Second},
		}
		if diff := cmp.Diff(want, w.events.seen); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if text := fmt.Sprintf("%+v", w.events.seen); strings.Contains(text, req.Key.Value) {
			t.Errorf("the key is in %s", text)
		}
	})
}
