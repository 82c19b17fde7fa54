package stripeproc_test

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/form"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/stripeproc"
	"github.com/onlyonce-go/onlyonce/provider"
)

func newProvider(t *testing.T, cfg stripeproc.Config) *stripeproc.Provider {
	t.Helper()
	cfg.Key = testKey
	p, err := stripeproc.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func fullCharge() provider.ChargeRequest {
	return provider.ChargeRequest{
		Amount: 1234, Currency: "EUR", Source: "cus_9/pm_1", Reference: "oo_1", Description: "order 7 & more",
		Metadata: map[string]string{"order": "7", "shop": "Zürich", "a": "b"},
	}
}

// D2: the recorded bytes are compared when a step is resumed, so they may never
// change: equal requests give these.
func TestEncode(t *testing.T) {
	t.Parallel()
	p := newProvider(t, stripeproc.Config{})
	want := "amount=1234&confirm=true&currency=eur&customer=cus_9&description=order+7+%26+more&error_on_requires_action=true" +
		"&metadata%5Ba%5D=b&metadata%5Bonlyonce_reference%5D=oo_1&metadata%5Border%5D=7&metadata%5Bshop%5D=Z%C3%BCrich" +
		"&payment_method=pm_1&payment_method_types%5B0%5D=card"
	for range 20 { // maps have no order
		got, err := p.EncodeCharge(fullCharge())
		if err != nil || string(got) != want {
			t.Fatalf("got %s, %v", got, err)
		}
	}
	got, err := newProvider(t, stripeproc.Config{OffSession: true}).EncodeCharge(provider.ChargeRequest{Amount: 50, Currency: "USD", Source: "pm_1", Reference: "oo_1"})
	if want := "amount=50&confirm=true&currency=usd&metadata%5Bonlyonce_reference%5D=oo_1&off_session=true&payment_method=pm_1&payment_method_types%5B0%5D=card"; err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
	got, err = p.EncodeRefund(provider.RefundRequest{Charge: "pi_1", Amount: 5, Currency: "EUR", Reference: "oo_2"})
	if want := "amount=5&metadata%5Bonlyonce_reference%5D=oo_2&payment_intent=pi_1"; err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
}

// The fields are those of stripe-go's own types, so of the API version it pins.
func TestEncodeAsStripeGo(t *testing.T) {
	t.Parallel()
	p := newProvider(t, stripeproc.Config{})
	charge, err := p.EncodeCharge(fullCharge())
	refund, err2 := p.EncodeRefund(provider.RefundRequest{Charge: "pi_1", Amount: 5, Currency: "EUR", Reference: "oo_2"})
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ours   []byte
		params any
	}{
		{charge, &stripe.PaymentIntentCreateParams{
			Amount: stripe.Int64(1234), Currency: stripe.String("eur"), Confirm: new(true), ErrorOnRequiresAction: new(true),
			PaymentMethodTypes: []*string{stripe.String("card")}, PaymentMethod: stripe.String("pm_1"), Customer: stripe.String("cus_9"),
			Description: stripe.String("order 7 & more"),
			Metadata:    map[string]string{"order": "7", "shop": "Zürich", "a": "b", stripeproc.ReferenceKey: "oo_1"},
		}},
		{refund, &stripe.RefundCreateParams{
			Amount: stripe.Int64(5), PaymentIntent: stripe.String("pi_1"), Metadata: map[string]string{stripeproc.ReferenceKey: "oo_2"},
		}},
	} {
		values := &form.Values{}
		form.AppendTo(values, c.params)
		theirs, err := url.ParseQuery(values.Encode())
		if err != nil {
			t.Fatal(err)
		}
		got, err := url.ParseQuery(string(c.ours))
		if diff := cmp.Diff(theirs, got); diff != "" || err != nil {
			t.Errorf("%v, other than stripe-go's:\n%s", err, diff)
		}
	}
}

// What Stripe could not be asked is refused before anything is recorded.
func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	p := newProvider(t, stripeproc.Config{})
	many := map[string]string{}
	for i := range 50 {
		many[fmt.Sprint(i)] = "x"
	}
	for name, change := range map[string]func(r *provider.ChargeRequest){
		"not positive":               func(r *provider.ChargeRequest) { r.Amount = 0 },
		"negative":                   func(r *provider.ChargeRequest) { r.Amount = -5 },
		"lower case":                 func(r *provider.ChargeRequest) { r.Currency = "eur" },
		"no currency":                func(r *provider.ChargeRequest) { r.Currency = "" },
		"not a currency":             func(r *provider.ChargeRequest) { r.Currency = "EÜR" },
		"of unknown unit":            func(r *provider.ChargeRequest) { r.Currency = "IQD" },
		"no source":                  func(r *provider.ChargeRequest) { r.Source = "" },
		"half a source":              func(r *provider.ChargeRequest) { r.Source = "cus_1/" },
		"the other half":             func(r *provider.ChargeRequest) { r.Source = "/pm_1" },
		"no reference":               func(r *provider.ChargeRequest) { r.Reference = "" },
		"a query for a reference":    func(r *provider.ChargeRequest) { r.Reference = "a' OR 'b" },
		"too long a reference":       func(r *provider.ChargeRequest) { r.Reference = strings.Repeat("a", 501) },
		"our own metadata":           func(r *provider.ChargeRequest) { r.Metadata = map[string]string{stripeproc.ReferenceKey: "x"} },
		"brackets in a key":          func(r *provider.ChargeRequest) { r.Metadata = map[string]string{"a[b]": "x"} },
		"an empty key":               func(r *provider.ChargeRequest) { r.Metadata = map[string]string{"": "x"} },
		"too long a key":             func(r *provider.ChargeRequest) { r.Metadata = map[string]string{strings.Repeat("ü", 41): "x"} },
		"too long a value":           func(r *provider.ChargeRequest) { r.Metadata = map[string]string{"a": strings.Repeat("ü", 501)} },
		"more metadata than is kept": func(r *provider.ChargeRequest) { r.Metadata = many },
	} {
		req := fullCharge()
		change(&req)
		body, err := p.EncodeCharge(req)
		if onlyonce.CodeOf(err) != onlyonce.CodeInvalidRequest || body != nil {
			t.Errorf("%s: got %s, %v", name, body, err)
		}
	}
	for name, req := range map[string]provider.RefundRequest{
		"not a payment intent": {Charge: "ch_1", Amount: 5, Currency: "EUR", Reference: "oo_1"},
		"no amount":            {Charge: "pi_1", Currency: "EUR", Reference: "oo_1"},
		"no reference":         {Charge: "pi_1", Amount: 5, Currency: "EUR"},
	} {
		if body, err := p.EncodeRefund(req); onlyonce.CodeOf(err) != onlyonce.CodeInvalidRequest || body != nil {
			t.Errorf("refund, %s: got %s, %v", name, body, err)
		}
	}
	// At the limits it passes.
	req := fullCharge()
	delete(many, "0")
	many["1"] = strings.Repeat("ü", 500)
	req.Metadata = many
	if _, err := p.EncodeCharge(req); err != nil {
		t.Error(err)
	}
}

// ISO 4217's minor units become Stripe's, and nothing is ever rounded.
func TestCurrencies(t *testing.T) {
	t.Parallel()
	p := newProvider(t, stripeproc.Config{})
	for _, c := range []struct {
		amount   int64
		currency string
		want     string // empty: refused
	}{
		{1234, "EUR", "1234"},
		{500, "JPY", "500"},
		{1045, "HUF", "1045"}, // whole only for payouts
		{1045, "TWD", "1045"},
		{5, "ISK", "500"},
		{5, "UGX", "500"},
		{500, "MGA", "5"},
		{550, "MGA", ""},
		{5120, "KWD", "5120"},
		{5124, "KWD", ""},
		{5124, "BHD", ""},
		{10, "TND", "10"},
		{math.MaxInt64, "UGX", ""},
		{math.MaxInt64, "EUR", fmt.Sprint(math.MaxInt64)},
		{1000, "LYD", ""},
		{1000, "CLF", ""},
	} {
		body, err := p.EncodeCharge(provider.ChargeRequest{Amount: c.amount, Currency: c.currency, Source: "pm_1", Reference: "oo_1"})
		if c.want == "" {
			if err == nil || !strings.Contains(err.Error(), c.currency) {
				t.Errorf("%d %s: got %s, %v, want a refusal", c.amount, c.currency, body, err)
			}
			continue
		}
		got, _ := url.ParseQuery(string(body))
		if err != nil || got.Get("amount") != c.want || got.Get("currency") != strings.ToLower(c.currency) {
			t.Errorf("%d %s: got %s, %v", c.amount, c.currency, body, err)
		}
	}
}

// And back: what is reported is in the caller's units, also of what was declined
// or found.
func TestCurrenciesOfOutcomes(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"pm_visa", "pm_declined"} {
		for currency, amount := range map[string]int64{"ISK": 50, "UGX": 7, "MGA": 9900, "KWD": 5120, "JPY": 500} {
			for _, f := range []fault{works, gatewayAfter} {
				w := newWorld(t, stripeproc.Config{})
				w.will(f)
				req := provider.ChargeRequest{Amount: amount, Currency: currency, Source: source}
				out, _, err := w.charge(t.Context(), "k", req)
				if f != works {
					out, _, err = w.charge(t.Context(), "k", req)
				}
				if err != nil || out.Amount != amount || out.Currency != currency {
					t.Errorf("%s %s, %q: got %+v, %v", source, currency, f, out, err)
				}
			}
		}
	}
}

// An amount that cannot be in the caller's units is not guessed at.
func TestAmountThatCannotBe(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stripeproc.Config{})
	req := provider.ChargeRequest{Amount: 50, Currency: "ISK", Source: "pm_visa"}
	w.will(resetAfter, inUse)
	_, _, _ = w.charge(t.Context(), "k", req)
	w.set(func(s *server) { s.intents[0].amount = 5050 })
	if out, _, err := w.charge(t.Context(), "k", req); !errors.Is(err, onlyonce.ErrOutcomeUnknown) {
		t.Errorf("got %+v, %v", out, err)
	}
	w.wantState(t, "k", doubt)
}
