package db_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestMain(m *testing.M) { apptest.Exit(testserver.Run(m)) }

func open(t *testing.T, url string) *db.Database {
	t.Helper()
	d, err := db.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// migrated is open with the service's tables.
func migrated(t *testing.T, url string) *db.Database {
	t.Helper()
	d := open(t, url)
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func exec(t *testing.T, d *db.Database, statement string, args ...any) {
	t.Helper()
	if err := d.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	}); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func count(t *testing.T, d *db.Database, table string) int {
	t.Helper()
	var n int
	if err := d.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
		return tx.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&n)
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

const insertProduct = `INSERT INTO payments_products (merchant, id, name, price, currency, stock) VALUES (?, ?, ?, ?, ?, ?)`

func TestMigrateUpDownUp(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			d := open(t, url)
			for round := range 2 {
				for range 2 { // up to date tables stay as they are
					if err := d.Migrate(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if err := d.Ping(t.Context()); err != nil {
					t.Error(err)
				}
				exec(t, d, insertProduct, "m", "p", "name", 1, "EUR", 1)
				if err := d.Migrate(t.Context()); err != nil || count(t, d, "payments_products") != 1 {
					t.Errorf("round %d: migrating again lost rows, %v", round, err)
				}
				if err := d.Unmigrate(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			exec(t, d, "UPDATE payments_schema SET version = 99")
			if err := d.Migrate(t.Context()); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "newer program") {
				t.Errorf("tables of a later version give %v", err)
			}
		})
	}
}

func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			var wg sync.WaitGroup
			for range 4 {
				d := open(t, url)
				wg.Go(func() {
					if err := d.Migrate(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// What is printed, applied with another tool, is what Migrate makes.
func TestPrintedMigrations(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			var printed bytes.Buffer
			if err := db.PrintMigrations(&printed, url); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"CREATE TABLE onlyonce_keys", "CREATE TABLE payments_charges", "INSERT INTO payments_schema"} {
				if !strings.Contains(strings.ReplaceAll(printed.String(), "IF NOT EXISTS ", ""), want) {
					t.Errorf("%q is missing", want)
				}
			}
		})
	}
}

func TestTransactions(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := migrated(t, store(t))
			failure := errors.New("no")
			err := d.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
				if _, err := tx.Exec(ctx, insertProduct, "m", "p", "name?", 1, "EUR", 1); err != nil {
					return err
				}
				return failure
			})
			if !errors.Is(err, failure) || count(t, d, "payments_products") != 0 {
				t.Errorf("a failed transaction left something, or hid its error: %v", err)
			}
			err = d.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
				_, err := tx.Exec(ctx, insertProduct, "m", "p", "name", 1, "EUR", 1)
				return err
			})
			if err == nil {
				t.Error("a reading transaction wrote")
			}
			var n int
			err = d.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
				return tx.QueryRow(ctx, "SELECT price FROM payments_products WHERE id = ?", "none").Scan(&n)
			})
			if !errors.Is(err, db.ErrNoRows) {
				t.Errorf("no row gives %v", err)
			}
		})
	}
}

// Transactions that meet are all carried out.
func TestParallelWrites(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := migrated(t, store(t))
			exec(t, d, insertProduct, "m", "a", "name", 1, "EUR", 100)
			exec(t, d, insertProduct, "m", "b", "name", 1, "EUR", 100)
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					order := []string{"a", "b"}
					if i%2 == 0 { // against each other: a deadlock, which is repeated
						order = []string{"b", "a"}
					}
					err := d.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
						for _, id := range order {
							if _, err := tx.Exec(ctx, "UPDATE payments_products SET stock = stock - 1 WHERE merchant = ? AND id = ?", "m", id); err != nil {
								return err
							}
						}
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			var sum int
			if err := d.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
				return tx.QueryRow(ctx, "SELECT CAST(sum(stock) AS BIGINT) FROM payments_products").Scan(&sum)
			}); err != nil || sum != 160 {
				t.Errorf("%d are left, want 160; %v", sum, err)
			}
		})
	}
}

// What is in the file is for its owner alone; a file that is there keeps its mode.
func TestFileIsPrivate(t *testing.T) {
	t.Parallel()
	mode := func(path string) os.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	path := filepath.Join(t.TempDir(), "new.db")
	exec(t, open(t, "sqlite:"+path), "CREATE TABLE x (y INTEGER)")
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		if m := mode(name); m != 0o600 {
			t.Errorf("%s has mode %v", filepath.Base(name), m)
		}
	}
	path = filepath.Join(t.TempDir(), "old.db")
	if err := os.WriteFile(path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	open(t, "sqlite:"+path)
	if m := mode(path); m != 0o640 {
		t.Errorf("the mode of a file that was there is %v now", m)
	}
}

// A file that cannot be made: the error says what to do.
func TestOpenSaysWhatToDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	locked := filepath.Join(dir, "locked")
	if err := os.Mkdir(locked, 0o500); err != nil {
		t.Fatal(err)
	}
	folders := []string{filepath.Join(dir, "none")}
	if os.Geteuid() != 0 { // whom no mode keeps out
		folders = append(folders, locked)
	}
	for _, folder := range folders {
		_, err := db.Open(t.Context(), "sqlite:"+filepath.Join(folder, "x.db"))
		if onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable || !strings.Contains(err.Error(), "folder must exist") || !strings.Contains(err.Error(), folder) {
			t.Errorf("%s: %v", folder, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"memory:":                      "memory: keeps no tables",
		"mysql://localhost/x":          "sqlite:PATH or postgres://",
		"":                             "sqlite:PATH or postgres://",
		"postgres://u:pa ss@h:x/d?y=%": "cannot be read",
		"sqlite:":                      "path",
	} {
		_, err := db.Open(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pa ss") {
			t.Errorf("%s gives %v, want %q", url, err, want)
		}
	}
}
