package routestore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	lease     = 30 * time.Second
	retention = 24 * time.Hour
)

func memory(t *testing.T, now func() time.Time) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Config{SingleProcess: true, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// world is homes, all of them in memory, and one clock.
type world struct {
	clock  *storetest.Clock
	homes  []routestore.Home
	stores map[string]*memstore.Store
}

func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	w := &world{clock: storetest.NewClock(), stores: map[string]*memstore.Store{}}
	for _, name := range names {
		w.stores[name] = memory(t, w.clock.Now)
		w.homes = append(w.homes, routestore.Home{Name: name, Store: w.stores[name]})
	}
	return w
}

// all is a map by which everything lives at one home.
func all(version int, home string) routestore.Map {
	return routestore.Map{Version: version, Homes: []string{home}}
}

// open makes a process that has the map and, unless it is nil, the one before.
func (w *world) open(t *testing.T, m routestore.Map, previous *routestore.Map) *routestore.TxStore[*memstore.Tx] {
	t.Helper()
	s, err := routestore.NewTx[*memstore.Tx](routestore.Config{Homes: w.homes, Map: m, Previous: previous, Now: w.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// change is processes on both sides of a change: with the old map alone, and with
// the new one and the old.
func (w *world) change(t *testing.T) (before, after *routestore.TxStore[*memstore.Tx]) {
	t.Helper()
	old := all(1, "a")
	return w.open(t, old, nil), w.open(t, all(2, "b"), &old)
}

func request(value string) onlyonce.ClaimRequest {
	f := onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: 1, Secret: "s1", Policy: "0011223344556677"}}
	copy(f.Sum[:], "sum of "+value)
	return onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: "acct", Value: value}, Operation: "POST /charges", Fingerprint: f,
		Attempt: onlyonce.NewToken(), Lease: lease, Retention: retention, Abandon: onlyonce.AbandonRerun,
	}
}

func again(req onlyonce.ClaimRequest) onlyonce.ClaimRequest {
	req.Attempt = onlyonce.NewToken()
	return req
}

// claim claims and repeats what is to be repeated, time passing meanwhile.
func (w *world) claim(ctx context.Context, s onlyonce.Store, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	for range 10 {
		c, err := s.Claim(ctx, req)
		if onlyonce.CodeOf(err) != onlyonce.CodeConflict {
			return c, err
		}
		w.clock.Advance(time.Millisecond)
	}
	return onlyonce.Claim{}, fmt.Errorf("claim of %s was never decided", req.Key.Value)
}

// want claims and checks the verdict.
func (w *world) want(t *testing.T, s onlyonce.Store, req onlyonce.ClaimRequest, verdict onlyonce.Verdict) onlyonce.Claim {
	t.Helper()
	c, err := w.claim(t.Context(), s, req)
	if err != nil || c.Verdict != verdict {
		t.Fatalf("claim of %s: %v, %v; want %v", req.Key.Value, c.Verdict, err, verdict)
	}
	return c
}

// misdirected claims and wants to be sent to a home.
func (w *world) misdirected(t *testing.T, s onlyonce.Store, req onlyonce.ClaimRequest, home, address string) {
	t.Helper()
	c, err := w.claim(t.Context(), s, req)
	wantMisdirected(t, err, home, address)
	if c.Verdict != 0 {
		t.Errorf("verdict %v beside the error", c.Verdict)
	}
}

func wantMisdirected(t *testing.T, err error, home, address string) {
	t.Helper()
	e, ok := err.(*onlyonce.Error) //nolint:errorlint // it must come as it is
	if !ok || e.Code != onlyonce.CodeMisdirected || e.Home != home || e.Address != address {
		t.Fatalf("got %v, want a misdirected request to %s at %q", err, home, address)
	}
}

// here is the record of the key at one home, markers included.
func (w *world) here(t *testing.T, home string, key onlyonce.Key) (onlyonce.Record, bool) {
	t.Helper()
	rec, found, err := w.stores[home].Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return rec, found
}

func done(t *testing.T, s onlyonce.Store, owner onlyonce.Owner) {
	t.Helper()
	settled, err := s.Complete(t.Context(), owner, onlyonce.Answer{Status: 201, Body: []byte("done")})
	if err != nil || !settled.Held {
		t.Fatalf("complete: %+v, %v", settled, err)
	}
}
