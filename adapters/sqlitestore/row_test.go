package sqlitestore_test

import (
	"bytes"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

// O10: empty is not null, in the table and in what is read from it.
func TestBodies(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	for name, c := range map[string]struct {
		answer onlyonce.Answer
		stored string
		body   []byte
	}{
		"nil":          {onlyonce.Answer{Status: 204}, "blob", []byte{}},
		"empty":        {onlyonce.Answer{Status: 204, Body: []byte{}}, "blob", []byte{}},
		"binary":       {onlyonce.Answer{Status: 200, Body: []byte{0, 0xff, 0, 0x80}}, "blob", []byte{0, 0xff, 0, 0x80}},
		"zero":         {onlyonce.Answer{Status: 200, Body: []byte{0}}, "blob", []byte{0}},
		"text":         {onlyonce.Answer{Status: 200, Body: []byte("1")}, "blob", []byte("1")},
		"not retained": {onlyonce.Answer{Status: 200, Body: []byte("gone"), NotRetained: true}, "null", nil},
	} {
		owner := mustClaim(t, s, claimOf(name), onlyonce.Won).Record.Owner()
		if settled, err := s.Complete(t.Context(), owner, c.answer); !settled.Held || err != nil {
			t.Fatal(settled, err)
		}
		var stored string
		if err := s.Reader().QueryRowContext(t.Context(), "SELECT typeof(body) FROM onlyonce_keys WHERE key = ?", name).Scan(&stored); err != nil || stored != c.stored {
			t.Errorf("%s: stored as %s, want %s (%v)", name, stored, c.stored, err)
		}
		got := mustClaim(t, s, claimOf(name), onlyonce.Replay).Record.Answer
		if !bytes.Equal(got.Body, c.body) || (got.Body == nil) != (c.body == nil) || got.NotRetained != c.answer.NotRetained {
			t.Errorf("%s: read as %v, %v", name, got.Body, got.NotRetained)
		}
	}
}

// A row of another key under the same digest is neither answered from nor
// written over.
func TestForeignRow(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	complete(t, s, claimOf("k"), "x")
	if _, err := s.Writer().ExecContext(t.Context(), "UPDATE onlyonce_keys SET key = 'K'"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Claim(t.Context(), claimOf("k"))
	wantUnavailable(t, err, "another key")
	_, _, err = s.Get(t.Context(), keyOf("k"))
	wantUnavailable(t, err, "another key")
	_, _, err = s.Atomic(t.Context(), claimOf("k"), writes("k"))
	wantUnavailable(t, err, "another key")
}

// A takeover whose reply was lost is told again what it took over from: what a
// resolving attempt may do depends on it.
func TestRepeatedTakeoverKnowsFrom(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	req := claimOf("k")
	owner := mustClaim(t, s, req, onlyonce.Won).Record.Owner()
	if held, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: owner, Reason: "test"}); !held || err != nil {
		t.Fatal(held, err)
	}
	resolving := anotherOf(req)
	resolving.Resolve = true
	for range 2 {
		if c := mustClaim(t, s, resolving, onlyonce.Resumed); c.From != onlyonce.InDoubt {
			t.Errorf("taken over from %q, want in_doubt", c.From)
		}
	}
}

// Another send of the same epoch never shortens the time in which an earlier
// one may still leave: "not found" would prove too much.
func TestSendWithinIsTheLatest(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	s := openAt(t, t.TempDir()+"/once.db", sqlitestore.Config{Now: func() time.Time { return now }})
	owner := mustClaim(t, s, claimOf("k"), onlyonce.Won).Record.Owner()
	for _, within := range []time.Duration{20 * time.Second, 2 * time.Second} {
		in := onlyonce.Intent{Name: "charge", Provider: "acme", DerivedKey: "d", Reference: "r", SendWithin: within}
		if held, err := s.BeginStep(t.Context(), owner, in); !held || err != nil {
			t.Fatal(held, err)
		}
		now = now.Add(5 * time.Second)
	}
	steps, err := s.Steps(t.Context(), keyOf("k"))
	if err != nil || len(steps) != 1 || steps[0].SendWithin != 15*time.Second || steps[0].Sends != 2 {
		t.Errorf("steps: %+v, %v", steps, err)
	}
}

func TestSweepNeedsALimit(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	if _, err := s.Sweep(t.Context(), onlyonce.SweepRequest{}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("got %v", err)
	}
}

// A batch is what every claim waits for, so no Limit makes it larger.
func TestSweepIsShort(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := openAt(t, filepath.Join(t.TempDir(), "keys.db"), sqlitestore.Config{Now: c.Now})
	for i := range sqlitestore.SweepRows + 1 {
		claimed := mustClaim(t, s, claimOf(strconv.Itoa(i)), onlyonce.Won)
		release(t, s, claimed.Record.Owner())
	}
	c.advance(1000 * time.Hour)
	for _, want := range []onlyonce.SweepResult{{Deleted: sqlitestore.SweepRows, More: true}, {Deleted: 1}} {
		r, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 5000, StepRetention: time.Hour})
		if err != nil || r != want {
			t.Errorf("swept %+v, %v; want %+v", r, err, want)
		}
	}
}
