package sqlitestore_test

import (
	"database/sql"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

// run applies a migration file, as a tool of the user's own would.
func run(t *testing.T, s *sqlitestore.Store, file string) {
	t.Helper()
	text, err := fs.ReadFile(sqlitestore.Migrations(), file)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := s.Writer().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), string(text)); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func ups(t *testing.T) []string {
	t.Helper()
	files, err := fs.Glob(sqlitestore.Migrations(), "*.up.sql")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	return files
}

// tables are the names of all tables and indexes of the store.
func tables(t *testing.T, db *sql.DB) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT name || ': ' || coalesce(sql, '') FROM sqlite_schema WHERE name LIKE 'onlyonce%' ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestMigrateUpDownUp(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	first := tables(t, s.Reader())
	complete(t, s, claimOf("k"), "x") // a filled file
	files := ups(t)
	for _, up := range slices.Backward(files) {
		run(t, s, up[:len(up)-len("up.sql")]+"down.sql")
	}
	if left := tables(t, s.Reader()); len(left) != 0 {
		t.Errorf("down left %q", left)
	}
	if n := count(t, s, "x"); n != 0 {
		t.Error("business data changed")
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again := tables(t, s.Reader()); !slices.Equal(first, again) {
		t.Errorf("up, down, up gives\n%q, was\n%q", again, first)
	}
	mustClaim(t, s, claimOf("k"), onlyonce.Won)
}

// Migrating a file that is up to date changes nothing, and waits for nobody.
func TestMigrateIsIdempotent(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	complete(t, s, claimOf("k"), "x")
	other := start(t, "hold", path)
	other.expect("held")
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustClaim(t, s, claimOf("k"), onlyonce.Replay)
}

// Who applied the files with a tool of their own need not let the service do
// it.
func TestMigratedByHand(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	for _, up := range slices.Backward(ups(t)) {
		run(t, s, up[:len(up)-len("up.sql")]+"down.sql")
	}
	for _, up := range ups(t) {
		run(t, s, up)
	}
	complete(t, openAt(t, path, sqlitestore.Config{SkipMigrate: true}), claimOf("k"), "x")
	if err := s.Migrate(t.Context()); err != nil {
		t.Error(err)
	}
}

// A program must not write tables of a version it does not know.
func TestMigrateRefusesTheFuture(t *testing.T) {
	t.Parallel()
	s, path := open(t)
	if _, err := s.Writer().ExecContext(t.Context(), "INSERT INTO onlyonce_schema (version, applied_us) VALUES (99, 0)"); err != nil {
		t.Fatal(err)
	}
	for _, skip := range []bool{false, true} {
		_, err := sqlitestore.Open(t.Context(), path, sqlitestore.Config{SkipMigrate: skip})
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("skip %v: %v", skip, err)
		}
	}
}

// The tables themselves refuse what cannot be.
func TestImpossibleRows(t *testing.T) {
	t.Parallel()
	s := openAt(t, filepath.Join(t.TempDir(), "once.db"), sqlitestore.Config{})
	for _, state := range []string{"done", "live"} {
		complete(t, s, claimOf(state), "x")
	}
	mustClaim(t, s, claimOf("in progress"), onlyonce.Won)
	for _, set := range []string{
		"state = 'finished'", "state = 'in_progress'", "status = NULL", "header = NULL", "completed_us = NULL", "expires_us = NULL",
		"fence = origin - 1", "origin = 0", "attempts = 2", "attempts = 0", "resumed_from = 'in_doubt'", "abandon = 3",
		"resource = 'r', holds = zeroblob(16)", "keep = x''", "turn = -1", "turn = NULL", "due_us = 1",
		"digest = x'00'", "attempt = x'00'", "fp_sum = x'00'", "fence = 'x'", "body = 1", "scope = NULL", "retention_us = -1",
	} {
		if _, err := s.Writer().ExecContext(t.Context(), "UPDATE onlyonce_keys SET "+set+" WHERE state = 'completed'"); err == nil {
			t.Errorf("a completed row took %s", set)
		}
	}
	for _, set := range []string{
		"holds = zeroblob(16)", "resource = 'r', holds = x'00'", "resource = 'r', holds = ''", "resource = x'00'", "keep = 'x'", "due_us = 1",
		"state = 'completed'", "state = 'failed_retryable'", "status = 200", "body = x''", "expires_us = 1", "completed_us = 1",
	} {
		if _, err := s.Writer().ExecContext(t.Context(), "UPDATE onlyonce_keys SET "+set+" WHERE state = 'in_progress'"); err == nil {
			t.Errorf("a row in progress took %s", set)
		}
	}
}
