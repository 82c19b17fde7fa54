package reconcile

import (
	"context"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

func TestDump(t *testing.T) {
	d, err := db.Open(t.Context(), apptest.SQLite(t))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := payments.Books()[0]
	for name, q := range map[string]string{
		"mark": insertUnmatched(b), "reconciled": insertReconciled(b), "count": countMatched(b), "differing": selectDiffering(b), "here": selectMissingHere(b), "there": selectMissingThere(b), "twice": selectShownTwice(b),
		"unmatched": countUnmatched, "shown": selectShown, "unnamed": selectUnnamed, "explain": explainRows, "sameid": selectSameID, "sameref": selectSameReference, "cur": selectUnknownCurrency, "sound": selectSeenSound, "dead": deadRun, "delete": deleteRows, "delu": deleteUnmatched,
	} {
		var plan []string
		n := strings.Count(q, "?")
		args := make([]any, n)
		for i := range args {
			args[i] = 1
		}
		err := d.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
			return tx.Each(ctx, "EXPLAIN QUERY PLAN "+q, args, func(row db.Row) error {
				var a, b, c int
				var s string
				err := row.Scan(&a, &b, &c, &s)
				plan = append(plan, s)
				return err
			})
		})
		t.Logf("%s: %s %v", name, strings.Join(plan, " | "), err)
	}
}
