package pgstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

var batch = onlyonce.SweepRequest{Limit: 100, Grace: time.Minute, StepRetention: 90 * 24 * time.Hour}

// A table of many windows is swept as a whole by calling again, without ever
// touching more than was asked.
func TestSweepWindows(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{SweepPages: 50}), admin(t, dsn)
	exec(t, pool, fill)
	exec(t, pool, fillSteps)
	exec(t, pool, `UPDATE onlyonce_keys SET expires_at = now() - interval '1 hour' WHERE origin % 10 <> 0`)
	exec(t, pool, `UPDATE onlyonce_steps SET sent_at = now() - interval '1 year', ended_at = now() - interval '1 year' WHERE origin % 100 = 1`)
	windows := one[int64](t, pool, `SELECT pg_relation_size('onlyonce_keys') / 8192 / 50`)
	var deleted, steps int
	for range 4*windows + 30000/100*2 {
		r, err := s.Sweep(t.Context(), batch)
		if err != nil || r.Busy || r.Deleted > 100 || r.Steps > 100 {
			t.Fatalf("sweep: %+v, %v", r, err)
		}
		deleted += r.Deleted
		steps += r.Steps
	}
	if deleted != 27000 || steps != 300 {
		t.Errorf("%d keys and %d steps deleted, want 27000 and 300", deleted, steps)
	}
	if n := one[int](t, pool, `SELECT count(*) FROM onlyonce_keys`); n != 3000 {
		t.Errorf("%d keys left, want 3000", n)
	}
}

// T3: one sweeper at a time, and rows that somebody works on are left alone.
func TestSweepBesideOthers(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, other := migrated(t, dsn, pgstore.Config{}), migrated(t, dsn, pgstore.Config{})
	pool := admin(t, dsn)
	for i := range 3 {
		complete(t, s, want(t, s, request(fmt.Sprint(i)), onlyonce.Won).Record.Owner())
	}
	exec(t, pool, `UPDATE onlyonce_keys SET expires_at = now() - interval '1 hour'`)
	free := hold(t, pool, request("1").Key)
	defer free()
	if r, err := s.Sweep(t.Context(), batch); err != nil || r.Deleted != 2 {
		t.Errorf("sweep beside a lock: %+v, %v, want 2 deleted", r, err)
	}
	free()
	// Another sweeper that is stopped in the middle, by a lock on the table.
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `LOCK TABLE onlyonce_steps IN EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	first := make(chan onlyonce.SweepResult, 1)
	go func() {
		r, err := other.Sweep(t.Context(), batch)
		if err != nil {
			t.Errorf("sweep: %v", err)
		}
		first <- r
	}()
	waiting(t, pool, "%onlyonce_steps%")
	if r, err := s.Sweep(t.Context(), batch); err != nil || !r.Busy {
		t.Errorf("second sweep: %+v, %v, want busy", r, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-first; r.Deleted != 1 {
		t.Errorf("first sweep: %+v, want 1 deleted", r)
	}
}

// A step that begins while the sweeper decides is seen: the sweeper waits for
// nobody, so it leaves the key for the next time.
func TestSweepBesideStep(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	req := request("k")
	req.Abandon, req.Lease = onlyonce.AbandonResume, time.Microsecond
	owner := want(t, s, req, onlyonce.Won).Record.Owner()
	now := batch
	now.Grace = 0
	free := hold(t, pool, req.Key)
	began := make(chan bool, 1)
	go func() {
		held, err := s.BeginStep(t.Context(), owner, onlyonce.Intent{Name: "s", SendWithin: time.Second})
		if err != nil {
			t.Errorf("begin step: %v", err)
		}
		began <- held
	}()
	waiting(t, pool, "%INSERT INTO onlyonce_steps%")
	if r, err := s.Sweep(t.Context(), now); err != nil || r.Freed+r.Parked != 0 {
		t.Errorf("sweep: %+v, %v, want nothing", r, err)
	}
	free()
	if !<-began {
		t.Fatal("the step did not begin")
	}
	if r, err := s.Sweep(t.Context(), now); err != nil || r.Parked != 1 {
		t.Errorf("sweep: %+v, %v, want 1 parked", r, err)
	}
}
