package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

var isolations = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// naming is a claim that names a resource.
func naming(resource, value string) onlyonce.ClaimRequest {
	req := request(value)
	req.Resource = resource
	return req
}

// freed is a key that has let go of its resource.
func freed(t *testing.T, s *pgstore.Store, req onlyonce.ClaimRequest) onlyonce.ClaimRequest {
	t.Helper()
	owner := want(t, s, req, onlyonce.Won).Record.Owner()
	if held, err := s.Release(t.Context(), owner, "r"); err != nil || !held {
		t.Fatalf("release: %v, %v", held, err)
	}
	return again(req)
}

// verdictOf claims until it is no conflict.
func verdictOf(t *testing.T, s *pgstore.Store, req onlyonce.ClaimRequest) onlyonce.Verdict {
	t.Helper()
	for {
		c, err := s.Claim(t.Context(), req)
		if errors.Is(err, onlyonce.ErrConflict) {
			continue
		}
		if err != nil {
			t.Errorf("claim %s: %v", req.Key.Value, err)
		}
		return c.Verdict
	}
}

// C12: of those that take over or begin at once, each with a key of its own, one
// gets the resource, whatever the isolation of their sessions.
func TestResourceRace(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			url := with(t, testserver.Postgres(t), "default_transaction_isolation", string(isolation))
			stores := []*pgstore.Store{migrated(t, url, pgstore.Config{Isolation: isolation}), migrated(t, url, pgstore.Config{Isolation: isolation})}
			for round := range 10 {
				resource := fmt.Sprint("order/", round)
				var reqs []onlyonce.ClaimRequest
				for i := range 8 {
					req := naming(resource, fmt.Sprint(round, "-", i))
					if i%2 == 0 {
						req = freed(t, stores[0], req)
					}
					if i%4 == 0 {
						req.Resource = "" // it has the one that is recorded
					}
					reqs = append(reqs, req)
				}
				var wg sync.WaitGroup
				var mu sync.Mutex
				got, gate := map[onlyonce.Verdict]int{}, make(chan struct{})
				for i, req := range reqs {
					wg.Go(func() {
						<-gate
						v := verdictOf(t, stores[i/4], req)
						mu.Lock()
						defer mu.Unlock()
						got[v]++
					})
				}
				close(gate)
				wg.Wait()
				if got[onlyonce.Won]+got[onlyonce.Resumed] != 1 || got[onlyonce.ResourceBusy] != len(reqs)-1 {
					t.Errorf("round %d: %v, want one owner", round, got)
				}
			}
		})
	}
}

// takingHold begins a transaction in which the key takes hold of the resource.
func takingHold(t *testing.T, pool *pgxpool.Pool, key onlyonce.Key, resource string) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	d, held := key.Digest(), onlyonce.ResourceDigest(key.Scope, resource)
	if _, err := tx.Exec(t.Context(), `UPDATE onlyonce_keys SET holds = $2 WHERE digest = $1`, d[:], held[:]); err != nil {
		t.Fatal(err)
	}
	return tx
}

// A claim that finds nobody, because the other is just taking hold, is decided by
// the index: when it loses, it looks again.
func TestResourceIsTakenMeanwhile(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations {
		for _, commits := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s_%v", isolation, commits), func(t *testing.T) {
				t.Parallel()
				dsn := testserver.Postgres(t)
				s, pool := migrated(t, with(t, dsn, "default_transaction_isolation", string(isolation)), pgstore.Config{}), admin(t, dsn)
				first := freed(t, s, naming("r", "first"))
				for name, c := range map[string]struct {
					req   onlyonce.ClaimRequest
					waits string
					owns  onlyonce.Verdict
				}{
					"fresh":    {naming("r", "fresh"), "%INSERT INTO%ON CONFLICT%", onlyonce.Won},
					"takeover": {freed(t, s, naming("r", "second")), "%attempts + 1%", onlyonce.Resumed},
				} {
					tx := takingHold(t, pool, first.Key, "r")
					verdict := make(chan onlyonce.Claim, 1)
					go func() {
						claim, err := s.Claim(t.Context(), c.req)
						if err != nil {
							t.Errorf("claim: %v", err)
						}
						verdict <- claim
					}()
					waiting(t, pool, c.waits)
					expected := c.owns
					if commits {
						expected = onlyonce.ResourceBusy
						if err := tx.Commit(t.Context()); err != nil {
							t.Fatal(err)
						}
					} else if err := tx.Rollback(t.Context()); err != nil {
						t.Fatal(err)
					}
					claim := <-verdict
					if claim.Verdict != expected || (commits && claim.Record.Key != first.Key) {
						t.Errorf("%s: %v of %s, want %v", name, claim.Verdict, claim.Record.Key.Value, expected)
					}
					exec(t, pool, `UPDATE onlyonce_keys SET holds = NULL`)
				}
			})
		}
	}
}

// A holder that completes in a transaction of the caller's own holds until that
// commits, and nobody waits for it, neither a fresh key nor a takeover.
func TestResourceOfAnOpenTransactionIsBusyAtOnce(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, with(t, dsn, "statement_timeout", "20000"), pgstore.Config{}), admin(t, dsn)
	second := freed(t, s, naming("r", "second"))
	holder := want(t, s, naming("r", "holder"), onlyonce.Won).Record.Owner()
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if settled, err := s.CompleteTx(t.Context(), tx, holder, created()); err != nil || !settled.Held {
			t.Errorf("complete: %+v, %v", settled, err)
		}
		// Whoever waited would wait for this transaction, which waits for it.
		want(t, s, naming("r", "fresh"), onlyonce.ResourceBusy)
		want(t, s, second, onlyonce.ResourceBusy)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want(t, s, naming("r", "fresh"), onlyonce.Won)
}

// What an atomic claim does on rows that have named a resource is what the
// reference does.
func TestAtomicOnRowsWithResources(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			dsn := testserver.Postgres(t)
			s, pool := migrated(t, dsn, pgstore.Config{Isolation: isolation}), admin(t, dsn)
			atomic := func(req onlyonce.ClaimRequest, v onlyonce.Verdict) onlyonce.Claim {
				t.Helper()
				req.Resource = ""
				c, settled, err := s.Atomic(t.Context(), again(req), answers)
				if err != nil || c.Verdict != v || settled.Held != v.Owns() {
					t.Errorf("atomic %s: %v, %+v, %v; want %v", req.Key.Value, c.Verdict, settled, err, v)
				}
				return c
			}
			named := naming("a", "named")
			if _, _, err := s.Atomic(t.Context(), named, answers); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
				t.Errorf("atomic that names a resource: %v", err)
			}
			kept := request("kept")
			kept.Keep = []byte{}
			if _, _, err := s.Atomic(t.Context(), kept, answers); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
				t.Errorf("atomic that keeps a request: %v", err)
			}

			// Free, and then held by another.
			one, two := freed(t, s, naming("a", "one")), freed(t, s, naming("a", "two"))
			three := want(t, s, naming("a", "three"), onlyonce.Won).Record.Owner()
			if c := atomic(one, onlyonce.ResourceBusy); c.Record.Owner() != three {
				t.Errorf("the holder is %s", c.Record.Key.Value)
			}
			complete(t, s, three)
			if c := atomic(one, onlyonce.Resumed); c.Record.Resource != "a" {
				t.Errorf("resource %q after the takeover", c.Record.Resource)
			}
			// A holder that has expired holds nothing.
			four := want(t, s, naming("a", "four"), onlyonce.Won).Record.Owner()
			exec(t, pool, `UPDATE onlyonce_keys SET state = 3, expires_at = now() - interval '1 hour' WHERE key = 'four'`)
			atomic(two, onlyonce.Resumed)
			if rec, found, err := s.Get(t.Context(), four.Key); found || err != nil {
				t.Errorf("the expired holder: %+v, %v", rec, err)
			}

			// What the row holds it holds until the commit, and then no more.
			abandoned := naming("b", "abandoned")
			want(t, s, abandoned, onlyonce.Won)
			exec(t, pool, `UPDATE onlyonce_keys SET lease_end = now() WHERE key = 'abandoned'`)
			abandoned.Resource = ""
			_, settled, err := s.Atomic(t.Context(), again(abandoned), func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
				want(t, s, naming("b", "other"), onlyonce.ResourceBusy)
				return answers(ctx, tx)
			})
			if err != nil || !settled.Held {
				t.Errorf("atomic: %+v, %v", settled, err)
			}
			want(t, s, naming("b", "other"), onlyonce.Won)
		})
	}
}

// A holder whose record has expired lets go, but nobody waits for who works on it.
func TestExpiredHolderIsWorkedOn(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	second := freed(t, s, naming("r", "second"))
	holder := naming("r", "holder")
	want(t, s, holder, onlyonce.Won)
	exec(t, pool, `UPDATE onlyonce_keys SET state = 3, expires_at = now() - interval '1 hour' WHERE key = 'holder'`)
	free := hold(t, pool, holder.Key)
	defer free()
	for _, req := range []onlyonce.ClaimRequest{second, naming("r", "fresh")} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if c, err := s.Claim(ctx, req); err != nil || c.Verdict.Owns() {
			t.Errorf("claim %s: %v, %v", req.Key.Value, c.Verdict, err)
		}
		cancel()
	}
	free()
	want(t, s, naming("r", "fresh"), onlyonce.Won)
	want(t, s, second, onlyonce.ResourceBusy)
}

// Beside a program of version 1, which completes keys without letting go of their
// resources, a completed key holds nothing.
func TestHolderCompletedByVersionOne(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	req := naming("r", "old")
	req.Keep = []byte("request")
	want(t, s, req, onlyonce.Won)
	exec(t, pool, `UPDATE onlyonce_keys SET state = 2, status = 200, header = '', completed_at = now(), expires_at = now() + interval '1 day'`)
	if c := want(t, s, again(req), onlyonce.Replay); c.Record.Holds {
		t.Error("a completed key holds its resource")
	}
	want(t, s, naming("r", "new"), onlyonce.Won)
	exec(t, pool, `UPDATE onlyonce_keys SET turn_at = now() - interval '1 hour', due_at = now() - interval '1 hour' WHERE key = 'old'`)
	if due, err := s.Due(t.Context(), dueNow); err != nil || len(due) != 0 {
		t.Errorf("due: %+v, %v", due, err)
	}
	want(t, s, versionOne(t, pool, request("its own"), asFreed), onlyonce.Resumed)
}

// C12: resources whose digest is the same are not known to be the same.
func TestDigestOfAnotherResource(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	want(t, s, naming("r", "one"), onlyonce.Won)
	exec(t, pool, `UPDATE onlyonce_keys SET resource = 'another'`)
	if c, err := s.Claim(t.Context(), naming("r", "two")); err == nil {
		t.Errorf("claim: %v, want an error", c.Verdict)
	}
}
