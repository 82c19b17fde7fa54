package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/provider"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childStore); url != "" {
		if err := child(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	apptest.Exit(testserver.Run(m))
}

// effect is something a provider has done.
type effect struct {
	typ, id, reference, charge, currency string
	amount                               int64
	at                                   time.Time
}

// line is how its report says it.
func (e effect) line() string {
	return fmt.Sprintf("%s,%s,%s,%s,%d,%s,%s\n", e.typ, e.id, e.reference, e.charge, e.amount, e.currency, e.at.UTC().Format(time.RFC3339Nano))
}

const header = "type,id,reference,charge,amount,currency,created_at\n"

// bank is a provider that can neither be asked nor sends again: what it does not
// answer stays in doubt.
type bank struct {
	mu      sync.Mutex
	effects []effect
	sends   int
	// mood, where it is set, is asked instead of the source: timeout, lost,
	// declined or nothing.
	mood func() string
	// shift is how long ago everything was done.
	shift time.Duration
}

func (b *bank) Traits() provider.Traits { return provider.Traits{Name: "processor"} }

func (b *bank) EncodeCharge(r provider.ChargeRequest) ([]byte, error) {
	return processor.ChargeRequest{Amount: r.Amount, Currency: "ARS", Source: r.Source, Reference: r.Reference}.Encode(), nil
}

func (b *bank) EncodeRefund(r provider.RefundRequest) ([]byte, error) {
	return processor.RefundRequest{Charge: r.Charge, Amount: r.Amount, Reference: r.Reference}.Encode(), nil
}

func (b *bank) FindCharge(context.Context, onlyonce.Sending) (provider.Outcome, bool, error) {
	return provider.Outcome{}, false, errors.New("it cannot be asked")
}

func (b *bank) FindRefund(context.Context, onlyonce.Sending) (provider.Outcome, bool, error) {
	return provider.Outcome{}, false, errors.New("it cannot be asked")
}

// Charge obeys the source: tok_timeout is charged and not answered, tok_lost
// neither.
func (b *bank) Charge(_ context.Context, s onlyonce.Sending) (provider.Outcome, error) {
	r, err := processor.DecodeChargeRequest(s.Request)
	if err != nil {
		return provider.Outcome{}, err
	}
	if b.mood != nil {
		r.Source = "tok_" + b.mood()
	}
	if r.Source == "tok_chargeDeclined" {
		return provider.Outcome{Status: provider.Declined, ID: b.do(effect{}), Amount: r.Amount, Currency: "ARS", Code: "card_declined"}, nil
	}
	return b.answer(r.Source, effect{typ: "charge", reference: r.Reference, amount: r.Amount, currency: "ARS"})
}

// Refund obeys the amount: refunds of 13 are made and not answered.
func (b *bank) Refund(_ context.Context, s onlyonce.Sending) (provider.Outcome, error) {
	r, err := processor.DecodeRefundRequest(s.Request)
	if err != nil {
		return provider.Outcome{}, err
	}
	source := ""
	switch {
	case b.mood != nil:
		source = "tok_" + b.mood()
	case r.Amount == 13:
		source = "tok_timeout"
	}
	return b.answer(source, effect{typ: "refund", reference: r.Reference, charge: r.Charge, amount: r.Amount, currency: "ARS"})
}

func (b *bank) answer(source string, e effect) (provider.Outcome, error) {
	if source == "tok_lost" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.sends++
		return provider.Outcome{}, errors.New("no answer")
	}
	id := b.do(e)
	if source == "tok_timeout" {
		return provider.Outcome{}, errors.New("no answer")
	}
	return provider.Outcome{Status: provider.Succeeded, ID: id, Amount: e.amount, Currency: e.currency}, nil
}

// do has an effect, and gives it a name. A zero one is only named.
func (b *bank) do(e effect) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sends++
	e.id, e.at = fmt.Sprintf("pc_%03d", b.sends), time.Now()
	if e.typ != "" {
		b.effects = append(b.effects, e)
	}
	return e.id
}

// report is what it has done.
func (b *bank) report() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var text strings.Builder
	text.WriteString(header)
	for _, e := range b.effects {
		e.at = e.at.Add(-b.shift)
		text.WriteString(e.line())
	}
	return text.String()
}

// bundle is a service with its bank.
type bundle struct {
	db      *db.Database
	bank    *bank
	service *payments.Service
}

func setup(t *testing.T, url string) *bundle {
	t.Helper()
	b := &bundle{bank: &bank{}}
	var err error
	if b.db, err = db.Open(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.db.Close(); err != nil {
			t.Error(err)
		}
	})
	b.service, err = payments.New(t.Context(), payments.Config{DB: b.db, Provider: b.bank})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.service.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return b
}

// post sends a request under a key, and checks the status of its answer.
func (b *bundle) post(t *testing.T, path, key, body string, status int) string {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	rec := httptest.NewRecorder()
	b.service.ServeHTTP(rec, r)
	if rec.Code != status {
		t.Fatalf("%s %s: %d %s, want %d", path, key, rec.Code, rec.Body, status)
	}
	return rec.Body.String()
}

func (b *bundle) charge(t *testing.T, key, source string, amount, status int) string {
	t.Helper()
	return b.post(t, "/charges", key, fmt.Sprintf(`{"amount":%d,"currency":"ARS","source":%q}`, amount, source), status)
}

// member is a member of a JSON object.
func member(t *testing.T, body, name string) string {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(v[name])
}

// config is a run over a report, as an operator would start it.
func (b *bundle) config(text string) reconcile.Config {
	f, err := report.Named(report.FormatProcessor)
	if err != nil {
		panic(err)
	}
	return reconcile.Config{
		DB: b.db, Report: strings.NewReader(text), File: "report.csv", Format: f, Provider: reconcile.Processor(), Actor: "ana",
		Visible: time.Nanosecond, Engine: b.service.Engine(), Recover: b.service.Recover,
	}
}

// run reconciles, and must not fail.
func (b *bundle) run(t *testing.T, cfg reconcile.Config) reconcile.Result {
	t.Helper()
	res, err := reconcile.Run(t.Context(), cfg)
	if err != nil {
		t.Fatalf("reconcile: %v", err)
	}
	if n := b.count(t, "payments_report_rows"); n != 0 {
		t.Errorf("%d rows are still staged", n)
	}
	return res
}

// heal is run, settling what is proved.
func (b *bundle) heal(t *testing.T, text string) reconcile.Result {
	t.Helper()
	cfg := b.config(text)
	cfg.Heal = true
	return b.run(t, cfg)
}

func (b *bundle) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if err := b.db.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	}); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (b *bundle) count(t *testing.T, table string) (n int) {
	t.Helper()
	if err := b.db.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
		return tx.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&n)
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// book writes a charge into the books, behind the service's back.
func (b *bundle) book(t *testing.T, id string, amount int64, status string, at time.Time) {
	t.Helper()
	decline := any(nil)
	if status != "succeeded" {
		decline = "card_declined"
	}
	b.exec(t, `INSERT INTO payments_charges
		(id, merchant, operation, amount, currency, source, description, metadata, status, decline_code, processor_id, created_us)
		VALUES (?, 'dev', ?, ?, 'ARS', 'tok_visa', '', '{}', ?, ?, ?, ?)`,
		"ch_"+id, "op_"+id, amount, status, decline, id, at.UnixMicro())
}

// open are the open findings, as lines.
func (b *bundle) open(t *testing.T) []string {
	t.Helper()
	var lines []string
	if err := reconcile.ListOpen(t.Context(), b.db, func(f reconcile.Finding) error {
		lines = append(lines, fmt.Sprintf("%s %s %s %s|%s|%s", f.Kind, f.Type, f.ProviderID, f.Reference, f.Ours, f.Theirs))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines
}

// findings are all of a run.
func (b *bundle) findings(t *testing.T, run int64) []reconcile.Finding {
	t.Helper()
	var list []reconcile.Finding
	if err := reconcile.ListRun(t.Context(), b.db, run, func(f reconcile.Finding) error {
		list = append(list, f)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

// state is where a key stands.
func (b *bundle) state(t *testing.T, key string) onlyonce.State {
	t.Helper()
	rec, _, err := b.db.Keys().Get(t.Context(), dev(key))
	if err != nil {
		t.Fatal(err)
	}
	return rec.State
}

func dev(value string) onlyonce.Key { return onlyonce.Key{Scope: payments.DevMerchant, Value: value} }

// reference is ours for the effect of a key.
func reference(key, step string) string {
	return onlyonce.Derivation{Key: dev(key), Step: step, Provider: "processor"}.Reference()
}

func same(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// both is a test on one of the databases, and what it works on.
type both struct {
	t *testing.T
	b *bundle
}

// onBoth runs a test on both databases.
func onBoth(t *testing.T, test func(on both)) {
	t.Helper()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(both{t, setup(t, open(t))})
		})
	}
}

// onSQLite runs a test whose statements others run on both.
func onSQLite(t *testing.T, test func(on both)) {
	t.Helper()
	test(both{t, setup(t, apptest.SQLite(t))})
}

// checkLedger makes sure that all entries sum to zero, and what the merchant has.
func (b *bundle) checkLedger(t *testing.T, has int64) {
	t.Helper()
	var sum, merchant int64
	if err := b.db.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
		return tx.QueryRow(ctx, `SELECT CAST(coalesce(sum(amount), 0) AS BIGINT),
			CAST(coalesce(sum(CASE WHEN account = 'merchant' THEN -amount ELSE 0 END), 0) AS BIGINT) FROM payments_entries`).Scan(&sum, &merchant)
	}); err != nil {
		t.Fatal(err)
	}
	if sum != 0 || merchant != has {
		t.Errorf("the ledger sums to %d, and the merchant has %d, want %d", sum, merchant, has)
	}
}
