package db_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// before makes tables of a version and rows as the program of that version wrote
// them, with the key tables of today, and returns how to open the database.
func before(t *testing.T, store string, version int, rows ...string) {
	t.Helper()
	d := open(t, store)
	kind, _, _ := strings.Cut(store, ":")
	if kind != "sqlite" {
		kind = "postgres"
	}
	if err := d.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
		var scripts []string
		for v := 1; v <= version; v++ {
			files, err := filepath.Glob(filepath.Join("migrations", kind, fmt.Sprintf("%04d_*.up.sql", v)))
			if err != nil || len(files) != 1 {
				return fmt.Errorf("migration %d: %v, %w", v, files, err)
			}
			text, err := os.ReadFile(files[0])
			if err != nil {
				return err
			}
			scripts = append(scripts, string(text))
		}
		scripts = append(scripts, fmt.Sprintf("CREATE TABLE payments_schema (version INTEGER NOT NULL); INSERT INTO payments_schema VALUES (%d)", version))
		for _, s := range append(scripts, rows...) {
			if err := db.Script(ctx, tx, s); err != nil {
				return fmt.Errorf("%.60s: %w", s, err)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// rowsBefore are rows of every table that version 2 had.
func rowsBefore() []string {
	return []string{
		`INSERT INTO payments_products (merchant, id, name, price, currency, stock) VALUES ('m', 'p', 'name', 500, 'EUR', 7)`,
		`INSERT INTO payments_charges (id, merchant, operation, amount, currency, source, description, metadata, order_id, status, processor_id, reserved, refunded, created_us)
			VALUES ('ch_1', 'm', 'op_1', 1000, 'EUR', 'tok', 'd', '{}', 'o1', 'succeeded', 'pc_1', 300, 300, 5)`,
		`INSERT INTO payments_charges (id, merchant, operation, amount, currency, source, description, metadata, status, decline_code, processor_id, created_us)
			VALUES ('ch_2', 'm', 'op_2', 1000, 'EUR', 'tok', '', '{}', 'failed', 'lost_card', 'pc_2', 6)`,
		`INSERT INTO payments_charges (id, merchant, operation, amount, currency, source, description, metadata, status, decline_code, processor_id, created_us)
			VALUES ('ch_3', 'm', 'op_10', 1000, 'EUR', 'tok', '', '{}', 'failed', 'lost_card', '', 6)`,
		`INSERT INTO payments_refunds (id, merchant, operation, charge_id, amount, currency, reason, status, processor_id, held_key, held_fence, created_us)
			VALUES ('re_1', 'm', 'op_3', 'ch_1', 300, 'EUR', 'why', 'succeeded', 'pr_1', 'k3', 9, 7)`,
		`INSERT INTO payments_refunds (id, merchant, operation, charge_id, amount, currency, reason, status, failure_code, held_key, held_fence, created_us)
			VALUES ('re_2', 'm', 'op_4', 'ch_1', 9999, 'EUR', '', 'failed', 'refund_exceeds_charge', 'k4', 9, 8)`,
		`INSERT INTO payments_orders (id, merchant, operation, asked, status, currency, total, held_by, held_key, held_fence, charge_id, created_us)
			VALUES ('o1', 'm', NULL, '{}', 'paid', 'EUR', 1000, 'op_1', 'k1', 9, 'ch_1', 3)`,
		`INSERT INTO payments_orders (id, merchant, operation, asked, status, currency, total, created_us)
			VALUES ('ord_2', 'm', 'op_5', '{}', 'open', 'EUR', 500, 4)`,
		`INSERT INTO payments_order_lines (merchant, order_id, line, product, quantity, unit_price) VALUES ('m', 'o1', 0, 'p', 2, 500)`,
		`INSERT INTO payments_order_names (merchant, id) VALUES ('m', 'o1')`,
		`INSERT INTO payments_transfers (id, merchant, operation, kind, subject, debit, credit, amount, currency, created_us)
			VALUES ('tr_1', 'm', 'op_1', 'charge', 'ch_1', 'processor', 'merchant', 1000, 'EUR', 5)`,
	}
}

// texts reads one column.
func texts(t *testing.T, d *db.Database, query string) string {
	t.Helper()
	var all []string
	if err := d.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
		all = nil
		return tx.Each(ctx, query, nil, func(row db.Row) error {
			var s string
			err := row.Scan(&s)
			all = append(all, s)
			return err
		})
	}); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return strings.Join(all, "; ")
}

// What version 2 wrote is there after an upgrade, row by row, in its order, and
// still refers to each other; so it is after a way back.
func TestUpgradeKeepsRows(t *testing.T) {
	t.Parallel()
	const (
		charges = `SELECT seq || ' ' || id || ' ' || amount || ' ' || coalesce(order_id, '-') || ' ' || status || ' ' || coalesce(decline_code, '-') || ' ' || refunded || ' ' || coalesce(processor_id, '-') FROM payments_charges ORDER BY seq`
		refunds = `SELECT seq || ' ' || id || ' ' || charge_id || ' ' || amount || ' ' || status || ' ' || coalesce(failure_code, processor_id) FROM payments_refunds ORDER BY seq`
		orders  = `SELECT seq || ' ' || id || ' ' || status || ' ' || total || ' ' || coalesce(charge_id, '-') || ' ' || coalesce(operation, '-') FROM payments_orders ORDER BY seq`
		lines   = `SELECT order_id || ' ' || product || ' ' || quantity FROM payments_order_lines ORDER BY line`
	)
	want := map[string]string{
		charges: "1 ch_1 1000 o1 succeeded - 300 pc_1; 2 ch_2 1000 - failed lost_card 0 pc_2; 3 ch_3 1000 - failed lost_card 0 -",
		refunds: "1 re_1 ch_1 300 succeeded pr_1; 2 re_2 ch_1 9999 failed refund_exceeds_charge",
		orders:  "1 o1 paid 1000 ch_1 -; 2 ord_2 open 500 - op_5",
		lines:   "o1 p 2",
	}
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			before(t, url, 2, rowsBefore()...)
			d := open(t, url)
			for range 2 {
				if err := d.Migrate(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.CheckVersion(t.Context()); err != nil {
				t.Error(err)
			}
			for query, rows := range want {
				if got := texts(t, d, query); got != rows {
					t.Errorf("%s\ngives %s\nwant  %s", query, got, rows)
				}
			}
			exec(t, d, `INSERT INTO payments_charges (id, merchant, operation, amount, currency, source, description, metadata, status, processor_id, created_us) VALUES ('ch_4', 'm', 'op_8', 1, 'EUR', '', '', '', 'failed', NULL, 1)`)
			if got := texts(t, d, `SELECT seq || '' FROM payments_charges WHERE id = 'ch_4'`); got != "4" {
				t.Errorf("the next charge is number %s", got)
			}
			for what, statement := range map[string]string{
				"a refund of no charge":        `INSERT INTO payments_refunds (id, merchant, operation, charge_id, amount, currency, reason, status, created_us) VALUES ('re_3', 'm', 'op_9', 'none', 1, 'EUR', '', 'failed', 1)`,
				"a line of no order":           `INSERT INTO payments_order_lines (merchant, order_id, line, product, quantity, unit_price) VALUES ('m', 'none', 0, 'p', 1, 1)`,
				"an order is paid by none":     `UPDATE payments_orders SET status = 'paid', charge_id = 'none' WHERE id = 'ord_2'`,
				"money moves without a name":   `INSERT INTO payments_charges (id, merchant, operation, amount, currency, source, description, metadata, status, created_us) VALUES ('ch_5', 'm', 'op_11', 1, 'EUR', '', '', '', 'succeeded', 1)`,
				"an operation has two charges": `INSERT INTO payments_charges (id, merchant, operation, amount, currency, source, description, metadata, status, processor_id, created_us) VALUES ('ch_6', 'm', 'op_1', 1, 'EUR', '', '', '', 'failed', 'pc_3', 1)`,
			} {
				if err := d.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
					_, err := tx.Exec(ctx, statement)
					return err
				}); err == nil {
					t.Errorf("the database allows that %s", what)
				}
			}
			exec(t, d, `INSERT INTO payments_orders (id, merchant, operation, asked, status, currency, total, created_us) VALUES ('ord_3', 'm', 'op_6', '{}', 'cancelled', 'EUR', 1, 1)`)
			if err := d.Unmigrate(t.Context()); err != nil { // with orders that version 2 did not know
				t.Error(err)
			}
		})
	}
}

// What is held at the time of an upgrade stops it before anything is changed: the
// program of before can still settle it. (C12)
func TestUpgradeRefusesWhatIsHeld(t *testing.T) {
	t.Parallel()
	held := map[string]string{
		"order ord_2 of m": `UPDATE payments_orders SET status = 'paying', held_by = 'op_7', held_key = 'k7', held_fence = 1 WHERE id = 'ord_2'`,
		"refund re_3 of m": `INSERT INTO payments_refunds (id, merchant, operation, charge_id, amount, currency, reason, status, held_key, held_fence, created_us)
			VALUES ('re_3', 'm', 'op_7', 'ch_1', 5, 'EUR', '', 'pending', 'k7', 1, 1)`,
	}
	for name, store := range apptest.Stores() {
		for what, statement := range held {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				url := store(t)
				before(t, url, 2, append(rowsBefore(), statement)...)
				_, err := db.Open(t.Context(), url)
				if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "program of before") {
					t.Errorf("opening gives %v", err)
				}
				// Whoever applies the migrations with another tool is refused too.
				d, err := db.OpenExisting(t.Context(), url)
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				if err := d.CheckVersion(t.Context()); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
					t.Errorf("tables of before are taken for today's: %v", err)
				}
				if err := d.Migrate(t.Context()); err == nil || !strings.Contains(err.Error(), "send those requests again with their keys") {
					t.Errorf("migrating gives %v", err)
				}
				if got := texts(t, d, `SELECT version || '' FROM payments_schema`); got != "2" {
					t.Errorf("the tables are of version %s now", got)
				}
			})
		}
	}
}

// A database of something else, or an empty one, is not this program's to look at.
func TestCheckVersionOfNothing(t *testing.T) {
	t.Parallel()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := open(t, store(t)).CheckVersion(t.Context()); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
				t.Errorf("without tables: %v", err)
			}
		})
	}
}
