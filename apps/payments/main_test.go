package payments_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/oncecall"
	"github.com/onlyonce-go/onlyonce/provider"
)

func TestMain(m *testing.M) { apptest.Exit(testserver.Run(m)) }

// options are what a test changes of a service.
type options struct {
	config    payments.Config
	processor processor.Config
	promises  *provider.Traits // of the processor; nil: all that it keeps
	timeout   time.Duration    // of calls of the processor
}

// bundle is a service behind a real socket, with its processor behind another.
type bundle struct {
	url       string
	remoteURL string // of the processor
	db        *db.Database
	service   *payments.Service
	processor *processor.Server
	log       *bytes.Buffer
	client    *http.Client
	// fault, while it is set, is what happens to requests on their way to the
	// processor instead of reaching it.
	fault atomic.Pointer[http.HandlerFunc]
}

// lose cuts requests off before they reach the processor.
func (b *bundle) lose() {
	f := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	b.fault.Store(&f)
}

// loseAnswers lets requests reach the processor, and cuts its answers off.
func (b *bundle) loseAnswers() {
	f := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b.processor.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})
	b.fault.Store(&f)
}

// mend ends lose and loseAnswers.
func (b *bundle) mend() { b.fault.Store(nil) }

// remote is the way to the processor.
func (b *bundle) remote(w http.ResponseWriter, r *http.Request) {
	if f := b.fault.Load(); f != nil {
		(*f)(w, r)
		return
	}
	b.processor.ServeHTTP(w, r)
}

func setup(t *testing.T, store string, o options) *bundle {
	t.Helper()
	b := &bundle{log: &bytes.Buffer{}, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	t.Cleanup(b.client.CloseIdleConnections)
	var err error
	if b.processor, err = processor.NewServer(o.processor); err != nil {
		t.Fatal(err)
	}
	remote := httptest.NewServer(http.HandlerFunc(b.remote))
	t.Cleanup(func() {
		_ = b.processor.Close()
		remote.Close()
	})
	if b.db, err = db.Open(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.db.Close(); err != nil {
			t.Error(err)
		}
	})
	b.remoteURL = remote.URL
	b.serve(t, o)
	return b
}

// remoteAt is the processor at a URL, as a service calls it.
func (o options) remoteAt(t *testing.T, url string) provider.Provider {
	t.Helper()
	transport := &oncecall.Transport{Base: &http.Transport{MaxIdleConnsPerHost: 64}}
	t.Cleanup(transport.CloseIdleConnections)
	promises := provider.Traits{Name: "processor", Memory: 23 * time.Hour, Lookup: true}
	if o.promises != nil {
		promises = *o.promises
		promises.Name, transport.Keyless = "processor", promises.Memory == 0
	}
	client := &processor.Client{BaseURL: url, Timeout: o.timeout, HTTP: oncecall.NewClient(transport)}
	return &processor.Provider{Client: client, Promises: promises}
}

func (b *bundle) serve(t *testing.T, o options) {
	t.Helper()
	cfg := o.config
	cfg.DB = b.db
	cfg.Provider = o.remoteAt(t, b.remoteURL)
	cfg.Logger = slog.New(slog.NewTextHandler(&lockedWriter{w: b.log, turn: make(chan struct{}, 1)}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if b.service, err = payments.New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	api := httptest.NewServer(b.service)
	b.url = api.URL
	t.Cleanup(func() {
		api.Close()
		if err := b.service.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}

type lockedWriter struct {
	w    io.Writer
	turn chan struct{}
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	return l.w.Write(p)
}

// reply is what a client gets.
type reply struct {
	status int
	header http.Header
	body   string
}

// call makes one request. headers are pairs of name and value.
func (b *bundle) call(t *testing.T, method, path, body string, headers ...string) reply {
	t.Helper()
	r, err := b.try(t.Context(), method, path, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

func (b *bundle) try(ctx context.Context, method, path, body string, headers ...string) (reply, error) {
	r, err := http.NewRequestWithContext(ctx, method, b.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := b.client.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(text)}, err
}

// post sends a body under a key.
func (b *bundle) post(t *testing.T, path, key, body string) reply {
	t.Helper()
	return b.call(t, http.MethodPost, path, body, "Idempotency-Key", key)
}

func (b *bundle) get(t *testing.T, path string) reply {
	t.Helper()
	return b.call(t, http.MethodGet, path, "")
}

// want checks the status and, if there is one, the problem's code.
func (r reply) want(t *testing.T, status int, code string) reply {
	t.Helper()
	var p struct {
		Error string `json:"error"`
	}
	_ = json.Unmarshal([]byte(r.body), &p)
	if r.status != status || p.Error != code {
		t.Fatalf("got %d %q: %s; want %d %q", r.status, p.Error, r.body, status, code)
	}
	return r
}

func (r reply) replayed() bool { return r.header.Get("Idempotent-Replayed") == "true" }

// member reads a member of a JSON object by its path.
func (r reply) member(t *testing.T, path ...string) any {
	t.Helper()
	var v any
	dec := json.NewDecoder(strings.NewReader(r.body))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	for _, name := range path {
		object, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("there is no %v in %s", path, r.body)
		}
		v = object[name]
	}
	return v
}

func (r reply) text(t *testing.T, path ...string) string {
	t.Helper()
	return fmt.Sprint(r.member(t, path...))
}

// chargeBody is a request for a charge.
func chargeBody(amount int, source string) string {
	return fmt.Sprintf(`{"amount":%d,"currency":"ARS","source":%q}`, amount, source)
}

// charged makes a charge and returns its id.
func (b *bundle) charged(t *testing.T, key string, amount int) string {
	t.Helper()
	return b.post(t, "/charges", key, chargeBody(amount, "tok_visa")).want(t, http.StatusCreated, "").text(t, "id")
}

// exec runs a statement behind the service's back.
func (b *bundle) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if err := b.db.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	}); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// breakFinish makes the transactions fail that write what the processor has
// done, until mended is called.
func (b *bundle) breakFinish(t *testing.T) (mended func()) {
	t.Helper()
	b.exec(t, "ALTER TABLE payments_transfers RENAME TO payments_broken")
	return func() { b.exec(t, "ALTER TABLE payments_broken RENAME TO payments_transfers") }
}

// ordered makes the order o1 and returns the request that pays it.
func (b *bundle) ordered(t *testing.T) string {
	t.Helper()
	b.call(t, http.MethodPut, "/orders/o1", orderBody("prod_mate", 1)).want(t, 201, "")
	return payBody("o1", "tok_visa", 1500)
}

// dev is a key of the merchant that tests act for.
func dev(value string) onlyonce.Key { return onlyonce.Key{Scope: payments.DevMerchant, Value: value} }

// settle is an operator's word on a key in doubt: the results of its steps, or
// that nothing happened.
func (b *bundle) settle(t *testing.T, key string, results ...onlyonce.StepResult) {
	t.Helper()
	_, err := b.service.Engine().Settle(t.Context(), onlyonce.Settlement{
		Key: dev(key), Actor: "op", Reason: "asked the processor", Results: results,
	})
	if err != nil {
		t.Fatal(err)
	}
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

// available is what the merchant has in ARS.
func (b *bundle) available(t *testing.T) string {
	t.Helper()
	r := b.get(t, "/balance").want(t, http.StatusOK, "")
	var v struct {
		Data []struct {
			Currency  string
			Available json.Number
			LedgerSum json.Number `json:"ledger_sum"`
		}
	}
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatal(err)
	}
	for _, balance := range v.Data {
		if balance.LedgerSum != "0" {
			t.Errorf("the ledger does not sum to zero: %s", r.body)
		}
		if balance.Currency == "ARS" {
			return balance.Available.String()
		}
	}
	return "0"
}

// once checks that the processor did nothing twice.
func (b *bundle) once(t *testing.T, charges, refunds int) {
	t.Helper()
	s := b.processor.Stats()
	if s.Charges != charges || s.Refunds != refunds || len(s.DuplicateCharges)+len(s.DuplicateRefunds) > 0 {
		t.Errorf("the processor has %d charges and %d refunds, duplicates %v %v; want %d and %d",
			s.Charges, s.Refunds, s.DuplicateCharges, s.DuplicateRefunds, charges, refunds)
	}
}
