package routestore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// canonical is a request whose form is its text.
type canonical string

func (canonical) Version() int                                        { return 1 }
func (c canonical) Form(int, []byte) (onlyonce.Form, error)           { return c, nil }
func (c canonical) Sum() [32]byte                                     { return [32]byte([]byte(fmt.Sprintf("%32s", string(c)))) }
func (canonical) Parts() []onlyonce.Part                              { return nil }
func (canonical) Differs([]string, func(int, [32]byte) bool) []string { return []string{"body"} }

// A process whose map is out of date is told where the key has gone, and neither that
// it was used for another request nor that it is free.
func TestMapOutOfDate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	before, after := w.change(t)
	req := request("k")
	w.want(t, after, req, onlyonce.Won)
	w.misdirected(t, before, again(req), "b", "")
	_, _, err := before.Get(t.Context(), req.Key)
	wantMisdirected(t, err, "b", "")
	_, _, err = before.Atomic(t.Context(), again(req), never(t))
	wantMisdirected(t, err, "b", "")
	if e, _ := errors.AsType[*onlyonce.Error](err); e.RetryAfter <= 0 {
		t.Error("nothing says when to come back")
	}
}

// Two maps of one version that differ are found out where they meet, and nothing runs.
func TestMapsOfOneVersionDiffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	old := all(1, "a")
	toB, toC := w.open(t, all(2, "b"), &old), w.open(t, all(2, "c"), &old)
	req := request("k")
	w.want(t, toB, req, onlyonce.Won)
	w.misdirected(t, toC, again(req), "b", "")
	w.misdirected(t, w.open(t, all(2, "a"), nil), again(req), "b", "") // moved by a map of its own version
	elsewhere := all(2, "a")
	w.misdirected(t, w.open(t, all(3, "a"), &elsewhere), again(req), "b", "") // by that before, which says otherwise
}

// A marker of a change that is yet to come, or that cannot be read, stops whoever
// finds it, at the old home as at the new.
func TestLaterMarker(t *testing.T) {
	t.Parallel()
	for _, operation := range []string{"onlyonce:moved 9 c", "onlyonce:moved x c", "onlyonce:moved"} {
		for _, at := range []string{"a", "b"} {
			w := newWorld(t, "a", "b")
			_, after := w.change(t)
			marker := request("k")
			marker.Fingerprint, marker.Operation = routestore.MarkerFingerprint(), operation
			w.want(t, w.stores[at], marker, onlyonce.Won)
			c, err := after.Claim(t.Context(), request("k"))
			if c.Verdict != 0 || onlyonce.CodeOf(err) != onlyonce.CodeMisdirected {
				t.Errorf("%q at %s: %v, %v", operation, at, c.Verdict, err)
			}
			if rec, found := w.here(t, at, marker.Key); !found || rec.Attempt != marker.Attempt {
				t.Errorf("%q at %s was taken away: %+v", operation, at, rec)
			}
		}
	}
}

// Nothing that a caller or an operation's name says makes a record a marker; what
// bears a marker's fingerprint is refused.
func TestMarkersCannotBeForged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	before, after := w.change(t)
	named := request("k")
	named.Operation = "onlyonce:moved 9 c"
	for _, forged := range []onlyonce.ClaimRequest{named, {
		Key: named.Key, Operation: "POST /charges", Fingerprint: routestore.MarkerFingerprint(), Attempt: onlyonce.NewToken(), Lease: lease, Retention: retention,
	}} {
		for _, s := range []*routestore.TxStore[*memstore.Tx]{before, after} {
			if _, err := s.Claim(t.Context(), forged); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
				t.Errorf("claim: %v", err)
			}
			if _, _, err := s.Atomic(t.Context(), forged, never(t)); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
				t.Errorf("atomic: %v", err)
			}
		}
	}
	w.want(t, w.stores["a"], named, onlyonce.Won) // by a program that does not route
	other := again(named)
	other.Operation = "POST /charges"
	w.want(t, after, other, onlyonce.Busy) // an ordinary record, which keeps its home
}

// Once Until has passed, the old home is not asked any more; attempts that are still
// under way there end there.
func TestUntil(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	before, _ := w.change(t)
	old := all(1, "a")
	s, err := routestore.New(routestore.Config{Homes: w.homes, Map: all(2, "b"), Previous: &old, Until: w.clock.Now().Add(time.Hour), Now: w.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	req := request("k")
	owner := w.want(t, before, req, onlyonce.Won).Record.Owner()
	w.want(t, s, again(req), onlyonce.Busy)
	if rec, found, err := s.Get(t.Context(), req.Key); !found || err != nil || rec.Attempt != req.Attempt {
		t.Errorf("get: %+v, %v, %v", rec, found, err)
	}
	moves := request("moves")
	w.want(t, s, moves, onlyonce.Won)
	marker, _ := w.here(t, "a", moves.Key)
	if life := marker.LeaseEnd.Sub(w.clock.Now()); life < 90*24*time.Hour {
		t.Errorf("the marker lives for %v", life)
	}
	w.clock.Advance(time.Hour)
	done(t, s, owner)
	if _, found, err := s.Get(t.Context(), req.Key); found || err != nil {
		t.Errorf("get: %v, %v", found, err)
	}
	w.want(t, s, again(req), onlyonce.Won) // what was left at the old home is forgotten
	w.want(t, s, request("new"), onlyonce.Won)
	if _, found := w.here(t, "a", request("new").Key); found {
		t.Error("the old home was asked")
	}
}

// A marker outlives the previous map, however long that counts.
func TestMarkerOutlivesPrevious(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	old, until := all(1, "a"), w.clock.Now().AddDate(2, 0, 0)
	s, err := routestore.New(routestore.Config{Homes: w.homes, Map: all(2, "b"), Previous: &old, Until: until, Now: w.clock.Now})
	if err != nil {
		t.Fatal(err)
	}
	w.want(t, s, request("k"), onlyonce.Won)
	if marker, _ := w.here(t, "a", request("k").Key); !marker.LeaseEnd.After(until) {
		t.Errorf("the marker ends %v, the previous map %v", marker.LeaseEnd, until)
	}
}

// An operator sees every record once, wherever it is, and no marker; and learns what is
// left at old homes.
func TestListAndLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b", "c")
	before, after := w.change(t)
	want := map[string]bool{}
	for i := range 5 {
		stays := request(fmt.Sprint("stays ", i))
		owner := w.want(t, before, stays, onlyonce.Won).Record.Owner()
		want[stays.Key.Value] = true
		if i > 0 {
			done(t, before, owner)
		}
	}
	for i := range 7 {
		moves := request(fmt.Sprint("moves ", i))
		moves.Resource = fmt.Sprint("order ", i)
		w.want(t, after, moves, onlyonce.Won)
		want[moves.Key.Value] = true
	}
	for _, filter := range []onlyonce.ListFilter{{Limit: 1}, {Limit: 3}, {}, {Scope: "acct", Limit: 2}} {
		got := map[string]bool{}
		for {
			page, err := after.List(t.Context(), filter)
			if err != nil {
				t.Fatal(err)
			}
			for _, rec := range page.Records {
				if got[rec.Key.Value] || routestore.IsMarker(rec) {
					t.Errorf("%+v: %q is shown again, or is a marker", filter, rec.Key.Value)
				}
				got[rec.Key.Value] = true
			}
			if filter.After = page.Next; filter.After == "" {
				break
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%+v: %v", filter, slices.Sorted(maps.Keys(got)))
		}
	}
	for _, after := range []string{"nowhere:", "b", ":", "a:no cursor"} {
		if _, err := before.List(t.Context(), onlyonce.ListFilter{After: after}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("cursor %q: %v", after, err)
		}
	}
	w.wantLeft(t, after, 5)
	w.clock.Advance(retention)
	w.wantLeft(t, after, 1) // the one in progress never expires
	w.wantLeft(t, before, 0)
}

func (w *world) wantLeft(t *testing.T, s *routestore.TxStore[*memstore.Tx], want int) {
	t.Helper()
	left, err := s.Left(t.Context(), 100)
	if err != nil || len(left) != want {
		t.Errorf("%d records are left, %v; want %d", len(left), err, want)
	}
	if few, err := s.Left(t.Context(), 1); err != nil || len(few) != min(want, 1) {
		t.Errorf("%d records are left, %v; at most one was asked for", len(few), err)
	}
}

// A transaction that is open at the old home keeps its key there, whether it is
// committed or rolled back.
func TestOpenTransactionAtTheOldHome(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]error{"committed": nil, "rolled back": errors.New("no")} {
		w := newWorld(t, "a", "b")
		before, after := w.change(t)
		req := request("k")
		_, _, err := before.Atomic(t.Context(), req, func(context.Context, *memstore.Tx) (*onlyonce.Answer, error) {
			w.want(t, after, again(req), onlyonce.Busy)
			c, _, err := after.Atomic(t.Context(), again(req), never(t))
			if err != nil || c.Verdict != onlyonce.Busy {
				t.Errorf("%s: %v, %v", name, c.Verdict, err)
			}
			return &onlyonce.Answer{Status: 201}, fails
		})
		if !errors.Is(err, fails) {
			t.Fatal(err)
		}
		if fails == nil {
			w.want(t, after, again(req), onlyonce.Replay)
			continue
		}
		w.want(t, after, again(req), onlyonce.Won)
		if rec, found := w.here(t, "a", req.Key); !found || !routestore.IsMarker(rec) {
			t.Errorf("it was rolled back, and the key has not moved: %+v", rec)
		}
	}
}

// blind is a home that does not see what is not committed, and says only that the key
// is busy.
type blind struct{ *memstore.Store }

func (blind) Claim(context.Context, onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	return onlyonce.Claim{Verdict: onlyonce.Busy, Remaining: time.Second}, nil
}

// A key that is busy at its old home with who knows what is busy.
func TestBusyWithoutARecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	w.homes[0].Store = blind{w.stores["a"]}
	_, after := w.change(t)
	req := request("k")
	if c := w.want(t, after, req, onlyonce.Busy); c.Remaining != time.Second {
		t.Errorf("%+v", c)
	}
	if _, found := w.here(t, "b", req.Key); found {
		t.Error("it was claimed at the new home")
	}
}

// A program that does not route, and claims at a home directly, meets the marker of a
// key that has moved: it cannot judge it, runs nothing, and tells its caller to come
// again.
func TestProgramThatDoesNotRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	_, after := w.change(t)
	w.want(t, after, request("k"), onlyonce.Won)
	engine, err := onlyonce.New(w.stores["a"], onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	req := onlyonce.Request{Key: request("k").Key, Canonical: canonical("x")}
	_, err = engine.Wrap(t.Context(), onlyonce.Op{Name: "POST /charges"}, req, func(context.Context) (onlyonce.Answer, error) {
		t.Error("the handler ran")
		return onlyonce.Answer{}, nil
	})
	if onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
		t.Errorf("%v", err)
	}
}

// Markers are for good: processes of several releases must know each other's.
func TestMarkersNeverChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "a", "b")
	_, after := w.change(t)
	req := request("k")
	req.Resource = "order 7"
	w.want(t, after, req, onlyonce.Won)
	for _, key := range []onlyonce.Key{req.Key, {Scope: "acct", Value: "onlyonce:resource:725fbee47e80f1cc193a5a981b7d2424"}} {
		rec, found := w.here(t, "a", key)
		if sum := fmt.Sprintf("%x", rec.Fingerprint.Sum[:8]); !found || sum != "5678faed12e94b16" || rec.Operation != "onlyonce:moved 2 b" ||
			rec.Fingerprint.Version != (onlyonce.FingerprintVersion{Form: 1, Secret: "onlyonce:moved", Policy: "0000000000000000"}) {
			t.Errorf("%q: %v, %q, %q, %+v", key.Value, found, sum, rec.Operation, rec.Fingerprint.Version)
		}
	}
}
