package routestore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// outage is three homes that can be taken down, each with a scope of its own: a, b, c.
type outage struct {
	*world
	down [3]atomic.Bool
}

func newOutage(t *testing.T) *outage {
	t.Helper()
	o := &outage{world: newWorld(t, "a", "b", "c")}
	for i, h := range o.homes {
		o.homes[i].Store = storefault.NewTx[*memstore.Tx](o.stores[h.Name], func(storefault.Method, onlyonce.Key) storefault.Fault {
			if o.down[i].Load() {
				return storefault.Fault{Before: storefault.ErrDown}
			}
			return storefault.Fault{}
		})
	}
	return o
}

func (o *outage) spread(version int) routestore.Map {
	return routestore.Map{Version: version, Homes: []string{"a"}, Table: map[string]string{"b": "b", "c": "c"}}
}

func of(scope, value string) onlyonce.ClaimRequest {
	req := request(value)
	req.Key.Scope = scope
	return req
}

// Losing one home stops the keys of that home and no others, and says so.
func TestLosingOneHome(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	s := o.open(t, o.spread(1), nil)
	owners := map[string]onlyonce.Owner{}
	for _, scope := range []string{"a", "b", "c"} {
		owners[scope] = o.want(t, s, of(scope, "k"), onlyonce.Won).Record.Owner()
	}
	o.down[1].Store(true)
	_, err := s.Claim(t.Context(), of("b", "k"))
	if !errors.Is(err, onlyonce.ErrUnreachable) || !strings.Contains(err.Error(), "home b") {
		t.Errorf("claim at the lost home: %v", err)
	}
	if _, err := s.Complete(t.Context(), owners["b"], onlyonce.Answer{}); !errors.Is(err, onlyonce.ErrUnreachable) {
		t.Errorf("complete at the lost home: %v", err)
	}
	for _, scope := range []string{"a", "c"} {
		done(t, s, owners[scope])
		o.want(t, s, of(scope, "k"), onlyonce.Replay)
		o.want(t, o.open(t, o.spread(1), nil), of(scope, "new"), onlyonce.Won) // by a process that starts now
	}
	o.down[1].Store(false)
	done(t, s, owners["b"])
}

// While the map is being changed, a write reaches an attempt at one home although the
// other is down; and what is known to be elsewhere is not run unprotected.
func TestLosingOneOfTwoHomes(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	old := all(1, "a")
	before, after := o.open(t, old, nil), o.open(t, all(2, "b"), &old)
	stays := o.want(t, before, request("stays"), onlyonce.Won).Record.Owner()
	moves := o.want(t, after, request("moves"), onlyonce.Won).Record.Owner()
	o.down[1].Store(true)
	if held, err := after.Renew(t.Context(), stays, lease); !held || err != nil {
		t.Errorf("renew at the old home: %v, %v", held, err)
	}
	if _, err := after.Renew(t.Context(), moves, lease); !doubtful(err) {
		t.Errorf("renew at the new home, which is down: %v", err)
	}
	o.down[0].Store(true)
	o.down[1].Store(false)
	if held, err := after.Renew(t.Context(), moves, lease); !held || err != nil {
		t.Errorf("renew at the new home: %v, %v", held, err)
	}
	for name, err := range map[string]error{
		"claim": func() error { _, err := after.Claim(t.Context(), request("new")); return err }(),
		"get":   func() error { _, _, err := after.Get(t.Context(), moves.Key); return err }(),
		"where": func() error { _, err := after.Where(t.Context(), moves.Key); return err }(),
	} {
		if !doubtful(err) {
			t.Errorf("%s while the old home is down: %v", name, err)
		}
	}
	o.down[1].Store(true)
	if _, err := after.Claim(t.Context(), request("new")); !errors.Is(err, onlyonce.ErrUnreachable) {
		t.Errorf("claim while both are down: %v", err)
	}
}

// doubtful tells whether an error says that a store is unavailable, and not that it could
// not be reached, by which an operation may be allowed to run unprotected.
func doubtful(err error) bool {
	return onlyonce.CodeOf(err) == onlyonce.CodeStoreUnavailable && !errors.Is(err, onlyonce.ErrUnreachable)
}

// C11: where the old home has said that it has the key's record, and is then lost,
// nobody may take the store for one that knows nothing.
func TestLosingTheHomeThatHasTheRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	script := map[storefault.Method][]storefault.Fault{storefault.Claim: {{}, {Before: storefault.ErrDown}}}
	w.want(t, w.stores["a"], request("k"), onlyonce.Won)
	w.homes[0].Store = storefault.NewTx[*memstore.Tx](w.stores["a"], storefault.Script(script))
	old := all(1, "a")
	_, err := w.open(t, all(2, "b"), &old).Claim(t.Context(), request("k"))
	if !doubtful(errors.Unwrap(err)) || errors.Is(err, onlyonce.ErrUnreachable) {
		t.Errorf("%v", err)
	}
	script[storefault.Claim][1].Before = onlyonce.ErrUncertain
	w.homes[0].Store = storefault.NewTx[*memstore.Tx](w.stores["a"], storefault.Script(script))
	if _, err := w.open(t, all(2, "b"), &old).Claim(t.Context(), request("k")); !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("%v", err)
	}
}

// What goes over all homes goes on with the others, and tells of the lost one when
// there is nothing else.
func TestHousekeepingGoesOn(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	s := o.open(t, o.spread(1), nil)
	for _, scope := range []string{"a", "b", "c"} {
		for i := range 4 {
			req := of(scope, fmt.Sprint(i))
			req.Abandon, req.Keep = onlyonce.AbandonResume, []byte("kept")
			owner := o.want(t, s, req, onlyonce.Won).Record.Owner()
			if i > 1 {
				done(t, s, owner)
			}
		}
	}
	o.clock.Advance(retention)
	o.down[1].Store(true)
	swept := 0
	var err error
	for range 20 {
		var r onlyonce.SweepResult
		if r, err = s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 1, Grace: 100 * retention, StepRetention: retention}); err != nil {
			break
		}
		swept += r.Deleted
	}
	if swept != 4 || !doubtful(err) || !strings.Contains(err.Error(), "home b") {
		t.Errorf("swept %d, %v; want the 4 of the homes that are there, and then the error", swept, err)
	}
	due := onlyonce.DueRequest{Limit: 3, Pause: time.Hour, MaxPause: time.Hour}
	given := 0
	for range 20 {
		var got []onlyonce.Due
		if got, err = s.Due(t.Context(), due); err != nil {
			break
		}
		given += len(got)
	}
	if given != 4 || !doubtful(err) {
		t.Errorf("%d turns, %v; want the 4 of the homes that are there, and then the error", given, err)
	}
	o.down[1].Store(false)
	if r, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 100, Grace: time.Minute, StepRetention: retention}); r.Deleted != 2 || err != nil {
		t.Errorf("swept %+v, %v", r, err)
	}
}

// busySweeper is a home where another sweeper is at work.
type busySweeper struct{ *memstore.Store }

func (busySweeper) Sweep(context.Context, onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	return onlyonce.SweepResult{Busy: true}, nil
}

func TestSweepIsBusyWhereAllAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	w.homes[0].Store = busySweeper{w.stores["a"]}
	s := w.open(t, all(1, "a"), nil)
	if r, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10}); r.Busy || err != nil {
		t.Errorf("one home was swept: %+v, %v", r, err)
	}
	w.homes[1].Store = busySweeper{w.stores["b"]}
	s = w.open(t, all(1, "a"), nil)
	if r, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10}); !r.Busy || err != nil {
		t.Errorf("no home was swept: %+v, %v", r, err)
	}
}

// F7: a secret that was agreed on is there for every process, whichever home is lost,
// for one that starts then, too.
func TestSettingsSurviveAHome(t *testing.T) {
	t.Parallel()
	for lost := range 3 {
		o := newOutage(t)
		value, err := o.open(t, o.spread(1), nil).AddSetting(t.Context(), "secret", "1", []byte("first"))
		if err != nil || string(value) != "first" {
			t.Fatal(value, err)
		}
		o.down[lost].Store(true)
		s := o.open(t, o.spread(1), nil)
		if value, found, err := s.Setting(t.Context(), "secret", "1"); err != nil || !found || string(value) != "first" {
			t.Errorf("without home %d: %q, %v, %v", lost, value, found, err)
		}
		if value, err := s.AddSetting(t.Context(), "secret", "1", []byte("second")); err != nil || string(value) != "first" {
			t.Errorf("without home %d, added again: %q, %v", lost, value, err)
		}
		policy := []byte("a policy")
		if _, err := s.AddSetting(t.Context(), "policy", onlyonce.PolicyID(policy), policy); err != nil {
			t.Errorf("without home %d: a policy: %v", lost, err)
		}
		if value, err = s.AddSetting(t.Context(), "secret", "2", []byte("new")); !doubtful(err) || value != nil {
			t.Errorf("without home %d: a new secret: %q, %v", lost, value, err)
		}
		if _, found, err := s.Setting(t.Context(), "secret", "3"); found || !doubtful(err) {
			t.Errorf("without home %d: one that may stand there: %v, %v", lost, found, err)
		}
	}
}

// F7: what a home has missed it gets from whoever adds the setting next; and nothing
// is agreed on while no home is there.
func TestSettingsAreMended(t *testing.T) {
	t.Parallel()
	o := newOutage(t)
	if _, err := o.stores["b"].AddSetting(t.Context(), "secret", "1", []byte("first")); err != nil {
		t.Fatal(err)
	}
	if _, err := o.open(t, o.spread(1), nil).AddSetting(t.Context(), "secret", "1", []byte("second")); err != nil {
		t.Fatal(err)
	}
	if value, found, _ := o.stores["c"].Setting(t.Context(), "secret", "1"); !found || string(value) != "first" {
		t.Errorf("at c: %q, %v", value, found)
	}
	for i := range o.down {
		o.down[i].Store(true)
	}
	policy := []byte("a policy")
	if _, err := o.open(t, o.spread(1), nil).AddSetting(t.Context(), "policy", onlyonce.PolicyID(policy), policy); !errors.Is(err, onlyonce.ErrUnreachable) {
		t.Errorf("no home is there: %v", err)
	}
}

// F7: homes that have had different secrets are not used as one: records of one of them
// would be judged under the other's secret.
func TestSettingsThatDiffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	for name, s := range w.stores {
		if _, err := s.AddSetting(t.Context(), "secret", "1", []byte("secret of "+name)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := w.open(t, all(1, "a"), nil).AddSetting(t.Context(), "secret", "1", []byte("new"))
	if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "another value") {
		t.Errorf("%v", err)
	}
}

// F7: many processes that start at once agree.
func TestSettingsAgree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	got := make(chan string, 16)
	for i := range cap(got) {
		s := w.open(t, all(1, "a"), nil)
		go func() {
			value, err := s.AddSetting(t.Context(), "secret", "1", []byte(fmt.Sprint(i)))
			got <- fmt.Sprint(string(value), err)
		}()
	}
	first := <-got
	for range cap(got) - 1 {
		if next := <-got; next != first {
			t.Errorf("%q and %q", first, next)
		}
	}
}

// hanging is a home that does not answer.
type hanging struct{ *memstore.Store }

func (hanging) Setting(ctx context.Context, _, _ string) ([]byte, bool, error) {
	<-ctx.Done()
	return nil, false, ctx.Err()
}

func (hanging) AddSetting(ctx context.Context, _, _ string, _ []byte) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hanging) Sweep(ctx context.Context, _ onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	<-ctx.Done()
	return onlyonce.SweepResult{}, ctx.Err()
}

// A home that hangs costs the others its patience, and no more.
func TestHangingHome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.homes[1].Store = hanging{w.stores["b"]}
		s, err := routestore.New(routestore.Config{Homes: w.homes, Map: all(1, "a"), Patience: time.Second, Now: w.clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if _, err := s.AddSetting(t.Context(), "secret", "1", []byte("first")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a home has not said that it has none: %v", err)
		}
		policy := []byte("a policy")
		if _, err := s.AddSetting(t.Context(), "policy", onlyonce.PolicyID(policy), policy); err != nil {
			t.Errorf("a policy: %v", err)
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("new settings took %v", took)
		}
		if _, err := w.stores["a"].AddSetting(t.Context(), "secret", "1", []byte("first")); err != nil {
			t.Fatal(err)
		}
		begun = time.Now()
		if value, found, err := s.Setting(t.Context(), "secret", "1"); err != nil || !found || string(value) != "first" {
			t.Errorf("%q, %v, %v", value, found, err)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("a setting that stands took %v", took)
		}
		if _, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("sweep: %v", err)
		}
	})
}
