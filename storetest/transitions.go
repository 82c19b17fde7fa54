package storetest

import (
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

// stage is a state of a key that a transition can start from.
type stage string

const (
	absent       stage = "absent"
	live         stage = "in_progress"
	leaseOver    stage = "in_progress, lease over"
	completed    stage = "completed"
	freed        stage = "failed_retryable"
	freedSteps   stage = "failed_retryable, made of steps"
	doubt        stage = "in_doubt"
	completedOld stage = "completed, expired"
	freedOld     stage = "failed_retryable, expired"
)

// The table of transitions: where each event leads from each stage. A stage
// that an event leaves as it was is not named. What is not here cannot happen.
// The owner is the attempt that led to the stage.
func transitions() map[string]map[stage]onlyonce.State {
	return map[string]map[stage]onlyonce.State{
		"claim": {
			absent: onlyonce.InProgress, freed: onlyonce.InProgress, leaseOver: onlyonce.InProgress,
			completedOld: onlyonce.InProgress, freedOld: onlyonce.InProgress,
		},
		"claim by a request that may not be rerun": {
			absent: onlyonce.InProgress, freed: onlyonce.InProgress,
			completedOld: onlyonce.InProgress, freedOld: onlyonce.InProgress,
		},
		"claim by a request made of steps": {
			absent: onlyonce.InProgress, freed: onlyonce.InProgress, freedSteps: onlyonce.InProgress,
			completedOld: onlyonce.InProgress, freedOld: onlyonce.InProgress,
		},
		"resolving claim": {
			absent: onlyonce.InProgress, freed: onlyonce.InProgress, leaseOver: onlyonce.InProgress, doubt: onlyonce.InProgress,
			completedOld: onlyonce.InProgress, freedOld: onlyonce.InProgress,
		},
		"claim by another request": {
			absent: onlyonce.InProgress, completedOld: onlyonce.InProgress, freedOld: onlyonce.InProgress,
		},
		"complete": {live: onlyonce.Completed, leaseOver: onlyonce.Completed, doubt: onlyonce.Completed},
		"release":  {live: onlyonce.FailedRetryable, leaseOver: onlyonce.FailedRetryable},
		"park":     {live: onlyonce.InDoubt, leaseOver: onlyonce.InDoubt},
		"park when the lease is over": {
			leaseOver: onlyonce.InDoubt,
		},
		"renew":             {},
		"foreign complete":  {},
		"foreign release":   {},
		"foreign park":      {},
		"sweep":             {leaseOver: onlyonce.FailedRetryable, completedOld: "", freedOld: ""},
		"sweep, then claim": {absent: onlyonce.InProgress, leaseOver: onlyonce.InProgress, freed: onlyonce.InProgress, completedOld: onlyonce.InProgress, freedOld: onlyonce.InProgress},
	}
}

func runTransitions(t *testing.T, backend Backend) {
	t.Helper()
	stages := []stage{absent, live, leaseOver, completed, freed, freedSteps, doubt, completedOld, freedOld}
	for event, table := range transitions() {
		t.Run(event, func(t *testing.T) {
			t.Parallel()
			explain(t, "a key changed its state in a way the table of transitions does not have")
			for _, from := range stages {
				clock := NewClock()
				b := &bench{Instance: backend.Open(t, clock.Now), ctx: t.Context(), clock: clock}
				b.store = b.Instance.Store
				owner := b.reach(t, from)
				before := b.state(t)
				want, changes := table[from]
				if !changes {
					want = before
				}
				b.event(t, event, owner)
				if got := b.state(t); got != want {
					t.Errorf("%s from %q led to %q, want %q", event, from, got, want)
				}
			}
		})
	}
}

// reach brings the key into a stage and gives the attempt that did it.
func (b *bench) reach(t *testing.T, s stage) onlyonce.Owner {
	t.Helper()
	if s == absent {
		return onlyonce.Owner{Key: request("k").Key, Fence: 1, Attempt: onlyonce.NewToken()}
	}
	req := request("k")
	if s == freedSteps {
		req = stepRequest("k")
	}
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	switch s {
	case leaseOver:
		b.clock.Advance(lease)
	case completed, completedOld:
		b.complete(t, owner, created())
	case freed, freedSteps, freedOld:
		b.release(t, owner)
	case doubt:
		b.park(t, owner, false)
	case absent, live:
	}
	if s == completedOld || s == freedOld {
		b.clock.Advance(retention)
	}
	return owner
}

// state is the key's state; empty when absent.
func (b *bench) state(t *testing.T) onlyonce.State {
	t.Helper()
	rec, _, err := b.store.Get(b.ctx, request("k").Key)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	return rec.State
}

func (b *bench) event(t *testing.T, event string, owner onlyonce.Owner) {
	t.Helper()
	req := request("k")
	foreign := owner
	foreign.Attempt = onlyonce.NewToken()
	switch event {
	case "claim":
		b.claim(t, req)
	case "claim by a request that may not be rerun":
		req.Abandon = onlyonce.AbandonHold
		b.claim(t, req)
	case "claim by a request made of steps":
		b.claim(t, stepRequest("k"))
	case "resolving claim":
		req.Resolve = true
		b.claim(t, req)
	case "claim by another request":
		req.Fingerprint = fingerprintOf("b")
		b.claim(t, req)
	case "complete":
		b.complete(t, owner, created())
	case "release":
		b.release(t, owner)
	case "park":
		b.park(t, owner, false)
	case "park when the lease is over":
		b.park(t, owner, true)
	case "renew":
		b.renew(t, owner)
	case "foreign complete":
		b.complete(t, foreign, created())
	case "foreign release":
		b.release(t, foreign)
	case "foreign park":
		b.park(t, foreign, false)
	case "sweep", "sweep, then claim":
		b.clock.Advance(lease) // past the grace period of a stage whose lease is over
		b.sweepNow(t, event, req)
	default:
		t.Fatalf("no such event: %s", event)
	}
}

func (b *bench) sweepNow(t *testing.T, event string, req onlyonce.ClaimRequest) {
	t.Helper()
	if _, err := b.store.Sweep(b.ctx, onlyonce.SweepRequest{Limit: 10, Grace: lease, StepRetention: retention}); err != nil {
		t.Fatalf("sweep: %v", err)
	}
	if event != "sweep" {
		b.claim(t, req)
	}
}
