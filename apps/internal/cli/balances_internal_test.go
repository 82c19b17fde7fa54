package cli

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments/balances"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/event"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// Balances are printed as a table or as JSON, of all merchants or of one.
func TestBalancesShow(t *testing.T) {
	t.Parallel()
	store := "sqlite:" + filepath.Join(t.TempDir(), "balances.db")
	show := func(args ...string) string {
		t.Helper()
		out, errs, code := run(t, append([]string{"balances", "show", "--store", store}, args...)...)
		if code != exitDone {
			t.Fatalf("exit %d: %s", code, errs)
		}
		return out
	}
	d, err := db.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	keeper, err := balances.NewKeeper(t.Context(), balances.Config{DB: d})
	if err != nil {
		t.Fatal(err)
	}
	if out := show(); out != "no balances\n" {
		t.Errorf("of nobody: %q", out)
	}
	if out := show("--json"); out != "{\n  \"balances\": []\n}\n" {
		t.Errorf("of nobody: %q", out)
	}
	for n, e := range []event.Event{
		{Kind: event.ChargeSucceeded, Merchant: "acme", Amount: 9007199254740993, Currency: "EUR"}, // no float64 holds it
		{Kind: event.RefundSucceeded, Merchant: "globex", Amount: 5, Currency: "JPY"},
	} {
		op := string(rune('a' + n))
		e.ID, e.Operation, e.OccurredAt = event.IDOf(e.Kind, op), op, time.Unix(1, 0)
		msg, err := e.Message()
		if err == nil {
			var verdict inbox.Verdict
			if verdict, err = keeper.Process(t.Context(), msg); verdict != inbox.Handled {
				err = errors.Join(err, errors.New(verdict.String()))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := keeper.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	const table = "MERCHANT  CURRENCY  AMOUNT\n" +
		"acme      EUR       9007199254740993\n" +
		"globex    JPY       -5\n"
	if out := show(); out != table {
		t.Errorf("prints\n%s", out)
	}
	if out := show("--merchant", "globex", "--json"); !strings.Contains(out, `"amount": -5`) || strings.Contains(out, "acme") {
		t.Errorf("of one: %s", out)
	}
}
