package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

// nothingHappened makes sure that a key and its business row are absent, and
// that the store goes on.
func nothingHappened(t *testing.T, s *sqlitestore.Store, key string) {
	t.Helper()
	if rec, found, err := s.Get(t.Context(), keyOf(key)); (found && rec.State == onlyonce.Completed) || err != nil {
		t.Errorf("%s: a record was left: %v, %v", key, rec.State, err)
	}
	if n := count(t, s, key); n != 0 {
		t.Errorf("%s: %d business rows were left", key, n)
	}
	complete(t, s, claimOf("after "+onlyonce.NewToken().String()), "x")
}

// endings are ways to end a transaction underneath the store.
func endings() map[string]func(ctx context.Context, tx *sql.Tx) {
	return map[string]func(ctx context.Context, tx *sql.Tx){
		"commit":            func(_ context.Context, tx *sql.Tx) { _ = tx.Commit() },
		"rollback":          func(_ context.Context, tx *sql.Tx) { _ = tx.Rollback() },
		"commit statement":  func(ctx context.Context, tx *sql.Tx) { _, _ = tx.ExecContext(ctx, "COMMIT") },
		"rolled back by it": func(ctx context.Context, tx *sql.Tx) { _, _ = tx.ExecContext(ctx, "ROLLBACK") },
		"conflict clause": func(ctx context.Context, tx *sql.Tx) {
			_, _ = tx.ExecContext(ctx, "INSERT OR ROLLBACK INTO names (name) VALUES (NULL)")
		},
	}
}

// A handler that ignores the error of a statement, after which SQLite has
// rolled the transaction back by itself, or that ends the transaction, gets
// nothing in.
func TestTransactionEndedUnderneath(t *testing.T) {
	t.Parallel()
	for name, end := range endings() {
		fn := func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
			if err := write(ctx, tx, name); err != nil {
				return nil, err
			}
			end(ctx, tx)
			_ = write(ctx, tx, name) // must not be committed by itself
			a := answerOf(name)
			return &a, nil
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := open(t)
			_, settled, err := s.Atomic(t.Context(), claimOf(name), fn)
			if err == nil || settled.Held {
				t.Errorf("atomic: %+v, %v", settled, err)
			}
			nothingHappened(t, s, name)
			owner := mustClaim(t, s, claimOf(name), onlyonce.Won).Record.Owner()
			settled, err = s.Finish(t.Context(), owner, fn)
			if err == nil || settled.Held {
				t.Errorf("finish: %+v, %v", settled, err)
			}
			nothingHappened(t, s, name)
			if rec, _, _ := s.Get(t.Context(), keyOf(name)); rec.State != onlyonce.InProgress {
				t.Errorf("finish left the key %q", rec.State)
			}
		})
	}
}

// A context that ends inside fn ends the transaction with nothing done,
// whether or not fn notices.
func TestContextEndsInsideTransaction(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	for name, notices := range map[string]bool{"noticed": true, "unnoticed": false} {
		ctx, cancel := context.WithCancel(t.Context())
		_, settled, err := s.Atomic(ctx, claimOf(name), func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
			if err := write(ctx, tx, name); err != nil {
				return nil, err
			}
			cancel()
			a := answerOf(name)
			if !notices {
				return &a, nil
			}
			return &a, write(ctx, tx, name)
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, onlyonce.ErrUncertain) || settled.Held {
			t.Errorf("%s: %+v, %v", name, settled, err)
		}
		nothingHappened(t, s, name)
	}
}

// A long statement is interrupted when the context ends; what the transaction
// had written before is gone with it.
func TestStatementIsInterrupted(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, _, err := s.Atomic(ctx, claimOf("k"), func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
		if err := write(ctx, tx, "k"); err != nil {
			return nil, err
		}
		go cancel()
		_, err := tx.ExecContext(ctx, "INSERT INTO names WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 'k' FROM n")
		return nil, err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	nothingHappened(t, s, "k")
}

// Goexit inside fn rolls back and frees the connection.
func TestGoexitInsideTransaction(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = s.Atomic(t.Context(), claimOf("k"), func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
			_ = write(ctx, tx, "k")
			runtime.Goexit()
			return nil, nil
		})
	}()
	<-done
	nothingHappened(t, s, "k")
	if c, _, err := s.Atomic(t.Context(), claimOf("k"), writes("k")); err != nil || c.Verdict != onlyonce.Won {
		t.Errorf("the next attempt: %v, %v", c.Verdict, err)
	}
}

// A transaction of the caller's own on a snapshot that is too old must be
// repeated: a conflict, not a failure.
func TestOldSnapshotIsAConflict(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	owner := mustClaim(t, s, claimOf("k"), onlyonce.Won).Record.Owner()
	deferred, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer deferred.Close()
	tx, err := deferred.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var n int
	if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM onlyonce_keys").Scan(&n); err != nil {
		t.Fatal(err)
	}
	mustClaim(t, s, claimOf("newer"), onlyonce.Won)
	_, old := tx.ExecContext(t.Context(), "INSERT INTO names (name) VALUES ('x')")
	settled, err := s.CompleteTx(t.Context(), tx, owner, answerOf("x"))
	if !errors.Is(err, onlyonce.ErrConflict) || settled.Held {
		t.Errorf("got %+v, %v", settled, err)
	}
	// What a handler returns that wraps it comes back as a conflict as well.
	_, _, err = s.Atomic(t.Context(), claimOf("other"), func(context.Context, *sql.Tx) (*onlyonce.Answer, error) {
		return nil, fmt.Errorf("write name: %w", old)
	})
	if !errors.Is(err, onlyonce.ErrConflict) {
		t.Errorf("got %v", err)
	}
}

// An attempt that holds a key by Claim may finish it by Atomic as well.
func TestAtomicOfAnOwnClaim(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	req := claimOf("k")
	mustClaim(t, s, req, onlyonce.Won)
	c, settled, err := s.Atomic(t.Context(), req, writes("k"))
	if err != nil || c.Verdict != onlyonce.Won || !settled.Held || count(t, s, "k") != 1 {
		t.Errorf("%v, %+v, %v", c.Verdict, settled, err)
	}
}
