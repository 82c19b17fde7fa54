package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// B82: 32 sessions claim neighbouring new keys, and lose no claim to a deadlock,
// neither READ COMMITTED nor in sessions that lock gaps.
func TestNeighbouringKeys(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	stores := map[string]*mysqlstore.Store{"open": open(t, dsn, mysqlstore.Config{})}
	stores["repeatable read"] = ready(t, admin(t, dsn), mysqlstore.Config{Isolation: sql.LevelRepeatableRead})
	for name, s := range stores {
		var wg sync.WaitGroup
		gate := make(chan struct{})
		for i := range 32 {
			wg.Go(func() {
				<-gate
				for n := range 6 {
					req := request(fmt.Sprintf("%s %d", name, n*32+i))
					req.Resource = req.Key.Value
					if c, err := s.Claim(t.Context(), req); err != nil || c.Verdict != onlyonce.Won {
						t.Errorf("%s: claim: %v, %v", name, c.Verdict, err)
						return
					}
					if _, err := s.Release(t.Context(), onlyonce.Owner{Key: req.Key}, "not mine"); err != nil {
						t.Errorf("%s: release: %v", name, err)
					}
				}
			})
		}
		close(gate)
		wg.Wait()
	}
}

// B82: three sessions insert the same key, and the first rolls back: the other two
// then wait for each other, one is the deadlock's victim, and nobody hears of it.
func TestFirstOfThreeRollsBack(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, pool := open(t, dsn, mysqlstore.Config{}), admin(t, dsn)
	for round := range 8 {
		req := request(fmt.Sprint(round))
		want(t, s, req, onlyonce.Won)
		exec(t, pool, `CREATE TABLE IF NOT EXISTS template AS SELECT * FROM onlyonce_keys LIMIT 0`)
		exec(t, pool, `DELETE FROM template`)
		exec(t, pool, `INSERT INTO template SELECT * FROM onlyonce_keys`)
		exec(t, pool, `DELETE FROM onlyonce_keys`)
		tx, err := pool.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), `INSERT INTO onlyonce_keys SELECT * FROM template`); err != nil {
			t.Fatal(err)
		}
		verdicts := make(chan onlyonce.Verdict, 3)
		for range cap(verdicts) {
			// Stores that have not met the key insert first.
			other := ready(t, s.DB(), mysqlstore.Config{})
			go func() {
				c, err := other.Claim(t.Context(), again(req))
				if err != nil {
					t.Error(err)
				}
				verdicts <- c.Verdict
			}()
		}
		waiting(t, pool)
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		got := map[onlyonce.Verdict]int{}
		for range cap(verdicts) {
			got[<-verdicts]++
		}
		if got[onlyonce.Won] != 1 || got[onlyonce.Busy] != 2 {
			t.Errorf("verdicts %v, want one winner", got)
		}
	}
}

// C2: a duplicate in another process is told that a key is busy while its
// transaction is open, by its lock, whether the row is new or taken over.
func TestBusyInAnotherProcess(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, other := open(t, dsn, mysqlstore.Config{}), open(t, dsn, mysqlstore.Config{})
	fresh, freed := request("fresh"), request("freed")
	owner := want(t, s, freed, onlyonce.Won).Record.Owner()
	if held, err := s.Release(t.Context(), owner, "r"); !held || err != nil {
		t.Fatalf("release: %v, %v", held, err)
	}
	for _, req := range []onlyonce.ClaimRequest{fresh, freed} {
		_, settled, err := s.Atomic(t.Context(), again(req), func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
			want(t, other, again(req), onlyonce.Busy)
			want(t, other, again(req), onlyonce.Busy) // it has met the key by now
			c, _, err := other.Atomic(ctx, again(req), func(context.Context, *sql.Tx) (*onlyonce.Answer, error) {
				t.Error("a duplicate ran")
				return nil, nil
			})
			if err != nil || c.Verdict != onlyonce.Busy {
				t.Errorf("atomic duplicate: %v, %v", c.Verdict, err)
			}
			return answers(ctx, tx)
		})
		if err != nil || !settled.Held {
			t.Errorf("atomic: %+v, %v", settled, err)
		}
		want(t, other, again(req), onlyonce.Replay)
	}
	// A database beside it has the same keys and other locks.
	beside := open(t, testserver.MySQL(t), mysqlstore.Config{})
	_, _, err := s.Atomic(t.Context(), request("both"), func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
		want(t, beside, request("both"), onlyonce.Won)
		return answers(ctx, tx)
	})
	if err != nil {
		t.Error(err)
	}
}

// C9, B78: with one connection ten leased handlers at once do their own queries.
func TestPoolOfOne(t *testing.T) {
	t.Parallel()
	s := open(t, testserver.MySQL(t), mysqlstore.Config{MaxConns: 1})
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			claim, err := s.Claim(t.Context(), request(fmt.Sprint(i)))
			if err != nil || claim.Verdict != onlyonce.Won {
				t.Errorf("claim: %v, %v", claim.Verdict, err)
				return
			}
			var n int
			if err := s.DB().QueryRowContext(t.Context(), `SELECT COUNT(*) FROM onlyonce_keys`).Scan(&n); err != nil {
				t.Error(err)
			}
			if settled, err := s.Complete(t.Context(), claim.Record.Owner(), created()); err != nil || !settled.Held {
				t.Errorf("complete: %+v, %v", settled, err)
			}
		})
	}
	wg.Wait()
}

// A handler that ends the transaction, or goes on behind one that the server ended,
// is found out.
func TestHandlerEndsTransaction(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, pool := open(t, dsn, mysqlstore.Config{}), admin(t, dsn)
	exec(t, pool, `CREATE TABLE account (id INT PRIMARY KEY, amount INT)`)
	exec(t, pool, `INSERT INTO account VALUES (1, 0), (2, 0)`)
	ends := map[string]func(ctx context.Context, tx *sql.Tx){
		"commit":           func(_ context.Context, tx *sql.Tx) { _ = tx.Commit() },
		"rollback":         func(_ context.Context, tx *sql.Tx) { _ = tx.Rollback() },
		"sends rollback":   func(ctx context.Context, tx *sql.Tx) { _, _ = tx.ExecContext(ctx, `ROLLBACK`) },
		"ignored deadlock": func(ctx context.Context, tx *sql.Tx) { loseDeadlock(ctx, t, pool, tx) },
	}
	for name, end := range ends {
		fn := func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
			end(ctx, tx)
			return answers(ctx, tx)
		}
		if _, settled, err := s.Atomic(t.Context(), request(name), fn); !errors.Is(err, onlyonce.ErrTxEnded) || settled.Held {
			t.Errorf("atomic, %s: %+v, %v", name, settled, err)
		}
		owner := want(t, s, request(name+" finish"), onlyonce.Won).Record.Owner()
		if settled, err := s.Finish(t.Context(), owner, fn); !errors.Is(err, onlyonce.ErrTxEnded) || settled.Held {
			t.Errorf("finish, %s: %+v, %v", name, settled, err)
		}
		_, _, err := s.StepTx(t.Context(), owner, onlyonce.TxStep{Name: "s"}, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			end(ctx, tx)
			return nil, nil
		})
		if !errors.Is(err, onlyonce.ErrTxEnded) {
			t.Errorf("step, %s: %v", name, err)
		}
		complete(t, s, owner) // nothing was recorded
	}
}

// loseDeadlock has tx be the victim of a deadlock: it has written less.
func loseDeadlock(ctx context.Context, t *testing.T, pool *sql.DB, tx *sql.Tx) {
	t.Helper()
	other, err := pool.BeginTx(ctx, nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer other.Rollback() // it is only there to stand in the way
	if _, err := other.ExecContext(ctx, `INSERT INTO account
		WITH RECURSIVE n (n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM n WHERE n < 400) SELECT n, 0 FROM n`); err != nil {
		t.Error(err)
	}
	if _, err := other.ExecContext(ctx, `UPDATE account SET amount = 1 WHERE id = 1`); err != nil {
		t.Error(err)
	}
	if _, err := tx.ExecContext(ctx, `UPDATE account SET amount = 2 WHERE id = 2`); err != nil {
		t.Error(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := other.ExecContext(ctx, `UPDATE account SET amount = 1 WHERE id = 2`)
		done <- err
	}()
	waiting(t, pool)
	if _, err := tx.ExecContext(ctx, `UPDATE account SET amount = 2 WHERE id = 1`); err == nil {
		t.Error("no deadlock")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A deadlock that the handler returns is a conflict: everything was rolled back, and
// all of it may be repeated (C10).
func TestHandlersDeadlockIsAConflict(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, pool := open(t, dsn, mysqlstore.Config{}), admin(t, dsn)
	exec(t, pool, `CREATE TABLE account (id INT PRIMARY KEY, amount INT)`)
	exec(t, pool, `INSERT INTO account VALUES (1, 0), (2, 0)`)
	const workers, each = 6, 8
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := range each {
				req := request(fmt.Sprint(worker, "/", i))
				for {
					_, settled, err := s.Atomic(t.Context(), req, transfer(worker%2 == 0))
					if settled.Held {
						break
					}
					if !errors.Is(err, onlyonce.ErrConflict) {
						t.Errorf("atomic: %v", err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if n := one[int](t, pool, `SELECT SUM(amount) FROM account`); n != 2*workers*each {
		t.Errorf("%d was booked, want %d", n, 2*workers*each)
	}
}

// transfer books on two accounts, in an order that makes deadlocks.
func transfer(up bool) onlyonce.TxFunc[*sql.Tx] {
	return func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
		ids := []int{1, 2}
		if !up {
			ids = []int{2, 1}
		}
		for _, id := range ids {
			if _, err := tx.ExecContext(ctx, `UPDATE account SET amount = amount + 1 WHERE id = ?`, id); err != nil {
				return nil, err
			}
		}
		return answers(ctx, tx)
	}
}
