package mysqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

var (
	sweepAll = onlyonce.SweepRequest{Limit: 1000, StepRetention: time.Hour}
	dueNow   = onlyonce.DueRequest{Limit: 10, Pause: time.Minute, MaxPause: time.Hour}
)

func sweep(t *testing.T, s *mysqlstore.Store, req onlyonce.SweepRequest) onlyonce.SweepResult {
	t.Helper()
	r, err := s.Sweep(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// T3: more than one transaction's worth goes in one call, with what it has in other
// tables; rows that somebody is just working on stay for the next time.
func TestSweepInBatches(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, pool := open(t, dsn, mysqlstore.Config{}), admin(t, dsn)
	const keys = 250
	for i := range keys {
		req := request(fmt.Sprint(i))
		req.Retention, req.Abandon = 1, onlyonce.AbandonResume
		if i%5 == 0 {
			req.Resource, req.Keep = req.Key.Value, []byte("request")
		}
		owner := want(t, s, req, onlyonce.Won).Record.Owner()
		if i%10 == 0 {
			if held, err := s.Release(t.Context(), owner, "r"); !held || err != nil {
				t.Fatalf("release: %v, %v", held, err)
			}
			continue
		}
		complete(t, s, owner)
	}
	free := hold(t, pool, request("7").Key)
	r := sweep(t, s, sweepAll)
	free()
	if r.Deleted != keys-1 || r.More {
		t.Errorf("swept %+v, want all but the one that is locked", r)
	}
	if r := sweep(t, s, sweepAll); r.Deleted != 1 {
		t.Errorf("swept %+v, want the last one", r)
	}
	for _, table := range []string{"keys", "holds", "kept"} {
		if n := one[int](t, pool, `SELECT COUNT(*) FROM onlyonce_`+table); n != 0 {
			t.Errorf("%d rows are left in onlyonce_%s", n, table)
		}
	}
}

// T3: one sweeper of a database at a time; another database has its own.
func TestOneSweeper(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s := open(t, dsn, mysqlstore.Config{})
	conn, err := admin(t, dsn).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var got int
	if err := conn.QueryRowContext(t.Context(), `SELECT GET_LOCK(?, 0)`, mysqlstore.SweepLock(s)).Scan(&got); err != nil || got != 1 {
		t.Fatalf("lock: %d, %v", got, err)
	}
	if r := sweep(t, s, sweepAll); !r.Busy {
		t.Errorf("swept %+v beside another sweeper", r)
	}
	if r := sweep(t, open(t, testserver.MySQL(t), mysqlstore.Config{}), sweepAll); r.Busy {
		t.Error("a sweeper of another database was in the way")
	}
	if _, err := conn.ExecContext(t.Context(), `DO RELEASE_LOCK(?)`, mysqlstore.SweepLock(s)); err != nil {
		t.Fatal(err)
	}
	if r := sweep(t, s, sweepAll); r.Busy {
		t.Errorf("swept %+v when the other was done", r)
	}
}

// An attempt that has renewed its lease is put off to when that ends, so that those
// behind it are not hidden by it.
func TestSweepPutsOffTheRenewed(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, pool := open(t, dsn, mysqlstore.Config{}), admin(t, dsn)
	for i := range 4 {
		req := request(fmt.Sprint(i))
		req.Lease = time.Microsecond
		owner := want(t, s, req, onlyonce.Won).Record.Owner()
		if i < 3 {
			if held, err := s.Renew(t.Context(), owner, time.Hour); !held || err != nil {
				t.Fatalf("renew: %v, %v", held, err)
			}
		}
	}
	req := onlyonce.SweepRequest{Limit: 3, StepRetention: time.Hour}
	if r := sweep(t, s, req); r.Freed != 0 || !r.More {
		t.Errorf("first: %+v, want more to do", r)
	}
	if r := sweep(t, s, req); r.Freed != 1 || r.More {
		t.Errorf("second: %+v, want the abandoned one freed", r)
	}
	if n := one[int](t, pool, `SELECT COUNT(*) FROM onlyonce_keys WHERE state = 1 AND sweep_us = lease_end_us`); n != 3 {
		t.Errorf("%d attempts were put off, want 3", n)
	}
}

// C7: an abandoned attempt that somebody is just working on, or one to be put off, is
// left for the next time; the others are decided, and nobody is told to come back at
// once for what nothing can be done about.
func TestSweepPassesBy(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, pool := open(t, dsn, mysqlstore.Config{LockTimeout: time.Second}), admin(t, dsn)
	for _, v := range []string{"locked", "renewed", "free"} {
		req := request(v)
		req.Lease = time.Microsecond
		owner := want(t, s, req, onlyonce.Won).Record.Owner()
		if v == "renewed" {
			if held, err := s.Renew(t.Context(), owner, time.Hour); !held || err != nil {
				t.Fatalf("renew: %v, %v", held, err)
			}
		}
	}
	free, freeRenewed := hold(t, pool, request("locked").Key), hold(t, pool, request("renewed").Key)
	if r := sweep(t, s, sweepAll); r.Freed != 1 || r.More {
		t.Errorf("swept %+v, want the one that is free", r)
	}
	only := onlyonce.SweepRequest{Limit: 1, StepRetention: time.Hour}
	if r := sweep(t, s, only); r.Freed != 0 || r.More {
		t.Errorf("swept %+v, want nothing, and nothing more", r)
	}
	free()
	freeRenewed()
	if r := sweep(t, s, sweepAll); r.Freed != 1 {
		t.Errorf("swept %+v, want the one that was locked", r)
	}
}

// A sweeper beside owners decides nothing about those that are alive, and what it
// decides about the others their owners hear of (C6, C7).
func TestSweepBesideOwners(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s := open(t, dsn, mysqlstore.Config{})
	done := make(chan struct{})
	var sweeper, owners sync.WaitGroup
	sweeper.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if _, err := s.Sweep(t.Context(), sweepAll); err != nil {
					t.Errorf("sweep: %v", err)
				}
			}
		}
	})
	for worker := range 6 {
		owners.Go(func() {
			for i := range 20 {
				req := request(fmt.Sprint(worker, "/", i))
				if i%2 == 0 {
					req.Lease = time.Microsecond
				}
				owner := want(t, s, req, onlyonce.Won).Record.Owner()
				settled, err := s.Complete(t.Context(), owner, created())
				rec, _, getErr := s.Get(t.Context(), req.Key)
				if err != nil || getErr != nil || settled.Held != (rec.State == onlyonce.Completed) || (i%2 == 1 && !settled.Held) {
					t.Errorf("completed: %+v, %v; the key is %q, %v", settled, err, rec.State, getErr)
				}
			}
		})
	}
	owners.Wait()
	close(done)
	sweeper.Wait()
}

// X1: what somebody is just working on is passed over by recoverers, and the rest
// goes to one of them each.
func TestDuePassesBy(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, pool := open(t, dsn, mysqlstore.Config{}), admin(t, dsn)
	for _, v := range []string{"a", "b"} {
		req := request(v)
		req.Lease, req.Keep = time.Microsecond, []byte("request of "+v)
		want(t, s, req, onlyonce.Won)
	}
	free := hold(t, pool, request("a").Key)
	due, err := s.Due(t.Context(), dueNow)
	free()
	if err != nil || len(due) != 1 || due[0].Record.Key.Value != "b" || string(due[0].Keep) != "request of b" {
		t.Errorf("due beside a lock: %+v, %v", due, err)
	}
	if due, err := s.Due(t.Context(), dueNow); err != nil || len(due) != 1 || due[0].Record.Key.Value != "a" {
		t.Errorf("due behind it: %+v, %v", due, err)
	}
	if due, err := s.Due(t.Context(), dueNow); err != nil || len(due) != 0 {
		t.Errorf("turns that were given: %+v, %v", due, err)
	}
}

// C12: a holder that completes in a transaction of the caller's own holds until that
// commits, and nobody waits for it.
func TestHolderInAnOpenTransaction(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, pool := open(t, dsn, mysqlstore.Config{}), admin(t, dsn)
	first, second := request("first"), request("second")
	first.Resource, second.Resource = "order/1", "order/1"
	owner := want(t, s, first, onlyonce.Won).Record.Owner()
	for _, commit := range []bool{false, true} {
		tx, err := pool.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), `SELECT * FROM onlyonce_keys LIMIT 1`); err != nil { // its snapshot
			t.Fatal(err)
		}
		if held, err := s.Renew(t.Context(), owner, time.Minute); !held || err != nil {
			t.Fatalf("renew behind the snapshot: %v, %v", held, err)
		}
		if settled, err := s.CompleteTx(context.WithoutCancel(t.Context()), tx, owner, created()); err != nil || !settled.Held {
			t.Fatalf("complete: %+v, %v", settled, err)
		}
		want(t, s, second, onlyonce.ResourceBusy)
		if commit {
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			want(t, s, second, onlyonce.Won)
			continue
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		want(t, s, second, onlyonce.ResourceBusy)
	}
}
