package routestore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// moving is attempts that were under way at their old home when the map was changed,
// and such as have begun at the new one; everything must reach both.
type moving struct {
	*world
	t     *testing.T
	store *routestore.TxStore[*memstore.Tx]
}

func eachSide(t *testing.T, fn func(t *testing.T, m moving, req onlyonce.ClaimRequest, owner onlyonce.Owner)) {
	t.Helper()
	for _, side := range []string{"a", "b"} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "a", "b")
			before, after := w.change(t)
			by := map[string]onlyonce.Store{"a": before, "b": after}[side]
			req := request("k")
			req.Abandon, req.Keep = onlyonce.AbandonResume, []byte("kept")
			owner := w.want(t, by, req, onlyonce.Won).Record.Owner()
			if at, err := after.Where(t.Context(), req.Key); err != nil || at.Name != side {
				t.Fatalf("it lives at %+v, %v", at, err)
			}
			fn(t, moving{w, t, after}, req, owner)
			if rec, found := w.here(t, side, req.Key); !found || routestore.IsMarker(rec) {
				t.Errorf("the record is not where it was: %+v", rec)
			}
		})
	}
}

func (m moving) held(held bool, err error) {
	m.t.Helper()
	if err != nil || !held {
		m.t.Errorf("held %v, %v", held, err)
	}
}

// C6: every write of an attempt reaches its record, at the old home as at the new, and
// no other attempt's does.
func TestOwnersWrite(t *testing.T) {
	t.Parallel()
	eachSide(t, func(t *testing.T, m moving, req onlyonce.ClaimRequest, owner onlyonce.Owner) {
		t.Helper()
		ctx, s := t.Context(), m.store
		m.held(s.Renew(ctx, owner, lease))
		m.held(s.BeginStep(ctx, owner, onlyonce.Intent{Name: "charge", Provider: "p", DerivedKey: "d"}))
		m.held(s.EndStep(ctx, owner, onlyonce.StepEnd{Name: "charge", State: onlyonce.StepDone, Result: []byte("r")}))
		result, held, err := s.StepTx(ctx, owner, onlyonce.TxStep{Name: "book"}, func(context.Context, *memstore.Tx) ([]byte, error) { return []byte("b"), nil })
		m.held(held && string(result) == "b", err)
		if steps, err := s.Steps(ctx, req.Key); err != nil || len(steps) != 2 {
			t.Errorf("steps: %v, %v", steps, err)
		}
		kept, found, err := s.Kept(ctx, req.Key)
		m.held(found && string(kept) == "kept", err)
		m.held(s.Requeue(ctx, req.Key))
		zombie := owner
		zombie.Attempt = onlyonce.NewToken()
		if held, err := s.Release(ctx, zombie, "zombie"); held || err != nil {
			t.Errorf("another attempt's release: %v, %v", held, err)
		}
		m.held(s.Park(ctx, onlyonce.ParkRequest{Owner: owner, Reason: "?"}))
		m.want(t, s, again(req), onlyonce.Doubtful)
		resolving := again(req)
		resolving.Resolve = true
		c := m.want(t, s, resolving, onlyonce.Resumed)
		if c.From != onlyonce.InDoubt || string(c.Record.Owner().Key.Value) != "k" {
			t.Errorf("%+v", c)
		}
		m.held(s.Release(ctx, c.Record.Owner(), "freed"))
		c = m.want(t, s, again(req), onlyonce.Resumed)
		done(t, s, c.Record.Owner())
		done(t, s, c.Record.Owner()) // C10: it may be repeated
		if rec, found, err := s.Get(ctx, req.Key); err != nil || !found || rec.State != onlyonce.Completed {
			t.Errorf("get: %+v, %v, %v", rec, found, err)
		}
	})
}

// C6: the last transaction is one of the home that has the record.
func TestOwnersFinish(t *testing.T) {
	t.Parallel()
	eachSide(t, func(t *testing.T, m moving, req onlyonce.ClaimRequest, owner onlyonce.Owner) {
		t.Helper()
		var in *memstore.Store
		settled, err := m.store.Finish(t.Context(), owner, func(_ context.Context, tx *memstore.Tx) (*onlyonce.Answer, error) {
			in = tx.Store()
			return &onlyonce.Answer{Status: 201}, nil
		})
		m.held(settled.Held, err)
		if rec, _, _ := in.Get(t.Context(), req.Key); rec.State != onlyonce.Completed {
			t.Errorf("the transaction was another home's: %+v", rec)
		}
	})
}

// C6: completing in a transaction of another home than the record's changes nothing.
func TestCompleteInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	eachSide(t, func(t *testing.T, m moving, req onlyonce.ClaimRequest, owner onlyonce.Owner) {
		t.Helper()
		home, err := m.store.Where(t.Context(), req.Key)
		if err != nil {
			t.Fatal(err)
		}
		right := home.Store.(*memstore.Store)
		wrong := m.stores["a"]
		if wrong == right {
			wrong = m.stores["b"]
		}
		complete := func(in *memstore.Store) error {
			return in.Do(func(tx *memstore.Tx) error {
				settled, err := m.store.CompleteTx(t.Context(), tx, owner, onlyonce.Answer{Status: 201})
				if err == nil && !settled.Held {
					err = errors.New("not held")
				}
				return err
			})
		}
		if err := complete(wrong); err == nil {
			t.Error("a transaction of the other home was committed")
		}
		m.want(t, m.store, again(req), onlyonce.Busy)
		if err := complete(right); err != nil {
			t.Error(err)
		}
		m.want(t, m.store, again(req), onlyonce.Replay)
	})
}

// What operators did is found wherever the key has lived.
func TestAuditOfAKeyThatMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	before, after := w.change(t)
	req := request("k")
	done(t, before, w.want(t, before, req, onlyonce.Won).Record.Owner())
	for _, action := range []string{"first", "second"} {
		if err := after.AddAudit(t.Context(), onlyonce.AuditEntry{Key: req.Key, Action: action}); err != nil {
			t.Fatal(err)
		}
		w.clock.Advance(retention)
		done(t, after, w.want(t, after, again(req), onlyonce.Won).Record.Owner())
	}
	entries, err := after.Audit(t.Context(), req.Key)
	if err != nil || len(entries) != 2 || entries[0].Action != "first" || entries[1].Action != "second" {
		t.Errorf("audit: %+v, %v", entries, err)
	}
}

// C10: a claim whose reply was lost, be it that of the marker or that at the new home,
// is repeated with the same token and finds what it did.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	lost := &onlyonce.Error{Code: onlyonce.CodeUncertain}
	for _, at := range []string{"a", "b"} {
		w := newWorld(t, "a", "b")
		old := all(1, "a")
		for i, h := range w.homes {
			if h.Name == at {
				script := map[storefault.Method][]storefault.Fault{storefault.Claim: {{After: lost}}}
				w.homes[i].Store = storefault.New(h.Store, storefault.Script(script))
			}
		}
		s, err := routestore.New(routestore.Config{Homes: w.homes, Map: all(2, "b"), Previous: &old, Now: w.clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		req := request("k")
		if _, err := s.Claim(t.Context(), req); !errors.Is(err, onlyonce.ErrUncertain) {
			t.Fatalf("at %s: %v", at, err)
		}
		c := w.want(t, s, req, onlyonce.Won)
		w.want(t, s, again(req), onlyonce.Busy)
		done(t, s, c.Record.Owner())
		w.clock.Advance(time.Second)
		w.want(t, s, again(req), onlyonce.Replay)
	}
}
