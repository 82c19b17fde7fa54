package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
)

// stripe is a run over one of Stripe's reports.
func (b *bundle) stripe(t *testing.T, text string) reconcile.Config {
	t.Helper()
	f, err := report.Named(report.FormatStripe)
	if err != nil {
		t.Fatal(err)
	}
	cfg := b.config(text)
	cfg.Format, cfg.Provider = f, reconcile.Stripe()
	// The books are those of a service whose provider is the simulated one.
	cfg.Provider.Name, cfg.Provider.Decode = "processor", reconcile.Processor().Decode
	return cfg
}

// paid makes charges as an adapter for Stripe would have them in the books.
func (b *bundle) paid(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		b.charge(t, key, "tok_visa", 1500, 201)
		b.exec(t, "UPDATE payments_charges SET processor_id = ? WHERE operation = ?", "pi_"+key, dev(key).Operation())
	}
}

const itemized = "balance_transaction_id,created_utc,currency,gross,reporting_category,source_id,payment_intent_id,payment_metadata[onlyonce_reference],refund_metadata[onlyonce_reference]\n"

// item is a line of the itemized report.
func item(category, gross, source, intent, references string) string {
	return fmt.Sprintf("txn_%s,%s,ars,%s,%s,%s,%s,%s\n", source, time.Now().UTC().Format("2006-01-02 15:04:05"), gross, category, source, intent, references)
}

// The itemized report names charges as the service does.
func TestStripeItemized(t *testing.T) { // X2
	t.Parallel()
	onSQLite(t, func(on both) {
		t, b := on.t, on.b
		b.paid(t, "c1", "c2")
		b.charge(t, "c3", "tok_lost", 1500, 409)
		ref := reference("c3", "charge")
		text := itemized +
			item("charge", "15.00", "ch_1", "pi_c1", reference("c1", "charge")+",") +
			item("charge", "15.00", "ch_2", "pi_c2", ",") +
			item("charge", "15.00", "ch_3", "pi_c3", ref+",") +
			item("fee", "-0.60", "fee_1", "", ",") +
			item("refund_failure", "15.00", "re_9", "pi_c1", reference("c1", "charge")+",")
		cfg := b.stripe(t, text)
		cfg.Heal = true
		res := b.run(t, cfg)
		if res.Healed != 1 || res.Matched["charge"] != 3 || res.Skipped["fee"] != 1 {
			t.Errorf("%+v", res)
		}
		same(t, b.open(t), []string{"unknown_type refund_failure  ||1 rows"})
		b.charge(t, "c3", "tok_lost", 1500, 201)
		b.checkLedger(t, 4500)
	})
}

const activity = "id,Type,Source,Amount,Fee,Net,Currency,Created (UTC),Available On (UTC),Description,onlyonce_reference (metadata)\n"

// act is a line of the export of all activity, which names charges otherwise.
func act(typ, source, amount, reference string) string {
	at := time.Now().UTC().Format("2006-01-02 15:04")
	return fmt.Sprintf("txn_%s,%s,%s,%s,0.00,%s,ars,%s,%s,,%s\n", source, typ, source, amount, amount, at, at, reference)
}

// The export of all activity names charges by another object: they are matched by
// our reference as long as their keys are kept, and nothing is healed by a name
// that the service could not use.
func TestStripeActivity(t *testing.T) { // X2
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		b.paid(t, "c1", "c2", "c3")
		b.charge(t, "c4", "tok_lost", 1500, 409)
		text := activity +
			act("charge", "ch_1", "15.00", reference("c1", "charge")) +
			act("payment", "py_2", "14.00", reference("c2", "charge")) +
			act("charge", "ch_3", "15.00", "") +
			act("charge", "ch_4", "15.00", reference("c4", "charge")) +
			act("payout", "po_1", "-15.00", "")
		cfg := b.stripe(t, text)
		cfg.Heal = true
		res := b.run(t, cfg)
		if res.Matched["charge"] != 1 || res.Healed != 0 || b.state(t, "c4") != onlyonce.InDoubt {
			t.Errorf("%+v, the key is %s", res, b.state(t, "c4"))
		}
		same(t, b.open(t), []string{
			"amount_differs charge py_2 " + reference("c2", "charge") + "|15.00 ARS|14.00 ARS",
			"missing_here charge ch_3 ||15.00 ARS",
			"still_unknown charge  " + reference("c4", "charge") + "|key in_doubt, step begun|15.00 ARS",
		})
		for _, f := range b.findings(t, res.Run) {
			if f.Kind == reconcile.StillUnknown && !strings.Contains(f.Detail, "not the name that is kept") {
				t.Errorf("%+v", f)
			}
		}
		if len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "references of refunds") {
			t.Errorf("%q", res.Notes)
		}
		// What is matched by its reference is not missing there.
		cfg = b.stripe(t, text)
		b.exec(t, "UPDATE payments_charges SET created_us = created_us - 60000000")
		cfg.From, cfg.CompleteUntil = time.Now().Add(-time.Hour), time.Now().Add(-time.Second)
		b.run(t, cfg)
		missing := 0
		for _, line := range b.open(t) {
			if strings.HasPrefix(line, "missing_there") {
				missing++
			}
		}
		if missing != 1 { // c3, of which only the id is known
			t.Errorf("%v", b.open(t))
		}
	})
}

// Two providers have findings of their own, and do not resolve each other's.
func TestTwoProviders(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_lost", 1500, 409)
		b.run(t, b.config(header+row("x", "r_x", 100, 0)))
		if n := len(b.open(t)); n != 2 {
			t.Errorf("%v", b.open(t))
		}
		cfg := b.stripe(t, itemized+item("charge", "1.00", "ch_x", "x", ","))
		cfg.Provider.Name = "stripe"
		if res := b.run(t, cfg); res.Resolved != 0 || res.OpenBefore != 2 || res.Others != 1 || res.Breaks[reconcile.MissingHere] != 1 {
			t.Errorf("%+v", res)
		}
		if n := len(b.open(t)); n != 3 {
			t.Errorf("%v", b.open(t))
		}
	})
}

// An effect of a key without a step that could have had it is an alarm.
func TestEffectWithoutIntent(t *testing.T) { // X2
	t.Parallel()
	onSQLite(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_timeout", 1500, 409)
		b.exec(t, "DELETE FROM onlyonce_steps")
		for range 2 {
			res := b.heal(t, b.bank.report())
			same(t, b.open(t), []string{"contradiction charge pc_001 " + reference("c1", "charge") + "|key in_doubt, no step|15.00 ARS"})
			if res.Healed != 0 || b.state(t, "c1") != onlyonce.InDoubt {
				t.Errorf("%+v, the key is %s", res, b.state(t, "c1"))
			}
		}
	})
}

// What was carried out under an earlier life of the key is in the books. Whether
// the step of the present life was carried out too, its absence does not say.
func TestEarlierLife(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_lost", 1500, 409)
		b.exec(t, `INSERT INTO payments_charges
			(id, merchant, operation, amount, currency, source, description, metadata, status, processor_id, created_us)
			VALUES ('ch_old', 'dev', ?, 1500, 'ARS', 'tok_lost', '', '{}', 'succeeded', 'pc_old', 1)`, dev("c1").Operation())
		b.age(t, time.Hour)
		cfg := b.config(header)
		cfg.Heal, cfg.From, cfg.CompleteUntil = true, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Minute)
		res := b.run(t, cfg)
		f := b.findings(t, res.Run)
		if res.Healed != 0 || b.state(t, "c1") != onlyonce.InDoubt || len(f) != 1 || !strings.Contains(f[0].Detail, "an earlier life of the key has written ch_old") {
			t.Errorf("%+v, the key is %s: %+v", res, b.state(t, "c1"), f)
		}
	})
}
