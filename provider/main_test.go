package provider_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/provider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// entry is what a bank books, and what it is asked for.
type entry struct {
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
	Source    string `json:"source,omitempty"`
	Charge    string `json:"charge,omitempty"`
	Reference string `json:"reference"`
	ID        string `json:"id,omitempty"`
	Declined  string `json:"declined,omitempty"`
}

// bank is a payment service on loopback that follows a script: "" takes the
// money, "decline" books a decline, "refuse" says 422 and books nothing, "lose"
// books and answers 500, "drop" answers 500 and books nothing. A repeated key is
// answered with its first entry.
type bank struct {
	server *httptest.Server

	mu     sync.Mutex
	script []string
	asked  []string // path and key of each POST
	byKey  map[string]entry
	booked []entry
	looked int
}

func newBank(t *testing.T, script ...string) *bank {
	t.Helper()
	b := &bank{script: script, byKey: map[string]entry{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", b.book)
	mux.HandleFunc("POST /refunds", b.book)
	mux.HandleFunc("GET /{kind}", b.find)
	b.server = httptest.NewServer(mux)
	t.Cleanup(b.server.Close)
	return b
}

func (b *bank) book(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key, do := r.Header.Get("Idempotency-Key"), ""
	b.asked = append(b.asked, r.URL.Path+" "+key)
	if len(b.script) > 0 {
		do, b.script = b.script[0], b.script[1:]
	}
	var e entry
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil || do == "refuse" {
		http.Error(w, "no such currency", http.StatusUnprocessableEntity)
		return
	}
	if do == "drop" {
		http.Error(w, "try again", http.StatusInternalServerError)
		return
	}
	first, seen := b.byKey[key]
	if !seen {
		first = e
		first.ID = fmt.Sprintf("id_%d", len(b.booked)+1)
		if do == "decline" {
			first.Declined = "insufficient_funds"
		}
		b.byKey[key], b.booked = first, append(b.booked, first)
	}
	if do == "lose" {
		http.Error(w, "where was I", http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(first)
}

func (b *bank) find(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looked++
	for _, e := range b.booked {
		if e.Reference == r.URL.Query().Get("reference") {
			_ = json.NewEncoder(w).Encode(e)
			return
		}
	}
	http.NotFound(w, r)
}

// misbook changes what is booked: somebody else has written there.
func (b *bank) misbook(change func(*entry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.booked {
		change(&b.booked[i])
	}
}

// want checks how many entries there are and how often the bank was asked for one.
func (b *bank) want(t *testing.T, booked, asked int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.booked) != booked || len(b.asked) != asked {
		t.Errorf("%d booked of %d asked for, want %d of %d: %q", len(b.booked), len(b.asked), booked, asked, b.asked)
	}
}

// adapter is the Provider for a bank.
type adapter struct {
	traits provider.Traits
	url    string
	client *http.Client
}

var _ provider.Provider = (*adapter)(nil)

func (b *bank) adapter() *adapter {
	return &adapter{
		traits: provider.Traits{Name: "bank", Memory: time.Hour, Lookup: true, Visible: time.Minute},
		url:    b.server.URL, client: b.server.Client(),
	}
}

func (a *adapter) Traits() provider.Traits { return a.traits }

func (a *adapter) EncodeCharge(req provider.ChargeRequest) ([]byte, error) {
	if req.Amount <= 0 {
		return nil, errNoAmount
	}
	return json.Marshal(entry{Amount: req.Amount, Currency: req.Currency, Source: req.Source, Reference: req.Reference})
}

func (a *adapter) EncodeRefund(req provider.RefundRequest) ([]byte, error) {
	if req.Amount <= 0 {
		return nil, errNoAmount
	}
	return json.Marshal(entry{Amount: req.Amount, Currency: req.Currency, Charge: req.Charge, Reference: req.Reference})
}

var errNoAmount = errors.New("there is no amount")

func (a *adapter) Charge(ctx context.Context, s onlyonce.Sending) (provider.Outcome, error) {
	return a.send(ctx, "/charges", s)
}

func (a *adapter) Refund(ctx context.Context, s onlyonce.Sending) (provider.Outcome, error) {
	return a.send(ctx, "/refunds", s)
}

func (a *adapter) FindCharge(ctx context.Context, s onlyonce.Sending) (provider.Outcome, bool, error) {
	return a.find(ctx, "/charges", s)
}

func (a *adapter) FindRefund(ctx context.Context, s onlyonce.Sending) (provider.Outcome, bool, error) {
	return a.find(ctx, "/refunds", s)
}

func (a *adapter) send(ctx context.Context, path string, s onlyonce.Sending) (provider.Outcome, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, bytes.NewReader(s.Request))
	if err != nil {
		return provider.Outcome{}, err
	}
	req.Header.Set("Idempotency-Key", s.Key)
	req.GetBody = nil // net/http would send it again by itself
	status, body, err := a.do(req)
	if _, refused := errors.AsType[*net.OpError](err); refused {
		return provider.Outcome{}, onlyonce.NotAppliedError(err) // the tests' only one is that nobody listens
	}
	switch {
	case err != nil:
		return provider.Outcome{}, err
	case status == http.StatusUnprocessableEntity:
		return provider.Outcome{}, onlyonce.NotAppliedError(&provider.RefusedError{Code: "unprocessable", Message: "no such currency"})
	default:
		return outcome(status, body)
	}
}

func (a *adapter) find(ctx context.Context, path string, s onlyonce.Sending) (provider.Outcome, bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path+"?reference="+url.QueryEscape(s.Reference), http.NoBody)
	if err != nil {
		return provider.Outcome{}, false, err
	}
	status, body, err := a.do(req)
	if err != nil || status == http.StatusNotFound {
		return provider.Outcome{}, false, err
	}
	out, err := outcome(status, body)
	return out, err == nil, err
}

func (a *adapter) do(req *http.Request) (status int, body []byte, err error) {
	res, err := a.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, err
}

func outcome(status int, body []byte) (provider.Outcome, error) {
	var e entry
	if err := json.Unmarshal(body, &e); err != nil || status != http.StatusOK {
		return provider.Outcome{}, fmt.Errorf("the bank answered %d", status)
	}
	out := provider.Outcome{Status: provider.Succeeded, ID: e.ID, Amount: e.Amount, Currency: e.Currency}
	if e.Declined != "" {
		out.Status, out.Code, out.Message = provider.Declined, e.Declined, "the card has not got that much"
	}
	return out, nil
}

// shop runs operations under key k.
type shop struct {
	*onlyonce.Engine
	store *memstore.Store
}

func newShop(t *testing.T) *shop {
	t.Helper()
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := onlyonce.New(store, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close(context.WithoutCancel(t.Context())) })
	return &shop{engine, store}
}

// text is a request that is just a text.
type text string

func (t text) Version() int                                        { return 1 }
func (t text) Form(int, []byte) (onlyonce.Form, error)             { return t, nil }
func (t text) Sum() [32]byte                                       { return sha256.Sum256([]byte(t)) }
func (t text) Parts() []onlyonce.Part                              { return nil }
func (t text) Differs([]string, func(int, [32]byte) bool) []string { return nil }

// key is the one that all operations here run under.
func key() onlyonce.Key { return onlyonce.Key{Scope: "acct", Value: "k"} }

// pay runs an operation that ends with the outcome of fn: 201 for success, 402
// for a decline, 422 for a refusal. What IsNotApplied proves is declared.
func (s *shop) pay(t *testing.T, fn func(ctx context.Context) (provider.Outcome, error)) (onlyonce.Result, error) {
	t.Helper()
	return s.Steps(t.Context(), onlyonce.Op{Name: "POST /payments"}, onlyonce.Request{Key: key(), Canonical: text("x")}, func(ctx context.Context) (onlyonce.Answer, error) {
		out, err := fn(ctx)
		if onlyonce.IsNotApplied(err) {
			return onlyonce.Answer{Status: http.StatusServiceUnavailable, Body: []byte("nothing happened"), Outcome: onlyonce.NotApplied}, nil
		}
		if err != nil {
			return onlyonce.Answer{}, err
		}
		status := map[provider.Status]int{provider.Succeeded: 201, provider.Declined: 402, provider.Refused: 422}[out.Status]
		body, err := json.Marshal(out)
		return onlyonce.Answer{Status: status, Body: body}, err
	})
}

// charging charges 10.00 EUR.
func charging(p provider.Provider) func(ctx context.Context) (provider.Outcome, error) {
	return func(ctx context.Context) (provider.Outcome, error) {
		return provider.Charge(ctx, p, "charge", provider.ChargeRequest{Amount: 1000, Currency: "EUR", Source: "tok_1"})
	}
}

// refunding gives 4.00 EUR of it back.
func refunding(p provider.Provider) func(ctx context.Context) (provider.Outcome, error) {
	return func(ctx context.Context) (provider.Outcome, error) {
		return provider.Refund(ctx, p, "refund", provider.RefundRequest{Charge: "id_1", Amount: 400, Currency: "EUR"})
	}
}

// ends checks how an operation ended.
func ends(t *testing.T, res onlyonce.Result, err error, state onlyonce.State, status int) provider.Outcome {
	t.Helper()
	if err != nil || res.State != state || res.Answer.Status != status {
		t.Fatalf("got %s %d %s, %v, want %s %d", res.State, res.Answer.Status, res.Answer.Body, err, state, status)
	}
	var out provider.Outcome
	if status < 500 {
		if err := json.Unmarshal(res.Answer.Body, &out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// doubts checks that an operation ended in doubt, and gives the cause.
func doubts(t *testing.T, err error) *onlyonce.Error {
	t.Helper()
	e, ok := errors.AsType[*onlyonce.Error](err)
	if !ok || e.Code != onlyonce.CodeOutcomeUnknown {
		t.Fatalf("got %v, want doubt", err)
	}
	return e
}

func (s *shop) step(t *testing.T) onlyonce.StepRecord {
	t.Helper()
	steps, err := s.store.Steps(t.Context(), key())
	if err != nil || len(steps) != 1 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	return steps[0]
}
