package pgstore_test

import (
	"fmt"
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
		"release": {func(o onlyonce.Owner) (bool, error) { return s.Release(t.Context(), o, "r") }, "%SET state = 3%", "false false false 3"},
		"release behind a step": {func(o onlyonce.Owner) (bool, error) { return s.Release(t.Context(), o, "r") }, "%SET state = 3%", "true true true 3"},
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
		if _, err := tx.Exec(t.Context(), `UPDATE onlyonce_keys SET lease_end = now() + interval '2 hours', due_at = now() + interval '2 hours' WHERE key = $1`, name); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			held, err := w.fn(owner)
			if err == nil && !held {
				err = fmt.Errorf("not held")
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
