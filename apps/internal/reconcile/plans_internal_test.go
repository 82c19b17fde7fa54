package reconcile

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// SQLite goes through a whole table only where that is what is asked for: each of
// a million rows is looked up by an index.
func TestPlans(t *testing.T) {
	t.Parallel()
	d, err := db.Open(t.Context(), apptest.SQLite(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	queries := []string{
		insertRows + rowValues + insertRowsOnce, deadRun, deleteRows, deleteUnmatched, lineStaged,
		countUnmatched, selectShown, selectUnnamed, explainRows, selectSameID, selectSameReference, selectUnknownCurrency,
		selectChargeCurrency, countReconciled, selectSeenSound, resolveOne, resolveKeys, selectOpen, selectOfRun,
	}
	for _, b := range payments.Books() {
		queries = append(queries, insertUnmatched(b), insertReconciled(b), countMatched(b), selectDiffering(b), selectMissingHere(b),
			selectMissingThere(b), selectShownTwice(b), selectByOperation(b), resolveWritten(b))
	}
	for _, query := range queries {
		for _, step := range explained(t, d, query) {
			// The books are gone through for what no report has shown.
			if strings.HasPrefix(step, "SCAN ") && !strings.Contains(query, "NOT EXISTS (SELECT 1 FROM payments_reconciled") {
				t.Errorf("%s\n%s", query, step)
			}
		}
	}
}

func explained(t *testing.T, d *db.Database, query string) (steps []string) {
	t.Helper()
	args := slices.Repeat([]any{1}, strings.Count(query, "?"))
	err := d.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
		return tx.Each(ctx, "EXPLAIN QUERY PLAN "+query, args, func(row db.Row) error {
			var id, parent, unused int
			var step string
			err := row.Scan(&id, &parent, &unused, &step)
			steps = append(steps, step)
			return err
		})
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return steps
}
