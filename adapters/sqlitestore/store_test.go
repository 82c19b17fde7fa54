package sqlitestore_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// twoHandles opens the same fresh file twice.
func twoHandles(t *testing.T, now func() time.Time) storetest.Instance {
	t.Helper()
	path := filepath.Join(t.TempDir(), "once.db")
	cfg := sqlitestore.Config{Now: now}
	return storetest.Instance{Store: openAt(t, path, cfg), Another: openAt(t, path, cfg)}
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Backend{Open: twoHandles})
}

func TestHistory(t *testing.T) {
	t.Parallel()
	storetest.RunHistory(t, storetest.Backend{Open: twoHandles})
}

func TestTx(t *testing.T) {
	storetest.RunTx(t, txBackend())
}

// C2, B103
func TestWaiting(t *testing.T) {
	t.Parallel()
	storetest.RunWaiting(t, txBackend(), 200)
}

func txBackend() storetest.TxBackend[*sql.Tx] {
	return storetest.TxBackend[*sql.Tx]{
		Open: func(t *testing.T, now func() time.Time) storetest.Instance {
			t.Helper()
			in := twoHandles(t, now)
			businessTable(t, in.Store.(*sqlitestore.Store))
			return in
		},
		Write: write,
		Count: func(t *testing.T, in storetest.Instance, name string) int {
			t.Helper()
			return count(t, in.Store.(*sqlitestore.Store), name)
		},
		Do: func(ctx context.Context, in storetest.Instance, fn func(*sql.Tx) error) error {
			tx, err := in.Store.(*sqlitestore.Store).Writer().BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := fn(tx); err != nil {
				return err
			}
			return tx.Commit()
		},
	}
}

// write adds a name to the business data.
func write(ctx context.Context, tx *sql.Tx, name string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO names (name) VALUES (?)", name)
	return err
}

func TestModel(t *testing.T) {
	t.Parallel()
	storetest.RunModel(t, storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		return storetest.Instance{Store: openAt(t, filepath.Join(t.TempDir(), "once.db"), sqlitestore.Config{Now: now})}
	}}, func(now func() time.Time) onlyonce.Store {
		m, err := memstore.New(memstore.Config{SingleProcess: true, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
}
