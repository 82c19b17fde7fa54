package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// C2: the claim of a transaction in another process is busy at once, for
// single claims and for transactions, on fresh keys and on old rows.
func TestDuplicateOfUncommittedIsBusyAtOnce(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, other := migrated(t, dsn, pgstore.Config{}), migrated(t, dsn, pgstore.Config{LockTimeout: -1, StatementTimeout: -1})
	freed := request("freed")
	if _, err := s.Release(t.Context(), want(t, s, freed, onlyonce.Won).Record.Owner(), "r"); err != nil {
		t.Fatal(err)
	}
	for _, req := range []onlyonce.ClaimRequest{request("fresh"), freed} {
		_, settled, err := s.Atomic(t.Context(), again(req), func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
			// Whoever waited would wait for this handler, which waits for it.
			for range 3 {
				want(t, other, again(req), onlyonce.Busy)
				c, _, err := other.Atomic(ctx, again(req), answers)
				if err != nil || c.Verdict != onlyonce.Busy {
					t.Errorf("%s: %v, %v, want busy", req.Key.Value, c.Verdict, err)
				}
			}
			return answers(ctx, tx)
		})
		if err != nil || !settled.Held {
			t.Fatalf("%s: %+v, %v", req.Key.Value, settled, err)
		}
		want(t, other, again(req), onlyonce.Replay)
	}
}

// The handler's transaction cannot be ended by it, nor used behind it.
func TestHandlersTransaction(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	exec(t, pool, `CREATE TABLE business (name text)`)
	var kept pgx.Tx
	_, settled, err := s.Atomic(t.Context(), request("k"), func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
		kept = tx
		if tx.Commit(ctx) == nil || tx.Rollback(ctx) == nil {
			t.Error("the handler ended its transaction")
		}
		savepoint, err := tx.Begin(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := savepoint.Exec(ctx, `INSERT INTO business VALUES ('undone')`); err != nil {
			return nil, err
		}
		if err := savepoint.Rollback(ctx); err != nil {
			return nil, err
		}
		if err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO business VALUES ('nested')`)
			return err
		}); err != nil {
			return nil, err
		}
		var idle, sync string
		err = tx.QueryRow(ctx, `SELECT current_setting('idle_in_transaction_session_timeout'), current_setting('synchronous_commit')`).Scan(&idle, &sync)
		if idle != "30s" || sync != "on" {
			t.Errorf("idle timeout %s, synchronous commit %s", idle, sync)
		}
		a := created()
		return &a, err
	})
	if err != nil || !settled.Held {
		t.Fatalf("atomic: %+v, %v", settled, err)
	}
	if names := one[string](t, pool, `SELECT string_agg(name, ' ') FROM business`); names != "nested" {
		t.Errorf("business data: %s, want nested", names)
	}
	if _, err := kept.Exec(t.Context(), `INSERT INTO business VALUES ('late')`); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("a kept transaction: %v", err)
	}
	if err := kept.QueryRow(t.Context(), `SELECT 1`).Scan(new(int)); !errors.Is(err, pgx.ErrTxClosed) {
		t.Errorf("a kept transaction: %v", err)
	}
}

// A handler that commits behind the store's back is told off; what it did stands, and
// so does its claim. So it is when it fails afterwards: "nothing was done" would have
// the caller do it again.
func TestHandlerThatCommits(t *testing.T) {
	t.Parallel()
	s := migrated(t, testserver.Postgres(t), pgstore.Config{})
	for name, failure := range map[string]error{"succeeds": nil, "fails": errors.New("something behind it"), "conflicts": onlyonce.ErrConflict} {
		fn := func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
			if _, err := tx.Exec(ctx, `COMMIT`); err != nil {
				return nil, err
			}
			answer, _ := answers(ctx, tx)
			return answer, failure
		}
		check := func(how string, settled onlyonce.Settled, err error) {
			t.Helper()
			if onlyonce.CodeOf(err) != onlyonce.CodeTxEnded || settled.Held || errors.Is(err, onlyonce.ErrConflict) || (name == "fails" && !errors.Is(err, failure)) {
				t.Errorf("%s, %s: %+v, %v", name, how, settled, err)
			}
		}
		_, settled, err := s.Atomic(t.Context(), request(name), fn)
		check("atomic", settled, err)
		owner := want(t, s, stepRequest("finish "+name), onlyonce.Won).Record.Owner()
		_, _, err = s.StepTx(t.Context(), owner, reserve, func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, err := fn(ctx, tx)
			return nil, err
		})
		check("step", onlyonce.Settled{}, err)
		settled, err = s.Finish(t.Context(), owner, fn)
		check("finish", settled, err)
	}
}

// A URL of another kind is refused: the driver would go to its default server.
func TestOpenOtherScheme(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres+portable://u:secret@127.0.0.1/db", "mysql://u:secret@127.0.0.1/db", "Postgres://x"} {
		s, err := pgstore.Open(t.Context(), url, pgstore.Config{})
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("open %s: %v, %v", url, s, err)
		}
	}
}

// Every way out of a handler gives the connection back.
func TestHandlerThatNeverReturns(t *testing.T) {
	t.Parallel()
	s := migrated(t, with(t, testserver.Postgres(t), "pool_max_conns", "1"), pgstore.Config{})
	ends := map[string]func(){"panic": func() { panic("p") }, "goexit": runtime.Goexit}
	for name, end := range ends {
		req := request(name)
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_, _, _ = s.Atomic(t.Context(), req, func(context.Context, pgx.Tx) (*onlyonce.Answer, error) { //nolint:dogsled // never returns
				end()
				return nil, nil
			})
		}()
		<-done
		owner := want(t, s, req, onlyonce.Won).Record.Owner()
		done = make(chan struct{})
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			_, _ = s.Finish(t.Context(), owner, func(context.Context, pgx.Tx) (*onlyonce.Answer, error) {
				end()
				return nil, nil
			})
		}()
		<-done
		complete(t, s, owner)
	}
}

// C5, C6: a lease is renewed while Finish runs; a takeover in between rolls it
// back.
func TestFinishBesideOthers(t *testing.T) {
	t.Parallel()
	for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			dsn := testserver.Postgres(t)
			s, pool := migrated(t, dsn, pgstore.Config{Isolation: isolation}), admin(t, dsn)
			exec(t, pool, `CREATE TABLE business (name text)`)
			finish := func(owner onlyonce.Owner, beside func()) (onlyonce.Settled, error) {
				for {
					settled, err := s.Finish(t.Context(), owner, func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
						if _, err := tx.Exec(ctx, `INSERT INTO business VALUES ($1)`, owner.Key.Value); err != nil {
							return nil, err
						}
						beside()
						return answers(ctx, tx)
					})
					if !errors.Is(err, onlyonce.ErrConflict) {
						return settled, err
					}
					beside = func() {}
				}
			}
			renewed := want(t, s, request("renewed"), onlyonce.Won).Record.Owner()
			settled, err := finish(renewed, func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if held, err := s.Renew(ctx, renewed, time.Minute); err != nil || !held {
					t.Errorf("renew beside finish: %v, %v", held, err)
				}
			})
			if err != nil || !settled.Held {
				t.Errorf("finish beside a renewal: %+v, %v", settled, err)
			}
			req := request("taken")
			req.Lease = time.Microsecond
			taken := want(t, s, req, onlyonce.Won).Record.Owner()
			settled, err = finish(taken, func() { want(t, s, again(req), onlyonce.Resumed) })
			if err != nil || settled.Held {
				t.Errorf("finish beside a takeover: %+v, %v", settled, err)
			}
			if names := one[string](t, pool, `SELECT string_agg(name, ' ') FROM business`); names != "renewed" {
				t.Errorf("business data: %s, want renewed", names)
			}
		})
	}
}

// The caller's own transaction completes at any isolation, and a takeover after
// its snapshot is a conflict or a lost key, never a completion.
func TestCompleteTxAtEveryIsolation(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		req := request(fmt.Sprint("fine ", isolation))
		owner := want(t, s, req, onlyonce.Won).Record.Owner()
		err := pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: isolation}, func(tx pgx.Tx) error {
			settled, err := s.CompleteTx(t.Context(), tx, owner, created())
			if !settled.Held {
				t.Errorf("%s: not held", isolation)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", isolation, err)
		}
		want(t, s, again(req), onlyonce.Replay)

		req = request(fmt.Sprint("taken ", isolation))
		req.Lease = time.Microsecond
		owner = want(t, s, req, onlyonce.Won).Record.Owner()
		_ = pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: isolation}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SELECT count(*) FROM onlyonce_keys`); err != nil {
				return err
			}
			want(t, s, again(req), onlyonce.Resumed)
			settled, err := s.CompleteTx(t.Context(), tx, owner, created())
			if settled.Held || (err != nil && !errors.Is(err, onlyonce.ErrConflict)) {
				t.Errorf("%s: %+v, %v", isolation, settled, err)
			}
			return errors.New("roll back")
		})
	}
}

// A takeover that is under way either sees a step that begins, or it is not
// begun.
func TestStepBesideTakeover(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	req := request("k")
	owner := want(t, s, req, onlyonce.Won).Record.Owner()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `UPDATE onlyonce_keys SET fence = fence + 1, taken_from = 1, attempt = decode(repeat('00', 16), 'hex')`); err != nil {
		t.Fatal(err)
	}
	held := make(chan bool, 1)
	go func() {
		ok, err := s.BeginStep(t.Context(), owner, onlyonce.Intent{Name: "s", SendWithin: time.Second})
		if err != nil {
			t.Errorf("begin step: %v", err)
		}
		held <- ok
	}()
	waiting(t, pool, "%INSERT INTO onlyonce_steps%")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if <-held {
		t.Error("a step was begun by an attempt that had lost its key")
	}
	if n := one[int](t, pool, `SELECT count(*) FROM onlyonce_steps`); n != 0 {
		t.Errorf("%d steps, want none", n)
	}
}

// A lease that is renewed between a claim's look and its write is not taken
// over.
func TestRenewalBeatsTakeover(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	now := time.Now().Truncate(time.Microsecond)
	clock := func() time.Time { return now }
	s, other := migrated(t, dsn, pgstore.Config{Now: clock}), migrated(t, dsn, pgstore.Config{Now: clock})
	req := request("k")
	owner := want(t, s, req, onlyonce.Won).Record.Owner()
	now = now.Add(req.Lease)
	free := hold(t, pool, req.Key)
	defer free()
	renewed := make(chan error, 1)
	go func() {
		_, err := s.Renew(t.Context(), owner, time.Hour)
		renewed <- err
	}()
	waiting(t, pool, "%SET lease_end%WHERE%state = 1%RETURNING true%")
	claimed := make(chan onlyonce.Verdict, 1)
	go func() {
		c, err := other.Claim(t.Context(), again(req)) // looks, then waits behind the renewal
		if err != nil {
			t.Errorf("claim: %v", err)
		}
		claimed <- c.Verdict
	}()
	waiting(t, pool, "%attempts + 1%")
	free()
	if err := <-renewed; err != nil {
		t.Fatal(err)
	}
	if v := <-claimed; v != onlyonce.Busy {
		t.Errorf("claim: %v, want busy", v)
	}
}
