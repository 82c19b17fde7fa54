package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/onlyonce-go/onlyonce"
)

// RunModel drives a store and a model of it with the same random operations
// and the same clock; every result must be the same, fences included. A
// failure prints the shortest list of operations that shows it, and a seed.
func RunModel(t *testing.T, backend Backend, newModel func(now func() time.Time) onlyonce.Store) {
	t.Helper()
	RunAlike(t, map[string]Backend{"the store": backend}, newModel)
}

// RunAlike is RunModel for several stores at once: of one list of operations they
// must all say the same. Powers that not all of them promise are left out.
func RunAlike(t *testing.T, backends map[string]Backend, newModel func(now func() time.Time) onlyonce.Store) {
	t.Helper()
	explain(t, "a store and the reference model disagree")
	rapid.Check(t, func(rt *rapid.T) {
		clock := NewClock()
		m := &model{
			ctx: t.Context(), clock: clock, model: newModel(clock.Now),
			reals: map[string]onlyonce.Store{}, owners: map[string][]onlyonce.Owner{},
		}
		m.common = m.model.Features()
		for _, name := range slices.Sorted(maps.Keys(backends)) {
			store := backends[name].Open(t, clock.Now).Store
			f := store.Features()
			m.reals[name] = store
			m.common.Steps = m.common.Steps && f.Steps
			m.common.Resources = m.common.Resources && f.Resources
			m.common.Recovery = m.common.Recovery && f.Recovery
		}
		rt.Repeat(map[string]func(*rapid.T){
			"advance":  m.advance,
			"claim":    m.claim,
			"renew":    m.renew,
			"complete": m.complete,
			"release":  m.release,
			"park":     m.park,
			"step":     m.step,
			"sweep":    m.sweep,
			"get":      m.get,
			"due":      m.due,
			"requeue":  m.requeue,
		})
	})
}

// model is a model and the stores beside it.
type model struct {
	ctx   context.Context //nolint:containedctx // lives as long as one check
	clock *Clock
	model onlyonce.Store
	reals map[string]onlyonce.Store
	// common is what all of them promise.
	common onlyonce.Features
	// owners are all attempts that ever owned each key.
	owners map[string][]onlyonce.Owner
}

func keys() *rapid.Generator[string] { return rapid.SampledFrom([]string{"a", "b", "A"}) }

// all runs fn on the model and on every store, and compares what it returns.
func (m *model) all(t *rapid.T, what string, fn func(s onlyonce.Store) (any, error)) any {
	t.Helper()
	want, wantErr := fn(m.model)
	for _, name := range slices.Sorted(maps.Keys(m.reals)) {
		got, gotErr := fn(m.reals[name])
		if (wantErr == nil) != (gotErr == nil) {
			t.Fatalf("%s: model %v, %s %v", what, wantErr, name, gotErr)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-model +%s):\n%s", what, name, diff)
		}
	}
	return want
}

// owner picks an attempt that owns or once owned the key.
func (m *model) owner(t *rapid.T) onlyonce.Owner {
	key := keys().Draw(t, "key")
	if len(m.owners[key]) == 0 {
		t.Skip("nobody owned it yet")
	}
	return rapid.SampledFrom(m.owners[key]).Draw(t, "owner")
}

func (m *model) advance(t *rapid.T) {
	m.clock.Advance(rapid.SampledFrom([]time.Duration{time.Microsecond, time.Second, lease, time.Hour, retention, 100 * retention}).Draw(t, "by"))
}

func (m *model) claim(t *rapid.T) {
	req := request(keys().Draw(t, "key"))
	req.Fingerprint = fingerprintOf(rapid.SampledFrom([]string{"x", "x", "x", "y"}).Draw(t, "request"))
	req.Abandon = rapid.SampledFrom([]onlyonce.Abandon{onlyonce.AbandonHold, onlyonce.AbandonRerun, onlyonce.AbandonResume}).Draw(t, "abandon")
	req.Resolve = rapid.Bool().Draw(t, "resolve")
	if seen := m.owners[req.Key.Value]; len(seen) > 0 && rapid.Bool().Draw(t, "one doubt") {
		req.Doubt = rapid.SampledFrom(seen).Draw(t, "doubt").Fence
	}
	if m.common.Resources {
		req.Resource = rapid.SampledFrom([]string{"", "r", "r", "q"}).Draw(t, "resource")
	}
	if m.common.Recovery && rapid.Bool().Draw(t, "keep") {
		req.Keep = []byte(rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "kept"))
	}
	got := m.all(t, "claim", func(s onlyonce.Store) (any, error) { return s.Claim(m.ctx, req) })
	if c, ok := got.(onlyonce.Claim); ok && c.Verdict.Owns() {
		m.owners[req.Key.Value] = append(m.owners[req.Key.Value], c.Record.Owner())
	}
}

func (m *model) renew(t *rapid.T) {
	o := m.owner(t)
	m.all(t, "renew", func(s onlyonce.Store) (any, error) { return s.Renew(m.ctx, o, lease) })
}

func (m *model) complete(t *rapid.T) {
	o := m.owner(t)
	a := onlyonce.Answer{Status: 200, Body: []byte(rapid.StringN(0, 3, 8).Draw(t, "body"))}
	m.all(t, "complete", func(s onlyonce.Store) (any, error) { return s.Complete(m.ctx, o, a) })
}

func (m *model) release(t *rapid.T) {
	o := m.owner(t)
	m.all(t, "release", func(s onlyonce.Store) (any, error) { return s.Release(m.ctx, o, "r") })
}

func (m *model) park(t *rapid.T) {
	p := onlyonce.ParkRequest{Owner: m.owner(t), Reason: "p", LeaseOver: rapid.Bool().Draw(t, "lease over")}
	m.all(t, "park", func(s onlyonce.Store) (any, error) { return s.Park(m.ctx, p) })
}

func (m *model) step(t *rapid.T) {
	if !m.common.Steps {
		t.Skip("not promised: steps")
	}
	o := m.owner(t)
	name := rapid.SampledFrom([]string{"s", "t"}).Draw(t, "step")
	in := intent(name, rapid.IntRange(0, 2).Draw(t, "epoch"))
	end := onlyonce.StepEnd{Name: name, State: rapid.SampledFrom([]onlyonce.StepState{onlyonce.StepDone, onlyonce.StepNotApplied}).Draw(t, "end"), Result: []byte("r")}
	begin := rapid.Bool().Draw(t, "begin")
	m.all(t, "step", func(s onlyonce.Store) (any, error) {
		steps := s.(onlyonce.StepStore) //nolint:forcetypeassert // Features().Steps says so
		if begin {
			return steps.BeginStep(m.ctx, o, in)
		}
		return steps.EndStep(m.ctx, o, end)
	})
}

func (m *model) sweep(t *rapid.T) {
	req := onlyonce.SweepRequest{Limit: 100, Grace: time.Minute, StepRetention: 90 * 24 * time.Hour}
	m.all(t, "sweep", func(s onlyonce.Store) (any, error) { return s.Sweep(m.ctx, req) })
}

func (m *model) due(t *rapid.T) {
	if !m.common.Recovery {
		t.Skip("not promised: recovery")
	}
	req := onlyonce.DueRequest{Limit: 100, Grace: dueGrace, Pause: duePause, MaxPause: dueMost}
	m.all(t, "due", func(s onlyonce.Store) (any, error) {
		due, err := s.(onlyonce.RecoveryStore).Due(m.ctx, req) //nolint:forcetypeassert // Features().Recovery says so
		slices.SortFunc(due, func(a, b onlyonce.Due) int { return strings.Compare(a.Record.Key.Value, b.Record.Key.Value) })
		return due, err
	})
}

func (m *model) requeue(t *rapid.T) {
	if !m.common.Recovery {
		t.Skip("not promised: recovery")
	}
	key := request(keys().Draw(t, "key")).Key
	m.all(t, "requeue", func(s onlyonce.Store) (any, error) {
		store := s.(onlyonce.RecoveryStore) //nolint:forcetypeassert // Features().Recovery says so
		kept, found, err := store.Kept(m.ctx, key)
		if err != nil || !found {
			return fmt.Sprint(string(kept), found), err
		}
		requeued, err := store.Requeue(m.ctx, key)
		return fmt.Sprint(string(kept), requeued), err
	})
}

func (m *model) get(t *rapid.T) {
	key := request(keys().Draw(t, "key")).Key
	m.all(t, "get", func(s onlyonce.Store) (any, error) {
		rec, found, err := s.Get(m.ctx, key)
		if err != nil || !m.common.Steps {
			return fmt.Sprint(rec, found), err
		}
		steps, err := s.(onlyonce.StepStore).Steps(m.ctx, key) //nolint:forcetypeassert // Features().Steps says so
		if !found {
			steps = nil // whether a dead life's steps are still listed is the store's affair
		}
		return struct {
			Record onlyonce.Record
			Steps  []onlyonce.StepRecord
		}{rec, steps}, err
	})
}
