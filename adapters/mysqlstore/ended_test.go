package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// O: a handler that fails behind a transaction that has ended by itself is not told
// from one whose writes were rolled back by what it returns, but by the transaction.
func TestHandlerFailsBehindEndedTransaction(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, pool := open(t, dsn, mysqlstore.Config{}), admin(t, dsn)
	exec(t, pool, `CREATE TABLE account (id INT PRIMARY KEY, amount INT)`)
	exec(t, pool, `INSERT INTO account VALUES (1, 0), (2, 0)`)
	exec(t, pool, `CREATE TABLE business (name VARBINARY(255))`)
	failure := errors.New("the bank said no")
	ends := map[string]func(ctx context.Context, tx *sql.Tx){
		"sends commit": func(ctx context.Context, tx *sql.Tx) { _, _ = tx.ExecContext(ctx, `COMMIT`) },
		"runs DDL": func(ctx context.Context, tx *sql.Tx) {
			_, _ = tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS extra (id INT)`)
		},
		"ignored deadlock": func(ctx context.Context, tx *sql.Tx) { loseDeadlock(ctx, t, pool, tx) },
	}
	leaves := map[string]func() (*onlyonce.Answer, error){
		"an error": func() (*onlyonce.Answer, error) { return nil, failure },
		"a conflict of its own": func() (*onlyonce.Answer, error) {
			return nil, fmt.Errorf("an inner call: %w", onlyonce.ErrConflict)
		},
		"no answer": func() (*onlyonce.Answer, error) { return nil, nil },
		"an answer": func() (*onlyonce.Answer, error) { a := created(); return &a, nil },
		"a panic":   func() (*onlyonce.Answer, error) { panic("lost it") },
	}
	for end, ends := range ends {
		for way, leave := range leaves {
			name := end + ", then " + way
			fn := func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
				ends(ctx, tx)
				if _, err := tx.ExecContext(ctx, `INSERT INTO business VALUES (?)`, name); err != nil {
					t.Error(err)
				}
				return leave()
			}
			_, settled, err := s.Atomic(t.Context(), request(name), fn)
			if !errors.Is(err, onlyonce.ErrTxEnded) || errors.Is(err, onlyonce.ErrConflict) || settled.Held {
				t.Errorf("atomic %s: %+v, %v", name, settled, err)
			}
			if way == "an error" && !errors.Is(err, failure) {
				t.Errorf("atomic %s: %v does not say why the handler failed", name, err)
			}
			owner := want(t, s, request(name+" finish"), onlyonce.Won).Record.Owner()
			if settled, err := s.Finish(t.Context(), owner, fn); !errors.Is(err, onlyonce.ErrTxEnded) || settled.Held {
				t.Errorf("finish %s: %+v, %v", name, settled, err)
			}
			_, _, err = s.StepTx(t.Context(), owner, onlyonce.TxStep{Name: "s"}, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
				_, err := fn(ctx, tx)
				return nil, err
			})
			if !errors.Is(err, onlyonce.ErrTxEnded) {
				t.Errorf("step %s: %v", name, err)
			}
		}
	}
	if n := one[int](t, pool, `SELECT COUNT(*) FROM business`); n != 3*len(ends)*len(leaves) {
		t.Errorf("%d rows stand, want %d: the test ends no transactions", n, 3*len(ends)*len(leaves))
	}
}

// A panic of a handler whose transaction is its own goes on, and leaves nothing.
func TestPanicGoesOn(t *testing.T) {
	t.Parallel()
	s := open(t, testserver.MySQL(t), mysqlstore.Config{MaxConns: 1})
	exec(t, s.DB(), businessTable)
	func() {
		defer func() {
			if v := recover(); v != "lost it" {
				t.Errorf("recovered %v", v)
			}
		}()
		_, _, _ = s.Atomic(t.Context(), request("k"), func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
			if _, err := writes("k")(ctx, tx); err != nil {
				t.Error(err)
			}
			panic("lost it")
		})
	}()
	if n := one[int](t, s.DB(), `SELECT COUNT(*) FROM business`); n != 0 {
		t.Errorf("%d rows stand", n)
	}
	want(t, s, request("k"), onlyonce.Won)
}

// C6: an answer is not completed behind a deadlock that the caller has ignored: it
// would be committed by itself, without what the deadlock has undone.
func TestCompleteTxBehindADeadlock(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, pool := open(t, dsn, mysqlstore.Config{}), admin(t, dsn)
	exec(t, pool, `CREATE TABLE account (id INT PRIMARY KEY, amount INT)`)
	exec(t, pool, `INSERT INTO account VALUES (1, 0), (2, 0)`)
	owner := want(t, s, request("k"), onlyonce.Won).Record.Owner()
	tx, err := s.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() // there is nothing to roll back
	loseDeadlock(t.Context(), t, pool, tx)
	if settled, err := s.CompleteTx(t.Context(), tx, owner, created()); !errors.Is(err, onlyonce.ErrTxEnded) || settled.Held {
		t.Errorf("complete: %+v, %v", settled, err)
	}
	want(t, s, again(request("k")), onlyonce.Busy)
}

// CompleteTx inside Atomic's own transaction leaves its guard alone.
func TestCompleteTxInsideAtomic(t *testing.T) {
	t.Parallel()
	s := open(t, testserver.MySQL(t), mysqlstore.Config{MaxConns: 1})
	other := onlyonce.Owner{Key: request("other").Key}
	_, settled, err := s.Atomic(t.Context(), request("k"), func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
		if settled, err := s.CompleteTx(ctx, tx, other, created()); err != nil || settled.Held {
			return nil, fmt.Errorf("complete: %+v, %w", settled, err)
		}
		return answers(ctx, tx)
	})
	if err != nil || !settled.Held {
		t.Errorf("atomic: %+v, %v", settled, err)
	}
}

// B: what is left behind on a connection of the pool does not swallow what the store
// confirms later.
func TestSessionsAreNotInherited(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, pool := open(t, dsn, mysqlstore.Config{MaxConns: 1}), admin(t, dsn)
	for i, left := range []string{
		"START TRANSACTION", " begin", "SET autocommit = 0", "SET SESSION completion_type = 1", "/* why */ SET autocommit = 0",
		"SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED", "BEGIN",
	} {
		exec(t, s.DB(), left)
		req := request(fmt.Sprint(i))
		complete(t, s, want(t, s, req, onlyonce.Won).Record.Owner())
		if n := one[int](t, pool, `SELECT COUNT(*) FROM onlyonce_keys WHERE state = 2`); n != i+1 {
			t.Errorf("behind %s: %d answers are committed, want %d", left, n, i+1)
		}
	}
	// What leaves sessions alone does not cost one.
	id := one[int64](t, s.DB(), `SELECT CONNECTION_ID()`)
	exec(t, s.DB(), "\n\tINSERT INTO onlyonce_settings (kind, id, value) VALUES ('a', 'b', 'c')")
	if _, settled, err := s.Atomic(t.Context(), request("atomic"), answers); err != nil || !settled.Held {
		t.Errorf("atomic: %+v, %v", settled, err)
	}
	if now := one[int64](t, s.DB(), `SELECT CONNECTION_ID()`); now != id {
		t.Errorf("connection %d was closed for nothing", id)
	}
}
