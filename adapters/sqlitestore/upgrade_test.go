package sqlitestore_test

import (
	"database/sql"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

// oldRow is a row as a program that knew version 1 of the tables left it, and
// what becomes of a claim on it afterwards.
type oldRow struct {
	value, state, from string
	abandon            onlyonce.Abandon
	attempts           int
	leaseOver, expired bool
	step               onlyonce.StepState
	claim              onlyonce.Verdict
}

func oldRows() []oldRow {
	return []oldRow{
		{value: "live", state: "in_progress", attempts: 1, abandon: onlyonce.AbandonResume, claim: onlyonce.Busy},
		{value: "over", state: "in_progress", attempts: 1, abandon: onlyonce.AbandonResume, leaseOver: true, step: onlyonce.StepBegun, claim: onlyonce.Resumed},
		{value: "held", state: "in_progress", attempts: 2, from: "in_progress", leaseOver: true, claim: onlyonce.Abandoned},
		{value: "answered", state: "completed", attempts: 1, claim: onlyonce.Replay},
		{value: "answered late", state: "completed", attempts: 3, from: "in_doubt", claim: onlyonce.Replay},
		{value: "gone", state: "completed", attempts: 1, expired: true, claim: onlyonce.Won},
		{value: "freed", state: "failed_retryable", attempts: 1, abandon: onlyonce.AbandonRerun, claim: onlyonce.Resumed},
		{value: "behind", state: "failed_retryable", attempts: 1, abandon: onlyonce.AbandonResume, step: onlyonce.StepDone, claim: onlyonce.Resumed},
		{value: "doubt", state: "in_doubt", attempts: 1, abandon: onlyonce.AbandonResume, step: onlyonce.StepBegun, claim: onlyonce.Doubtful},
	}
}

const (
	insertOldKey = `
		INSERT INTO onlyonce_keys (
			digest, scope, key, operation, fp_form, fp_secret, fp_policy, fp_sum, fp_parts,
			state, fence, origin, attempt, attempts, abandon, resumed_from, reason, status, header, body,
			retention_us, created_us, lease_end_us, completed_us, expires_us)
		VALUES (?1, 'acct', ?2, 'POST /charges', 1, 's', 'p', ?3, x'', ?4, ?5, ?5 - ?6 + 1, ?7, ?6, ?8, ?9, 'old',
			iif(?4 = 'completed', 201, NULL), iif(?4 = 'completed', x'', NULL), iif(?4 = 'completed', CAST(?2 AS BLOB), NULL),
			3600000000, ?5, ?10, iif(?4 = 'completed', ?5, NULL), iif(?4 IN ('completed', 'failed_retryable'), ?11, NULL))`
	insertOldStep = `
		INSERT INTO onlyonce_steps (
			digest, origin, name, occurrence, provider, epoch, derived_key, reference, request,
			send_within_us, state, result, sends, begun_us, sent_us, changed_us)
		VALUES (?1, ?2, 'charge', 0, 'acme', 0, 'd', 'r', x'', 0, ?3, iif(?3 = 'begun', NULL, x'01'), 1, ?2, ?2, ?2)`
)

// version1 makes a file of version 1 with rows in every state, as of now.
func version1(t *testing.T, now time.Time) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "once.db")
	db := plain(t, path)
	text, err := fs.ReadFile(sqlitestore.Migrations(), "0001_init.up.sql")
	if err != nil {
		t.Fatal(err)
	}
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	exec(string(text))
	exec("CREATE TABLE names (name TEXT NOT NULL)")
	us := now.UnixMicro()
	for _, r := range oldRows() {
		req := claimOf(r.value)
		digest := req.Key.Digest()
		ends, expires := us+int64(time.Minute/time.Microsecond), us+int64(time.Hour/time.Microsecond)
		if r.leaseOver {
			ends = us
		}
		if r.expired {
			expires = us
		}
		var from any
		if r.from != "" {
			from = r.from
		}
		exec(insertOldKey, digest[:], r.value, req.Fingerprint.Sum[:], r.state, us, r.attempts, req.Attempt[:], r.abandon, from, ends, expires)
		if r.step != "" {
			exec(insertOldStep, digest[:], us-int64(r.attempts)+1, r.step)
		}
	}
	return path
}

// retry is the request of an old row again, by a program that knows resources.
func (r oldRow) retry() onlyonce.ClaimRequest {
	req := claimOf(r.value)
	req.Abandon, req.Resource, req.Keep = r.abandon, "order of "+r.value, []byte("request of "+r.value)
	return req
}

// What version 1 has left is understood as it was: no key held a resource or kept
// a request, every state stands, and from the next claim on both are known.
func TestUpgradeFromVersion1(t *testing.T) {
	t.Parallel()
	clock := newClock()
	path := version1(t, clock.Now())
	_, err := sqlitestore.Open(t.Context(), path, sqlitestore.Config{SkipMigrate: true})
	if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "migrate") {
		t.Errorf("tables that are not migrated: %v", err)
	}
	s := openAt(t, path, sqlitestore.Config{Now: clock.Now})
	page, err := s.List(t.Context(), onlyonce.ListFilter{})
	if err != nil || len(page.Records) != len(oldRows())-1 { // one has expired
		t.Fatalf("%d records, %v", len(page.Records), err)
	}
	for _, rec := range page.Records {
		if rec.Resource != "" || rec.Holds || rec.Reason != "old" {
			t.Errorf("%s: resource %q, holds %v, reason %q", rec.Key.Value, rec.Resource, rec.Holds, rec.Reason)
		}
	}
	wantDue(t, s, 10)
	for _, r := range oldRows() {
		c := mustClaim(t, s, r.retry(), r.claim)
		if c.Verdict == onlyonce.Replay && string(c.Record.Answer.Body) != r.value {
			t.Errorf("%s: the answer became %q", r.value, c.Record.Answer.Body)
		}
		_, kept, err := s.Kept(t.Context(), keyOf(r.value))
		if owns := c.Verdict.Owns(); c.Record.Holds != owns || kept != owns || err != nil {
			t.Errorf("%s: %s, holds %v, kept %v, %v", r.value, c.Verdict, c.Record.Holds, kept, err)
		}
		if steps, err := s.Steps(t.Context(), keyOf(r.value)); (len(steps) != 0) != (r.step != "") || err != nil {
			t.Errorf("%s: steps %+v, %v", r.value, steps, err)
		}
	}
	mustClaim(t, s, on("order of freed", "another"), onlyonce.ResourceBusy)
	clock.advance(time.Hour)
	due, err := s.Due(t.Context(), turns(10))
	if err != nil || len(due) != 4 { // those that were claimed now
		t.Errorf("due: %+v, %v", due, err)
	}
}

// Down to version 1 and up again loses who holds what and what was kept, and
// nothing else; the tables of version 1 are the same again.
func TestDownToVersion1(t *testing.T) {
	t.Parallel()
	clock := newClock()
	path := version1(t, clock.Now())
	first := tables(t, plain(t, path))
	s := openAt(t, path, sqlitestore.Config{Now: clock.Now})
	second := tables(t, s.Reader())
	for _, r := range oldRows() {
		mustClaim(t, s, r.retry(), r.claim)
	}
	for range 2 {
		run(t, s, "0002_resource_recovery.down.sql")
		if got := tables(t, s.Reader()); !slices.Equal(got, first) {
			t.Errorf("down gives\n%q, want\n%q", got, first)
		}
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := tables(t, s.Reader()); !slices.Equal(got, second) {
			t.Errorf("up, down, up gives\n%q, was\n%q", got, second)
		}
	}
	for _, r := range oldRows() {
		want := r.claim
		if want.Owns() {
			want = onlyonce.Busy
		}
		if c := mustClaim(t, s, r.retry(), want); c.Record.Holds || c.Record.Resource != "" {
			t.Errorf("%s holds %q", r.value, c.Record.Resource)
		}
	}
	mustClaim(t, s, on("order of freed", "another"), onlyonce.Won)
}

// plain opens the file without the store.
func plain(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}
