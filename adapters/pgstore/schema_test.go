package pgstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// The tables themselves refuse states that cannot be.
func TestImpossibleRowsAreRefused(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	want(t, s, request("k"), onlyonce.Won)
	for _, set := range []string{
		"state = 2",      // completed without an answer
		"state = 3",      // free, and never to expire
		"state = 4",      // in doubt, and not to be found
		"state = 5",      // no state
		"doubt = true",   // in doubt, and in progress
		"status = 200",   // an answer before completion
		"body = '\\x00'", // likewise
		"lease_end = NULL",
		"expires_at = now()",
		"fence = origin - 1",
		"attempt = '\\x00'",
		"fp_sum = '\\x00'",
		"retention = 0",
		"scope = ''",
		"holds = digest",                  // no resource
		"resource = 'r', holds = '\\x00'", // no digest
		"keep = 'x'",                      // kept, and never due
		"keep = 'x', turn_at = now()",     // likewise
		"keep = 'x', due_at = now()",      // likewise
		"due_at = now(), turn_at = now()", // due, and nothing kept
		"turn = -1",                       // fewer turns than one
		"keep = 'x', turn_at = now(), due_at = now() - interval '1 hour'", // due before its turn
	} {
		_, err := pool.Exec(t.Context(), `UPDATE onlyonce_keys SET `+set)
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || !strings.HasPrefix(e.Code, "23") {
			t.Errorf("%s: %v, want it refused", set, err)
		}
	}
}

// S1: a row that bears another key under the same digest is an error, never a
// match.
func TestDigestOfAnotherKey(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	owner := want(t, s, request("k"), onlyonce.Won).Record.Owner()
	complete(t, s, owner)
	exec(t, pool, `UPDATE onlyonce_keys SET scope = 'somebody else'`)
	if c, err := s.Claim(t.Context(), again(request("k"))); err == nil {
		t.Errorf("claim: %v, want an error", c.Verdict)
	}
	if _, found, err := s.Get(t.Context(), owner.Key); err == nil || found {
		t.Error("get found another key's record")
	}
}

// Reasons come from errors, which may hold what a database does not take.
func TestReasonsOfAnyBytes(t *testing.T) {
	t.Parallel()
	s := migrated(t, testserver.Postgres(t), pgstore.Config{})
	owner := want(t, s, request("k"), onlyonce.Won).Record.Owner()
	if held, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: owner, Reason: "a\x00b\xffc"}); err != nil || !held {
		t.Fatalf("park: %v, %v", held, err)
	}
	rec, _, err := s.Get(t.Context(), owner.Key)
	if err != nil || rec.Reason != "a\uFFFDb\uFFFDc" {
		t.Errorf("reason %q, %v", rec.Reason, err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	bad := pgstore.Config{Isolation: "chaos", Schema: strings.Repeat("x", 64), LockTimeout: 1, SweepPages: -1}
	err := bad.Validate()
	for _, field := range []string{"Isolation", "Schema", "LockTimeout", "SweepPages"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v does not name %s", err, field)
		}
	}
	if _, err := pgstore.New(nil, pgstore.Config{}); err == nil {
		t.Error("made a store without a pool")
	}
	if _, err := pgstore.Open(t.Context(), "postgres://u:secret@[", pgstore.Config{}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("open: %v", err)
	}
	if c := bad.WithDefaults(); c.StatementTimeout == 0 || c.Isolation != "chaos" {
		t.Errorf("with defaults: %+v", c)
	}
}
