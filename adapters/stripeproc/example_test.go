package stripeproc_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/stripeproc"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/provider"
)

// What a provider promises decides what may be done when an answer is lost.
func ExampleNew() {
	p, err := stripeproc.New(stripeproc.Config{Key: "sk_test_123"})
	if err != nil {
		log.Fatal(err)
	}
	traits := p.Traits()
	fmt.Println(p)
	fmt.Println("sent again for", traits.Memory, "and proved absent after", traits.Visible)
	// Output:
	// stripeproc{key sk_test_[redacted], https://api.stripe.com, account "", name "stripe"}
	// sent again for 23h0m0s and proved absent after 24h0m0s
}

// The first answer is lost after the card was charged. The caller asks again with the
// same key, Stripe is asked by our reference, and the card is not charged again.
func ExampleProvider() {
	api := httptest.NewServer(http.HandlerFunc(losesTheAnswer()))
	defer api.Close()
	p, err := stripeproc.New(stripeproc.Config{Key: "sk_test_123", BaseURL: api.URL})
	if err != nil {
		log.Fatal(err)
	}
	defer p.CloseIdleConnections()
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := onlyonce.New(store, onlyonce.Config{})
	if err != nil {
		log.Fatal(err)
	}
	pay := func(ctx context.Context) (onlyonce.Answer, error) {
		out, err := provider.Charge(ctx, p, "charge", provider.ChargeRequest{Amount: 1999, Currency: "EUR", Source: "pm_card_visa"})
		if err != nil {
			return onlyonce.Answer{}, err // as it is: the engine knows what it proves
		}
		body, err := json.Marshal(out)
		return onlyonce.Answer{Status: http.StatusCreated, Body: body}, err
	}
	req := onlyonce.Request{Key: onlyonce.Key{Scope: "acct_1", Value: "order-7"}, Canonical: text("pay order 7")}
	for range 3 {
		res, err := engine.Steps(context.Background(), onlyonce.Op{Name: "POST /payments"}, req, pay)
		if err != nil {
			fmt.Println(onlyonce.CodeOf(err))
			continue
		}
		fmt.Println(res.Status, string(res.Answer.Body))
	}
	// Output:
	// outcome_unknown
	// executed {"status":"succeeded","id":"pi_1","amount":1999,"currency":"EUR"}
	// replayed {"status":"succeeded","id":"pi_1","amount":1999,"currency":"EUR"}
}

// losesTheAnswer is as little of an API as the example needs.
func losesTheAnswer() http.HandlerFunc {
	var charges []map[string]any
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_ = json.NewEncoder(w).Encode(map[string]any{"object": "search_result", "data": charges})
			return
		}
		body, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(body))
		charges = append(charges, map[string]any{
			"id": "pi_1", "object": "payment_intent", "status": "succeeded", "amount": 1999, "amount_received": 1999, "currency": "eur",
			"metadata": map[string]string{stripeproc.ReferenceKey: form.Get("metadata[" + stripeproc.ReferenceKey + "]")},
		})
		w.WriteHeader(http.StatusGatewayTimeout)
	}
}
