package db_test

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

func status(t *testing.T, url string) []db.Migration {
	t.Helper()
	list, err := db.Status(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// applied counts the migrations that were applied, and those of which it is known when.
func applied(t *testing.T, list []db.Migration) (n, noted int) {
	t.Helper()
	for i, m := range list {
		if m.Version != i+1 {
			t.Errorf("%+v is number %d", m, i+1)
		}
		if m.Applied {
			n++
		}
		if !m.At.IsZero() {
			noted++
			if time.Since(m.At).Abs() > time.Hour || m.At.Location() != time.UTC {
				t.Errorf("applied at %v", m.At)
			}
		}
	}
	return n, noted
}

// atVersion makes a test of the version of the service's tables.
func atVersion(t *testing.T, d *db.Database, want int) {
	t.Helper()
	if got, err := d.Version(t.Context()); got != want || err != nil {
		t.Errorf("version %d, %v; want %d", got, err, want)
	}
}

// Status lists each migration, with its time, from none over an old version to all, and
// back. Looking makes nothing.
func TestStatus(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			list := status(t, url)
			if n, noted := applied(t, list); n+noted != 0 || len(list) != 6 || list[2].Name != "reconcile" {
				t.Errorf("where there is nothing: %+v", list)
			}
			if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
				if _, err := os.Stat(path); err == nil {
					t.Error("the file was made")
				}
			}
			d := open(t, url)
			atVersion(t, d, 0)
			if n, _ := applied(t, status(t, url)); n != 0 {
				t.Errorf("%d of a store of keys alone", n)
			}
			for range 2 {
				if err := d.Migrate(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			atVersion(t, d, 6)
			if n, noted := applied(t, status(t, url)); n != 6 || noted != 6 {
				t.Errorf("%d, %d noted", n, noted)
			}
			exec(t, d, "UPDATE payments_schema SET version = 8")
			list = status(t, url)
			if n, noted := applied(t, list); n != 8 || noted != 6 || !list[5].Known() || list[6].Known() {
				t.Errorf("of a newer program: %+v", list)
			}
			exec(t, d, "UPDATE payments_schema SET version = 6")
			if err := d.Unmigrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n, noted := applied(t, status(t, url)); n+noted != 0 || count(t, d, "payments_migrations") != 0 {
				t.Errorf("taken back: %d, %d noted", n, noted)
			}
		})
	}
}

// A program of before has noted versions, and no times; what this one applies behind
// them has its time.
func TestStatusOfBefore(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			before(t, url, 3)
			if n, noted := applied(t, status(t, url)); n != 3 || noted != 0 {
				t.Errorf("%d, %d noted", n, noted)
			}
			migrated(t, url)
			list := status(t, url)
			if n, noted := applied(t, list); n != 6 || noted != 3 || list[3].At.IsZero() {
				t.Errorf("%+v", list)
			}
		})
	}
}

// What another tool has applied is seen, with its time.
func TestStatusOfPrinted(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			var printed bytes.Buffer
			if err := db.PrintMigrations(&printed, url); err != nil {
				t.Fatal(err)
			}
			apply(t, url, printed.String())
			if n, noted := applied(t, status(t, url)); n != 6 || noted != 6 {
				t.Errorf("%d, %d noted", n, noted)
			}
			d := migrated(t, url)
			if err := d.CheckVersion(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// apply runs statements as a tool of somebody's own does.
func apply(t *testing.T, url, statements string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		pool, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		if _, err := pool.ExecContext(ctx, statements); err != nil {
			t.Fatal(err)
		}
		return
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

// What cannot be looked at is no empty database.
func TestStatusRefuses(t *testing.T) {
	t.Parallel()
	broken := apptest.SQLite(t)
	if err := os.WriteFile(strings.TrimPrefix(broken, "sqlite:"), []byte(strings.Repeat("not a database", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]struct {
		code onlyonce.Code
		text string
	}{
		"sqlite:":                              {onlyonce.CodeConfig, "sqlite:PATH"},
		"sqlite::memory:":                      {onlyonce.CodeConfig, "sqlite:PATH"},
		"mysql://u:secret@h/d":                 {onlyonce.CodeConfig, "payments service's own databases"},
		"postgres://u:secret@h/d?schema=x":     {onlyonce.CodeConfig, "search_path"},
		"postgres://u:sec ret@h:x/d":           {onlyonce.CodeConfig, "cannot be read"},
		"postgres://u:secret@127.0.0.1:1/d":    {onlyonce.CodeStoreUnavailable, "does not answer"},
		broken:                                 {onlyonce.CodeStoreUnavailable, "not a database"},
		"sqlite:" + t.TempDir() + "/none/x.db": {},
	} {
		_, err := db.Status(t.Context(), url)
		if onlyonce.CodeOf(err) != want.code || (err != nil && (!strings.Contains(err.Error(), want.text) || strings.Contains(err.Error(), "sec"))) {
			t.Errorf("%s: %v", url, err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for name, store := range apptest.Stores() {
		url := store(t)
		migrated(t, url)
		if _, err := db.Status(ctx, url); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
			t.Errorf("%s, called off: %v", name, err)
		}
	}
}
