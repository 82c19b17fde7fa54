package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

// Every connection has the settings that durability and constraints rest on.
func TestPragmas(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	check := func(name string, db *sql.DB, want map[string]string) {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		for pragma, value := range want {
			var got string
			if err := conn.QueryRowContext(t.Context(), "PRAGMA "+pragma).Scan(&got); err != nil || got != value {
				t.Errorf("%s: %s is %q, want %q (%v)", name, pragma, got, value, err)
			}
		}
	}
	common := map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "busy_timeout": "5000"}
	check("writer", s.Writer(), common)
	common["query_only"] = "1"
	for range s.Reader().Stats().MaxOpenConnections { // each keeps its connection
		check("reader", s.Reader(), common)
	}
	if n := s.Writer().Stats().MaxOpenConnections; n != 1 {
		t.Errorf("%d writing connections, want 1", n)
	}
}

func TestReaderCannotWrite(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	if _, err := s.Reader().ExecContext(t.Context(), "INSERT INTO names (name) VALUES ('x')"); err == nil {
		t.Error("the read pool wrote")
	}
}

// Strange paths are taken as they are.
func TestOpenPaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"plain.db", "with space.db", "what?mode=memory", "100%25.db", "#1.db", "ünï.db"} {
		path := filepath.Join(dir, name)
		complete(t, openAt(t, path, sqlitestore.Config{}), claimOf("k"), "x")
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct {
		path string
		cfg  sqlitestore.Config
		code onlyonce.Code
	}{
		"no path":       {"", sqlitestore.Config{}, onlyonce.CodeConfig},
		"memory":        {":memory:", sqlitestore.Config{}, onlyonce.CodeConfig},
		"negative wait": {filepath.Join(dir, "a"), sqlitestore.Config{BusyTimeout: -1}, onlyonce.CodeConfig},
		"no folder":     {filepath.Join(dir, "none", "a"), sqlitestore.Config{}, onlyonce.CodeStoreUnavailable},
		"a folder":      {dir, sqlitestore.Config{}, onlyonce.CodeStoreUnavailable},
		"no tables":     {filepath.Join(dir, "b"), sqlitestore.Config{SkipMigrate: true}, onlyonce.CodeConfig},
	} {
		s, err := sqlitestore.Open(t.Context(), c.path, c.cfg)
		if s != nil || onlyonce.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		if e, ok := errors.AsType[*onlyonce.Error](err); ok && e.Hint == "" {
			t.Errorf("%s: no hint: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sqlitestore.Open(ctx, filepath.Join(dir, "c"), sqlitestore.Config{}); !errors.Is(err, context.Canceled) || onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
		t.Errorf("a context that has ended: %v", err)
	}
}

// A relative path in a folder that is gone.
func TestOpenNowhere(t *testing.T) { //nolint:paralleltest // changes the working directory
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if err := os.Remove(dir); err != nil {
		t.Skip("a folder in use cannot be removed here:", err)
	}
	s, err := sqlitestore.Open(t.Context(), "once.db", sqlitestore.Config{})
	if s != nil || onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
		t.Errorf("open: %v, want %s", err, onlyonce.CodeStoreUnavailable)
	}
}

func TestOpenNotADatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	text := make([]byte, 8192)
	copy(text, "this is a letter, not a database")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := sqlitestore.Open(t.Context(), path, sqlitestore.Config{})
	wantUnavailable(t, err, "not a SQLite database")
	if after, err := os.ReadFile(path); err != nil || string(after) != string(text) {
		t.Errorf("the file was changed: %v", err)
	}
}

func TestDamagedDatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	s, err := sqlitestore.Open(t.Context(), path, sqlitestore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	complete(t, s, claimOf("k"), "x")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(file); i++ { // all but the schema
		file[i] = 0xa5
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = sqlitestore.Open(t.Context(), path, sqlitestore.Config{})
	if err == nil {
		t.Cleanup(func() { s.Close() })
		_, err = s.Claim(t.Context(), claimOf("k"))
	}
	wantUnavailable(t, err, "damaged")
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	s, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "once.db"), sqlitestore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if _, err := s.Claim(t.Context(), claimOf("k")); err == nil {
		t.Error("a closed store claimed a key")
	}
}

// Rows hold microseconds: what is shorter rounds up, never down.
func TestLeaseRoundsUp(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	req := claimOf("k")
	req.Lease = time.Nanosecond
	if c := mustClaim(t, s, req, onlyonce.Won); c.Remaining != time.Microsecond {
		t.Errorf("a lease of 1ns became %v", c.Remaining)
	}
}
