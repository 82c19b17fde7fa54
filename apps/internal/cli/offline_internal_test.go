package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/stripeproc"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/provider"
)

// unheard is a provider that takes everything and never answers: what it was sent
// is made by a real adapter.
type unheard struct{ provider.Provider }

func (unheard) Charge(context.Context, onlyonce.Sending) (provider.Outcome, error) {
	return provider.Outcome{}, errors.New("no answer")
}

// books is a store in which the charges of keys have left, and are in doubt.
type books struct {
	store string
	dir   string
}

func stripeBooks(t *testing.T, cfg stripeproc.Config, keys ...string) books {
	t.Helper()
	b := books{apptest.SQLite(t), t.TempDir()}
	cfg.Key = "sk_test_1"
	stripe, err := stripeproc.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.with(t, func(d *db.Database) error {
		s, err := payments.New(t.Context(), payments.Config{DB: d, Provider: unheard{stripe}})
		if err != nil {
			return err
		}
		for _, key := range keys {
			path, body := "/charges", `{"amount":1500,"currency":"ARS","source":"cus_1/pm_card_visa","description":"tea"}`
			if strings.HasPrefix(key, "checkout") {
				path, body = "/checkout", `{"lines":[{"product":"prod_mate","quantity":1}],"source":"cus_1/pm_card_visa"}`
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", key)
			w := httptest.NewRecorder()
			if s.ServeHTTP(w, r); w.Code != http.StatusConflict {
				t.Errorf("%s: %d %s", key, w.Code, w.Body)
			}
		}
		return s.Close(t.Context())
	})
	return b
}

// with works on the store directly.
func (b books) with(t *testing.T, fn func(d *db.Database) error) {
	t.Helper()
	d, err := db.Open(t.Context(), b.store)
	if err == nil {
		err = errors.Join(fn(d), d.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// exec changes the store behind everybody's back.
func (b books) exec(t *testing.T, statement string) {
	t.Helper()
	b.with(t, func(d *db.Database) error {
		return d.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
			_, err := tx.Exec(ctx, statement)
			return err
		})
	})
}

// settle gives the charge of a key an end.
func (b books) settle(t *testing.T, key string, more ...string) (out, errs string, code int) {
	t.Helper()
	file := filepath.Join(b.dir, key+".json")
	result := fmt.Sprintf(`{"step":"charge","result":{"status":"succeeded","id":"pi_%s"}}`, key)
	if err := os.WriteFile(file, []byte(result), 0o600); err != nil {
		t.Fatal(err)
	}
	return run(t, append([]string{"keys", "settle", key, "--scope", "dev", "--store", b.store, "--actor", "ana", "--reason", "asked", "--applied", file}, more...)...)
}

func (b books) show(t *testing.T, key string) detailView {
	t.Helper()
	out, errs, code := run(t, "keys", "show", key, "--scope", "dev", "--store", b.store, "--json")
	var v detailView
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitDone {
		t.Fatalf("show %s: %d %s, %v", key, code, errs, err)
	}
	return v
}

// What Stripe's adapter has recorded is recognised where Stripe is not called: the
// handler makes answer and books of it, whatever the account is called and whether
// its customers are there. (X2, X3)
func TestSettleStripe(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]stripeproc.Config{
		"stripe": {}, "another account": {Name: "stripe_eu"}, "off session": {OffSession: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := stripeBooks(t, cfg, "k1", "checkout1")
			for _, key := range []string{"k1", "checkout1"} {
				out, errs, code := b.settle(t, key)
				if code != exitDone || errs != "" || !strings.Contains(out, "is completed with status 201") {
					t.Errorf("%s: %d %s %s", key, code, out, errs)
				}
			}
		})
	}
}

// The same by Stripe's report.
func TestReconcileStripeHeals(t *testing.T) { // X2
	t.Parallel()
	b := stripeBooks(t, stripeproc.Config{}, "k1")
	reference := b.show(t, "k1").Steps[0].Reference
	text := "balance_transaction_id,created_utc,currency,gross,reporting_category,source_id,payment_intent_id,payment_metadata[onlyonce_reference],refund_metadata[onlyonce_reference]\n" +
		fmt.Sprintf("txn_1,%s,ars,15.00,charge,ch_1,pi_1,%s,\n", time.Now().UTC().Format(time.DateTime), reference)
	file := filepath.Join(b.dir, "report.csv")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := run(t, "reconcile", "--report", file, "--format", "stripe", "--heal", "--store", b.store, "--actor", "ana")
	if code != exitDone || !strings.Contains(out, "healed 1") || !strings.Contains(out, "completed, with status 201") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// An offline provider proves nothing: what it is asked to send may have been sent
// by somebody else.
func TestOfflineProvesNothing(t *testing.T) { // D3
	t.Parallel()
	for _, request := range []string{`{"amount":1}`, "amount=1&currency=ars"} {
		p, err := offlineFor([]onlyonce.StepRecord{{
			Intent: onlyonce.Intent{Name: "charge", Provider: "acct", Request: []byte(request)}, State: onlyonce.StepBegun,
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Traits(); got != (provider.Traits{Name: "acct"}) {
			t.Errorf("it promises %+v", got)
		}
		_, charged := p.Charge(t.Context(), onlyonce.Sending{})
		_, refunded := p.Refund(t.Context(), onlyonce.Sending{})
		_, _, found := p.FindCharge(t.Context(), onlyonce.Sending{})
		_, _, looked := p.FindRefund(t.Context(), onlyonce.Sending{})
		for _, err := range []error{charged, refunded, found, looked} {
			if err == nil || onlyonce.IsNotApplied(err) {
				t.Errorf("it says %v", err)
			}
		}
	}
	_, err := offlineFor([]onlyonce.StepRecord{{Intent: onlyonce.Intent{Name: "charge", Provider: "acct", Request: []byte("%zz")}, State: onlyonce.StepDone}})
	if onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("bytes of no adapter: %v", err)
	}
	if _, err := (nowhere{}).RoundTrip(nil); err == nil {
		t.Error("something leaves")
	}
}

// A settlement whose answer cannot be made yet is one all the same: it is said, with
// what to do next, and not to be given again. (X3)
func TestSettledWithoutAnswer(t *testing.T) {
	t.Parallel()
	b := stripeBooks(t, stripeproc.Config{}, "k1", "k2")
	b.exec(t, "ALTER TABLE payments_transfers RENAME TO payments_broken")
	out, errs, code := b.settle(t, "k1")
	if code != exitDone || !strings.Contains(out, "is failed_retryable\nsettled; the answer is still to be made: ") || !strings.Contains(out, "keys recover") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	out, errs, code = b.settle(t, "k2", "--json")
	if code != exitDone || !json.Valid([]byte(out)) || !strings.Contains(errs, "settled; the answer is still to be made: ") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	b.exec(t, "ALTER TABLE payments_broken RENAME TO payments_transfers")
	recover := []string{"keys", "recover", "k1", "--scope", "dev", "--store", b.store}
	if out, errs, code := run(t, append(recover, "--processor", "http://127.0.0.1:1")...); code != exitUsage || !strings.Contains(errs, "step charge has asked stripe") {
		t.Errorf("by another provider: %d %s %s", code, out, errs)
	}
	if out, errs, code := run(t, recover...); code != exitDone || !strings.Contains(out, "is completed with status 201") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// Where the handler finds that a person is needed, the outcome is unknown.
func TestSettledAndUnknown(t *testing.T) {
	t.Parallel()
	b := stripeBooks(t, stripeproc.Config{}, "checkout1")
	b.exec(t, "UPDATE payments_orders SET status = 'cancelled', checkout_key = NULL")
	out, errs, code := b.settle(t, "checkout1")
	if code != exitUnknown || !strings.Contains(out, "is in_doubt") || !strings.Contains(out, "settled; the answer is still to be made: ") {
		t.Errorf("%d %s %s", code, out, errs)
	}
}

// A checkout whose answer was given by hand keeps its stock: that is said.
func TestShowReservation(t *testing.T) {
	t.Parallel()
	b := stripeBooks(t, stripeproc.Config{}, "checkout1", "k1")
	answer := filepath.Join(b.dir, "answer.json")
	if err := os.WriteFile(answer, []byte(`{"status":402,"body":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int{"checkout1": 2, "k1": 0} {
		out, errs, code := run(t, "keys", "settle", key, "--scope", "dev", "--store", b.store, "--actor", "ana", "--reason", "asked", "--applied", answer, "--answer-only")
		if code != exitDone {
			t.Errorf("%s: %d %s %s", key, code, out, errs)
		}
		next := b.show(t, key).Next
		if len(next) != want || (want > 0 && !strings.Contains(next[0], "is pending and keeps its stock")) {
			t.Errorf("%s: %q", key, next)
		}
	}
}
