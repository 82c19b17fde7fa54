package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// stepRaceRounds is how often each race is run.
const stepRaceRounds = 24

// beside is what another handle does beside an owner that begins a step, and what is
// wrong with what became of the key when both were told that they had succeeded.
type beside struct {
	act   func(t *testing.T, b *bench, other onlyonce.Store, req onlyonce.ClaimRequest) bool
	wrong func(rec onlyonce.Record, steps []onlyonce.StepRecord) bool
}

// checkStepBeside: a lease is over, and its owner begins a step just when another
// handle, as another process has it, takes the key over or sweeps it. Either the step
// is refused, or whoever decides about the key sees it: else two attempts send, and
// each believes that it is the first.
func checkStepBeside(t *testing.T, b *bench) {
	other := b.store
	if b.Another != nil {
		other = b.Another
	}
	races := map[string]beside{
		"takeover": {takesOver, func(_ onlyonce.Record, steps []onlyonce.StepRecord) bool { return len(steps) == 0 }},
		"sweep":    {sweeps, func(rec onlyonce.Record, _ []onlyonce.StepRecord) bool { return rec.State == onlyonce.FailedRetryable }},
	}
	for name, race := range races {
		for round := range stepRaceRounds {
			b.stepRace(t, other, fmt.Sprint(name, round), race)
		}
	}
}

func (b *bench) stepRace(t *testing.T, other onlyonce.Store, key string, race beside) {
	t.Helper()
	req := stepRequest(key)
	owner := b.want(t, req, onlyonce.Won).Record.Owner()
	b.watch(t, other, req)
	b.clock.Advance(lease + time.Minute)
	var begun, acted bool
	var wg sync.WaitGroup
	gate := make(chan struct{})
	wg.Go(func() {
		<-gate
		var err error
		if begun, err = b.stepStore().BeginStep(b.ctx, owner, intent("pay", 0)); err != nil && !conflicting(err) {
			t.Errorf("%s: begin step: %v", key, err)
		}
	})
	wg.Go(func() {
		<-gate
		acted = race.act(t, b, other, req)
	})
	close(gate)
	wg.Wait()
	rec, found, err := other.Get(b.ctx, req.Key)
	if err != nil || !found {
		t.Fatalf("%s: get: %v, %v", key, found, err)
	}
	steps, _ := onlyonce.StepsOf(other)
	seen, err := steps.Steps(b.ctx, req.Key)
	if err != nil {
		t.Fatalf("%s: steps: %v", key, err)
	}
	if begun && acted && race.wrong(rec, seen) {
		t.Errorf("%s: the step was begun, and the key decided without it: %q, %d steps seen", key, rec.State, len(seen))
	}
}

func takesOver(t *testing.T, b *bench, other onlyonce.Store, req onlyonce.ClaimRequest) bool {
	t.Helper()
	c, err := other.Claim(b.ctx, again(req))
	if err != nil && !conflicting(err) {
		t.Errorf("%s: claim: %v", req.Key.Value, err)
	}
	return err == nil && c.Verdict.Owns()
}

func sweeps(t *testing.T, b *bench, other onlyonce.Store, req onlyonce.ClaimRequest) bool {
	t.Helper()
	r, err := other.Sweep(b.ctx, onlyonce.SweepRequest{Limit: 100, Grace: time.Second, StepRetention: 90 * 24 * time.Hour})
	if err != nil && !conflicting(err) {
		t.Errorf("%s: sweep: %v", req.Key.Value, err)
	}
	return r.Freed > 0
}
