package sqlitestore_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

func keyOf(value string) onlyonce.Key { return onlyonce.Key{Scope: "acct", Value: value} }

// claimOf is a claim by a new attempt.
func claimOf(value string) onlyonce.ClaimRequest {
	return onlyonce.ClaimRequest{
		Key: keyOf(value), Operation: "POST /charges",
		Fingerprint: onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: 1, Secret: "s", Policy: "p"}, Sum: [32]byte{1}},
		Attempt:     onlyonce.NewToken(), Lease: 30 * time.Second, Retention: time.Hour, Abandon: onlyonce.AbandonRerun,
	}
}

// anotherOf is the same request by another attempt.
func anotherOf(req onlyonce.ClaimRequest) onlyonce.ClaimRequest {
	req.Attempt = onlyonce.NewToken()
	return req
}

func answerOf(body string) onlyonce.Answer { return onlyonce.Answer{Status: 201, Body: []byte(body)} }

// writes is business code that adds a name and answers.
func writes(name string) onlyonce.TxFunc[*sql.Tx] {
	return func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
		a := answerOf(name)
		return &a, write(ctx, tx, name)
	}
}

func mustClaim(t *testing.T, s *sqlitestore.Store, req onlyonce.ClaimRequest, want onlyonce.Verdict) onlyonce.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), req)
	if err != nil || c.Verdict != want {
		t.Fatalf("claim %s: %v, %v; want %v", req.Key.Value, c.Verdict, err, want)
	}
	return c
}

func complete(t *testing.T, s *sqlitestore.Store, req onlyonce.ClaimRequest, body string) {
	t.Helper()
	owner := mustClaim(t, s, req, onlyonce.Won).Record.Owner()
	if settled, err := s.Complete(t.Context(), owner, answerOf(body)); !settled.Held || err != nil {
		t.Fatalf("complete %s: %+v, %v", req.Key.Value, settled, err)
	}
}

// clock is a clock that stands still until it is moved.
type clock struct{ t time.Time }

func newClock() *clock { return &clock{time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time { return c.t }

func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

// begin begins a step that calls somebody.
func begin(t *testing.T, s *sqlitestore.Store, owner onlyonce.Owner) {
	t.Helper()
	held, err := s.BeginStep(t.Context(), owner, onlyonce.Intent{Name: "charge", Provider: "acme", DerivedKey: "d", Reference: "r"})
	if !held || err != nil {
		t.Fatalf("begin step: %v, %v", held, err)
	}
}

// column is an expression over the row of a key, as text.
func column(t *testing.T, s *sqlitestore.Store, expression, value string) string {
	t.Helper()
	var got string
	row := s.Reader().QueryRowContext(t.Context(), "SELECT CAST("+expression+" AS TEXT) FROM onlyonce_keys WHERE key = ?", value)
	if err := row.Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

func release(t *testing.T, s *sqlitestore.Store, owner onlyonce.Owner) {
	t.Helper()
	if held, err := s.Release(t.Context(), owner, "test"); !held || err != nil {
		t.Fatalf("release: %v, %v", held, err)
	}
}
