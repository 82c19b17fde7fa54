package keystore_test

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
)

// exec runs statements as a tool of somebody's own does.
func exec(t *testing.T, url, statements string) {
	t.Helper()
	var err error
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		var pool *sql.DB
		if pool, err = sql.Open("sqlite", path); err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		_, err = pool.ExecContext(t.Context(), statements)
	} else {
		_, err = connect(t, url).Exec(t.Context(), statements, pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// migrations are the files of a kind of store.
func migrations(url string) fs.FS {
	if keystore.Scheme(url) == "sqlite" {
		return sqlitestore.Migrations()
	}
	return pgstore.Migrations()
}

func status(t *testing.T, url string) []keystore.Migration {
	t.Helper()
	list, err := keystore.Status(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Status tells what was applied and when, what is pending, and what only a newer
// program knows. Looking makes nothing.
func TestStatus(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		t.Helper()
		before := around(t, url)
		list := status(t, url)
		if len(list) < 2 || around(t, url) != before {
			t.Fatalf("%+v, and %q", list, around(t, url))
		}
		for i, m := range list {
			if m.Version != i+1 || m.Applied || !m.Known() {
				t.Errorf("of an empty store: %+v", m)
			}
		}
		first, err := fs.ReadFile(migrations(url), "0001_init.up.sql")
		if err != nil {
			t.Fatal(err)
		}
		exec(t, url, string(first))
		old := status(t, url)
		if !old[0].Applied || old[1].Applied || old[0].Name != "init" || time.Since(old[0].At).Abs() > time.Hour {
			t.Errorf("of a store of version 1: %+v", old)
		}
		if _, err := keystore.Open(t.Context(), url); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "migration 2 (") {
			t.Errorf("open a store of version 1: %v", err)
		}
		migrate(t, url)
		now := status(t, url)
		for i, m := range now {
			if !m.Applied || m.At.Before(old[0].At) || (i == 0 && !m.At.Equal(old[0].At)) {
				t.Errorf("after migrating: %+v, before %+v", now, old)
			}
		}
		migrate(t, url)
		if again := status(t, url); len(again) != len(now) || again[1] != now[1] {
			t.Errorf("migrating again: %+v, was %+v", again, now)
		}
	})
}

// Tables of a program that is newer than this one are not opened or changed.
func TestNewerTables(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		t.Helper()
		migrate(t, url)
		insert := "INSERT INTO onlyonce_schema (version, applied_us) VALUES (99, 1)"
		if keystore.Scheme(url) != "sqlite" {
			insert = "INSERT INTO onlyonce_migrations (version, name) VALUES (99, 'later')"
		}
		exec(t, url, insert)
		list := status(t, url)
		if last := list[len(list)-1]; last.Version != 99 || last.Known() || !last.Applied {
			t.Errorf("%+v", list)
		}
		_, err := keystore.Open(t.Context(), url)
		for _, err := range []error{err, keystore.Migrate(t.Context(), url)} {
			if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "99") {
				t.Errorf("got %v", err)
			}
		}
	})
}

// Any number may migrate at once.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		t.Helper()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if err := keystore.Migrate(t.Context(), url); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		mustClaim(t, open(t, url), claim("k"), onlyonce.Won)
	})
}

// What is printed, run by another tool, is what Migrate makes. Printing opens nothing.
func TestPrint(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		t.Helper()
		nowhere := strings.Replace(url, "@", "@none.invalid", 1)
		var text strings.Builder
		if err := keystore.Print(&text, nowhere); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), "payments_") || !strings.Contains(text.String(), "-- 0001_init.up.sql\n") {
			t.Errorf("printed %.200s", text.String())
		}
		exec(t, url, text.String())
		for _, m := range status(t, url) {
			if !m.Applied {
				t.Errorf("%+v is pending", m)
			}
		}
		mustClaim(t, open(t, url), claim("k"), onlyonce.Won)
		if err := keystore.Print(full{}, url); err == nil {
			t.Error("it was printed to nowhere")
		}
	})
}

// full is a disk that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, os.ErrClosed }

// The file is for its owner alone; a folder that is missing is said.
func TestMigrateFile(t *testing.T) {
	t.Parallel()
	url := apptest.SQLite(t)
	migrate(t, url)
	info, err := os.Stat(strings.TrimPrefix(url, "sqlite:"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := keystore.Migrate(t.Context(), "sqlite:"+t.TempDir()+"/none/x.db"); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
		t.Errorf("a folder that is not there: %v", err)
	}
	if err := keystore.Migrate(t.Context(), "sqlite:"); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("no path: %v", err)
	}
}

// A file of something else is not a store that is empty.
func TestStatusOfAnotherFile(t *testing.T) {
	t.Parallel()
	url := apptest.SQLite(t)
	if err := os.WriteFile(strings.TrimPrefix(url, "sqlite:"), []byte(strings.Repeat("not a database", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := keystore.Status(t.Context(), url); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
		t.Errorf("%+v, %v", list, err)
	}
}

// A look that is called off is no look.
func TestStatusCalledOff(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, url string) {
		t.Helper()
		migrate(t, url)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if _, err := keystore.Status(ctx, url); err == nil {
			t.Error("it was looked at")
		}
	})
}

// A file that somebody has locked is told from one that is broken.
func TestLocked(t *testing.T) {
	t.Parallel()
	url := apptest.SQLite(t)
	migrate(t, url)
	pool, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	conn, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; INSERT INTO onlyonce_settings VALUES ('k', 'i', x''); "); err != nil {
		t.Fatal(err)
	}
	other, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), "BEGIN IMMEDIATE"); !keystore.Locked(err) || !keystore.Locked(fmt.Errorf("open: %w", err)) {
		t.Errorf("a locked file: %v", err)
	}
	if keystore.Locked(nil) || keystore.Locked(os.ErrNotExist) {
		t.Error("anything is a lock")
	}
}
