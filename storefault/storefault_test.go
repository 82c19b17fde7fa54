package storefault_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
	"github.com/onlyonce-go/onlyonce/storetest"
)

var errLost = errors.New("reply lost")

// rig is a store in which a key is owned and has a begun step.
type rig struct {
	mem   *memstore.Store
	clock *storetest.Clock
	key   onlyonce.Key
	owner onlyonce.Owner
	end   onlyonce.StepEnd
}

func newRig(t *testing.T) *rig {
	t.Helper()
	clock := storetest.NewClock()
	mem, err := memstore.New(memstore.Config{SingleProcess: true, Now: clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{mem: mem, clock: clock, key: onlyonce.Key{Scope: "acct", Value: "k"}, end: onlyonce.StepEnd{Name: "begun", State: onlyonce.StepDone}}
	claim, err := mem.Claim(t.Context(), r.request(r.key))
	if err != nil {
		t.Fatal(err)
	}
	r.owner = claim.Record.Owner()
	if held, err := mem.BeginStep(t.Context(), r.owner, onlyonce.Intent{Name: "begun"}); err != nil || !held {
		t.Fatalf("begin step: %v, %v", held, err)
	}
	return r
}

func (r *rig) request(key onlyonce.Key) onlyonce.ClaimRequest {
	return onlyonce.ClaimRequest{Key: key, Operation: "op", Attempt: onlyonce.NewToken(), Lease: time.Minute, Retention: time.Hour}
}

// state is the state of a key; empty if there is none.
func (r *rig) state(t *testing.T, key onlyonce.Key) onlyonce.State {
	t.Helper()
	rec, _, err := r.mem.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return rec.State
}

// use calls one method and says what happened in the store; nil: the call only
// reads.
type use struct {
	call     func(context.Context, *rig, *storefault.TxStore[*memstore.Tx]) error
	happened func(*testing.T, *rig) bool
	keyless  bool
	atCommit bool // it happens when the caller commits
}

func uses() map[storefault.Method]use {
	other := onlyonce.Key{Scope: "acct", Value: "other"}
	ok := func(context.Context, *memstore.Tx) (*onlyonce.Answer, error) {
		return &onlyonce.Answer{Status: 201}, nil
	}
	is := func(want onlyonce.State) func(*testing.T, *rig) bool {
		return func(t *testing.T, r *rig) bool { t.Helper(); return r.state(t, r.key) == want }
	}
	step := func(name string, state onlyonce.StepState) func(*testing.T, *rig) bool {
		return func(t *testing.T, r *rig) bool {
			t.Helper()
			steps, err := r.mem.Steps(t.Context(), r.key)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range steps {
				if s.Name == name && s.State == state {
					return true
				}
			}
			return false
		}
	}
	type store = *storefault.TxStore[*memstore.Tx]
	return map[storefault.Method]use{
		storefault.Claim: {
			call: func(ctx context.Context, r *rig, s store) error { _, err := s.Claim(ctx, r.request(other)); return err },
			happened: func(t *testing.T, r *rig) bool {
				t.Helper()
				return r.state(t, other) == onlyonce.InProgress
			},
		},
		storefault.Renew: {
			call: func(ctx context.Context, r *rig, s store) error {
				_, err := s.Renew(ctx, r.owner, time.Hour)
				return err
			},
			happened: func(t *testing.T, r *rig) bool {
				t.Helper()
				rec, _, err := r.mem.Get(t.Context(), r.key)
				return err == nil && rec.LeaseEnd.Sub(rec.CreatedAt) > 2*time.Minute
			},
		},
		storefault.Complete: {
			call: func(ctx context.Context, r *rig, s store) error {
				_, err := s.Complete(ctx, r.owner, onlyonce.Answer{Status: 201})
				return err
			},
			happened: is(onlyonce.Completed),
		},
		storefault.Release: {
			call:     func(ctx context.Context, r *rig, s store) error { _, err := s.Release(ctx, r.owner, "why"); return err },
			happened: is(onlyonce.FailedRetryable),
		},
		storefault.Park: {
			call: func(ctx context.Context, r *rig, s store) error {
				_, err := s.Park(ctx, onlyonce.ParkRequest{Owner: r.owner})
				return err
			},
			happened: is(onlyonce.InDoubt),
		},
		storefault.Get: {
			call: func(ctx context.Context, r *rig, s store) error {
				rec, found, err := s.Get(ctx, r.key)
				return read(found && rec.Key == r.key, err)
			},
		},
		storefault.Sweep: {
			call: func(ctx context.Context, r *rig, s store) error {
				r.clock.Advance(time.Hour) // its lease is over
				_, err := s.Sweep(ctx, onlyonce.SweepRequest{Limit: 10})
				return err
			},
			happened: is(onlyonce.InDoubt),
			keyless:  true,
		},
		storefault.Atomic: {
			call: func(ctx context.Context, r *rig, s store) error {
				_, _, err := s.Atomic(ctx, r.request(other), ok)
				return err
			},
			happened: func(t *testing.T, r *rig) bool {
				t.Helper()
				return r.state(t, other) == onlyonce.Completed
			},
		},
		storefault.Finish: {
			call:     func(ctx context.Context, r *rig, s store) error { _, err := s.Finish(ctx, r.owner, ok); return err },
			happened: is(onlyonce.Completed),
		},
		storefault.CompleteTx: {
			call: func(ctx context.Context, r *rig, s store) error {
				var failure error
				err := r.mem.Do(func(tx *memstore.Tx) error {
					_, failure = s.CompleteTx(ctx, tx, r.owner, onlyonce.Answer{Status: 201})
					return nil
				})
				return errors.Join(failure, err)
			},
			happened: is(onlyonce.Completed),
			atCommit: true,
		},
		storefault.BeginStep: {
			call: func(ctx context.Context, r *rig, s store) error {
				_, err := s.BeginStep(ctx, r.owner, onlyonce.Intent{Name: "new"})
				return err
			},
			happened: step("new", onlyonce.StepBegun),
		},
		storefault.EndStep: {
			call:     func(ctx context.Context, r *rig, s store) error { _, err := s.EndStep(ctx, r.owner, r.end); return err },
			happened: step("begun", onlyonce.StepDone),
		},
		storefault.Steps: {
			call: func(ctx context.Context, r *rig, s store) error {
				steps, err := s.Steps(ctx, r.key)
				return read(len(steps) == 1, err)
			},
		},
		storefault.Setting: {
			call: func(ctx context.Context, r *rig, s store) error {
				_, err := r.mem.AddSetting(ctx, "kind", "old", []byte("value"))
				if err != nil {
					return err
				}
				v, found, err := s.Setting(ctx, "kind", "old")
				return read(found && string(v) == "value", err)
			},
			keyless: true,
		},
		storefault.AddSetting: {
			call: func(ctx context.Context, _ *rig, s store) error {
				_, err := s.AddSetting(ctx, "kind", "new", []byte("value"))
				return err
			},
			happened: func(t *testing.T, r *rig) bool {
				t.Helper()
				_, found, err := r.mem.Setting(t.Context(), "kind", "new")
				return err == nil && found
			},
			keyless: true,
		},
		storefault.AddAudit: {
			call: func(ctx context.Context, r *rig, s store) error {
				return s.AddAudit(ctx, onlyonce.AuditEntry{Key: r.key, Actor: "ann"})
			},
			happened: func(t *testing.T, r *rig) bool {
				t.Helper()
				entries, err := r.mem.Audit(t.Context(), r.key)
				return err == nil && len(entries) == 1
			},
		},
	}
}

// read is the error of a call that reads, or that it gave a wrong value.
func read(right bool, err error) error {
	if err == nil && !right {
		return errors.New("the reply is not the store's")
	}
	return err
}

// Each method does what its fault says: a call that fails before does not
// happen, one that fails after does, one without a fault passes, and what holds
// it up runs at its place.
func TestFaults(t *testing.T) {
	t.Parallel()
	for method, u := range uses() {
		for name, c := range map[string]struct {
			fault   storefault.Fault
			happens bool
		}{
			"passes":        {storefault.Fault{}, true},
			"request lost":  {storefault.Fault{Before: storefault.ErrDown}, false},
			"reply lost":    {storefault.Fault{After: errLost}, true},
			"request first": {storefault.Fault{Before: storefault.ErrDown, After: errLost}, false},
		} {
			t.Run(string(method)+"/"+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				did := func() bool { return u.happened != nil && u.happened(t, r) }
				var held []string
				fault := c.fault
				fault.Hold = func(context.Context) {
					if held = append(held, "request"); did() {
						t.Error("the call happened before it was let go")
					}
				}
				fault.HoldReply = func(context.Context) {
					if held = append(held, "reply"); u.happened != nil && !u.atCommit && !did() {
						t.Error("the reply was held before the call happened")
					}
				}
				s := storefault.NewTx(r.mem, func(m storefault.Method, key onlyonce.Key) storefault.Fault {
					if m != method || (key == onlyonce.Key{}) != u.keyless {
						t.Errorf("asked about %s of %v", m, key)
					}
					return fault
				})
				want := c.fault.Before
				wantHeld := []string{"request"}
				if want == nil {
					want = c.fault.After
					wantHeld = append(wantHeld, "reply")
				}
				if err := u.call(t.Context(), r, s); !errors.Is(err, want) || (want == nil) != (err == nil) {
					t.Errorf("got %v, want %v", err, want)
				}
				if u.happened != nil && did() != c.happens {
					t.Errorf("happened: %v, want %v", !c.happens, c.happens)
				}
				if diff := cmp.Diff(wantHeld, held); diff != "" {
					t.Errorf("held (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// What is read for people is never made to fail.
func TestListAndAuditPass(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := storefault.New(r.mem, func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
		t.Errorf("asked about %s", m)
		return storefault.Fault{}
	})
	if page, err := s.List(t.Context(), onlyonce.ListFilter{}); err != nil || len(page.Records) != 1 {
		t.Errorf("list: %+v, %v", page, err)
	}
	if entries, err := s.Audit(t.Context(), r.key); err != nil || len(entries) != 0 {
		t.Errorf("audit: %+v, %v", entries, err)
	}
	if s.Features().Name != "memory" {
		t.Errorf("features: %+v", s.Features())
	}
}

// A script gives each method its own faults in order, and lets pass what is
// left.
func TestScript(t *testing.T) {
	t.Parallel()
	first, second := errors.New("first"), errors.New("second")
	inject := storefault.Script(map[storefault.Method][]storefault.Fault{
		storefault.Claim: {{Before: first}, {}, {Before: second}},
		storefault.Get:   {{After: first}},
	})
	var got []error
	for _, m := range []storefault.Method{storefault.Claim, storefault.Get, storefault.Claim, storefault.Claim, storefault.Park, storefault.Get, storefault.Claim} {
		f := inject(m, onlyonce.Key{})
		got = append(got, errors.Join(f.Before, f.After))
	}
	for i, want := range []error{first, first, nil, second, nil, nil, nil} {
		if !errors.Is(got[i], want) || (got[i] == nil) != (want == nil) {
			t.Errorf("call %d: %v, want %v", i, got[i], want)
		}
	}
}

// Under concurrency each fault of a script is given to one call.
func TestScriptIsConcurrent(t *testing.T) {
	t.Parallel()
	const faulty, calls = 30, 100
	script := make([]storefault.Fault, faulty)
	for i := range script {
		script[i].Before = storefault.ErrDown
	}
	r := newRig(t)
	s := storefault.New(r.mem, storefault.Script(map[storefault.Method][]storefault.Fault{storefault.Get: script}))
	var failed atomic.Int32
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			if _, _, err := s.Get(t.Context(), r.key); errors.Is(err, storefault.ErrDown) {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	if failed.Load() != faulty {
		t.Errorf("%d calls failed, want %d", failed.Load(), faulty)
	}
}

// What holds a call up is given its context, so that it ends with it.
func TestHoldEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := storefault.New(r.mem, storefault.Script(map[storefault.Method][]storefault.Fault{
		storefault.Renew: {{Hold: func(ctx context.Context) { <-ctx.Done() }}},
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := s.Renew(ctx, r.owner, time.Hour)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("renew: %v", err)
	}
}

// A store that lacks a power says so by a panic when it is used: a mistake of
// the test.
func TestMissingPowerPanics(t *testing.T) {
	t.Parallel()
	s := storefault.New(struct{ onlyonce.Store }{newRig(t).mem}, func(storefault.Method, onlyonce.Key) storefault.Fault { return storefault.Fault{} })
	defer func() {
		if recover() == nil {
			t.Error("steps were listed of a store that has none")
		}
	}()
	_, _ = s.Steps(t.Context(), onlyonce.Key{})
}
