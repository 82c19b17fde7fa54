package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// leavesOpen are handlers' ways of leaving a savepoint open. What they write
// behind it is committed with everything else.
func leavesOpen() map[string]func(ctx context.Context, tx pgx.Tx) error {
	return map[string]func(ctx context.Context, tx pgx.Tx) error{
		"begin": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Begin(ctx)
			return err
		},
		"begin_twice": func(ctx context.Context, tx pgx.Tx) error {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			_, err = inner.Begin(ctx)
			return err
		},
		"savepoint": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SAVEPOINT here`)
			return err
		},
		"rolled_back_to": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `SAVEPOINT here`)
			if err == nil {
				_, err = tx.Exec(ctx, `INSERT INTO business VALUES ('undone')`)
			}
			if err == nil {
				_, err = tx.Exec(ctx, `ROLLBACK TO SAVEPOINT here`)
			}
			return err
		},
	}
}

// A savepoint that a handler leaves open changes nothing: the key is completed
// once, with what the handler wrote, or not at all.
func TestHandlerLeavesSavepointOpen(t *testing.T) {
	t.Parallel()
	for _, isolation := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
		dsn := testserver.Postgres(t)
		s, pool := migrated(t, dsn, pgstore.Config{Isolation: isolation}), admin(t, dsn)
		exec(t, pool, `CREATE TABLE business (name text)`)
		for name, leave := range leavesOpen() {
			fresh, freed, held, lost := request("fresh "+name), request("freed "+name), request("held "+name), request("lost "+name)
			body := func(of string) onlyonce.TxFunc[pgx.Tx] {
				return func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
					if err := leave(ctx, tx); err != nil {
						return nil, err
					}
					a := created()
					_, err := tx.Exec(ctx, `INSERT INTO business VALUES ($1)`, of)
					return &a, err
				}
			}
			if _, err := s.Release(t.Context(), want(t, s, freed, onlyonce.Won).Record.Owner(), "r"); err != nil {
				t.Fatal(err)
			}
			for _, req := range []onlyonce.ClaimRequest{fresh, again(freed)} {
				if _, settled, err := s.Atomic(t.Context(), req, body(req.Key.Value)); err != nil || !settled.Held {
					t.Errorf("%s, atomic %s: %+v, %v", isolation, req.Key.Value, settled, err)
				}
			}
			owner := want(t, s, held, onlyonce.Won).Record.Owner()
			for range 2 {
				if settled, err := s.Finish(t.Context(), owner, body(held.Key.Value)); err != nil || !settled.Held {
					t.Errorf("%s, finish %s: %+v, %v", isolation, name, settled, err)
				}
			}
			lost.Lease = time.Microsecond
			owner = want(t, s, lost, onlyonce.Won).Record.Owner()
			settled, err := s.Finish(t.Context(), owner, func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
				want(t, s, again(lost), onlyonce.Resumed)
				return body(lost.Key.Value)(ctx, tx)
			})
			if settled.Held || (err != nil && !errors.Is(err, onlyonce.ErrConflict)) {
				t.Errorf("%s, finish of a lost key, %s: %+v, %v", isolation, name, settled, err)
			}
			for _, req := range []onlyonce.ClaimRequest{fresh, freed, held} {
				want(t, s, again(req), onlyonce.Replay)
			}
			names := one[string](t, pool, `SELECT string_agg(name, ', ' ORDER BY name) FROM business`)
			if expected := fmt.Sprintf("freed %[1]s, fresh %[1]s, held %[1]s", name); names != expected {
				t.Errorf("%s: business data: %s, want %s", isolation, names, expected)
			}
			exec(t, pool, `DELETE FROM business`)
		}
	}
}

// A savepoint that a handler kept is of no use behind its back: the connection
// is somebody else's by then.
func TestKeptSavepoint(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	exec(t, pool, `CREATE TABLE business (name text)`)
	var kept, inner pgx.Tx
	_, settled, err := s.Atomic(t.Context(), request("k"), func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
		var err error
		if kept, err = tx.Begin(ctx); err == nil {
			inner, err = kept.Begin(ctx)
		}
		a := created()
		return &a, err
	})
	if err != nil || !settled.Held {
		t.Fatalf("atomic: %+v, %v", settled, err)
	}
	for name, tx := range map[string]pgx.Tx{"savepoint": kept, "savepoint in it": inner} {
		if _, err := tx.Exec(t.Context(), `INSERT INTO business VALUES ('late')`); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("a kept %s: %v", name, err)
		}
	}
	if n := one[int](t, pool, `SELECT count(*) FROM business`); n != 0 {
		t.Errorf("%d rows were written behind the transaction", n)
	}
}

// A handler that ends the transaction by itself and begins another is not taken
// for one that holds the key: what it wrote since is not committed.
func TestHandlerBeginsAnotherTransaction(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	exec(t, pool, `CREATE TABLE business (name text)`)
	freed := request("k")
	if _, err := s.Release(t.Context(), want(t, s, freed, onlyonce.Won).Record.Owner(), "r"); err != nil {
		t.Fatal(err)
	}
	_, settled, err := s.Atomic(t.Context(), again(freed), func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
		if _, err := tx.Exec(ctx, `ROLLBACK AND CHAIN`); err != nil {
			return nil, err
		}
		a := created()
		_, err := tx.Exec(ctx, `INSERT INTO business VALUES ('k')`)
		return &a, err
	})
	if settled.Held {
		t.Errorf("atomic: %+v, %v", settled, err)
	}
	if n := one[int](t, pool, `SELECT count(*) FROM business`); n != 0 {
		t.Errorf("%d rows of a transaction that was not the store's", n)
	}
}
