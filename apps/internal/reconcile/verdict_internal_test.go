package reconcile

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
	"github.com/onlyonce-go/onlyonce/provider"
)

// What is recorded of a step, against what the report has under its reference and
// the books do not.
func TestJudgeDone(t *testing.T) { // X2
	t.Parallel()
	done := func(o provider.Outcome) []byte {
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	good := provider.Outcome{Status: provider.Succeeded, ID: "pi_1", Amount: 1500, Currency: "ARS"}
	row := func(id string, amount int64, currency string) shownRow {
		return shownRow{line: 7, id: id, amount: amount, currency: currency, shown: shown(amount, currency)}
	}
	for name, tt := range map[string]struct {
		result []byte
		rows   []shownRow
		want   judgement
		why    string
	}{
		"nothing else":                   {done(good), nil, recorded, ""},
		"it itself":                      {done(good), []shownRow{row("pi_1", 1500, "ARS")}, recorded, ""},
		"another name of it":             {done(good), []shownRow{row("ch_1", 1500, "ARS")}, recorded, ""},
		"another one":                    {done(good), []shownRow{row("pi_2", 1500, "ARS")}, contrary, "is recorded as pi_1"},
		"it, and another one":            {done(good), []shownRow{row("pi_1", 1500, "ARS"), row("pi_2", 1500, "ARS")}, contrary, "shows pi_2"},
		"another amount":                 {done(good), []shownRow{row("pi_1", 1501, "ARS")}, differs, "another amount"},
		"another currency":               {done(good), []shownRow{row("ch_1", 1500, "EUR")}, differs, "another amount"},
		"it was declined":                {done(provider.Outcome{Status: provider.Declined, ID: "pi_1"}), []shownRow{row("pi_1", 1500, "ARS")}, contrary, "is recorded as declined"},
		"it was refused":                 {done(provider.Outcome{Status: provider.Refused}), []shownRow{row("pi_1", 1500, "ARS")}, contrary, "is recorded as refused"},
		"declined, as the report agrees": {done(provider.Outcome{Status: provider.Declined, ID: "pi_1"}), nil, recorded, ""},
		"what its handler will not read": {[]byte("x"), []shownRow{row("pi_1", 1500, "ARS")}, recorded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &run{cfg: Config{Provider: Stripe()}}
			v := verdict{typ: report.Charge, step: onlyonce.StepRecord{State: onlyonce.StepDone, Result: tt.result}}
			r.judgeDone(&v, tt.rows)
			if v.is != tt.want || !strings.Contains(v.why, tt.why) || (v.is == contrary || v.is == differs) != (v.row.id != "") {
				t.Errorf("it is %d, %s, by %+v; want %d", v.is, v.why, v.row, tt.want)
			}
		})
	}
}

// What is done with a key, by what is known of its steps.
func TestPlan(t *testing.T) { // X2
	t.Parallel()
	const doubt, free, busy = onlyonce.InDoubt, onlyonce.FailedRetryable, onlyonce.InProgress
	for name, tt := range map[string]struct {
		state  onlyonce.State
		steps  []judgement
		others bool
		want   plan
	}{
		"no steps, free":                       {free, nil, false, planNothing},
		"no steps, abandoned":                  {busy, nil, false, planNothing},
		"no steps, in doubt":                   {doubt, nil, false, planUnknown},
		"shown":                                {doubt, []judgement{applied}, false, planApply},
		"shown, and one unknown":               {doubt, []judgement{applied, open}, false, planApply},
		"shown, and one absent":                {doubt, []judgement{absent, applied}, false, planApply},
		"shown, and another provider's":        {doubt, []judgement{applied}, true, planApply},
		"unknown":                              {doubt, []judgement{open}, false, planUnknown},
		"one unknown, one absent":              {doubt, []judgement{absent, open}, false, planUnknown},
		"all absent":                           {doubt, []judgement{absent, absent}, false, planNotApplied},
		"all absent, abandoned":                {busy, []judgement{absent}, false, planNotApplied},
		"absent behind a finished one":         {doubt, []judgement{recorded, absent}, false, planNotApplied},
		"absent, and another provider's":       {doubt, []judgement{absent}, true, planElsewhere},
		"absent, but free":                     {free, []judgement{absent}, false, planUnknown},
		"done":                                 {doubt, []judgement{recorded}, false, planAnswer},
		"done, free":                           {free, []judgement{recorded}, false, planAnswer},
		"done, abandoned":                      {busy, []judgement{recorded, void}, false, planAnswer},
		"done, and another provider's":         {doubt, []judgement{recorded}, true, planElsewhere},
		"nothing is left of it, free":          {free, []judgement{void}, false, planNothing},
		"nothing is left of it, and in doubt":  {doubt, []judgement{void}, false, planUnknown},
		"nothing here, in doubt at another's":  {doubt, nil, true, planElsewhere},
		"nothing is left of it, and abandoned": {busy, []judgement{void}, false, planNothing},
	} {
		in := intent{rec: onlyonce.Record{State: tt.state}, others: tt.others}
		for _, is := range tt.steps {
			in.verdicts = append(in.verdicts, verdict{is: is})
		}
		if got := in.plan(); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

// A finding is about the step that stands in the way.
func TestChief(t *testing.T) {
	t.Parallel()
	step := func(name string, is judgement) verdict {
		return verdict{is: is, step: onlyonce.StepRecord{Intent: onlyonce.Intent{Name: name, Reference: "r_" + name}}}
	}
	key := onlyonce.Key{Scope: "dev", Value: "k"}
	for want, verdicts := range map[string][]verdict{
		"r_a":           {step("a", recorded), step("b", void)},
		"r_b":           {step("a", recorded), step("b", open)},
		"r_c":           {step("a", void), step("c", applied), step("d", open)},
		key.Operation(): nil,
	} {
		in := intent{rec: onlyonce.Record{Key: key}, verdicts: verdicts}
		if got := in.chief().step.Reference; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Every kind is listed, so that a summary leaves none out.
func TestKinds(t *testing.T) {
	t.Parallel()
	seen := map[Kind]bool{}
	for _, k := range Kinds() {
		if seen[k] {
			t.Errorf("%s is listed twice", k)
		}
		seen[k] = true
	}
	for _, k := range []Kind{
		AmountDiffers, MissingHere, MissingThere, DuplicateRow, DuplicateEffect, UnknownCurrency, UnknownType, StillUnknown, Healable, Contradiction,
	} {
		if !seen[k] {
			t.Errorf("%s is not listed", k)
		}
	}
}
