package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// D, C6: on one node an owner records a step, on another its key is taken over, swept
// or released at the same moment. Whoever has the key then sees the step, or it was not
// recorded; and no effect of a step's transaction stands without it.
func checkStepsBesideOtherNodes(t *testing.T, urls []string) {
	t.Helper()
	clock := storetest.NewClock()
	cfg := mysqlstore.Config{MaxConns: 4, MaxClockSkew: -1, Now: clock.Now}
	here, there := open(t, urls[0], cfg), open(t, urls[1], cfg)
	exec(t, here.DB(), businessTable)
	var known []onlyonce.StepRecord // by whoever took a key over
	ways := map[string]func(req onlyonce.ClaimRequest, owner onlyonce.Owner) error{
		"claim": func(req onlyonce.ClaimRequest, _ onlyonce.Owner) error {
			c, err := there.Claim(t.Context(), again(req))
			if err != nil || c.Verdict != onlyonce.Resumed {
				return err
			}
			known, err = there.Steps(t.Context(), req.Key)
			if known == nil {
				known = []onlyonce.StepRecord{}
			}
			return err
		},
		"sweep": func(onlyonce.ClaimRequest, onlyonce.Owner) error {
			_, err := there.Sweep(t.Context(), sweepAll)
			return err
		},
		"release": func(_ onlyonce.ClaimRequest, owner onlyonce.Owner) error {
			_, err := there.Release(t.Context(), owner, "r")
			return err
		},
	}
	for way, take := range ways {
		for i := range 12 {
			req := request(fmt.Sprint(way, i))
			req.Abandon, req.Lease, req.Retention = onlyonce.AbandonResume, time.Second, time.Hour
			known = nil
			owner := want(t, here, req, onlyonce.Won).Record.Owner()
			want(t, there, again(req), onlyonce.Busy) // it watches
			clock.Advance(2 * time.Second)
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := take(req, owner); err != nil && !errors.Is(err, onlyonce.ErrConflict) {
					t.Errorf("%s: %v", way, err)
				}
			})
			held := recordAStep(t, here, owner, i%2 == 0)
			wg.Wait()
			if known != nil && (len(known) == 1) != held {
				t.Errorf("a step was recorded: %v; the new owner saw %d", held, len(known))
			}
			checkSeen(t, there, owner, held)
		}
	}
}

// recordAStep records a step, with a row of business in its transaction or a send
// without one, and tells whether it was.
func recordAStep(t *testing.T, s *mysqlstore.Store, owner onlyonce.Owner, tx bool) (held bool) {
	t.Helper()
	var err error
	if tx {
		_, held, err = s.StepTx(t.Context(), owner, onlyonce.TxStep{Name: "s"}, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			_, err := writes(owner.Key.Value)(ctx, tx)
			return []byte("done"), err
		})
		if n := one[int](t, s.DB(), `SELECT COUNT(*) FROM business WHERE name = ?`, owner.Key.Value); err == nil && (n == 1) != held {
			t.Errorf("%d effects of a step that is recorded: %v", n, held)
		}
	} else {
		held, err = s.BeginStep(t.Context(), owner, onlyonce.Intent{Name: "s", Provider: "p", DerivedKey: "d", Reference: "r"})
	}
	if err != nil && !errors.Is(err, onlyonce.ErrConflict) {
		t.Errorf("record step: %v", err)
	}
	return held
}

// checkSeen makes sure that a recorded step counted where the key was freed: it is not
// called harmless, and lives for as long as a step is asked about.
func checkSeen(t *testing.T, s *mysqlstore.Store, owner onlyonce.Owner, step bool) {
	t.Helper()
	steps, err := s.Steps(t.Context(), owner.Key)
	rec, found, getErr := s.Get(t.Context(), owner.Key)
	if err != nil || getErr != nil || !found || (len(steps) == 1) != step {
		t.Errorf("%s: recorded: %v, %d are there, %v, %v", owner.Key.Value, step, len(steps), err, getErr)
		return
	}
	if life := rec.ExpiresAt.Sub(rec.CreatedAt); step && rec.State == onlyonce.FailedRetryable && life < onlyonce.FreedStepRetention {
		t.Errorf("%s: freed for %v (%s) as if nothing had been done", owner.Key.Value, life, rec.Reason)
	}
}

// D4: how long ago a step was sent is told on the safe side, whatever the clocks of
// nodes: a handle that has just met the send has known of it for no time, and what its
// age is by the clocks may be wrong.
func checkSendsWatched(t *testing.T, urls []string) {
	t.Helper()
	clock, ahead := storetest.NewClock(), storetest.NewClock()
	ahead.Advance(time.Hour)
	here := open(t, urls[0], mysqlstore.Config{MaxConns: 4, MaxClockSkew: 2 * time.Hour, Now: clock.Now})
	there := open(t, urls[1], mysqlstore.Config{MaxConns: 4, MaxClockSkew: 2 * time.Hour, Now: ahead.Now})
	owner := want(t, here, request("k"), onlyonce.Won).Record.Owner()
	send := func() {
		t.Helper()
		if held, err := here.BeginStep(t.Context(), owner, onlyonce.Intent{Name: "s", Provider: "p", DerivedKey: "d", Reference: "r"}); !held || err != nil {
			t.Fatalf("begin step: %v, %v", held, err)
		}
	}
	tells := func(s *mysqlstore.Store, idle, age time.Duration) {
		t.Helper()
		steps, err := s.Steps(t.Context(), owner.Key)
		if err != nil || len(steps) != 1 || steps[0].Idle != idle || steps[0].Age != age {
			t.Errorf("steps: %+v, %v; want idle for %v and %v old", steps, err, idle, age)
		}
	}
	send()
	tells(there, 0, 3*time.Hour) // by a clock that is an hour ahead
	clock.Advance(time.Minute)
	ahead.Advance(time.Minute)
	tells(here, time.Minute, 2*time.Hour+time.Minute)
	tells(there, time.Minute, 3*time.Hour+time.Minute)
	send()
	tells(here, 0, 2*time.Hour+time.Minute)
	tells(there, 0, 3*time.Hour+time.Minute)
}

// C2: a duplicate in another process on the same node is busy at once while its
// transaction is open, by the node's lock. If it waited for the row its context would
// end.
func checkBusyOnNode(t *testing.T, urls []string) {
	t.Helper()
	s, other := open(t, urls[0], mysqlstore.Config{MaxConns: 4}), open(t, urls[0], mysqlstore.Config{MaxConns: 4})
	req := request("k")
	_, settled, err := s.Atomic(t.Context(), req, func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
		soon, cancel := context.WithTimeout(ctx, 8*time.Second)
		defer cancel()
		for range 2 { // the second time it has met the key
			if c, err := other.Claim(soon, again(req)); err != nil || c.Verdict != onlyonce.Busy {
				t.Errorf("claim: %v, %v", c.Verdict, err)
			}
			if c, _, err := other.Atomic(soon, again(req), answers); err != nil || c.Verdict != onlyonce.Busy {
				t.Errorf("atomic: %v, %v", c.Verdict, err)
			}
		}
		return answers(ctx, tx)
	})
	if err != nil || !settled.Held {
		t.Errorf("atomic: %+v, %v", settled, err)
	}
	want(t, other, again(req), onlyonce.Replay)
}

// C10: a COMMIT that a node refuses leaves the transaction open. What is written and
// confirmed later does not become a part of it.
func checkRefusedCommit(t *testing.T, urls []string) {
	t.Helper()
	s, pool, beside := open(t, urls[0], mysqlstore.Config{MaxConns: 1}), admin(t, urls[0]), admin(t, urls[1])
	exec(t, pool, `CREATE TABLE business (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(255))`)
	refusing := func(commit func() error) error {
		exec(t, pool, `SET GLOBAL wsrep_reject_queries = ALL`)
		defer exec(t, pool, `SET GLOBAL wsrep_reject_queries = NONE`)
		return commit()
	}
	const refused = `INSERT INTO business (name) VALUES ('refused')`
	if err := mysqlstore.InTx(t.Context(), s, refused, refusing); !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("commit: %v, want uncertain", err)
	}
	tx, err := s.DB().BeginTx(t.Context(), nil) // the caller's own is no different
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), refused); err != nil {
		t.Fatal(err)
	}
	if err := refusing(tx.Commit); err == nil {
		t.Error("the caller's commit was not refused")
	}
	complete(t, s, want(t, s, request("k"), onlyonce.Won).Record.Owner())
	beside.SetMaxOpenConns(1)
	exec(t, beside, `SET wsrep_sync_wait = 7`)
	if n := one[int](t, beside, `SELECT COUNT(*) FROM onlyonce_keys WHERE state = 2`); n != 1 {
		t.Errorf("%d answers are in the cluster, want the one that was confirmed", n)
	}
	if n := one[int](t, beside, `SELECT COUNT(*) FROM business`); n != 0 {
		t.Errorf("%d rows of the refused transaction are there", n)
	}
}
