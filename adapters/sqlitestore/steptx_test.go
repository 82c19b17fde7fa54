package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

// reserves is a step's code that adds a name.
func reserves(name string) onlyonce.TxStepFunc[*sql.Tx] {
	return func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		return []byte("result of " + name), write(ctx, tx, name)
	}
}

var reserve = onlyonce.TxStep{Name: "reserve"}

// noStep makes sure that a step has left nothing, that its key is in progress
// still, and that it can be done.
func noStep(t *testing.T, s *sqlitestore.Store, owner onlyonce.Owner, name string) {
	t.Helper()
	steps, err := s.Steps(t.Context(), owner.Key)
	if len(steps) != 0 || err != nil {
		t.Errorf("%s: steps %+v, %v", name, steps, err)
	}
	if n := count(t, s, name); n != 0 {
		t.Errorf("%s: %d business rows were left", name, n)
	}
	for range 2 { // the second finds the first
		result, held, err := s.StepTx(t.Context(), owner, reserve, reserves(name))
		if string(result) != "result of "+name || !held || err != nil {
			t.Errorf("%s: the next attempt: %q, %v, %v", name, result, held, err)
		}
	}
	if n := count(t, s, name); n != 1 {
		t.Errorf("%s: %d business rows, want 1", name, n)
	}
}

// A step that ignores the error of a statement, after which SQLite has rolled the
// transaction back by itself, or that ends the transaction, gets nothing in.
func TestStepTxEndedUnderneath(t *testing.T) {
	t.Parallel()
	for name, end := range endings() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := open(t)
			owner := mustClaim(t, s, claimOf(name), onlyonce.Won).Record.Owner()
			_, _, err := s.StepTx(t.Context(), owner, reserve, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
				if err := write(ctx, tx, name); err != nil {
					return nil, err
				}
				end(ctx, tx)
				_ = write(ctx, tx, name) // must not be committed by itself
				return nil, nil
			})
			if err == nil || errors.Is(err, onlyonce.ErrUncertain) {
				t.Errorf("got %v", err)
			}
			noStep(t, s, owner, name)
		})
	}
}

// A step's transaction that settles its own key cannot record the step, so it
// does neither.
func TestStepTxThatCompletes(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	owner := mustClaim(t, s, claimOf("k"), onlyonce.Won).Record.Owner()
	_, _, err := s.StepTx(t.Context(), owner, reserve, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
		_, err := s.CompleteTx(ctx, tx, owner, answerOf("x"))
		return nil, errors.Join(err, write(ctx, tx, "k"))
	})
	if err == nil {
		t.Error("a key was completed inside one of its steps")
	}
	noStep(t, s, owner, "k")
}

// A context that ends inside fn ends the transaction with nothing done, whether
// or not fn notices.
func TestContextEndsInsideStepTx(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	for name, notices := range map[string]bool{"noticed": true, "unnoticed": false} {
		owner := mustClaim(t, s, claimOf(name), onlyonce.Won).Record.Owner()
		ctx, cancel := context.WithCancel(t.Context())
		_, _, err := s.StepTx(ctx, owner, reserve, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			if err := write(ctx, tx, name); err != nil {
				return nil, err
			}
			cancel()
			if !notices {
				return nil, nil
			}
			return nil, write(ctx, tx, name)
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, onlyonce.ErrUncertain) {
			t.Errorf("%s: %v", name, err)
		}
		noStep(t, s, owner, name)
	}
}

// Goexit inside fn rolls back and frees the connection.
func TestGoexitInsideStepTx(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	owner := mustClaim(t, s, claimOf("k"), onlyonce.Won).Record.Owner()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = s.StepTx(t.Context(), owner, reserve, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			_ = write(ctx, tx, "k")
			runtime.Goexit()
			return nil, nil
		})
	}()
	<-done
	noStep(t, s, owner, "k")
}

// C11: a step that another process keeps out does not run.
func TestStepTxBusyProcess(t *testing.T) {
	t.Parallel()
	_, path := open(t)
	s := openAt(t, path, sqlitestore.Config{BusyTimeout: 30 * time.Millisecond})
	owner := mustClaim(t, s, claimOf("k"), onlyonce.Won).Record.Owner()
	other := start(t, "hold", path)
	other.expect("held")
	_, _, err := s.StepTx(t.Context(), owner, reserve, func(context.Context, *sql.Tx) ([]byte, error) {
		t.Error("fn ran without the lock")
		return nil, nil
	})
	wantUnavailable(t, err, "write lock")
	other.tell()
	other.expect("let go")
	noStep(t, s, owner, "k")
}

// What fn returns that wraps a concurrent transaction's doing is a conflict, to
// be repeated.
func TestStepTxConflict(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	owner := mustClaim(t, s, claimOf("k"), onlyonce.Won).Record.Owner()
	old := oldSnapshot(t, s, path)
	_, _, err := s.StepTx(t.Context(), owner, reserve, func(context.Context, *sql.Tx) ([]byte, error) {
		return nil, fmt.Errorf("write name: %w", old)
	})
	if !errors.Is(err, onlyonce.ErrConflict) {
		t.Errorf("got %v", err)
	}
	noStep(t, s, owner, "k")
}

// oldSnapshot is the error of a write behind another connection's commit.
func oldSnapshot(t *testing.T, s *sqlitestore.Store, path string) error {
	t.Helper()
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
	if err := write(t.Context(), tx, "x"); err != nil {
		return err
	}
	t.Fatal("a snapshot that is too old was written from")
	return nil
}

// D4: what was sent to somebody under a step's name is not taken for the store's,
// however it ended.
func TestStepTxBehindCall(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	for _, state := range []onlyonce.StepState{onlyonce.StepDone, onlyonce.StepNotApplied} {
		owner := mustClaim(t, s, claimOf(string(state)), onlyonce.Won).Record.Owner()
		begin(t, s, owner)
		if held, err := s.EndStep(t.Context(), owner, onlyonce.StepEnd{Name: "charge", State: state, Result: []byte("x")}); !held || err != nil {
			t.Fatal(held, err)
		}
		result, held, err := s.StepTx(t.Context(), owner, onlyonce.TxStep{Name: "charge"}, reserves("k"))
		if result != nil || held || err != nil || count(t, s, "k") != 0 {
			t.Errorf("%s: %q, %v, %v", state, result, held, err)
		}
		if _, held, err := s.StepTx(t.Context(), owner, onlyonce.TxStep{Name: "charge", Occurrence: 1}, reserves(string(state))); !held || err != nil {
			t.Errorf("%s: the next occurrence: %v, %v", state, held, err)
		}
	}
}

// An empty result is empty, the first time and each time after; a step that
// failed and one under another name are no obstacle.
func TestStepTxResults(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	owner := mustClaim(t, s, claimOf("k"), onlyonce.Won).Record.Owner()
	for i, result := range [][]byte{nil, {}, {0, 0xff}} {
		step := onlyonce.TxStep{Name: "reserve", Occurrence: i}
		for range 2 {
			got, held, err := s.StepTx(t.Context(), owner, step, func(context.Context, *sql.Tx) ([]byte, error) { return result, nil })
			if got == nil || string(got) != string(result) || !held || err != nil {
				t.Errorf("%d: %q (nil: %v), %v, %v", i, got, got == nil, held, err)
			}
		}
	}
	steps, err := s.Steps(t.Context(), owner.Key)
	if len(steps) != 3 || err != nil {
		t.Fatalf("%+v, %v", steps, err)
	}
	for _, st := range steps {
		if st.Result == nil || st.Epoch != 0 || st.Sends != 1 || st.DerivedKey != "" || st.Reference != "" || len(st.Request) != 0 {
			t.Errorf("recorded: %+v", st)
		}
	}
}
