package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// sqlite tells which of the two databases it is.
func (b *bundle) sqlite(t *testing.T) bool {
	t.Helper()
	err := b.db.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
		var version string
		return tx.QueryRow(ctx, "SELECT sqlite_version()").Scan(&version)
	})
	return err == nil
}

// age makes all keys and steps older, as if they had been left alone for so long.
func (b *bundle) age(t *testing.T, d time.Duration) {
	t.Helper()
	us := d.Microseconds()
	if b.sqlite(t) {
		b.exec(t, "UPDATE onlyonce_keys SET created_us = created_us - ?, lease_end_us = lease_end_us - ?", us, us)
		b.exec(t, "UPDATE onlyonce_steps SET begun_us = begun_us - ?, sent_us = sent_us - ?", us, us)
		return
	}
	b.exec(t, "UPDATE onlyonce_keys SET created_at = created_at - ? * interval '1 microsecond', lease_end = lease_end - ? * interval '1 microsecond'", us, us)
	b.exec(t, "UPDATE onlyonce_steps SET begun_at = begun_at - ? * interval '1 microsecond', sent_at = sent_at - ? * interval '1 microsecond'", us, us)
}

// abandon makes attempts of keys in doubt, as if their process had died, with
// leases that end so long from now.
func (b *bundle) abandon(t *testing.T, lease time.Duration) {
	t.Helper()
	us := lease.Microseconds()
	if b.sqlite(t) {
		b.exec(t, `UPDATE onlyonce_keys SET state = 'in_progress', reason = '',
			lease_end_us = CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) + ? WHERE state = 'in_doubt'`, us)
		return
	}
	b.exec(t, `UPDATE onlyonce_keys SET state = 1, doubt = false, reason = '',
		lease_end = clock_timestamp() + ? * interval '1 microsecond' WHERE state = 4`, us)
}

// audit are the entries of a key, as lines.
func (b *bundle) audit(t *testing.T, key string) (lines []string) {
	t.Helper()
	entries, err := b.db.Keys().Audit(t.Context(), dev(key))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		lines = append(lines, e.Actor+" "+e.Action+": "+e.Reason)
	}
	return lines
}

// A charge that was made and never answered: the key is completed with the right
// answer, once, and its retry gets that.
func TestHealCharge(t *testing.T) { // X2 X3
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_timeout", 1500, 409)
		b.charge(t, "c2", "tok_visa", 200, 201)
		ref := reference("c1", "charge")
		text := b.bank.report()

		// It says what it would do, and does nothing.
		res := b.run(t, b.config(text))
		same(t, b.open(t), []string{"healable charge  " + ref + "|key in_doubt, step begun|15.00 ARS"})
		if !res.Found() || res.Healed != 0 || b.state(t, "c1") != onlyonce.InDoubt || b.audit(t, "c1") != nil {
			t.Errorf("%+v, %s", res, b.state(t, "c1"))
		}

		res = b.heal(t, text)
		if res.Found() || res.Healed != 1 || res.Matched["charge"] != 2 {
			t.Errorf("%+v", res)
		}
		healed := b.findings(t, res.Run)[0]
		if healed.Status != reconcile.Healed || healed.Runs != 2 || !strings.Contains(healed.Detail, "completed, with status 201") || healed.ClosedBy != "run 2 of ana" {
			t.Errorf("%+v", healed)
		}
		first := b.charge(t, "c1", "tok_timeout", 1500, 201)
		if again := b.charge(t, "c1", "tok_timeout", 1500, 201); again != first || member(t, first, "status") != "succeeded" {
			t.Errorf("%s, then %s", first, again)
		}
		if b.bank.sends != 2 {
			t.Errorf("%d requests were sent", b.bank.sends)
		}
		b.checkLedger(t, 1700)
		audit := b.audit(t, "c1")
		if len(audit) != 1 || !strings.Contains(audit[0], "ana settle step result: run 2 of ana: report report.csv, sha256 "+res.SHA256+", line 2 shows pc_001, 15.00 ARS") {
			t.Errorf("%q", audit)
		}
		if res := b.heal(t, text); res.Found() || res.Healed != 0 || res.Matched["charge"] != 2 {
			t.Errorf("%+v", res)
		}
	})
}

// The same for a refund, an order and an attempt whose process has died.
func TestHealOthers(t *testing.T) { // X2
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		id := member(t, b.charge(t, "c1", "tok_visa", 1500, 201), "id")
		refund := fmt.Sprintf(`{"charge":%q,"amount":13}`, id)
		b.post(t, "/refunds", "r1", refund, 409)
		b.charge(t, "c2", "tok_timeout", 300, 409)

		b.abandon(t, time.Hour) // under way, as far as anybody knows
		res := b.heal(t, b.bank.report())
		if res.Found() || res.Healed != 0 || res.InProgress != 2 || len(b.findings(t, res.Run)) != 0 {
			t.Errorf("%+v", res)
		}
		b.age(t, 2*time.Hour) // nobody has heard of them since
		if res := b.heal(t, b.bank.report()); res.Found() || res.Healed != 2 || res.Matched["refund"] != 1 {
			t.Errorf("%+v", res)
		}
		if got := member(t, b.post(t, "/refunds", "r1", refund, 201), "status"); got != "succeeded" {
			t.Errorf("the refund is %s", got)
		}
		b.charge(t, "c2", "tok_timeout", 300, 201)
		b.checkLedger(t, 1787)
	})
}

// Money moved, its step is done, and writing it down failed: the handler goes on
// from there, whether the report has it or not.
func TestHealUnanswered(t *testing.T) { // X2
	t.Parallel()
	onSQLite(t, func(on both) {
		t, b := on.t, on.b
		b.exec(t, "ALTER TABLE payments_transfers RENAME TO payments_broken")
		b.charge(t, "c1", "tok_visa", 1500, 500)
		b.exec(t, "ALTER TABLE payments_broken RENAME TO payments_transfers")
		if b.state(t, "c1") != onlyonce.FailedRetryable {
			t.Fatalf("the key is %s", b.state(t, "c1"))
		}
		res := b.run(t, b.config(b.bank.report()))
		same(t, res.Breaks, map[reconcile.Kind]int64{reconcile.Healable: 1})
		if res := b.heal(t, header); res.Found() || res.Healed != 1 {
			t.Errorf("%+v", res)
		}
		if res := b.run(t, b.config(b.bank.report())); res.Found() || res.Matched["charge"] != 1 {
			t.Errorf("%+v", res)
		}
		b.checkLedger(t, 1500)
	})
}

// What does not fit is never healed.
func TestNotHealed(t *testing.T) { // X2
	t.Parallel()
	onSQLite(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_timeout", 1500, 409)
		ref := reference("c1", "charge")
		now := time.Now().UTC().Format(time.RFC3339)
		line := func(id, amount, currency string) string {
			return "charge," + id + "," + ref + ",," + amount + "," + currency + "," + now + "\n"
		}
		for name, tt := range map[string]struct {
			text, want string
			also       string
		}{
			"another amount":   {line("pc_001", "1501", "ARS"), "amount_differs charge pc_001 " + ref + "|key in_doubt, step begun|15.01 ARS", ""},
			"another currency": {line("pc_001", "1500", "EUR"), "amount_differs charge pc_001 " + ref + "|key in_doubt, step begun|15.00 EUR", ""},
			"no currency":      {line("pc_001", "1500", "XXX"), "still_unknown charge  " + ref + "|key in_doubt, step begun|1500 XXX", "a currency that is none"},
			"twice":            {line("pc_001", "1500", "ARS") + line("pc_002", "1500", "ARS"), "duplicate_effect charge  " + ref + "||pc_001 and pc_002", "more than once, in lines 2 and 3"},
			"the same twice":   {line("pc_001", "1500", "ARS") + line("pc_001", "1500", "ARS"), "duplicate_row charge pc_001 " + ref + "||2 rows", "more than once, in lines 2 and 3"},
			"a refund":         {strings.Replace(line("pc_001", "1500", "ARS"), "charge", "refund", 1), "missing_here refund pc_001 " + ref + "||15.00 ARS", "does not have it"},
			"nothing":          {"", "still_unknown charge  " + ref + "|key in_doubt, step begun|", "--complete-until"},
		} {
			b.exec(t, "DELETE FROM payments_findings")
			res := b.heal(t, header+tt.text)
			open := strings.Join(b.open(t), "\n")
			detail := ""
			for _, f := range b.findings(t, res.Run) {
				if f.Kind == reconcile.StillUnknown {
					detail = f.Detail
				}
			}
			if !strings.Contains(open, tt.want) || !strings.Contains(detail, tt.also) || res.Healed != 0 {
				t.Errorf("%s: %s: %s; want %s: %s", name, open, detail, tt.want, tt.also)
			}
			if b.state(t, "c1") != onlyonce.InDoubt || b.audit(t, "c1") != nil {
				t.Fatalf("%s: the key is %s", name, b.state(t, "c1"))
			}
		}
	})
}

// That the report does not have it is proof if it is whole over all the time in
// which it may have been sent; then the key is free, and its retry charges once.
func TestHealNotApplied(t *testing.T) { // X2 X3 D4
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_lost", 1500, 409)
		b.age(t, time.Hour)
		now := time.Now()
		row := effect{typ: "charge", id: "pc_x", reference: "r_x", amount: 1500, currency: "ARS", at: now.Add(-3 * time.Hour)}
		whole := func(change func(*reconcile.Config)) reconcile.Config {
			cfg := b.config(header + row.line())
			cfg.Heal, cfg.Visible = true, time.Minute
			cfg.From, cfg.CompleteUntil = now.Add(-2*time.Hour), now.Add(-10*time.Minute)
			change(&cfg)
			return cfg
		}
		unnamed := row
		unnamed.reference = ""
		for name, tt := range map[string]struct {
			change func(*reconcile.Config)
			why    string
		}{
			"nobody says until when": {func(c *reconcile.Config) { c.CompleteUntil = time.Time{} }, "nobody says from when until when it is complete"},
			"sent before it begins":  {func(c *reconcile.Config) { c.From = now.Add(-time.Hour + 30*time.Second) }, "before the report begins"},
			"sent when it ends":      {func(c *reconcile.Config) { c.CompleteUntil = now.Add(-time.Hour) }, "may have been sent until"},
			"reported later":         {func(c *reconcile.Config) { c.Visible = 50 * time.Minute }, "may have been sent until"},
			"nobody says from when":  {func(c *reconcile.Config) { c.From = time.Time{} }, "nobody says from when until when it is complete"},
			"a row could be it":      {func(c *reconcile.Config) { c.Report = strings.NewReader(header + unnamed.line()) }, "line 2 has no reference, and could be it"},
			"the references are not there": {func(c *reconcile.Config) {
				c.Report = strings.NewReader(strings.ReplaceAll(header, "reference", "note") + row.line())
			}, "no column with our references"},
		} {
			res := b.run(t, whole(tt.change))
			detail := ""
			for _, f := range b.findings(t, res.Run) {
				if f.Kind == reconcile.StillUnknown {
					detail = f.Detail
				}
			}
			if !strings.Contains(detail, tt.why) || b.state(t, "c1") != onlyonce.InDoubt {
				t.Fatalf("%s: %s, the key is %s; want %q", name, detail, b.state(t, "c1"), tt.why)
			}
		}
		res := b.run(t, whole(func(c *reconcile.Config) { c.Heal = false }))
		if res.Breaks[reconcile.Healable] != 1 || res.Breaks[reconcile.StillUnknown] != 0 || b.state(t, "c1") != onlyonce.InDoubt {
			t.Errorf("%+v", res)
		}
		res = b.run(t, whole(func(*reconcile.Config) {}))
		if res.Healed != 1 || b.state(t, "c1") != onlyonce.FailedRetryable {
			t.Errorf("%+v, the key is %s", res, b.state(t, "c1"))
		}
		audit := b.audit(t, "c1")
		if len(audit) != 1 || !strings.Contains(audit[0], "ana settle not applied: run ") || !strings.Contains(audit[0], "is complete from") {
			t.Errorf("%q", audit)
		}
		b.charge(t, "c1", "tok_lost", 1500, 409) // the retry sends again, under a new derived key
		steps, err := b.db.Keys().Steps(t.Context(), dev("c1"))
		if err != nil || len(steps) != 1 || steps[0].Epoch != 1 || b.bank.sends != 2 {
			t.Errorf("%+v, %v", steps, err)
		}
	})
}

// An operator's word about the future is none.
func TestCompleteUntilTheFuture(t *testing.T) {
	t.Parallel()
	b := setup(t, "sqlite:"+t.TempDir()+"/test.db")
	cfg := b.config(header)
	cfg.CompleteUntil = time.Now().Add(time.Hour)
	if _, err := reconcile.Run(t.Context(), cfg); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("it gives %v", err)
	}
}

// claimed lets something happen just before a key is claimed.
type claimed struct {
	db.Keys
	before func()
}

func (c claimed) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	if req.Resolve {
		c.before()
	}
	return c.Keys.Claim(ctx, req)
}

// meanwhile is a run whose engine is overtaken just before it claims a key.
func (b *bundle) meanwhile(t *testing.T, cfg reconcile.Config, before func()) reconcile.Result {
	t.Helper()
	keys := b.db.WithKeys(func(k db.Keys) db.Keys { return claimed{k, before} }).Keys()
	engine, err := onlyonce.New(keys, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Engine = engine
	res := b.run(t, cfg)
	if err := engine.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return res
}

// sendAgain is what a retry leaves that has sent a second time.
func (b *bundle) sendAgain(t *testing.T) {
	t.Helper()
	if b.sqlite(t) {
		b.exec(t, "UPDATE onlyonce_steps SET sends = sends + 1, sent_us = sent_us + 3600000000")
		return
	}
	b.exec(t, "UPDATE onlyonce_steps SET sends = sends + 1, sent_at = sent_at + interval '1 hour'")
}

// Between the judgement and the settlement somebody sends again: what was absent
// may be on its way now, and nothing is settled, also when that attempt has crashed.
func TestSentMeanwhile(t *testing.T) { // X2 D4
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_lost", 1500, 409)
		b.age(t, time.Hour)
		now := time.Now()
		cfg := b.config(header)
		cfg.Heal, cfg.From, cfg.CompleteUntil = true, now.Add(-5*time.Hour), now.Add(-10*time.Minute)
		for name, before := range map[string]func(){
			"sent again": func() { b.sendAgain(t) },
			"crashed": func() {
				b.abandon(t, -time.Minute)
				b.sendAgain(t)
			},
		} {
			cfg.Report = strings.NewReader(header)
			res := b.meanwhile(t, cfg, before)
			if res.Healed != 0 || res.InProgress != 1 || b.state(t, "c1") != onlyonce.InDoubt || b.audit(t, "c1") != nil {
				t.Errorf("%s: %+v, the key is %s, %v", name, res, b.state(t, "c1"), b.audit(t, "c1"))
			}
			b.age(t, time.Hour)
		}
		// And settled meanwhile, by somebody else.
		cfg.Report = strings.NewReader(header)
		res := b.meanwhile(t, cfg, func() {
			_, err := b.service.Engine().Settle(t.Context(), onlyonce.Settlement{Key: dev("c1"), Actor: "bob", Reason: "asked them"})
			if err != nil {
				t.Error(err)
			}
		})
		if res.Healed != 0 || res.InProgress != 1 || b.state(t, "c1") != onlyonce.FailedRetryable || len(b.audit(t, "c1")) != 1 {
			t.Errorf("%+v, the key is %s, %v", res, b.state(t, "c1"), b.audit(t, "c1"))
		}
	})
}

// An attempt that crashed with an unfinished step, after the key was looked at, is
// settled by what its step was, and never given back as if it had not run.
func TestCrashedMeanwhile(t *testing.T) { // X2 D4
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_timeout", 1500, 409)
		cfg := b.config(b.bank.report())
		cfg.Heal = true
		if res := b.meanwhile(t, cfg, func() { b.abandon(t, -time.Minute) }); res.Found() || res.Healed != 1 {
			t.Errorf("%+v", res)
		}
		b.charge(t, "c1", "tok_timeout", 1500, 201)
		b.checkLedger(t, 1500)
	})
}

// Whatever contradicts what was settled or answered is an alarm, in every run, and
// is never healed.
func TestContradictions(t *testing.T) { // X2
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		engine := b.service.Engine()
		settle := func(key string, applied *onlyonce.Answer) {
			t.Helper()
			if _, err := engine.Settle(t.Context(), onlyonce.Settlement{Key: dev(key), Actor: "bob", Reason: "a guess", Applied: applied}); err != nil {
				t.Fatal(err)
			}
		}
		for _, key := range []string{"not_applied", "refused", "by_hand"} {
			b.charge(t, key, "tok_timeout", 1500, 409)
		}
		settle("not_applied", nil)
		settle("refused", &onlyonce.Answer{Status: 402, Body: []byte(`{}`)})
		settle("by_hand", &onlyonce.Answer{Status: 201, Body: []byte(`{}`)})
		b.charge(t, "declined", "tok_chargeDeclined", 1500, 402)
		b.charge(t, "other", "tok_visa", 1500, 201)
		text := strings.ReplaceAll(b.bank.report(), "pc_005", "pc_other") +
			effect{typ: "charge", id: "pc_100", reference: reference("declined", "charge"), amount: 1500, currency: "ARS", at: time.Now()}.line()
		want := []string{
			"contradiction charge pc_001 " + reference("not_applied", "charge") + "|key failed_retryable, step not_applied|15.00 ARS",
			"contradiction charge pc_002 " + reference("refused", "charge") + "|answered with 402|15.00 ARS",
		}
		for range 2 {
			res := b.heal(t, text)
			if res.Healed != 0 || res.Breaks[reconcile.Contradiction] != 4 || res.Breaks[reconcile.MissingHere] != 1 {
				t.Errorf("%+v", res)
			}
			open := strings.Join(b.open(t), "\n")
			for _, w := range want {
				if !strings.Contains(open, w) {
					t.Errorf("%s\nis not in\n%s", w, open)
				}
			}
		}
		for _, f := range b.findings(t, 2) {
			if f.Runs != 2 || f.Operation == "" || f.Merchant != "dev" {
				t.Errorf("%+v", f)
			}
		}
		if b.state(t, "not_applied") != onlyonce.FailedRetryable {
			t.Errorf("the key is %s", b.state(t, "not_applied"))
		}
	})
}

// A key whose request was not kept: what is proved is recorded, and its caller's
// retry is answered of it.
func TestHealWithoutRequest(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_timeout", 1500, 409)
		cfg := b.config(b.bank.report())
		cfg.Heal = true
		cfg.Recover = func(context.Context, onlyonce.Key) (onlyonce.Result, error) {
			return onlyonce.Result{}, fmt.Errorf("recover: %w", &onlyonce.Error{Code: onlyonce.CodeNotFound})
		}
		res := b.run(t, cfg)
		if res.Healed != 0 || res.Breaks[reconcile.Healable] != 1 || res.Uncertain != 0 || b.state(t, "c1") != onlyonce.FailedRetryable {
			t.Errorf("%+v", res)
		}
		if f := b.findings(t, res.Run)[0]; !strings.Contains(f.Detail, "the retry of its caller") {
			t.Errorf("%+v", f)
		}
		b.charge(t, "c1", "tok_timeout", 1500, 201)
		if res := b.run(t, b.config(b.bank.report())); res.Found() || res.Resolved != 1 {
			t.Errorf("%+v", res)
		}
		b.checkLedger(t, 1500)
	})
}

// A store that fails while a key is settled leaves it open what was written: that
// is said, and the next run goes on.
func TestHealUncertain(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_timeout", 1500, 409)
		cfg := b.config(b.bank.report())
		cfg.Heal = true
		cfg.Recover = func(context.Context, onlyonce.Key) (onlyonce.Result, error) {
			return onlyonce.Result{}, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Err: errors.New("gone")}
		}
		if res := b.run(t, cfg); res.Uncertain != 1 || res.Healed != 0 || res.Breaks[reconcile.Healable] != 1 {
			t.Errorf("%+v", res)
		}
		if res := b.heal(t, b.bank.report()); res.Found() || res.Healed != 1 {
			t.Errorf("%+v", res)
		}
	})
}

// A running service that is faster is waited for.
func TestHealBesideService(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_timeout", 1500, 409)
		cfg := b.config(b.bank.report())
		cfg.Heal = true
		done := make(chan error, 1)
		cfg.Recover = func(ctx context.Context, key onlyonce.Key) (onlyonce.Result, error) {
			go func() {
				_, err := b.service.Recover(context.WithoutCancel(ctx), key)
				done <- err
			}()
			return onlyonce.Result{}, &onlyonce.Error{Code: onlyonce.CodeInProgress}
		}
		if res := b.run(t, cfg); res.Found() || res.Healed != 1 {
			t.Errorf("%+v", res)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Keys that have asked another provider are not this report's to settle; one in
// doubt that has asked nobody has nothing out, and is free again.
func TestOtherProviders(t *testing.T) {
	t.Parallel()
	onSQLite(t, func(on both) {
		t, b := on.t, on.b
		b.charge(t, "c1", "tok_lost", 1500, 409)
		b.charge(t, "c2", "tok_lost", 1500, 409)
		b.exec(t, "UPDATE onlyonce_steps SET provider = 'other' WHERE reference = ?", reference("c1", "charge"))
		b.exec(t, "DELETE FROM onlyonce_steps WHERE reference = ?", reference("c2", "charge"))
		b.age(t, time.Hour)
		cfg := b.config(header)
		cfg.Heal, cfg.From, cfg.CompleteUntil = true, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Minute)
		res := b.run(t, cfg)
		same(t, b.open(t), []string(nil))
		if res.Others != 1 || res.Healed != 1 || b.state(t, "c1") != onlyonce.InDoubt || b.state(t, "c2") != onlyonce.FailedRetryable {
			t.Errorf("%+v", res)
		}
		if audit := b.audit(t, "c2"); len(audit) != 1 || !strings.Contains(audit[0], "none leaves before it is recorded") {
			t.Errorf("%q", audit)
		}
	})
}
