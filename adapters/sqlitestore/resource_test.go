package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

// on is a claim by a new attempt that names a resource.
func on(resource, value string) onlyonce.ClaimRequest {
	req := claimOf(value)
	req.Resource, req.Abandon = resource, onlyonce.AbandonResume
	return req
}

// C12: who is refused by its resource waits for no writer, of this process or of
// another.
func TestResourceBusyTakesNoLock(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	mustClaim(t, s, on("order/1", "one"), onlyonce.Won)
	released(t, s, on("order/1", "freed before"))
	other := start(t, "hold", path)
	other.expect("held")
	fresh := openAt(t, path, sqlitestore.Config{BusyTimeout: 20 * time.Millisecond})
	for _, s := range []*sqlitestore.Store{s, fresh} {
		if c := mustClaim(t, s, on("order/1", "two"), onlyonce.ResourceBusy); c.Record.Key != keyOf("one") {
			t.Errorf("the holder is %q", c.Record.Key.Value)
		}
		mustClaim(t, s, on("order/1", "freed before"), onlyonce.ResourceBusy)
		mustClaim(t, s, on("order/1", "one"), onlyonce.Busy)
	}
	_, err := fresh.Claim(t.Context(), on("order/2", "two"))
	wantUnavailable(t, err, "write lock")
	other.tell()
	other.expect("let go")
}

// released is a key that was freed, and so holds nothing, before its resource was
// claimed by another.
func released(t *testing.T, s *sqlitestore.Store, req onlyonce.ClaimRequest) {
	t.Helper()
	bare := req
	bare.Resource = ""
	owner := mustClaim(t, s, bare, onlyonce.Won).Record.Owner()
	release(t, s, owner)
}

// C12: a key at which a transaction of this process is at work is busy first, and
// only then looked at by its resource.
func TestOpenKeyIsBusyBeforeItsResource(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	mustClaim(t, s, on("r", "holder"), onlyonce.Won)
	_, settled, err := s.Atomic(t.Context(), claimOf("k"), func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
		mustClaim(t, s, on("r", "k"), onlyonce.Busy)
		return writes("k")(ctx, tx)
	})
	if !settled.Held || err != nil {
		t.Errorf("%+v, %v", settled, err)
	}
}

// C12: in atomic mode nothing can be named or kept; what an earlier attempt has
// named counts, and is let go with the answer.
func TestAtomicAndResources(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	keeps := claimOf("k")
	keeps.Keep = []byte{}
	for name, req := range map[string]onlyonce.ClaimRequest{"resource": on("r", "k"), "keep": keeps} {
		_, settled, err := s.Atomic(t.Context(), req, writes("k"))
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || settled.Held || count(t, s, "k") != 0 {
			t.Errorf("%s: %+v, %v", name, settled, err)
		}
	}
	req := on("r", "k")
	owner := mustClaim(t, s, req, onlyonce.Won).Record.Owner()
	release(t, s, owner)
	other := mustClaim(t, s, on("r", "other"), onlyonce.Won).Record.Owner()
	req.Resource = ""
	claim, settled, err := s.Atomic(t.Context(), anotherOf(req), writes("k"))
	if err != nil || claim.Verdict != onlyonce.ResourceBusy || settled.Held || claim.Record.Owner() != other {
		t.Errorf("while another holds it: %v, %+v, %v", claim.Verdict, settled, err)
	}
	release(t, s, other)
	claim, settled, err = s.Atomic(t.Context(), anotherOf(req), writes("k"))
	if err != nil || claim.Verdict != onlyonce.Resumed || !settled.Held || claim.Record.Resource != "r" || claim.Record.Holds {
		t.Errorf("when it is free: %v, %+v, %v", claim.Verdict, claim.Record, err)
	}
	mustClaim(t, s, on("r", "third"), onlyonce.Won)
}

// C12: a record that has expired and was not swept yet gives way, and the table
// has one holder again; what it kept stays out of sight.
func TestExpiredHolderGivesWay(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := openAt(t, t.TempDir()+"/once.db", sqlitestore.Config{Now: clock.Now})
	req := on("r", "old")
	req.Keep = []byte("request")
	owner := mustClaim(t, s, req, onlyonce.Won).Record.Owner()
	begin(t, s, owner)
	release(t, s, owner)
	mustClaim(t, s, on("r", "new"), onlyonce.ResourceBusy)
	clock.advance(onlyonce.FreedStepRetention)
	mustClaim(t, s, on("r", "new"), onlyonce.Won)
	if got := column(t, s, "holds IS NULL", "old"); got != "1" {
		t.Errorf("the expired row holds on: %s", got)
	}
	if _, found, err := s.Kept(t.Context(), keyOf("old")); found || err != nil {
		t.Errorf("kept: %v, %v", found, err)
	}
	if found, err := s.Requeue(t.Context(), keyOf("old")); found || err != nil {
		t.Errorf("requeued: %v, %v", found, err)
	}
	res, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10, StepRetention: time.Hour})
	if err != nil || res.Deleted != 1 {
		t.Errorf("sweep: %+v, %v", res, err)
	}
	mustClaim(t, s, on("r", "third"), onlyonce.ResourceBusy)
}

// C12: the tables themselves refuse a second holder.
func TestOneHolderInTheTable(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	mustClaim(t, s, on("r", "one"), onlyonce.Won)
	mustClaim(t, s, on("q", "two"), onlyonce.Won)
	if _, err := s.Writer().ExecContext(t.Context(),
		"UPDATE onlyonce_keys SET holds = (SELECT holds FROM onlyonce_keys WHERE key = 'one') WHERE key = 'two'"); err == nil {
		t.Error("two rows hold one resource")
	}
}

// C12: a takeover that names another resource keeps the one it has.
func TestTakeoverKeepsItsResource(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := openAt(t, t.TempDir()+"/once.db", sqlitestore.Config{Now: clock.Now})
	mustClaim(t, s, on("r", "one"), onlyonce.Won)
	clock.advance(time.Minute)
	if rec := mustClaim(t, s, on("p", "one"), onlyonce.Resumed).Record; rec.Resource != "r" || !rec.Holds {
		t.Errorf("resource %q, holds %v", rec.Resource, rec.Holds)
	}
	mustClaim(t, s, on("r", "three"), onlyonce.ResourceBusy)
	mustClaim(t, s, on("p", "four"), onlyonce.Won)
}

// Nothing named is NULL, in the table as well; the digest is of scope and name.
func TestResourceColumns(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	mustClaim(t, s, claimOf("bare"), onlyonce.Won)
	mustClaim(t, s, on("order/1", "on"), onlyonce.Won)
	digest := onlyonce.ResourceDigest("acct", "order/1")
	for value, want := range map[string]string{"bare": "null null null", "on": fmt.Sprintf("text blob %X", digest[:])} {
		const what = "typeof(resource) || ' ' || typeof(holds) || ' ' || iif(holds IS NULL, 'null', hex(holds))"
		if got := column(t, s, what, value); got != want {
			t.Errorf("%s: %s, want %s", value, got, want)
		}
	}
}

// A sweeper frees an attempt that may be rerun as its owner would: behind a step
// it lives on, with its resource and its request.
func TestSweptBehindStep(t *testing.T) {
	t.Parallel()
	clock := newClock()
	s := openAt(t, t.TempDir()+"/once.db", sqlitestore.Config{Now: clock.Now})
	for _, value := range []string{"bare", "behind"} {
		req := on("order of "+value, value)
		req.Abandon, req.Keep = onlyonce.AbandonRerun, []byte("request")
		owner := mustClaim(t, s, req, onlyonce.Won).Record.Owner()
		if value == "behind" {
			begin(t, s, owner)
		}
	}
	clock.advance(time.Hour)
	res, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10, Grace: time.Minute, StepRetention: time.Hour})
	if err != nil || res.Freed != 2 {
		t.Fatalf("sweep: %+v, %v", res, err)
	}
	for value, lives := range map[string]time.Duration{"bare": time.Hour, "behind": onlyonce.FreedStepRetention} {
		rec, _, err := s.Get(t.Context(), keyOf(value))
		_, kept, keptErr := s.Kept(t.Context(), keyOf(value))
		behind := value == "behind"
		if err != nil || keptErr != nil || !rec.ExpiresAt.Equal(clock.Now().Add(lives)) || rec.Holds != behind || kept != behind {
			t.Errorf("%s: expires %v, holds %v, kept %v, %v", value, rec.ExpiresAt, rec.Holds, kept, err)
		}
	}
	wantDue(t, s, 10, "behind")
}
