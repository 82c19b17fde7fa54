package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// consistent makes sure that what keys say of other tables is what is there.
func consistent(t *testing.T, db *sql.DB) {
	t.Helper()
	for what, query := range map[string]string{
		"holders without a hold":  `SELECT COUNT(*) FROM onlyonce_keys k WHERE k.holds = 1 AND NOT EXISTS (SELECT 1 FROM onlyonce_holds h WHERE h.digest = k.digest)`,
		"holds without a holder":  `SELECT COUNT(*) FROM onlyonce_holds h WHERE NOT EXISTS (SELECT 1 FROM onlyonce_keys k WHERE k.digest = h.digest AND k.holds = 1)`,
		"keys that keep nothing":  `SELECT COUNT(*) FROM onlyonce_keys k WHERE k.kept = 1 AND NOT EXISTS (SELECT 1 FROM onlyonce_kept q WHERE q.digest = k.digest)`,
		"requests without a key":  `SELECT COUNT(*) FROM onlyonce_kept q WHERE NOT EXISTS (SELECT 1 FROM onlyonce_keys k WHERE k.digest = q.digest AND k.kept = 1)`,
		"keys with several holds": `SELECT COUNT(*) FROM (SELECT digest FROM onlyonce_holds GROUP BY digest HAVING COUNT(*) > 1) d`,
	} {
		if n := one[int](t, db, query); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
}

// C12: keys of two processes that take one resource from each other, in every way it
// can be let go: at most one has it at any time, and nothing of it is left behind.
func TestOneHolderOfMany(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	stores := []*mysqlstore.Store{open(t, dsn, mysqlstore.Config{}), open(t, dsn, mysqlstore.Config{})}
	var holders atomic.Int32
	var owned atomic.Int32
	var wg sync.WaitGroup
	for worker := range 8 {
		s := stores[worker%2]
		wg.Go(func() {
			for i := range 25 {
				req := request(fmt.Sprint(worker, "/", i))
				req.Resource, req.Keep = "order/1", []byte("request")
				c, err := s.Claim(t.Context(), req)
				switch {
				case err != nil && !errors.Is(err, onlyonce.ErrConflict):
					t.Errorf("claim: %v", err)
				case !c.Verdict.Owns():
					continue
				}
				owned.Add(1)
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d keys hold one resource", n)
				}
				holders.Add(-1) // before it is let go, which another may hear of first
				if err := letGo(t.Context(), s, c.Record.Owner(), i); err != nil {
					t.Errorf("let go: %v", err)
				}
			}
		})
	}
	wg.Wait()
	consistent(t, stores[0].DB())
	if owned.Load() == 0 {
		t.Error("nobody ever had it")
	}
	if n := one[int](t, stores[0].DB(), `SELECT COUNT(*) FROM onlyonce_holds`); n != 0 {
		t.Errorf("%d holds are left", n)
	}
}

// letGo ends an attempt, each time in another way.
func letGo(ctx context.Context, s *mysqlstore.Store, owner onlyonce.Owner, way int) error {
	switch way % 3 {
	case 0:
		return must(s.Release(ctx, owner, "r"))
	case 1:
		settled, err := s.Finish(ctx, owner, answers)
		return must(settled.Held, err)
	default:
		settled, err := s.Complete(ctx, owner, created())
		return must(settled.Held, err)
	}
}

// A key that is freed with a resource, and run again in one transaction, holds it as
// long as that lasts and not longer.
func TestAtomicBehindAFreedResource(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, other := open(t, dsn, mysqlstore.Config{}), open(t, dsn, mysqlstore.Config{})
	first, rival := request("first"), request("rival")
	first.Resource, rival.Resource = "order/1", "order/1"
	if held, err := s.Release(t.Context(), want(t, s, first, onlyonce.Won).Record.Owner(), "r"); !held || err != nil {
		t.Fatalf("release: %v, %v", held, err)
	}
	bare := again(first)
	bare.Resource = ""
	claim, settled, err := s.Atomic(t.Context(), bare, answers)
	if err != nil || !settled.Held || claim.Verdict != onlyonce.Resumed || claim.Record.Resource != "order/1" || claim.Record.Holds {
		t.Errorf("atomic: %v, %+v, %+v, %v", claim.Verdict, settled, claim.Record, err)
	}
	want(t, other, rival, onlyonce.Won)
	second := request("second")
	second.Resource = "order/2"
	owner := want(t, s, second, onlyonce.Won).Record.Owner()
	if held, err := s.Release(t.Context(), owner, "r"); !held || err != nil {
		t.Fatalf("release: %v, %v", held, err)
	}
	thief := request("thief")
	thief.Resource = "order/2"
	want(t, other, thief, onlyonce.Won)
	bare = again(second)
	bare.Resource = ""
	if claim, _, err := s.Atomic(t.Context(), bare, answers); err != nil || claim.Verdict != onlyonce.ResourceBusy {
		t.Errorf("atomic for what another key holds: %v, %v", claim.Verdict, err)
	}
	consistent(t, s.DB())
}

// D: a step of a life that a takeover meets is recorded before it or not at all: the
// row is locked while a step is recorded.
func TestStepsBesideTakeovers(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, other := open(t, dsn, mysqlstore.Config{}), open(t, dsn, mysqlstore.Config{})
	for i := range 25 {
		req := request(fmt.Sprint(i))
		req.Abandon, req.Lease = onlyonce.AbandonResume, time.Microsecond
		owner := want(t, s, req, onlyonce.Won).Record.Owner()
		begun := make(chan bool, 1)
		go func() {
			held, err := s.BeginStep(t.Context(), owner, onlyonce.Intent{Name: "charge", Provider: "p", DerivedKey: "d", Reference: "r"})
			if err != nil {
				t.Errorf("begin step: %v", err)
			}
			begun <- held
		}()
		want(t, other, again(req), onlyonce.Resumed)
		seen, err := other.Steps(t.Context(), req.Key)
		if held := <-begun; err != nil || held != (len(seen) == 1) {
			t.Errorf("a step was begun: %v; the takeover saw %d, %v", held, len(seen), err)
		}
	}
}
