package db

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// withClock opens a database whose keys live by a clock of the test's.
type withClock func(t *testing.T, now func() time.Time) *Database

func sqliteAt(t *testing.T, now func() time.Time) *Database {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "keys.db"), sqlitestore.Config{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return closed(t, &Database{keys: sqliteKeys(store), driver: sqliteDriver{store}})
}

func postgresAt(t *testing.T, now func() time.Time) *Database {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), testserver.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	store, err := pgstore.New(pool, pgstore.Config{Now: now})
	if err == nil {
		err = store.Migrate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return closed(t, &Database{keys: postgresKeys(store), driver: postgresDriver{pool: pool, store: store}})
}

func closed(t *testing.T, d *Database) *Database {
	t.Helper()
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// The transactions that are handed out keep the contract of the stores behind
// them, on both databases. (C3, C6)
func TestKeysKeepTheContract(t *testing.T) {
	for name, open := range map[string]withClock{"sqlite": sqliteAt, "postgres": postgresAt} {
		t.Run(name, func(t *testing.T) {
			storetest.RunTx(t, storetest.TxBackend[Tx]{
				Open: func(t *testing.T, now func() time.Time) storetest.Instance {
					t.Helper()
					d := open(t, now)
					err := d.Write(t.Context(), func(ctx context.Context, tx Tx) error {
						_, err := tx.Exec(ctx, "CREATE TABLE names (name TEXT NOT NULL)")
						return err
					})
					if err != nil {
						t.Fatal(err)
					}
					return storetest.Instance{Store: owned{d.Keys(), d}}
				},
				Write: func(ctx context.Context, tx Tx, name string) error {
					n, err := tx.Exec(ctx, "INSERT INTO names (name) VALUES (?)", name)
					if err == nil && n != 1 {
						err = fmt.Errorf("%d rows were inserted", n)
					}
					return err
				},
				Count: func(t *testing.T, in storetest.Instance, name string) int {
					t.Helper()
					return names(t, in.Store.(owned).d, name)
				},
				Do: func(ctx context.Context, in storetest.Instance, fn func(Tx) error) error {
					return in.Store.(owned).d.Write(ctx, func(_ context.Context, tx Tx) error { return fn(tx) })
				},
			})
		})
	}
}

// owned is a store that knows its database.
type owned struct {
	Keys
	d *Database
}

func names(t *testing.T, d *Database, name string) int {
	t.Helper()
	var n int
	err := d.Read(t.Context(), func(ctx context.Context, tx Tx) error {
		return tx.QueryRow(ctx, "SELECT count(*) FROM names WHERE name = ?", name).Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCompleteTxRefusesAForeignTransaction(t *testing.T) {
	t.Parallel()
	keys := sqliteAt(t, time.Now).Keys()
	if _, err := keys.CompleteTx(t.Context(), pgxTx{}, owner(), answer()); err == nil {
		t.Error("a transaction of another database was accepted")
	}
}

func TestNumbered(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]string{
		"":                               "",
		"SELECT 1":                       "SELECT 1",
		"SELECT ?":                       "SELECT $1",
		"a = ? AND b = ? AND c IN (?,?)": "a = $1 AND b = $2 AND c IN ($3,$4)",
		"????????????":                   "$1$2$3$4$5$6$7$8$9$10$11$12",
	} {
		if got := numbered(query); got != want {
			t.Errorf("%q becomes %q, want %q", query, got, want)
		}
	}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	for _, d := range []driver{sqliteDriver{}, postgresDriver{}} {
		files, err := d.migrations()
		if err != nil {
			t.Fatal(err)
		}
		list, err := steps(files)
		if err != nil || len(list) == 0 {
			t.Errorf("%T: %d migrations, %v", d, len(list), err)
		}
		for i, s := range list {
			if s.version != i+1 || s.up == "" || s.down == "" {
				t.Errorf("%T: migration %d is %d, %d and %d bytes", d, i+1, s.version, len(s.up), len(s.down))
			}
		}
	}
}

func owner() onlyonce.Owner {
	return onlyonce.Owner{Key: onlyonce.Key{Scope: "s", Value: "k"}, Fence: 1}
}

func answer() onlyonce.Answer { return onlyonce.Answer{Status: 201} }
