package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// row is a charge in a report, some minutes behind noon.
func row(id, reference string, amount int64, minutes int) string {
	return effect{typ: "charge", id: id, reference: reference, amount: amount, currency: "ARS", at: noon.Add(time.Duration(minutes) * time.Minute)}.line()
}

// A service and its provider that agree.
func TestMatched(t *testing.T) { // X2
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		id := member(t, b.charge(t, "c1", "tok_visa", 1500, 201), "id")
		b.charge(t, "c2", "tok_visa", 700, 201)
		b.charge(t, "c3", "tok_chargeDeclined", 700, 402)
		b.post(t, "/refunds", "r1", fmt.Sprintf(`{"charge":%q,"amount":500}`, id), 201)
		res := b.run(t, b.config(b.bank.report()))
		if res.Found() || res.Matched["charge"] != 2 || res.Matched["refund"] != 1 || res.Rows != 3 || len(res.SHA256) != 64 {
			t.Errorf("%+v", res)
		}
		if n := b.count(t, "payments_findings"); n != 0 {
			t.Errorf("%d findings", n)
		}
		// Again, and nothing changes.
		if res := b.run(t, b.config(b.bank.report())); res.Found() || res.Matched["charge"] != 2 || res.Run != 2 {
			t.Errorf("%+v", res)
		}
	})
}

// Every kind of finding about rows and books.
func TestFindings(t *testing.T) { // X2
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		for i, id := range []string{"same", "other_amount", "other_currency", "twice", "not_there", "first", "last_moment"} {
			b.book(t, id, 1000, "succeeded", noon.Add(time.Duration(i)*time.Minute))
		}
		b.book(t, "declined", 1000, "failed", noon)
		b.book(t, "declined_and_not_there", 1000, "failed", noon)
		b.book(t, "before", 1000, "succeeded", noon.Add(-time.Hour))
		b.book(t, "after", 1000, "succeeded", noon.Add(time.Hour))
		text := header +
			row("same", "r_same", 1000, 0) +
			row("other_amount", "r_amount", 999, 1) +
			strings.ReplaceAll(row("other_currency", "r_currency", 1000, 2), "ARS", "EUR") +
			row("twice", "r_twice", 1000, 3) +
			row("twice", "r_twice", 1000, 3) +
			row("first", "r_effect", 1000, 4) +
			row("second", "r_effect", 1000, 5) +
			row("third_a", "r_third", 1000, 5) +
			row("third_b", "r_third", 1000, 5) +
			row("not_here", "r_not_here", 1234, 6) +
			row("not_here_either", "", 1, 6) +
			row("declined", "r_declined", 1000, 6) +
			strings.ReplaceAll(row("moon", "r_moon", 5, 6), "ARS", "LUN") +
			strings.ReplaceAll(row("x1", "", 5, 6), "charge,", "chargeback,") +
			strings.ReplaceAll(row("x2", "", 5, 6), "charge,", "chargeback,") +
			row("last_moment", "r_last", 1000, 30)
		cfg := b.config(text)
		cfg.CompleteUntil = noon.Add(30 * time.Minute)
		res := b.run(t, cfg)
		same(t, b.open(t), []string{
			"amount_differs charge other_amount r_amount|10.00 ARS|9.99 ARS",
			"amount_differs charge other_currency r_currency|10.00 ARS|10.00 EUR",
			"contradiction charge declined r_declined|failed, 10.00 ARS|10.00 ARS",
			"duplicate_effect charge  r_effect|ch_first, first|first and second",
			"duplicate_effect charge  r_third||third_a and third_b",
			"duplicate_row charge twice r_twice||2 rows",
			"missing_here charge not_here r_not_here||12.34 ARS",
			"missing_here charge not_here_either ||0.01 ARS",
			"missing_there charge not_there |ch_not_there, 10.00 ARS|",
			"unknown_currency charge moon r_moon||5 LUN",
			"unknown_type chargeback  ||2 rows",
		})
		same(t, res.Breaks, map[reconcile.Kind]int64{
			"amount_differs": 2, "contradiction": 1, "duplicate_effect": 2, "duplicate_row": 1, "missing_here": 2,
			"missing_there": 1, "unknown_currency": 1, "unknown_type": 1,
		})
		if res.Matched["charge"] != 5 { // same, twice two times, first, last_moment
			t.Errorf("%d match", res.Matched["charge"])
		}
		for _, f := range b.findings(t, res.Run) {
			if f.Detail == "" || f.Runs != 1 || f.FirstRun != res.Run || !f.First.Equal(f.Last) {
				t.Errorf("%+v", f)
			}
		}
	})
}

// What is looked for is what the report is about: from its oldest to its newest
// row, less what may not be visible yet, or as the operator says.
func TestMissingThere(t *testing.T) {
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		for _, minutes := range []int{-1, 1, 9, 11, 60} {
			b.book(t, fmt.Sprintf("at_%d", minutes), 1000, "succeeded", noon.Add(time.Duration(minutes)*time.Minute))
		}
		b.book(t, "r0", 1, "succeeded", noon)
		b.book(t, "r10", 1, "succeeded", noon.Add(10*time.Minute))
		text := header + row("r0", "", 1, 0) + row("r10", "", 1, 10)
		cfg := b.config(text)
		cfg.Visible = 2 * time.Minute
		b.run(t, cfg)
		same(t, b.open(t), []string{"missing_there charge at_1 |ch_at_1, 10.00 ARS|"})
		cfg = b.config(text)
		cfg.From, cfg.CompleteUntil = noon.Add(-time.Hour), noon.Add(time.Hour)
		b.run(t, cfg)
		same(t, b.open(t), []string{
			"missing_there charge at_-1 |ch_at_-1, 10.00 ARS|",
			"missing_there charge at_1 |ch_at_1, 10.00 ARS|",
			"missing_there charge at_11 |ch_at_11, 10.00 ARS|",
			"missing_there charge at_9 |ch_at_9, 10.00 ARS|",
		})
		// An empty report speaks of no time, unless somebody says of which.
		if res := b.run(t, b.config(header)); res.Found() || res.OpenBefore != 4 {
			t.Errorf("%+v", res)
		}
		cfg = b.config(header)
		cfg.From, cfg.CompleteUntil = noon.Add(59*time.Minute), noon.Add(2*time.Hour)
		if res := b.run(t, cfg); res.Breaks[reconcile.MissingThere] != 1 {
			t.Errorf("%+v", res)
		}
	})
}

// What an earlier report has shown is not missing in a later one, and cannot be
// shown again under another id.
func TestReportsTogether(t *testing.T) { // X2
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		b.book(t, "evening", 1000, "succeeded", noon)
		if res := b.run(t, b.config(header+row("evening", "r_1", 1000, -1))); res.Found() {
			t.Errorf("%+v", res)
		}
		// Written late, and shown by no report yet: a report that begins later
		// does not have to have it, and the one before has.
		b.book(t, "late", 1000, "succeeded", noon.Add(time.Minute))
		today := header + row("a", "r_a", 1000, 0) + row("b", "r_b", 1000, 30)
		b.book(t, "a", 1000, "succeeded", noon)
		b.book(t, "b", 1000, "succeeded", noon)
		b.run(t, b.config(today))
		same(t, b.open(t), []string{"missing_there charge late |ch_late, 10.00 ARS|"})
		if res := b.run(t, b.config(header+row("late", "r_late", 1000, -30))); res.Found() || res.Resolved != 1 {
			t.Errorf("%+v", res)
		}
		if res := b.run(t, b.config(today)); res.Found() {
			t.Errorf("%+v", res)
		}
		// Charged again a day later.
		b.run(t, b.config(header+row("again", "r_1", 1000, 24*60)))
		same(t, b.open(t), []string{"duplicate_effect charge  r_1|ch_evening, evening|evening and again"})
	})
}
