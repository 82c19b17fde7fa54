package pgstore_test

import (
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// apply runs every migration of a direction, as people with their own tool do.
func apply(t *testing.T, pool *pgxpool.Pool, direction string) {
	t.Helper()
	files, err := fs.Glob(pgstore.Migrations(), "*."+direction+".sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	if direction == "down" {
		slices.Reverse(files)
	}
	for _, f := range files {
		sql, err := fs.ReadFile(pgstore.Migrations(), f)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, pool, string(sql))
	}
}

// relations lists what there is of ours.
func relations(t *testing.T, pool *pgxpool.Pool) string {
	t.Helper()
	return one[string](t, pool, `SELECT coalesce(string_agg(relname, ' ' ORDER BY relname), '') FROM pg_class WHERE relname LIKE 'onlyonce%'`)
}

func TestMigrationsUpDownUp(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	s := migrated(t, dsn, pgstore.Config{})
	first := relations(t, pool)
	complete(t, s, want(t, s, request("k"), onlyonce.Won).Record.Owner()) // down removes data too
	apply(t, pool, "down")
	if left := relations(t, pool); left != "" {
		t.Errorf("down left %s", left)
	}
	apply(t, pool, "up")
	if again := relations(t, pool); again != first {
		t.Errorf("up again made %s, want %s", again, first)
	}
	// What another tool has applied is found to be applied.
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("migrate with nothing to do: %v", err)
	}
	want(t, s, request("k"), onlyonce.Won)
}

// Migrating a database in use changes nothing in it.
func TestMigrateFilled(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s := migrated(t, dsn, pgstore.Config{})
	complete(t, s, want(t, s, request("done"), onlyonce.Won).Record.Owner())
	want(t, s, request("held"), onlyonce.Won)
	for range 2 {
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want(t, s, again(request("done")), onlyonce.Replay)
	want(t, s, again(request("held")), onlyonce.Busy)
}

func TestMigratorsAtOnce(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	var wg sync.WaitGroup
	for range 6 {
		s := open(t, dsn, pgstore.Config{Schema: "pay"})
		wg.Go(func() {
			if err := s.Migrate(t.Context()); err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
	wg.Wait()
	if n := one[int](t, admin(t, dsn), `SELECT count(*) FROM pay.onlyonce_migrations`); n != 3 {
		t.Errorf("%d migrations recorded, want 3", n)
	}
}

// A program that is older than its tables says so instead of guessing.
func TestMigrateNewerTables(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s := migrated(t, dsn, pgstore.Config{})
	exec(t, admin(t, dsn), `INSERT INTO onlyonce_migrations (version, name) VALUES (999, 'future')`)
	if err := s.Migrate(t.Context()); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "999") {
		t.Errorf("migrate: %v", err)
	}
}
