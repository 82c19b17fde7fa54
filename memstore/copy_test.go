package memstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
)

func claim(t *testing.T, s onlyonce.Store, value string) onlyonce.Owner {
	t.Helper()
	c, err := s.Claim(t.Context(), onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: "acct", Value: value}, Operation: "op", Attempt: onlyonce.NewToken(),
		Lease: time.Minute, Retention: time.Hour, Abandon: onlyonce.AbandonRerun,
	})
	if err != nil || !c.Verdict.Owns() {
		t.Fatalf("claim %s: %s, %v", value, c.Verdict, err)
	}
	return c.Record.Owner()
}

func get(t *testing.T, s onlyonce.Store, owner onlyonce.Owner) onlyonce.Record {
	t.Helper()
	rec, found, err := s.Get(t.Context(), owner.Key)
	if err != nil || !found {
		t.Fatalf("get: found %v, %v", found, err)
	}
	return rec
}

// R2: what a caller writes to an answer, a request or a setting after handing
// it over does not reach the store.
func TestWhatIsHandedOverIsCopied(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	owner := claim(t, s, "k")
	request, result := []byte("request"), []byte("result")
	if held, err := s.BeginStep(t.Context(), owner, onlyonce.Intent{Name: "charge", Request: request}); err != nil || !held {
		t.Fatalf("begin step: %v, %v", held, err)
	}
	if held, err := s.EndStep(t.Context(), owner, onlyonce.StepEnd{Name: "charge", State: onlyonce.StepDone, Result: result}); err != nil || !held {
		t.Fatalf("end step: %v, %v", held, err)
	}
	value := []byte("value")
	if _, err := s.AddSetting(t.Context(), "kind", "id", value); err != nil {
		t.Fatal(err)
	}
	a := onlyonce.Answer{Status: 201, Header: map[string][]string{"Location": {"/1"}}, Body: []byte("body")}
	if settled, err := s.Complete(t.Context(), owner, a); err != nil || !settled.Held {
		t.Fatalf("complete: %+v, %v", settled, err)
	}
	request[0], result[0], value[0], a.Body[0] = '!', '!', '!', '!'
	a.Header["Location"][0] = "/evil"
	a.Header["Set-Cookie"] = []string{"x"}

	want := &onlyonce.Answer{Status: 201, Header: map[string][]string{"Location": {"/1"}}, Body: []byte("body")}
	if diff := cmp.Diff(want, get(t, s, owner).Answer); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	steps, err := s.Steps(t.Context(), owner.Key)
	if err != nil || len(steps) != 1 || string(steps[0].Request) != "request" || string(steps[0].Result) != "result" {
		t.Errorf("steps %+v, %v", steps, err)
	}
	if v, _, err := s.Setting(t.Context(), "kind", "id"); err != nil || string(v) != "value" {
		t.Errorf("setting %q, %v", v, err)
	}
}

// O9: of a body that is not retained nothing is kept, and what a handler says
// of its run is not part of the answer.
func TestWhatIsNotStored(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	owner := claim(t, s, "k")
	if _, err := s.Complete(t.Context(), owner, onlyonce.Answer{Status: 200, Body: []byte("long"), NotRetained: true, Outcome: onlyonce.Final}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&onlyonce.Answer{Status: 200, NotRetained: true}, get(t, s, owner).Answer); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

// O10: an empty body is empty, not absent.
func TestEmptyBody(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	owner := claim(t, s, "k")
	if _, err := s.Complete(t.Context(), owner, onlyonce.Answer{Status: 204}); err != nil {
		t.Fatal(err)
	}
	if a := get(t, s, owner).Answer; a.Body == nil || len(a.Body) != 0 || a.Status != 204 {
		t.Errorf("answer %+v", a)
	}
}

// The caller's own transaction: its writes and the answer come with its commit,
// or not at all.
func TestDoWithCompleteTx(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		err  error
		want []string
	}{{"rolled back", broken, nil}, {"committed", nil, []string{"first", "second"}}} {
		owner := claim(t, s, c.name)
		var wrote []string
		err := s.Do(func(tx *memstore.Tx) error {
			if tx.Store() != s {
				t.Error("the transaction is on another store")
			}
			tx.OnCommit(func() { wrote = append(wrote, "first") })
			settled, err := s.CompleteTx(t.Context(), tx, owner, onlyonce.Answer{Status: 201})
			if err != nil || !settled.Held || settled.ExpiresAt.IsZero() {
				t.Errorf("complete: %+v, %v", settled, err)
			}
			tx.OnCommit(func() { wrote = append(wrote, "second") })
			if state := get(t, s, owner).State; state != onlyonce.InProgress || wrote != nil {
				t.Errorf("before the commit: %s, wrote %v", state, wrote)
			}
			return c.err
		})
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, wrote); diff != "" {
			t.Errorf("%s: wrote (-want +got):\n%s", c.name, diff)
		}
		if state := get(t, s, owner).State; (state == onlyonce.Completed) != (c.err == nil) {
			t.Errorf("%s: %s", c.name, state)
		}
	}
	// C6: who has lost the key is told so before it commits.
	owner := claim(t, s, "lost")
	owner.Fence--
	if err := s.Do(func(tx *memstore.Tx) error {
		settled, err := s.CompleteTx(t.Context(), tx, owner, onlyonce.Answer{Status: 201})
		if err != nil || settled.Held {
			t.Errorf("complete: %+v, %v", settled, err)
		}
		return broken
	}); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// A list is read in pages; a cursor of another store is refused.
func TestList(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	for _, value := range []string{"a", "b", "c", "d", "e"} {
		claim(t, s, value)
	}
	seen := map[string]bool{}
	filter, pages := onlyonce.ListFilter{Limit: 2}, 0
	for {
		page, err := s.List(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range page.Records {
			seen[rec.Key.Value] = true
		}
		pages++
		if filter.After = page.Next; filter.After == "" {
			break
		}
	}
	if len(seen) != 5 || pages != 3 {
		t.Errorf("%d records in %d pages", len(seen), pages)
	}
	if _, err := s.List(t.Context(), onlyonce.ListFilter{After: "not a cursor"}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("a strange cursor: %v", err)
	}
}

// R2: what a caller writes to a record it was given does not reach the store:
// the next replay is byte for byte the first answer.
func TestWhatIsHandedOutIsCopied(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	owner := claim(t, s, "k")
	if _, err := s.BeginStep(t.Context(), owner, onlyonce.Intent{Name: "charge", Request: []byte("request")}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EndStep(t.Context(), owner, onlyonce.StepEnd{Name: "charge", State: onlyonce.StepDone, Result: []byte("result")}); err != nil {
		t.Fatal(err)
	}
	want := onlyonce.Answer{Status: 201, Header: map[string][]string{"Location": {"/1"}}, Body: []byte("body")}
	if _, err := s.Complete(t.Context(), owner, want); err != nil {
		t.Fatal(err)
	}
	spoil := func(rec onlyonce.Record) {
		rec.Answer.Body[0] = '!'
		rec.Answer.Header["Location"][0] = "/evil"
		rec.Answer.Header["Set-Cookie"] = []string{"x"}
		rec.Answer.Status = 500
	}
	for name, read := range map[string]func() onlyonce.Record{
		"get": func() onlyonce.Record { return get(t, s, owner) },
		"claim": func() onlyonce.Record {
			c, err := s.Claim(t.Context(), onlyonce.ClaimRequest{Key: owner.Key, Attempt: onlyonce.NewToken(), Lease: time.Minute, Retention: time.Hour})
			if err != nil || c.Verdict != onlyonce.Replay {
				t.Fatalf("claim: %s, %v", c.Verdict, err)
			}
			return c.Record
		},
		"list": func() onlyonce.Record {
			page, err := s.List(t.Context(), onlyonce.ListFilter{})
			if err != nil || len(page.Records) != 1 {
				t.Fatalf("list: %+v, %v", page, err)
			}
			return page.Records[0]
		},
	} {
		spoil(read())
		if diff := cmp.Diff(&want, get(t, s, owner).Answer); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for range 2 {
		steps, err := s.Steps(t.Context(), owner.Key)
		if err != nil || len(steps) != 1 || string(steps[0].Request) != "request" || string(steps[0].Result) != "result" {
			t.Fatalf("steps %+v, %v", steps, err)
		}
		steps[0].Request[0], steps[0].Result[0] = '!', '!'
	}
	if _, err := s.AddSetting(t.Context(), "kind", "id", []byte("value")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		v, _, err := s.Setting(t.Context(), "kind", "id")
		if err != nil || string(v) != "value" {
			t.Fatalf("setting %q, %v", v, err)
		}
		v[0] = '!'
	}
}

// C6: a transaction whose key is taken over between CompleteTx and its commit
// does not commit: in a database the row's lock keeps the two apart.
func TestCompleteTxIsFencedAtCommit(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := open(t, func() time.Time { return now })
	owner := claim(t, s, "k")
	wrote := false
	err := s.Do(func(tx *memstore.Tx) error {
		tx.OnCommit(func() { wrote = true })
		settled, err := s.CompleteTx(t.Context(), tx, owner, onlyonce.Answer{Status: 201})
		if err != nil || !settled.Held {
			t.Fatalf("complete: %+v, %v", settled, err)
		}
		now = now.Add(time.Hour)
		claim(t, s, "k") // taken over
		return nil
	})
	if rec := get(t, s, owner); wrote || !errors.Is(err, onlyonce.ErrConflict) || rec.State != onlyonce.InProgress {
		t.Errorf("wrote %v, key %s, %v", wrote, rec.State, err)
	}
}
