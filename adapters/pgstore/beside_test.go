package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// A write that waited behind another of the same owner goes by the row as that has
// left it: what is held, kept and due is neither lost nor brought back.
func TestWritesBehindAnother(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	writes := map[string]struct {
		fn   func(o onlyonce.Owner) (bool, error)
		like string
		// left is what is held, kept and due by then, and the state.
		left string
	}{
		"renew": {func(o onlyonce.Owner) (bool, error) { return s.Renew(t.Context(), o, time.Hour) }, "%SET lease_end%", "true true true 1"},
		"park": {func(o onlyonce.Owner) (bool, error) {
			return s.Park(t.Context(), onlyonce.ParkRequest{Owner: o, Reason: "r"})
		}, "%SET state = 4%", "true true true 4"},
		"release":               {func(o onlyonce.Owner) (bool, error) { return s.Release(t.Context(), o, "r") }, "%FOR NO KEY UPDATE%", "false false false 3"},
		"release behind a step": {func(o onlyonce.Owner) (bool, error) { return s.Release(t.Context(), o, "r") }, "%FOR NO KEY UPDATE%", "true true true 3"},
		"complete": {func(o onlyonce.Owner) (bool, error) {
			settled, err := s.Complete(t.Context(), o, created())
			return settled.Held, err
		}, "%SET state = 2%", "false false false 2"},
	}
	for name, w := range writes {
		req := keeping(name)
		req.Resource, req.Abandon = name, onlyonce.AbandonResume
		owner := want(t, s, req, onlyonce.Won).Record.Owner()
		if name == "release behind a step" {
			if held, err := s.BeginStep(t.Context(), owner, onlyonce.Intent{Name: "s", Provider: "p", SendWithin: time.Second}); err != nil || !held {
				t.Fatalf("begin step: %v, %v", held, err)
			}
		}
		// A renewal that is not committed yet, of a row that was put off.
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
		if _, err := tx.Exec(t.Context(), `UPDATE onlyonce_keys SET lease_end = now() + interval '2 hours', due_at = now() + interval '2 hours' WHERE key = $1`, name); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			held, err := w.fn(owner)
			if err == nil && !held {
				err = errors.New("not held")
			}
			done <- err
		}()
		waiting(t, pool, w.like)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		left := one[string](t, pool, `SELECT concat_ws(' ', CASE WHEN holds IS NOT NULL THEN 'true' ELSE 'false' END,
			CASE WHEN keep IS NOT NULL THEN 'true' ELSE 'false' END,
			CASE WHEN due_at IS NOT NULL THEN (due_at < now() + interval '61 minutes')::text ELSE 'false' END, state) FROM onlyonce_keys WHERE key = $1`, name)
		if left != w.left {
			t.Errorf("%s: holds, keeps, is due, and its state: %s, want %s", name, left, w.left)
		}
	}
}

// A key that is given back while a step of its own is at its commit, whose reply
// nobody waited for, is freed behind that step: the resource stays taken.
func TestReleaseBehindAStepThatCommits(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	exec(t, pool, slowCommit)
	open := closeGate(t, pool)
	req := keeping("k")
	req.Resource, req.Abandon = "r", onlyonce.AbandonResume
	owner := want(t, s, req, onlyonce.Won).Record.Owner()
	stepped, released := make(chan error, 1), make(chan error, 1)
	go func() {
		_, held, err := s.StepTx(t.Context(), owner, reserve, reserves("k"))
		if err == nil && !held {
			err = errors.New("not held")
		}
		stepped <- err
	}()
	waiting(t, pool, "commit")
	go func() {
		held, err := s.Release(t.Context(), owner, "r")
		if err == nil && !held {
			err = errors.New("not held")
		}
		released <- err
	}()
	waiting(t, pool, "%onlyonce_keys%")
	open()
	for _, done := range []chan error{stepped, released} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if rec := want(t, s, naming("r", "rival"), onlyonce.ResourceBusy).Record; rec.ExpiresAt.Sub(rec.CreatedAt) < onlyonce.FreedStepRetention {
		t.Errorf("it expires at %v", rec.ExpiresAt)
	}
	if _, found, err := s.Kept(t.Context(), req.Key); !found || err != nil {
		t.Errorf("kept: %v, %v", found, err)
	}
}
