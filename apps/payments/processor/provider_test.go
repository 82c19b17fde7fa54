package processor_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/oncecall"
	"github.com/onlyonce-go/onlyonce/provider"
)

// text is a request that is just a text.
type text string

func (t text) Version() int                                        { return 1 }
func (t text) Form(int, []byte) (onlyonce.Form, error)             { return t, nil }
func (t text) Sum() [32]byte                                       { return sha256.Sum256([]byte(t)) }
func (t text) Parts() []onlyonce.Part                              { return nil }
func (t text) Differs([]string, func(int, [32]byte) bool) []string { return nil }

// shop sells by an engine, over a processor whose requests are written down.
type shop struct {
	*onlyonce.Engine
	processor *processor.Server
	provider  provider.Provider
	ahead     atomic.Int64 // how far the store's clock is ahead

	mu    sync.Mutex
	posts []string // the keys of the requests that may have an effect
}

func newShop(t *testing.T, config processor.Config, promises provider.Traits) *shop {
	t.Helper()
	config.Hang = time.Nanosecond // silence without waiting
	b := setup(t, config)
	s := &shop{processor: b.server}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			s.mu.Lock()
			s.posts = append(s.posts, r.Header.Get("Idempotency-Key"))
			s.mu.Unlock()
		}
		b.server.ServeHTTP(w, r)
	}))
	s.provider = &processor.Provider{Client: newClient(t, front.URL), Promises: promises}
	mem, err := memstore.New(memstore.Config{SingleProcess: true, Now: func() time.Time {
		return time.Now().Add(time.Duration(s.ahead.Load()))
	}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Engine, err = onlyonce.New(mem, onlyonce.Config{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		front.Close()
	})
	return s
}

// sale is what a caller, and what the handler, learns from one attempt.
type sale struct {
	Outcome provider.Outcome
	State   onlyonce.State
	// Unknown and Nothing: what the step's error proves.
	Unknown, Nothing bool
	Status           onlyonce.Status
}

// attempt is one request of an operation of one step.
func (s *shop) attempt(t *testing.T, step func(ctx context.Context) (provider.Outcome, error)) sale {
	t.Helper()
	var got sale
	res, err := s.Steps(t.Context(), onlyonce.Op{Name: "POST /sales"}, onlyonce.Request{
		Key: onlyonce.Key{Scope: "acct", Value: "k"}, Canonical: text("x"),
	}, func(ctx context.Context) (onlyonce.Answer, error) {
		out, err := step(ctx)
		if err != nil {
			got.Unknown, got.Nothing = errors.Is(err, onlyonce.ErrOutcomeUnknown), onlyonce.IsNotApplied(err)
			return onlyonce.Answer{}, err
		}
		body, err := json.Marshal(out)
		return onlyonce.Answer{Status: http.StatusCreated, Body: body}, err
	})
	got.State, got.Status = res.State, res.Status
	if err == nil {
		err = json.Unmarshal(res.Answer.Body, &got.Outcome)
	}
	if err != nil && !got.Unknown && !got.Nothing {
		t.Errorf("attempt: %v", err)
	}
	return got
}

// charge is an attempt that charges the source.
func (s *shop) charge(t *testing.T, source string) sale {
	t.Helper()
	return s.attempt(t, func(ctx context.Context) (provider.Outcome, error) {
		return provider.Charge(ctx, s.provider, "charge", provider.ChargeRequest{
			Amount: 1500, Currency: "EUR", Source: source, Metadata: map[string]string{"a": "b"},
		})
	})
}

// sent is how the requests were sent: "a" is the first key, "b" another, "-" none.
func (s *shop) sent() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]string{"": "-"}
	var sent strings.Builder
	for _, key := range s.posts {
		if names[key] == "" {
			names[key] = string(rune('a' + len(names) - 1))
		}
		sent.WriteString(names[key])
	}
	return sent.String()
}

func (s *shop) want(t *testing.T, charges int, sent string) {
	t.Helper()
	st := s.processor.Stats()
	if st.Charges != charges || len(st.DuplicateCharges) != 0 || s.sent() != sent {
		t.Errorf("%d charges, duplicates %v, sent %q; want %d and %q", st.Charges, st.DuplicateCharges, s.sent(), charges, sent)
	}
}

// The kinds of provider that a processor can be, and what they promise.
type kindOfProvider struct {
	config   processor.Config
	promises provider.Traits
}

func kinds() map[string]kindOfProvider {
	return map[string]kindOfProvider{
		"keys and look-up": {processor.Config{}, provider.Traits{Memory: 23 * time.Hour, Lookup: true, Visible: time.Second}},
		"keys":             {processor.Config{NoLookup: true}, provider.Traits{Memory: 23 * time.Hour}},
		"look-up":          {processor.Config{IgnoreKeys: true}, provider.Traits{Lookup: true, Visible: time.Second}},
		"neither":          {processor.Config{IgnoreKeys: true, NoLookup: true}, provider.Traits{}},
	}
}

// What is final at once: one request, one answer, the same for a retry.
func TestProviderCharges(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds() {
		key := "a"
		if kind.promises.Memory == 0 {
			key = "-"
		}
		for source, want := range map[string]provider.Outcome{
			"tok_visa":           {Status: provider.Succeeded, Amount: 1500, Currency: "EUR"},
			"tok_chargeDeclined": {Status: provider.Declined, Amount: 1500, Currency: "EUR", Code: "card_declined", Message: "the card was declined"},
			"tok_bitcoin":        {Status: provider.Refused, Code: "unknown_source", Message: "there is no such source"},
		} {
			t.Run(name+"/"+source, func(t *testing.T) {
				t.Parallel()
				s := newShop(t, kind.config, kind.promises)
				first := s.charge(t, source)
				if (first.Outcome.ID == "") != (want.Status == provider.Refused) {
					t.Errorf("the id is %q", first.Outcome.ID)
				}
				want.ID = first.Outcome.ID
				if diff := cmp.Diff(sale{Outcome: want, State: onlyonce.Completed, Status: onlyonce.Executed}, first); diff != "" {
					t.Errorf("first attempt (-want +got):\n%s", diff)
				}
				if second := s.charge(t, source); second.Status != onlyonce.Replayed || second.Outcome != first.Outcome {
					t.Errorf("second attempt: %+v", second)
				}
				charges := 0
				if want.Status == provider.Succeeded {
					charges = 1
				}
				s.want(t, charges, key)
			})
		}
	}
}

// faultCase is what comes of a fault with each kind of provider: how each attempt
// ends ("?" unknown, "0" proof of nothing, "+" charged), what was sent in all and
// how many charges there are. Before attempt "|" an hour passes.
type faultCase struct{ ends, sent string }

// D3, D4: a fault hides what happened, or that nothing did; the next attempt asks,
// or sends the same again where the key is honoured, or leaves it in doubt. Nobody
// is charged twice.
func TestProviderFaults(t *testing.T) {
	t.Parallel()
	for kind, faults := range map[string]map[string]faultCase{
		"keys and look-up": {
			"error_after": {"?+", "a"}, "gateway_timeout_after": {"?+", "a"}, "reset_after": {"?+", "a"}, "timeout": {"?+", "a"},
			"error_before": {"?+", "aa"}, "in_progress": {"?+", "aa"},
			"error_before_always": {"??|?", "aab"}, // not found an hour later is proof
			"rate_limited":        {"0+", "ab"},
		},
		"keys": {
			"error_after": {"?+", "aa"}, "gateway_timeout_after": {"?+", "aa"}, "reset_after": {"?+", "aa"}, "timeout": {"?+", "aa"},
			"error_before": {"?+", "aa"}, "in_progress": {"?+", "aa"},
			"error_before_always": {"??|?||||||||||||||||||||||?", "aaa"}, // and not past its memory
			"rate_limited":        {"0+", "ab"},
		},
		"look-up": {
			"error_after": {"?+", "-"}, "gateway_timeout_after": {"?+", "-"}, "reset_after": {"?+", "-"}, "timeout": {"?+", "-"},
			"error_before": {"??|+", "--"}, "in_progress": {"??|+", "--"},
			"error_before_always": {"??|?", "--"},
			"rate_limited":        {"0+", "--"},
		},
		"neither": {
			"error_after": {"??|?", "-"}, "gateway_timeout_after": {"??|?", "-"}, "reset_after": {"??|?", "-"}, "timeout": {"??|?", "-"},
			"error_before": {"??|?", "-"}, "in_progress": {"??|?", "-"},
			"error_before_always": {"??|?", "-"},
			"rate_limited":        {"0+", "--"},
		},
	} {
		for _, fault := range processor.Faults() {
			t.Run(kind+"/"+fault, func(t *testing.T) {
				t.Parallel()
				tt, ok := faults[fault]
				if !ok {
					t.Fatal("the fault has no test")
				}
				k := kinds()[kind]
				s := newShop(t, k.config, k.promises)
				for i, end := range tt.ends {
					if end == '|' {
						s.ahead.Add(int64(time.Hour))
						continue
					}
					got := s.charge(t, "tok_"+fault)
					want := map[rune]sale{
						'?': {State: onlyonce.InDoubt, Status: onlyonce.Executed, Unknown: true},
						'0': {State: onlyonce.FailedRetryable, Status: onlyonce.Executed, Nothing: true},
						'+': {State: onlyonce.Completed, Status: onlyonce.Executed, Outcome: provider.Outcome{
							ID: got.Outcome.ID, Status: provider.Succeeded, Amount: 1500, Currency: "EUR",
						}},
					}[end]
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("attempt %d (-want +got):\n%s", i+1, diff)
					}
				}
				charges := 1
				if strings.Contains(fault, "before_always") || (!strings.Contains(tt.ends, "+") && !strings.Contains(fault, "_after") && fault != "timeout") {
					charges = 0
				}
				s.want(t, charges, tt.sent)
			})
		}
	}
}

// D5: past the time that the processor remembers keys nothing is sent again: there
// the same key would be a second charge.
func TestProviderForgets(t *testing.T) {
	t.Parallel()
	s := newShop(t, processor.Config{KeyMemory: time.Minute, NoLookup: true}, provider.Traits{Memory: time.Minute})
	for range 3 {
		if got := s.charge(t, "tok_timeout"); !got.Unknown {
			t.Errorf("attempt: %+v", got)
		}
		s.ahead.Add(int64(time.Minute))
	}
	s.want(t, 1, "a")
}

// simulating is a provider whose refunds commit a fault.
type simulating struct {
	*processor.Provider
	fault string
}

func (p simulating) EncodeRefund(req provider.RefundRequest) ([]byte, error) {
	return processor.RefundRequest{Charge: req.Charge, Amount: req.Amount, Reference: req.Reference, Simulate: p.fault}.Encode(), nil
}

// D3, D4: refunds likewise.
func TestProviderRefunds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault   string
		amount  int64
		unknown bool // at first
		want    provider.Outcome
	}{
		"at once":                {amount: 1500, want: provider.Outcome{Status: provider.Succeeded, Amount: 1500, Currency: "EUR"}},
		"found later":            {amount: 1, fault: "timeout", unknown: true, want: provider.Outcome{Status: provider.Succeeded, Amount: 1, Currency: "EUR"}},
		"sent again":             {amount: 1, fault: "error_before", unknown: true, want: provider.Outcome{Status: provider.Succeeded, Amount: 1, Currency: "EUR"}},
		"more than was taken":    {amount: 1501, want: provider.Outcome{Status: provider.Refused, Code: "refund_exceeds_charge", Message: "0 of 1500 are refunded already"}},
		"not one cent":           {amount: 0, want: provider.Outcome{Status: provider.Refused, Code: "invalid_request", Message: "amount must be above 0"}},
		"a fault there is not":   {amount: 1, fault: "explode", want: provider.Outcome{Status: provider.Refused, Code: "unknown_fault", Message: "simulate names no fault"}},
		"of a declined charge":   {amount: 2, want: provider.Outcome{Status: provider.Refused, Code: "charge_not_refundable", Message: "the charge was declined"}},
		"of a charge of nowhere": {amount: 3, want: provider.Outcome{Status: provider.Refused, Code: "unknown_charge", Message: "there is no such charge"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, processor.Config{}, provider.Traits{Memory: time.Hour, Lookup: true, Visible: time.Second})
			p := simulating{s.provider.(*processor.Provider), tt.fault}
			id, source := "pc_none", "tok_visa"
			if tt.want.Code == "charge_not_refundable" {
				source = "tok_chargeDeclined"
			}
			paid, err := p.Client.Charge(t.Context(), "key-1", processor.ChargeRequest{Amount: 1500, Currency: "EUR", Source: source}.Encode())
			if err != nil {
				t.Fatal(err)
			}
			if tt.want.Code != "unknown_charge" {
				id = paid.ID
			}
			attempt := func() sale {
				return s.attempt(t, func(ctx context.Context) (provider.Outcome, error) {
					return provider.Refund(ctx, p, "refund", provider.RefundRequest{Charge: id, Amount: tt.amount, Currency: "EUR"})
				})
			}
			got := attempt()
			if got.Unknown != tt.unknown {
				t.Errorf("first attempt: %+v", got)
			}
			if tt.unknown {
				got = attempt()
			}
			tt.want.ID = got.Outcome.ID
			if diff := cmp.Diff(sale{Outcome: tt.want, State: onlyonce.Completed, Status: onlyonce.Executed}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			refunds := 0
			if tt.want.Status == provider.Succeeded {
				refunds = 1
			}
			if st := s.processor.Stats(); st.Refunds != refunds || len(st.DuplicateRefunds) != 0 {
				t.Errorf("%d refunds, duplicates %v; want %d", st.Refunds, st.DuplicateRefunds, refunds)
			}
		})
	}
}

// D3: what each refusal proves, and whose fault it is.
func TestProviderProof(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status         int
		body           string
		proved, refuse bool
	}{
		"unknown source":        {400, `{"code":"unknown_source"}`, true, true},
		"senseless":             {400, `{"code":"invalid_request"}`, true, true},
		"no key":                {400, `{"code":"idempotency_key_required"}`, true, false},
		"without a word":        {400, ``, true, false},
		"no access":             {401, `{}`, true, false},
		"forbidden":             {403, `{"code":"account_blocked"}`, true, false},
		"unknown charge":        {422, `{"code":"unknown_charge"}`, true, true},
		"too many requests":     {429, `{"code":"rate_limited"}`, true, false},
		"a final code, on 500":  {500, `{"code":"unknown_source"}`, false, false},
		"in progress":           {409, `{"code":"in_progress"}`, false, false},
		"bad gateway":           {502, `<html>`, false, false},
		"created that says no":  {201, `{}`, false, false},
		"declined that says no": {402, `{}`, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			t.Cleanup(server.Close)
			p := &processor.Provider{Client: newClient(t, server.URL)}
			sending := onlyonce.Sending{Key: "key-1", Request: []byte("{}")}
			for _, send := range []func(context.Context, onlyonce.Sending) (provider.Outcome, error){p.Charge, p.Refund} {
				_, err := send(t.Context(), sending)
				_, refused := errors.AsType[*provider.RefusedError](err)
				_, own := errors.AsType[*processor.Error](err)
				if err == nil || onlyonce.IsNotApplied(err) != tt.proved || refused != tt.refuse || !own {
					t.Errorf("%v; proved %t, refused %t", err, !tt.proved, refused)
				}
			}
			if _, found, err := p.FindCharge(t.Context(), onlyonce.Sending{Reference: "oo_1"}); found || err == nil {
				t.Errorf("FindCharge: %t, %v", found, err)
			}
			if _, found, err := p.FindRefund(t.Context(), onlyonce.Sending{Reference: "oo_1"}); found || err == nil {
				t.Errorf("FindRefund: %t, %v", found, err)
			}
		})
	}
}

// D3: a processor that is not there took nothing on, and the key is free.
func TestProviderIsNotThere(t *testing.T) {
	t.Parallel()
	s := newShop(t, processor.Config{}, provider.Traits{Memory: time.Hour, Lookup: true})
	s.provider.(*processor.Provider).Client.BaseURL = unusedAddress(t)
	if got := s.charge(t, "tok_visa"); !got.Nothing || got.State != onlyonce.FailedRetryable {
		t.Errorf("%+v", got)
	}
}

// D1, B108: in an operation the client's own words on keys do not count: another
// key is refused, and a charge outside of Effect.Send is.
func TestClientInAnOperation(t *testing.T) {
	t.Parallel()
	s := newShop(t, processor.Config{KeysOptional: true}, provider.Traits{})
	client := s.provider.(*processor.Provider).Client
	body := charge("tok_visa", "order-1").Encode()
	got := s.attempt(t, func(ctx context.Context) (provider.Outcome, error) {
		for _, key := range []string{"", "made-up"} {
			_, err := client.Charge(ctx, key, body)
			if !errors.Is(err, oncecall.ErrWithoutKey) || processor.FateOf(err) != processor.NotSent {
				t.Errorf("outside of Send, key %q: %v", key, err)
			}
		}
		if _, _, err := client.FindCharge(ctx, "order-1"); err != nil {
			t.Errorf("a look-up needs no key: %v", err)
		}
		_, err := onlyonce.Call(ctx, onlyonce.Effect{
			Name: "charge", Provider: "processor", Request: body,
			Send: func(ctx context.Context, _ onlyonce.Sending) ([]byte, error) {
				_, err := client.Charge(ctx, "made-up", body)
				if !errors.Is(err, oncecall.ErrOtherKey) || processor.FateOf(err) != processor.NotSent {
					t.Errorf("another key: %v", err)
				}
				c, err := client.Charge(ctx, "", body)
				if err != nil || c.Replayed {
					t.Errorf("no key: %+v, %v", c, err)
				}
				return nil, err
			},
		})
		return provider.Outcome{}, err
	})
	if got.State != onlyonce.Completed {
		t.Errorf("%+v", got)
	}
	s.want(t, 1, "-")
}

// Equal requests give equal bytes; what would be sent as another text is not.
func TestProviderEncodes(t *testing.T) {
	t.Parallel()
	var p provider.Provider = &processor.Provider{}
	if got := p.Traits(); got != (provider.Traits{Name: "processor"}) {
		t.Errorf("a provider that promises nothing: %+v", got)
	}
	body, err := p.EncodeCharge(provider.ChargeRequest{
		Amount: 1500, Currency: "EUR", Source: "tok_visa", Reference: "oo_1", Description: "a book", Metadata: map[string]string{"b": "1", "a": "2"},
	})
	want := `{"amount":1500,"currency":"EUR","source":"tok_visa","reference":"oo_1","metadata":{"a":"2","b":"1"}}`
	if err != nil || string(body) != want {
		t.Errorf("charge: %s, %v", body, err)
	}
	body, err = p.EncodeRefund(provider.RefundRequest{Charge: "pc_1", Amount: 5, Currency: "EUR", Reference: "oo_1"})
	if want := `{"charge":"pc_1","amount":5,"reference":"oo_1"}`; err != nil || string(body) != want {
		t.Errorf("refund: %s, %v", body, err)
	}
	for _, req := range []provider.ChargeRequest{
		{Currency: "\xff"},
		{Source: "\xff"},
		{Reference: "\xff"},
		{Metadata: map[string]string{"\xff": ""}},
		{Metadata: map[string]string{"a": "\xff"}},
	} {
		if body, err := p.EncodeCharge(req); err == nil {
			t.Errorf("%+v was encoded: %s", req, body)
		}
	}
	for _, req := range []provider.RefundRequest{{Charge: "\xff"}, {Reference: "\xff"}} {
		if body, err := p.EncodeRefund(req); err == nil {
			t.Errorf("%+v was encoded: %s", req, body)
		}
	}
}

// An oncecall.Transport of the caller's is used as it is: it says whether keys are
// sent in Effect.Send. Without an HTTP client there is net/http's default one.
func TestClientOverGivenTransport(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		over *oncecall.Transport
		sent string
	}{
		"keyed":   {&oncecall.Transport{Base: &http.Transport{}}, "a"},
		"keyless": {&oncecall.Transport{Base: &http.Transport{}, Keyless: true}, "-"},
		"default": {nil, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, processor.Config{KeysOptional: true}, provider.Traits{})
			client := s.provider.(*processor.Provider).Client
			client.HTTP = nil
			idle := http.DefaultClient
			if tt.over != nil {
				client.HTTP = oncecall.NewClient(tt.over)
				idle = client.HTTP
			}
			if got := s.charge(t, "tok_visa"); got.Outcome.Status != provider.Succeeded {
				t.Errorf("%+v", got)
			}
			idle.CloseIdleConnections()
			s.want(t, 1, tt.sent)
		})
	}
}
