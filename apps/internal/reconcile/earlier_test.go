package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
)

// A report that lacks what an earlier one has shown proves nothing by that: one of
// the two is not whole, and freeing the key would charge the card again. (X2, D4)
func TestShownByAnEarlierReport(t *testing.T) {
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_lost", 1500, 409)
		b.age(t, time.Hour)
		steps, err := b.db.Keys().Steps(t.Context(), dev("c1"))
		if err != nil || len(steps) != 1 {
			t.Fatalf("%+v, %v", steps, err)
		}
		now := time.Now()
		other := effect{typ: "charge", id: "pc_x", reference: "r_x", amount: 1500, currency: "ARS", at: now.Add(-3 * time.Hour)}
		mine := effect{typ: "charge", id: "pc_mine", reference: steps[0].Reference, amount: 1500, currency: "ARS", at: now.Add(-time.Hour)}
		if res := b.run(t, b.config(header+other.line()+mine.line())); res.Breaks[reconcile.Healable] != 1 {
			t.Fatalf("%+v", res)
		}
		cut := b.config(header + other.line())
		cut.Heal, cut.From, cut.CompleteUntil = true, now.Add(-2*time.Hour), now.Add(-10*time.Minute)
		res := b.run(t, cut)
		if res.Healed != 0 || b.state(t, "c1") != onlyonce.InDoubt {
			t.Errorf("%+v, the key is %s", res, b.state(t, "c1"))
		}
		said := false
		for _, f := range b.findings(t, res.Run) {
			said = said || strings.Contains(f.Detail, "an earlier report has shown it")
		}
		if !said {
			t.Errorf("nothing says that an earlier report has shown it: %+v", b.findings(t, res.Run))
		}
	})
}

// A file whose last line has no end may have been cut off: it is read, and not taken
// for complete.
func TestReportWithoutAnEnd(t *testing.T) {
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		row := effect{typ: "charge", id: "pc_x", reference: "r_x", amount: 1500, currency: "ARS", at: time.Now().Add(-3 * time.Hour)}
		text := strings.TrimSuffix(header+row.line(), "\n")
		cfg := b.config(text)
		cfg.From, cfg.CompleteUntil = time.Now().Add(-2*time.Hour), time.Now().Add(-10*time.Minute)
		_, err := reconcile.Run(t.Context(), cfg)
		if err == nil || !strings.Contains(err.Error(), "line 2: the last line has no end") {
			t.Errorf("got %v", err)
		}
		if res := b.run(t, b.config(text)); res.Rows != 1 {
			t.Errorf("%+v", res)
		}
	})
}
