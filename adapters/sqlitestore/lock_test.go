package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

// A replay, and every other claim that changes nothing, works while another
// process holds the write lock.
func TestReplayTakesNoLock(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	done, live, doubt := claimOf("done"), claimOf("live"), claimOf("doubt")
	complete(t, s, done, "answer")
	mustClaim(t, s, live, onlyonce.Won)
	owner := mustClaim(t, s, doubt, onlyonce.Won).Record.Owner()
	if held, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: owner, Reason: "test"}); !held || err != nil {
		t.Fatal(held, err)
	}
	other := start(t, "hold", path)
	other.expect("held")

	// A handle that is opened now can read as well.
	fresh := openAt(t, path, sqlitestore.Config{BusyTimeout: 20 * time.Millisecond})
	for _, s := range []*sqlitestore.Store{s, fresh} {
		mustClaim(t, s, anotherOf(done), onlyonce.Replay)
		mustClaim(t, s, anotherOf(live), onlyonce.Busy)
		mustClaim(t, s, anotherOf(doubt), onlyonce.Doubtful)
		wrong := anotherOf(done)
		wrong.Fingerprint.Sum[0]++
		mustClaim(t, s, wrong, onlyonce.Mismatch)
		if _, err := s.List(t.Context(), onlyonce.ListFilter{}); err != nil {
			t.Error(err)
		}
	}
	other.tell()
	other.expect("let go")
}

// C11: a writer that another process keeps out fails after its wait, and
// nothing has happened.
func TestBusyProcess(t *testing.T) {
	t.Parallel()
	_, path := open(t)
	s := openAt(t, path, sqlitestore.Config{BusyTimeout: 30 * time.Millisecond})
	other := start(t, "hold", path)
	other.expect("held")
	_, err := s.Claim(t.Context(), claimOf("k"))
	wantUnavailable(t, err, "write lock")
	_, _, err = s.Atomic(t.Context(), claimOf("k"), func(context.Context, *sql.Tx) (*onlyonce.Answer, error) {
		t.Error("fn ran without the lock")
		return nil, nil
	})
	wantUnavailable(t, err, "write lock")
	other.tell()
	other.expect("let go")
	if _, found, err := s.Get(t.Context(), keyOf("k")); found || err != nil {
		t.Errorf("a failed claim left a record: %v, %v", found, err)
	}
	mustClaim(t, s, claimOf("k"), onlyonce.Won)
}

// A writer waits for another process, and goes on when the lock is free.
func TestWaitsForProcess(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	other := start(t, "hold", path)
	other.expect("held")
	claimed := make(chan error, 1)
	go func() {
		c, err := s.Claim(t.Context(), claimOf("k"))
		if err == nil && c.Verdict != onlyonce.Won {
			err = errors.New(c.Verdict.String())
		}
		claimed <- err
	}()
	other.tell()
	if err := <-claimed; err != nil {
		t.Error(err)
	}
}

// A wait for the lock, of this process or of another, ends with the context.
func TestWaitEndsWithContext(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	other := start(t, "hold", path)
	other.expect("held")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Claim(ctx, claimOf("a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for another process: %v", err)
	}
	other.tell()
	other.expect("let go")
	if _, found, err := s.Get(t.Context(), keyOf("a")); found || err != nil {
		t.Errorf("a claim that was given up left a record: %v, %v", found, err)
	}
	inside := func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		if _, err := s.Claim(ctx, claimOf("c")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for a transaction of this process: %v", err)
		}
		return writes("k")(context.WithoutCancel(ctx), tx)
	}
	if _, settled, err := s.Atomic(t.Context(), claimOf("k"), inside); !settled.Held || err != nil {
		t.Errorf("after the wait: %+v, %v", settled, err)
	}
}

// Readers are served while a transaction is open, and see nothing of it.
func TestReadersDoNotWait(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	complete(t, s, claimOf("done"), "answer")
	_, _, err := s.Atomic(t.Context(), claimOf("k"), func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
		if err := write(ctx, tx, "k"); err != nil {
			return nil, err
		}
		mustClaim(t, s, anotherOf(claimOf("done")), onlyonce.Replay)
		mustClaim(t, s, anotherOf(claimOf("k")), onlyonce.Busy)
		if n := count(t, s, "k"); n != 0 {
			t.Errorf("a reader sees %d rows that are not committed", n)
		}
		a := answerOf("x")
		return &a, nil
	})
	if err != nil {
		t.Error(err)
	}
}

func wantUnavailable(t *testing.T, err error, hint string) {
	t.Helper()
	e, ok := errors.AsType[*onlyonce.Error](err)
	if !ok || e.Code != onlyonce.CodeStoreUnavailable || !strings.Contains(e.Hint, hint) {
		t.Errorf("got %v, want %s with a hint about %q", err, onlyonce.CodeStoreUnavailable, hint)
	}
}
