package portable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// levels are the isolation levels that one PostgreSQL stands in for engines with.
func levels() map[string]portable.Config {
	return map[string]portable.Config{
		"serializable":    {LockTimeout: patient},
		"repeatable_read": {LockTimeout: patient, Isolation: pgx.RepeatableRead},
		"read_committed":  {LockTimeout: patient, Isolation: pgx.ReadCommitted, OneClock: true},
	}
}

// each runs fn for each of n at once and waits.
func each(n int, fn func(i int)) {
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-gate
			fn(i)
		})
	}
	close(gate)
	wg.Wait()
}

// insist runs fn until it says that it is done, as an engine and a client would between
// them.
func insist(t *testing.T, fn func() (done bool, err error)) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range 10_000 {
		done, err := fn()
		if err != nil && !errors.Is(err, onlyonce.ErrConflict) {
			t.Error(err)
			return
		}
		if done {
			return
		}
		<-tick.C
	}
	t.Error("a contender was never decided")
}

// C1, B08: sixteen handlers of each of forty keys at once, through two handles: one
// business row a key, and everybody hears the same answer.
func TestContention(t *testing.T) {
	t.Parallel()
	const contenders, keys = 16, 40
	for name, cfg := range levels() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testserver.Postgres(t)
			pool := admin(t, dsn)
			exec(t, pool, `CREATE TABLE business (key text, attempt bytea)`)
			stores := []*portable.Store{migrated(t, with(t, dsn, "pool_max_conns", "8"), cfg), migrated(t, with(t, dsn, "pool_max_conns", "8"), cfg)}
			each(contenders, func(i int) {
				for k := range keys {
					req := request(fmt.Sprint((k + i) % keys))
					insist(t, func() (bool, error) {
						c, s, err := stores[i%2].Atomic(t.Context(), again(req), func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
							if _, err := tx.Exec(ctx, `INSERT INTO business VALUES ($1, $2)`, req.Key.Value, req.Attempt[:]); err != nil {
								return nil, err
							}
							return answers(ctx, tx)
						})
						return s.Held || c.Verdict == onlyonce.Replay, err
					})
				}
			})
			if n := one[int](t, pool, `SELECT count(DISTINCT key) FROM business`); n != keys {
				t.Errorf("%d keys have a business row, want %d", n, keys)
			}
			if n := one[int](t, pool, `SELECT count(*) FROM business`); n != keys {
				t.Errorf("%d business rows, want %d", n, keys)
			}
		})
	}
}

// killOne ends a session of the store's that is doing something.
const killOne = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
	WHERE datname = current_database() AND application_name = 'victim' AND state <> 'idle' ORDER BY random() LIMIT 1`

// C10: the same, while the server kills one session after the other, some in their
// commit: an attempt that does not know what became of it repeats with its token. One
// business row a key all the same.
func TestContentionWhileSessionsAreKilled(t *testing.T) {
	t.Parallel()
	const contenders, keys = 6, 20
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	exec(t, pool, `CREATE TABLE business (key text)`)
	s := migrated(t, with(t, dsn, "application_name", "victim", "pool_max_conns", "8"), portable.Config{LockTimeout: patient})
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if _, err := pool.Exec(t.Context(), killOne); err != nil {
					t.Errorf("kill a session: %v", err)
				}
			}
		}
	}()
	var uncertain, failed atomic.Int32
	each(contenders, func(i int) {
		for k := range keys {
			req := again(request(fmt.Sprint((k + i) % keys)))
			insist(t, func() (bool, error) {
				c, settled, err := s.Atomic(t.Context(), req, func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
					if _, err := tx.Exec(ctx, `INSERT INTO business VALUES ($1)`, req.Key.Value); err != nil {
						return nil, err
					}
					return answers(ctx, tx)
				})
				switch {
				case errors.Is(err, onlyonce.ErrUncertain):
					uncertain.Add(1)
				case err != nil:
					failed.Add(1)
				}
				return err == nil && (settled.Held || c.Verdict == onlyonce.Replay), nil
			})
		}
	})
	close(done)
	<-ended
	t.Logf("%d commits of unknown outcome, %d other failures", uncertain.Load(), failed.Load())
	if n := one[int](t, pool, `SELECT count(*) FROM business`); n != keys {
		t.Errorf("%d business rows of %d keys", n, keys)
	}
	if n := one[int](t, pool, `SELECT count(*) FROM onlyonce_portable_keys WHERE state = 2`); n != keys {
		t.Errorf("%d completed keys, want %d", n, keys)
	}
}

// C1: of claims at once one wins, and the others are told that the key is busy, or
// replay: nobody gets an error.
func TestClaimsAtOnce(t *testing.T) {
	t.Parallel()
	for name, cfg := range levels() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testserver.Postgres(t)
			stores := []*portable.Store{migrated(t, dsn, cfg), migrated(t, dsn, cfg)}
			for round := range 20 {
				var won atomic.Int32
				each(12, func(i int) {
					c, err := stores[i%2].Claim(t.Context(), again(request(fmt.Sprint(round))))
					switch {
					case err != nil:
						t.Error(err)
					case c.Verdict == onlyonce.Won:
						won.Add(1)
					case c.Verdict != onlyonce.Busy:
						t.Errorf("told %v", c.Verdict)
					}
				})
				if n := won.Load(); n != 1 {
					t.Errorf("%d claims of one key won", n)
				}
			}
		})
	}
}

// C12: a step that is begun while its key is freed: whichever comes first, a key with a
// step behind it holds its resource. In snapshots the two read the same and write apart:
// they have to meet at the key's row.
func TestStepBesideRelease(t *testing.T) {
	t.Parallel()
	for name, cfg := range levels() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testserver.Postgres(t)
			s := migrated(t, dsn, cfg)
			both := map[bool]int{}
			for round := range 40 {
				req := request(fmt.Sprint(round))
				req.Abandon, req.Resource = onlyonce.AbandonResume, "order/"+fmt.Sprint(round)
				owner := want(t, s, req, onlyonce.Won).Record.Owner()
				var begun, freed bool
				each(2, func(i int) {
					var err error
					if i == 0 {
						begun, err = s.BeginStep(t.Context(), owner, intent)
					} else {
						freed, err = s.Release(t.Context(), owner, "r")
					}
					if err != nil {
						t.Error(err)
					}
				})
				rec, _, err := s.Get(t.Context(), req.Key)
				if err != nil || !freed || rec.Holds != begun {
					t.Fatalf("begun %v, freed %v; it holds its resource: %v (%v)", begun, freed, rec.Holds, err)
				}
				both[begun]++
			}
			t.Logf("begun before it was freed: %d, too late: %d", both[true], both[false])
		})
	}
}

// A key whose record has expired by one node's clock and not by another's loses its
// resource to a second key, or is resumed, never both.
func TestExpiredHolderBesideItsRetry(t *testing.T) {
	t.Parallel()
	for name, cfg := range levels() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testserver.Postgres(t)
			late := cfg
			late.Now = func() time.Time { return time.Now().Add(onlyonce.FreedStepRetention + time.Hour) }
			s, ahead := migrated(t, dsn, cfg), migrated(t, dsn, late)
			for round := range 20 {
				first, second := request(fmt.Sprint("a", round)), request(fmt.Sprint("b", round))
				first.Resource, second.Resource = fmt.Sprint(round), fmt.Sprint(round)
				owner := want(t, s, first, onlyonce.Won).Record.Owner()
				if ok, err := s.BeginStep(t.Context(), owner, intent); !ok || err != nil {
					t.Fatal(ok, err)
				}
				if ok, err := s.Release(t.Context(), owner, "r"); !ok || err != nil {
					t.Fatal(ok, err)
				}
				verdicts := make([]onlyonce.Verdict, 2)
				each(2, func(i int) {
					var c onlyonce.Claim
					var err error
					if i == 0 {
						c, err = s.Claim(t.Context(), again(first))
					} else {
						c, err = ahead.Claim(t.Context(), second)
					}
					if err != nil {
						t.Error(err)
					}
					verdicts[i] = c.Verdict
				})
				if verdicts[0].Owns() == verdicts[1].Owns() {
					t.Fatalf("two keys, one resource: %v and %v", verdicts[0], verdicts[1])
				}
			}
		})
	}
}

// C5: an owner may renew while its Finish is open: where that is a conflict, repeating
// finds the renewed lease.
func TestRenewBesideFinish(t *testing.T) {
	t.Parallel()
	for name, cfg := range levels() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, testserver.Postgres(t), cfg)
			owner := want(t, s, request("k"), onlyonce.Won).Record.Owner()
			runs := 0
			insist(t, func() (bool, error) {
				settled, err := s.Finish(t.Context(), owner, func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
					if runs++; runs == 1 {
						if ok, err := s.Renew(t.Context(), owner, time.Minute); !ok || err != nil {
							t.Errorf("renew beside finish: %v, %v", ok, err)
						}
					}
					return answers(ctx, tx)
				})
				return settled.Held, err
			})
			if once := cfg.Isolation == pgx.ReadCommitted; once != (runs == 1) {
				t.Errorf("the handler ran %d times", runs)
			}
		})
	}
}
