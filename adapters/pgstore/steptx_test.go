package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// uniqueTable is business data that cannot be written twice.
const uniqueTable = `CREATE TABLE business (name text PRIMARY KEY)`

var reserve = onlyonce.TxStep{Name: "reserve", Occurrence: 1}

// reserves is a step's code with one statement.
func reserves(name string) onlyonce.TxStepFunc[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
		_, err := tx.Exec(ctx, `INSERT INTO business VALUES ($1)`, name)
		return []byte("result of " + name), err
	}
}

// names are the rows of business data.
func names(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	return one[string](t, pool, `SELECT coalesce(string_agg(name, ' ' ORDER BY name), '') FROM business`)
}

// stepRequest is a claim of an operation made of steps, whose lease is over at once.
func stepRequest(value string) onlyonce.ClaimRequest {
	req := request(value)
	req.Abandon, req.Lease = onlyonce.AbandonResume, time.Microsecond
	return req
}

// C5, C6: while a step's transaction is open its lease is renewed, and its key may
// be lost: then it is rolled back, at every isolation.
func TestStepTxBesideOthers(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			dsn := testserver.Postgres(t)
			s, pool := migrated(t, dsn, pgstore.Config{Isolation: isolation}), admin(t, dsn)
			exec(t, pool, uniqueTable)
			repeat := func(owner onlyonce.Owner, beside func()) ([]byte, bool) {
				t.Helper()
				for {
					result, held, err := s.StepTx(t.Context(), owner, reserve, func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
						result, err := reserves(owner.Key.Value)(ctx, tx)
						beside()
						return result, err
					})
					if errors.Is(err, onlyonce.ErrConflict) {
						beside = func() {}
						continue
					}
					if err != nil {
						t.Errorf("%s: %v", owner.Key.Value, err)
					}
					return result, held
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for name, c := range map[string]struct {
				held   bool
				beside func(req onlyonce.ClaimRequest, o onlyonce.Owner)
			}{
				"renewed": {true, func(_ onlyonce.ClaimRequest, o onlyonce.Owner) {
					if held, err := s.Renew(ctx, o, time.Minute); err != nil || !held {
						t.Errorf("renew beside a step: %v, %v", held, err)
					}
				}},
				"taken": {false, func(req onlyonce.ClaimRequest, _ onlyonce.Owner) { want(t, s, again(req), onlyonce.Resumed) }},
				"parked": {false, func(_ onlyonce.ClaimRequest, o onlyonce.Owner) {
					if held, err := s.Park(ctx, onlyonce.ParkRequest{Owner: o, Reason: "r"}); err != nil || !held {
						t.Errorf("park beside a step: %v, %v", held, err)
					}
				}},
			} {
				req := stepRequest(name)
				owner := want(t, s, req, onlyonce.Won).Record.Owner()
				result, held := repeat(owner, func() { c.beside(req, owner) })
				if held != c.held || (held && string(result) != "result of "+name) {
					t.Errorf("%s: %q, held %v", name, result, held)
				}
			}
			if got := names(t, pool); got != "renewed" {
				t.Errorf("business data: %s, want renewed", got)
			}
			if n := one[int](t, pool, `SELECT count(*) FROM onlyonce_steps`); n != 1 {
				t.Errorf("%d steps, want 1", n)
			}
		})
	}
}

// A takeover that comes while the step is being recorded waits for the commit, and
// sees the step.
func TestStepTxIsSeenByTakeover(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			dsn := testserver.Postgres(t)
			s, pool := migrated(t, dsn, pgstore.Config{Isolation: isolation}), admin(t, dsn)
			exec(t, pool, slowCommit)
			open := closeGate(t, pool)
			req := stepRequest("k")
			owner := want(t, s, req, onlyonce.Won).Record.Owner()
			type outcome struct {
				result []byte
				held   bool
				err    error
			}
			stepped := make(chan outcome, 1)
			go func() {
				var o outcome
				o.result, o.held, o.err = s.StepTx(t.Context(), owner, reserve, reserves("k"))
				stepped <- o
			}()
			waiting(t, pool, "commit")
			taken := make(chan onlyonce.Verdict, 1)
			go func() { taken <- verdictOf(t, s, again(req)) }()
			waiting(t, pool, "%attempts + 1%")
			open()
			if o := <-stepped; o.err != nil || !o.held || string(o.result) != "result of k" {
				t.Errorf("step: %+v", o)
			}
			if v := <-taken; v != onlyonce.Resumed {
				t.Errorf("takeover: %v", v)
			}
			steps, err := s.Steps(t.Context(), req.Key)
			if err != nil || len(steps) != 1 || steps[0].Provider != onlyonce.ProviderStore {
				t.Errorf("the new attempt sees %+v, %v", steps, err)
			}
		})
	}
}

// closeGate makes commits of business data wait, until the function it gives is
// called.
func closeGate(t *testing.T, pool *pgxpool.Pool) (open func()) {
	t.Helper()
	gate, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Release)
	if _, err := gate.Exec(t.Context(), `SELECT pg_advisory_lock(7)`); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := gate.Exec(t.Context(), `SELECT pg_advisory_unlock(7)`); err != nil {
			t.Error(err)
		}
	}
}

// C10: a step that is repeated while its first transaction, whose reply nobody
// hears, is still at its commit finds that it is done: when it records it, or by
// what the function trips over.
func TestStepTxRepeatedDuringCommit(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations {
		for _, unique := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s_%v", isolation, unique), func(t *testing.T) {
				t.Parallel()
				dsn := testserver.Postgres(t)
				s, pool := migrated(t, dsn, pgstore.Config{Isolation: isolation}), admin(t, dsn)
				exec(t, pool, slowCommit)
				waits := "%INTO onlyonce_steps%"
				if unique {
					exec(t, pool, `ALTER TABLE business ADD PRIMARY KEY (name)`)
					waits = "INSERT INTO business%"
				}
				open := closeGate(t, pool)
				owner := want(t, s, stepRequest("k"), onlyonce.Won).Record.Owner()
				ctx, cancel := context.WithCancel(t.Context())
				first := make(chan error, 1)
				go func() {
					_, _, err := s.StepTx(ctx, owner, reserve, reserves("k"))
					first <- err
				}()
				waiting(t, pool, "commit")
				second := make(chan error, 1)
				go func() {
					for {
						result, held, err := s.StepTx(t.Context(), owner, reserve, reserves("k"))
						if errors.Is(err, onlyonce.ErrConflict) {
							continue
						}
						if err == nil && (!held || string(result) != "result of k") {
							err = fmt.Errorf("held %v, %q", held, result)
						}
						second <- err
						return
					}
				}()
				waiting(t, pool, waits)
				open()
				if err := <-second; err != nil {
					t.Errorf("repeated: %v", err)
				}
				cancel()
				if err := <-first; err != nil && !errors.Is(err, onlyonce.ErrUncertain) {
					t.Errorf("the first: %v", err)
				}
				if got := names(t, pool); got != "k" {
					t.Errorf("business data: %q, want k", got)
				}
			})
		}
	}
}

// C10: killed during COMMIT: uncertain, and the same owner finds out.
func TestStepTxKilledDuringCommit(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	exec(t, pool, slowCommit)
	open := closeGate(t, pool)
	owner := want(t, s, stepRequest("k"), onlyonce.Won).Record.Owner()
	errs := make(chan error, 1)
	go func() {
		_, held, err := s.StepTx(t.Context(), owner, reserve, reserves("k"))
		if held {
			err = errors.New("it is held")
		}
		errs <- err
	}()
	exec(t, pool, `SELECT pg_terminate_backend($1)`, waiting(t, pool, "commit"))
	if err := <-errs; !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("step: %v, want uncertain", err)
	}
	open()
	result, held, err := s.StepTx(t.Context(), owner, reserve, reserves("k"))
	if err != nil || !held || string(result) != "result of k" {
		t.Errorf("repeated: %q, %v, %v", result, held, err)
	}
	if got := names(t, pool); got != "k" {
		t.Errorf("business data: %q, want k", got)
	}
}

// A function that ends the transaction by itself is told off; what it did stands,
// and no step is recorded. One that swallows an error has made nothing either.
func TestStepTxsTransaction(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	exec(t, pool, uniqueTable)
	owner := want(t, s, stepRequest("k"), onlyonce.Won).Record.Owner()
	for name, c := range map[string]struct {
		fn   func(ctx context.Context, tx pgx.Tx) error
		code onlyonce.Code
	}{
		"commits": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `COMMIT`)
			return err
		}, onlyonce.CodeTxEnded},
		"rolls back": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `ROLLBACK`)
			return err
		}, onlyonce.CodeTxEnded},
		"swallows": {func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, `SELECT 1 / 0`)
			return nil
		}, onlyonce.CodeConflict},
		"tries to commit": {func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, ""},
	} {
		_, _, err := s.StepTx(t.Context(), owner, reserve, func(ctx context.Context, tx pgx.Tx) ([]byte, error) { return nil, c.fn(ctx, tx) })
		if err == nil || onlyonce.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %q", name, err, c.code)
		}
	}
	if n := one[int](t, pool, `SELECT count(*) FROM onlyonce_steps`); n != 0 {
		t.Errorf("%d steps, want none", n)
	}
	if held, err := s.BeginStep(t.Context(), owner, onlyonce.Intent{Name: "call", SendWithin: time.Second}); err != nil || !held {
		t.Fatalf("begin step: %v, %v", held, err)
	}
	for range 2 { // with no result at all, which is empty
		result, held, err := s.StepTx(t.Context(), owner, reserve, func(context.Context, pgx.Tx) ([]byte, error) { return nil, nil })
		if err != nil || !held || len(result) != 0 {
			t.Errorf("step: %q, %v, %v", result, held, err)
		}
	}
	steps, err := s.Steps(t.Context(), owner.Key)
	if err != nil || len(steps) != 2 || steps[1].Name != "reserve" || steps[1].Occurrence != 1 || steps[1].State != onlyonce.StepDone {
		t.Errorf("steps: %+v, %v", steps, err)
	}
}

// C1: of many that do one step at once, as one owner, one commits.
func TestStepTxRace(t *testing.T) {
	t.Parallel()
	for _, isolation := range isolations {
		t.Run(string(isolation), func(t *testing.T) {
			t.Parallel()
			dsn := testserver.Postgres(t)
			s, pool := migrated(t, dsn, pgstore.Config{Isolation: isolation}), admin(t, dsn)
			exec(t, pool, `CREATE TABLE business (name text)`)
			for round := range 5 {
				owner := want(t, s, stepRequest(fmt.Sprint(round)), onlyonce.Won).Record.Owner()
				errs, gate := make(chan error, 6), make(chan struct{})
				for range cap(errs) {
					go func() {
						<-gate
						for {
							result, held, err := s.StepTx(t.Context(), owner, reserve, reserves(owner.Key.Value))
							if errors.Is(err, onlyonce.ErrConflict) {
								continue
							}
							if err == nil && (!held || string(result) != "result of "+owner.Key.Value) {
								err = fmt.Errorf("held %v, %q", held, result)
							}
							errs <- err
							return
						}
					}()
				}
				close(gate)
				for range cap(errs) {
					if err := <-errs; err != nil {
						t.Error(err)
					}
				}
			}
			if got := names(t, pool); got != "0 1 2 3 4" {
				t.Errorf("business data: %s", got)
			}
		})
	}
}
