package routestore_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// faulty is the world's homes behind faults.
func (w *world) faulty(fault func(home string, m storefault.Method) storefault.Fault) []routestore.Home {
	var homes []routestore.Home
	for _, h := range w.homes {
		homes = append(homes, routestore.Home{Name: h.Name, Store: storefault.NewTx[*memstore.Tx](w.stores[h.Name], func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
			return fault(h.Name, m)
		})})
	}
	return homes
}

func (w *world) engine(t *testing.T, cfg routestore.Config) *onlyonce.Engine {
	t.Helper()
	cfg.Now = w.clock.Now
	s, err := routestore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	e, err := onlyonce.New(s, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return e
}

func pay() onlyonce.Request {
	return onlyonce.Request{Key: request("k").Key, Canonical: canonical("pay 10"), Keep: []byte("pay 10")}
}

func pays(n *int) onlyonce.HandlerFunc {
	return func(context.Context) (onlyonce.Answer, error) {
		*n++
		return onlyonce.Answer{Status: 201}, nil
	}
}

// C1: a marker that an earlier change has left is not relied on when it was taken over,
// its lease being over or it being free: it says still where that change led, and who
// has that map would take it back.
func TestMarkerOfAnEarlierChange(t *testing.T) {
	t.Parallel()
	for name, passed := range map[string]time.Duration{"standing": 25 * time.Hour, "over": 90*24*time.Hour + time.Minute} {
		for _, resource := range []string{"", "order 7"} {
			w := newWorld(t, "a", "b", "c")
			m1, m2, m3 := all(1, "b"), all(2, "a"), all(3, "b")
			v2, v3, v4 := w.open(t, m2, &m1), w.open(t, m3, &m2), w.open(t, all(4, "c"), &m3)
			req := request("k")
			req.Resource = resource
			done(t, v2, w.want(t, v2, req, onlyonce.Won).Record.Owner())
			w.clock.Advance(passed)
			for range 10 { // no time passes, so that what is taken back is free, and not yet gone
				c, err := v4.Claim(t.Context(), again(req))
				if c.Verdict != 0 || onlyonce.CodeOf(err) != onlyonce.CodeConflict {
					t.Fatalf("%s: by the last map: %v, %v", name, c.Verdict, err)
				}
			}
			w.clock.Advance(time.Second)
			w.want(t, v4, again(req), onlyonce.Won)
			w.misdirected(t, v3, again(req), "c", "")
		}
	}
}

// until is a process by which everything moves from a to b, and a counts for an hour.
func (w *world) until(t *testing.T) *routestore.TxStore[*memstore.Tx] {
	t.Helper()
	old := all(1, "a")
	s, err := routestore.NewTx[*memstore.Tx](routestore.Config{
		Homes: w.homes, Map: all(2, "b"), Previous: &old, Until: w.clock.Now().Add(time.Hour), Now: w.clock.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// X1: what stands where its key lives no more is not given to the recoverer, who would
// run it anew at the key's present home.
func TestNotDueAtTheOldHome(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	s := w.until(t)
	req := request("k")
	req.Abandon, req.Keep = onlyonce.AbandonResume, []byte("kept")
	owner := w.want(t, s.Store, req, onlyonce.Won).Record.Owner() // at b
	left := again(req)
	left.Key.Value = "left"
	before := w.open(t, all(1, "a"), nil)
	lost := w.want(t, before, left, onlyonce.Won).Record.Owner()
	for _, o := range []onlyonce.Owner{owner, lost} {
		if held, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: o, Reason: "?"}); !held || err != nil {
			t.Fatal(held, err)
		}
	}
	ask := onlyonce.DueRequest{Limit: 10, Pause: time.Minute, MaxPause: time.Minute}
	w.clock.Advance(lease)
	if due, err := s.Due(t.Context(), ask); err != nil || len(due) != 2 {
		t.Errorf("while the old map counts: %+v, %v", due, err)
	}
	w.clock.Advance(time.Hour)
	due, err := s.Due(t.Context(), ask)
	if err != nil || len(due) != 1 || due[0].Record.Key != req.Key {
		t.Errorf("afterwards: %+v, %v", due, err)
	}
	w.wantLeft(t, s, 1) // it is held, and seen
	if rec, found := w.here(t, "a", left.Key); !found || rec.State != onlyonce.InDoubt {
		t.Errorf("it is %+v", rec)
	}
}

// C6, D: when the old map counts no more, an attempt's steps and its answer are those of
// its own life, at the home that has its record; the other's stay as they are.
func TestLivesAfterUntil(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	s, before := w.until(t), w.open(t, all(1, "a"), nil)
	req := request("k")
	req.Abandon = onlyonce.AbandonResume
	first := w.want(t, before, req, onlyonce.Won).Record.Owner()
	begin := func(owner onlyonce.Owner, name string) {
		t.Helper()
		if held, err := s.BeginStep(t.Context(), owner, onlyonce.Intent{Name: name, Provider: "p"}); !held || err != nil {
			t.Fatal(name, held, err)
		}
	}
	lives := func(home, step string) {
		t.Helper()
		at, err := s.Where(t.Context(), req.Key)
		if err != nil || at.Name != home {
			t.Errorf("it lives at %s, %v; want %s", at.Name, err, home)
		}
		steps, err := s.Steps(t.Context(), req.Key)
		if err != nil || len(steps) != 1 || steps[0].Name != step {
			t.Errorf("its steps are %+v, %v; want %s", steps, err, step)
		}
	}
	begin(first, "old")
	w.clock.Advance(2 * time.Hour)
	lives("a", "old") // nobody has begun another life
	second := w.want(t, s, again(req), onlyonce.Won).Record.Owner()
	begin(second, "new")
	lives("b", "new")
	for home, owner := range map[string]onlyonce.Owner{"a": first, "b": second} {
		if _, held, err := s.StepTx(t.Context(), owner, onlyonce.TxStep{Name: "book"}, func(context.Context, *memstore.Tx) ([]byte, error) { return nil, nil }); !held || err != nil {
			t.Errorf("a step in a transaction at %s: %v, %v", home, held, err)
		}
		settled, err := s.Finish(t.Context(), owner, func(_ context.Context, tx *memstore.Tx) (*onlyonce.Answer, error) {
			if tx.Store() != w.stores[home] {
				t.Errorf("the transaction is not one of %s", home)
			}
			return &onlyonce.Answer{Status: 201}, nil
		})
		if !settled.Held || err != nil {
			t.Errorf("finish at %s: %+v, %v", home, settled, err)
		}
	}
}

// C1: where a record kept a key at its old home, and is gone when it is claimed there, no
// new life begins: others may have stopped to ask that home.
func TestNoNewLifeAtTheOldHome(t *testing.T) {
	t.Parallel()
	for name, atomic := range map[string]bool{"claim": false, "atomic": true} {
		w := newWorld(t, "a", "b")
		before, next := w.change(t)
		req := request("k")
		done(t, before, w.want(t, before, req, onlyonce.Won).Record.Owner())
		claims := 0
		old := all(1, "a")
		slow, err := routestore.NewTx[*memstore.Tx](routestore.Config{Map: all(2, "b"), Previous: &old, Now: w.clock.Now, Homes: w.faulty(func(home string, m storefault.Method) storefault.Fault {
			if home == "a" && (m == storefault.Claim || m == storefault.Atomic) {
				if claims++; claims == 2 { // it has learned that the key stays
					w.clock.Advance(retention)
					w.wantLeft(t, next, 0)
					w.want(t, w.open(t, all(2, "b"), nil), again(req), onlyonce.Won)
				}
			}
			return storefault.Fault{}
		})})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			var c onlyonce.Claim
			if atomic {
				c, _, err = slow.Atomic(t.Context(), again(req), never(t))
			} else {
				c, err = slow.Claim(t.Context(), again(req))
			}
			if c.Verdict.Owns() {
				t.Fatalf("%s: a second owner: %v", name, c.Verdict)
			}
			w.clock.Advance(time.Millisecond)
		}
		if err != nil || claims < 2 {
			t.Errorf("%s: in the end %v, after %d claims", name, err, claims)
		}
		w.wantLeft(t, next, 0)
	}
}

// C1, O: what was freed at its old home runs there in a transaction, once, and is free
// again when that is rolled back.
func TestAtomicAtTheOldHome(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	before, after := w.change(t)
	req := request("k")
	if held, err := before.Release(t.Context(), w.want(t, before, req, onlyonce.Won).Record.Owner(), "freed"); !held || err != nil {
		t.Fatal(held, err)
	}
	no := errors.New("no")
	var in *memstore.Store
	for _, fails := range []error{no, nil} {
		_, settled, err := after.Atomic(t.Context(), again(req), func(_ context.Context, tx *memstore.Tx) (*onlyonce.Answer, error) {
			in = tx.Store()
			return &onlyonce.Answer{Status: 201}, fails
		})
		if !errors.Is(err, fails) || settled.Held != (fails == nil) || in != w.stores["a"] {
			t.Errorf("%+v, %v", settled, err)
		}
		if rec, _ := w.here(t, "a", req.Key); (rec.State == onlyonce.FailedRetryable) != (fails != nil) {
			t.Errorf("behind %v it is %q", fails, rec.State)
		}
	}
	w.want(t, after, again(req), onlyonce.Replay)
}

// F7: a process that has another first home, and cannot reach the one that has the
// secret, makes no second one: a retry would be told that its key was used otherwise.
func TestSecretIsNotForked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "ap", "eu")
	var down atomic.Bool
	homes := w.faulty(func(home string, _ storefault.Method) storefault.Fault {
		if home == "eu" && down.Load() {
			return storefault.Fault{Before: storefault.ErrDown}
		}
		return storefault.Fault{}
	})
	op, n := onlyonce.Op{Name: "POST /charges"}, 0
	if _, err := w.engine(t, routestore.Config{Homes: homes[1:], Map: all(1, "eu")}).Wrap(t.Context(), op, pay(), pays(&n)); err != nil {
		t.Fatal(err)
	}
	down.Store(true)
	second := w.engine(t, routestore.Config{Homes: homes, Map: all(1, "eu")})
	if _, err := second.Wrap(t.Context(), op, pay(), pays(&n)); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
		t.Errorf("while eu is down: %v", err)
	}
	down.Store(false)
	if res, err := second.Wrap(t.Context(), op, pay(), pays(&n)); err != nil || res.Status != onlyonce.Replayed || n != 1 {
		t.Errorf("when it is back: %v, %v, %d runs", res.Status, err, n)
	}
}

// C11: an operation that may run while its store is out of reach does not where one of
// the homes was reached, or is not asked: while the map is being changed, and where a
// setting is looked for.
func TestFailOpenBesideAHomeThatAnswers(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk full")
	for name, fault := range map[string]func(home string, m storefault.Method) error{
		"the old home is down": func(home string, _ storefault.Method) error { return map[string]error{"a": storefault.ErrDown}[home] },
		"the new home is down": func(home string, _ storefault.Method) error { return map[string]error{"b": storefault.ErrDown}[home] },
		"a policy": func(home string, m storefault.Method) error {
			if home == "b" && m == storefault.AddSetting {
				return broken
			}
			return map[string]error{"a": storefault.ErrDown}[home]
		},
		"the secret": func(home string, m storefault.Method) error {
			if home == "b" && m == storefault.Setting {
				return broken
			}
			return map[string]error{"a": storefault.ErrDown}[home]
		},
	} {
		w := newWorld(t, "a", "b")
		old, n := all(1, "a"), 0
		op := onlyonce.Op{Name: "POST /charges", FailOpen: true}
		if _, err := w.engine(t, routestore.Config{Homes: w.homes, Map: all(2, "b"), Previous: &old}).Wrap(t.Context(), op, pay(), pays(&n)); err != nil {
			t.Fatal(err)
		}
		homes := w.faulty(func(home string, m storefault.Method) storefault.Fault {
			return storefault.Fault{Before: fault(home, m)}
		})
		op.Policy = []byte("that of the next deploy")
		for _, previous := range []*routestore.Map{&old, nil} {
			if previous == nil && name == "the new home is down" {
				continue // then it is the only home of the key
			}
			res, err := w.engine(t, routestore.Config{Homes: homes, Map: all(2, "b"), Previous: previous}).Wrap(t.Context(), op, pay(), pays(&n))
			if n != 1 || res.Status == onlyonce.Unprotected {
				t.Errorf("%s: %d runs, %v, %v", name, n, res.Status, err)
			}
		}
	}
}

// Nothing is left is said only by who can see it.
func TestLeftIsNotAskedInVain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "eu")
	old := all(1, "eu")
	from := []routestore.Home{w.homes[0], {Name: "eu", Address: euAddress}}
	elsewhere, err := routestore.New(routestore.Config{Homes: from, Map: all(2, "a"), Previous: &old, Until: w.clock.Now().Add(time.Hour), Now: w.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	there := w.open(t, all(2, "a"), &old)
	for name, left := range map[string]func() ([]onlyonce.Record, error){
		"none":     func() ([]onlyonce.Record, error) { return there.Left(t.Context(), 0) },
		"negative": func() ([]onlyonce.Record, error) { return there.Left(t.Context(), -1) },
		"unseen":   func() ([]onlyonce.Record, error) { return elsewhere.Left(t.Context(), 1) },
	} {
		if got, err := left(); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("%s: %d, %v", name, len(got), err)
		}
	}
	// A region that loses nothing is in nobody's way.
	was, is := table(1, map[string]string{"far": "eu"}), table(2, map[string]string{"far": "eu", "near": "b"})
	w2 := newWorld(t, "a", "b")
	w2.wantLeft(t, w2.region(t, is, &was), 0)
}

// silent is a home whose writes hang.
type silent struct{ *memstore.Store }

func (silent) Complete(ctx context.Context, _ onlyonce.Owner, _ onlyonce.Answer) (onlyonce.Settled, error) {
	<-ctx.Done()
	return onlyonce.Settled{}, ctx.Err()
}

func (silent) Renew(ctx context.Context, _ onlyonce.Owner, _ time.Duration) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func (silent) Get(ctx context.Context, _ onlyonce.Key) (onlyonce.Record, bool, error) {
	<-ctx.Done()
	return onlyonce.Record{}, false, ctx.Err()
}

// C6: a home that hangs keeps no attempt of another home from its lease and its answer.
func TestWritesBesideAHangingHome(t *testing.T) {
	t.Parallel()
	for _, bound := range []time.Duration{0, 2 * time.Second} {
		for _, home := range []string{"a", "b"} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				before, after := w.change(t)
				owner := w.want(t, map[string]onlyonce.Store{"a": before, "b": after}[home], request("k"), onlyonce.Won).Record.Owner()
				for i := range w.homes {
					if w.homes[i].Name != home {
						w.homes[i].Store = silent{w.stores[w.homes[i].Name]}
					}
				}
				_, s := w.change(t)
				limited := func() (context.Context, context.CancelFunc) {
					if bound == 0 {
						return context.WithCancel(t.Context())
					}
					return context.WithTimeout(t.Context(), bound)
				}
				ctx, cancel := limited()
				held, err := s.Renew(ctx, owner, lease)
				cancel()
				if !held || err != nil {
					t.Errorf("renew at %s within %v: %v, %v", home, bound, held, err)
				}
				ctx, cancel = limited()
				defer cancel()
				settled, err := s.Finish(ctx, owner, func(context.Context, *memstore.Tx) (*onlyonce.Answer, error) {
					return &onlyonce.Answer{Status: 201}, nil
				})
				if !settled.Held || err != nil {
					t.Errorf("finish at %s within %v: %+v, %v", home, bound, settled, err)
				}
			})
		}
	}
}
