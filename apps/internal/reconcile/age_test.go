package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
)

// A finding that is found again ages; one that is no longer so is resolved; one of
// which a report does not speak stays as it is.
func TestAgeing(t *testing.T) { // X2
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		b.book(t, "a", 1000, "succeeded", noon)
		b.book(t, "lost", 1000, "succeeded", noon.Add(time.Minute))
		b.book(t, "z", 1000, "succeeded", noon.Add(time.Hour))
		day := header + row("a", "", 1000, 0) + row("new", "r_new", 500, 10) + row("wrong", "r_wrong", 500, 20) +
			strings.ReplaceAll(row("odd", "", 5, 20), "charge,", "chargeback,") + row("z", "", 1000, 60)
		b.book(t, "wrong", 400, "succeeded", noon.Add(20*time.Minute))
		first := b.run(t, b.config(day))
		same(t, first.Breaks, map[reconcile.Kind]int64{"missing_here": 1, "missing_there": 1, "amount_differs": 1, "unknown_type": 1})
		aged := b.findings(t, first.Run)

		// The same again: nothing is repeated.
		second := b.run(t, b.config(day))
		same(t, second.Breaks, first.Breaks)
		for i, f := range b.findings(t, second.Run) {
			if f.ID != aged[i].ID || f.Runs != 2 || f.FirstRun != first.Run || f.LastRun != second.Run || !f.First.Equal(aged[i].First) || !f.Last.After(f.First) {
				t.Errorf("%+v", f)
			}
		}
		// A report of another time says nothing of them.
		third := b.run(t, b.config(header+row("z", "", 1000, 60)))
		if third.Found() || third.Resolved != 0 || third.OpenBefore != 4 {
			t.Errorf("%+v", third)
		}
		// One is written down, one shown, one corrected there; and the type has a
		// meaning now.
		b.book(t, "new", 500, "succeeded", noon)
		cfg := b.config(header + row("lost", "", 1000, 1) + row("wrong", "", 400, 20))
		cfg.Format, _ = cfg.Format.WithTypes(map[string]string{"chargeback": "skip"})
		fourth := b.run(t, cfg)
		if fourth.Found() || fourth.Resolved != 4 || fourth.OpenBefore != 0 {
			t.Errorf("%+v", fourth)
		}
		if open := b.open(t); open != nil {
			t.Errorf("%v", open)
		}
		// And wrong again: it is the same finding, opened again.
		fifth := b.run(t, b.config(header+row("wrong", "", 500, 20)))
		again := b.findings(t, fifth.Run)
		if len(again) != 1 || again[0].Status != reconcile.Open || again[0].Runs != 1 || again[0].Reference != "" {
			t.Errorf("%+v", again)
		}
	})
}

// What a person has explained counts no longer, until it looks otherwise.
func TestAccept(t *testing.T) {
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		text := header + row("x", "r_x", 500, 0)
		res := b.run(t, b.config(text))
		id := b.findings(t, res.Run)[0].ID
		f, err := reconcile.Accept(t.Context(), b.db, id, "ana: of the shop that was sold")
		if err != nil || f.Status != reconcile.Accepted || f.Closed == nil || f.ClosedBy != "ana: of the shop that was sold" {
			t.Errorf("%+v, %v", f, err)
		}
		if _, err := reconcile.Accept(t.Context(), b.db, id, "bob"); onlyonce.CodeOf(err) != onlyonce.CodeNotFound {
			t.Errorf("accepted twice: %v", err)
		}
		if res := b.run(t, b.config(text)); res.Found() || res.Accepted != 1 {
			t.Errorf("%+v", res)
		}
		if f := b.findings(t, 2)[0]; f.Status != reconcile.Accepted || f.ClosedBy != "ana: of the shop that was sold" || f.Runs != 2 {
			t.Errorf("%+v", f)
		}
		if res := b.run(t, b.config(header+row("x", "r_x", 600, 0))); res.Breaks[reconcile.MissingHere] != 1 || res.Accepted != 0 {
			t.Errorf("%+v", res)
		}
		if f := b.findings(t, 3)[0]; f.Status != reconcile.Open || f.Closed != nil || f.ClosedBy != "" || f.Runs != 3 {
			t.Errorf("%+v", f)
		}
	})
}

// More findings than are kept in memory, or read at once.
func TestManyFindings(t *testing.T) {
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		const rows = 1234
		var text strings.Builder
		text.WriteString(header)
		for i := range rows {
			text.WriteString(row(fmt.Sprintf("pc_%d", i), fmt.Sprintf("r_%d", i), 100, i))
		}
		res := b.run(t, b.config(text.String()))
		if res.Breaks[reconcile.MissingHere] != rows || len(b.findings(t, res.Run)) != rows || len(b.open(t)) != rows {
			t.Errorf("%+v", res)
		}
		if len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "not one row agrees") {
			t.Errorf("%q", res.Notes)
		}
		for i := range rows {
			b.book(t, fmt.Sprintf("pc_%d", i), 100, "succeeded", noon)
		}
		if res := b.run(t, b.config(text.String())); res.Found() || res.Resolved != rows || len(res.Notes) != 0 {
			t.Errorf("%+v", res)
		}
	})
}
