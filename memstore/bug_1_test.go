package memstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
)

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
