package routestore_test

import (
	"context"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/memstore"
)

const euAddress = "https://eu.example.com"

// region is a process in the region of a, to which eu is another region.
func (w *world) region(t *testing.T, m routestore.Map, previous *routestore.Map) *routestore.TxStore[*memstore.Tx] {
	t.Helper()
	homes := append([]routestore.Home{{Name: "eu", Address: euAddress}}, w.homes...)
	s, err := routestore.NewTx[*memstore.Tx](routestore.Config{Homes: homes, Map: m, Previous: previous, Now: w.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func table(version int, scopes map[string]string) routestore.Map {
	return routestore.Map{Version: version, Homes: []string{"a"}, Table: scopes}
}

// A key of another region is refused by everything that is asked about it, with the
// place where it lives, and nothing is run.
func TestOtherRegion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	s := w.region(t, table(1, map[string]string{"acct": "eu"}), nil)
	req := request("k")
	w.misdirected(t, s, req, "eu", euAddress)
	ctx, owner := t.Context(), onlyonce.Owner{Key: req.Key, Fence: 1, Attempt: req.Attempt}
	_, _, err := s.Atomic(ctx, req, never(t))
	wantMisdirected(t, err, "eu", euAddress)
	_, err = s.Finish(ctx, owner, never(t))
	wantMisdirected(t, err, "eu", euAddress)
	_, err = s.CompleteTx(ctx, nil, owner, onlyonce.Answer{})
	wantMisdirected(t, err, "eu", euAddress)
	_, _, err = s.StepTx(ctx, owner, onlyonce.TxStep{}, nil)
	wantMisdirected(t, err, "eu", euAddress)
	_, _, err = s.Get(ctx, req.Key)
	wantMisdirected(t, err, "eu", euAddress)
	_, err = s.Renew(ctx, owner, lease)
	wantMisdirected(t, err, "eu", euAddress)
	_, err = s.Complete(ctx, owner, onlyonce.Answer{})
	wantMisdirected(t, err, "eu", euAddress)
	_, err = s.Release(ctx, owner, "")
	wantMisdirected(t, err, "eu", euAddress)
	_, err = s.Park(ctx, onlyonce.ParkRequest{Owner: owner})
	wantMisdirected(t, err, "eu", euAddress)
	_, err = s.BeginStep(ctx, owner, onlyonce.Intent{})
	wantMisdirected(t, err, "eu", euAddress)
	_, err = s.EndStep(ctx, owner, onlyonce.StepEnd{})
	wantMisdirected(t, err, "eu", euAddress)
	_, err = s.Steps(ctx, req.Key)
	wantMisdirected(t, err, "eu", euAddress)
	_, _, err = s.Kept(ctx, req.Key)
	wantMisdirected(t, err, "eu", euAddress)
	_, err = s.Requeue(ctx, req.Key)
	wantMisdirected(t, err, "eu", euAddress)
	wantMisdirected(t, s.AddAudit(ctx, onlyonce.AuditEntry{Key: req.Key}), "eu", euAddress)
	_, err = s.Where(ctx, req.Key)
	wantMisdirected(t, err, "eu", euAddress)
	if home, local := s.HomeOf(req.Key); local || home.Name != "eu" || home.Address != euAddress {
		t.Errorf("home %+v, local %v", home, local)
	}
	ours := request("k")
	ours.Key.Scope = "ours"
	if home, local := s.HomeOf(ours.Key); !local || home.Name != "a" {
		t.Errorf("home %+v, local %v", home, local)
	}
	w.want(t, s, ours, onlyonce.Won)
	if !onlyonce.SafeToRetry(&onlyonce.Error{Code: onlyonce.CodeMisdirected}) {
		t.Error("nothing was run, and the same key may not be used")
	}
}

func never(t *testing.T) onlyonce.TxFunc[*memstore.Tx] {
	t.Helper()
	return func(context.Context, *memstore.Tx) (*onlyonce.Answer, error) {
		t.Error("a handler ran for a key of another region")
		return nil, nil
	}
}

// A key that moves to another region is moved by the first process that can reach its
// old home, and refused from then on, unless its record stands there.
func TestMoveToAnotherRegion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	old := table(1, nil)
	before := w.region(t, old, nil)
	after := w.region(t, table(2, map[string]string{"acct": "eu"}), &old)
	stays, moves := request("stays"), request("moves")
	owner := w.want(t, before, stays, onlyonce.Won).Record.Owner()
	w.misdirected(t, after, moves, "eu", euAddress)
	w.misdirected(t, before, again(moves), "eu", euAddress)
	w.want(t, after, again(stays), onlyonce.Busy)
	done(t, after, owner)
	w.want(t, after, again(stays), onlyonce.Replay)
	if home, local := after.HomeOf(moves.Key); !local || home.Name != "a" {
		t.Errorf("its old home decides, which is here: %+v, %v", home, local)
	}
}

// A key whose old home cannot be reached is that region's to decide about, until the
// previous map counts no more.
func TestMoveFromAnotherRegion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	old := table(1, map[string]string{"acct": "eu"})
	homes := append([]routestore.Home{{Name: "eu", Address: euAddress}}, w.homes...)
	until := w.clock.Now().Add(time.Hour)
	s, err := routestore.New(routestore.Config{Homes: homes, Map: table(2, nil), Previous: &old, Until: until, Now: w.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	req := request("k")
	w.misdirected(t, s, req, "eu", euAddress)
	_, _, err = s.Get(t.Context(), req.Key)
	wantMisdirected(t, err, "eu", euAddress)
	if home, local := s.HomeOf(req.Key); local || home.Name != "eu" {
		t.Errorf("home %+v, local %v", home, local)
	}
	w.clock.Advance(time.Hour)
	if home, local := s.HomeOf(req.Key); !local || home.Name != "a" {
		t.Errorf("home %+v, local %v", home, local)
	}
	w.want(t, s, req, onlyonce.Won)
}

// The engine hands on where the key lives, and neither runs the operation nor takes
// the refusal for a fault of the store's.
func TestEngineIsToldWhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a")
	s := w.region(t, table(1, map[string]string{"acct": "eu"}), nil)
	var failed int
	engine, err := onlyonce.NewTx[*memstore.Tx](s, onlyonce.Config{Observer: onlyonce.ObserverFunc(func(_ context.Context, ev onlyonce.Event) {
		if ev.Kind == onlyonce.EventStoreFailed {
			failed++
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	op := onlyonce.Op{Name: "POST /charges", FailOpen: true}
	req := onlyonce.Request{Key: request("k").Key, Canonical: canonical("x")}
	_, err = engine.Wrap(t.Context(), op, req, func(context.Context) (onlyonce.Answer, error) {
		t.Error("the handler ran")
		return onlyonce.Answer{}, nil
	})
	wantMisdirected(t, err, "eu", euAddress)
	op.FailOpen = false
	_, err = engine.Atomic(t.Context(), op, req, func(context.Context, *memstore.Tx) (onlyonce.Answer, error) {
		t.Error("the handler ran")
		return onlyonce.Answer{}, nil
	})
	wantMisdirected(t, err, "eu", euAddress)
	_, _, err = engine.Peek(t.Context(), op, req)
	wantMisdirected(t, err, "eu", euAddress)
	if failed > 0 {
		t.Errorf("%d events say that the store failed", failed)
	}
}
