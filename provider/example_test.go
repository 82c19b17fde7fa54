package provider_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/provider"
)

// till is a provider in a few lines, which loses its first answer.
type till struct {
	provider.Provider // refunds are left out
	charged           []provider.Outcome
}

func (t *till) Traits() provider.Traits {
	return provider.Traits{Name: "till", Lookup: true, Visible: time.Minute}
}

func (t *till) EncodeCharge(req provider.ChargeRequest) ([]byte, error) {
	return fmt.Appendf(nil, "%d %s from %s for %s", req.Amount, req.Currency, req.Source, req.Reference), nil
}

func (t *till) Charge(context.Context, onlyonce.Sending) (provider.Outcome, error) {
	t.charged = append(t.charged, provider.Outcome{Status: provider.Succeeded, ID: "ch_1", Amount: 1000, Currency: "EUR"})
	return provider.Outcome{}, errors.New("connection reset")
}

func (t *till) FindCharge(context.Context, onlyonce.Sending) (provider.Outcome, bool, error) {
	return t.charged[0], true, nil
}

// A charge whose answer is lost is looked up by our reference, not made again.
func ExampleCharge() {
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := onlyonce.New(store, onlyonce.Config{})
	if err != nil {
		log.Fatal(err)
	}
	t := &till{}
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		out, err := provider.Charge(ctx, t, "charge", provider.ChargeRequest{Amount: 1000, Currency: "EUR", Source: "tok_1"})
		if err != nil {
			return onlyonce.Answer{}, err // as it is: the key goes in doubt
		}
		return onlyonce.Answer{Status: 201, Body: fmt.Append(nil, out.Status, " ", out.ID)}, nil
	}
	for range 2 {
		req := onlyonce.Request{Key: key(), Canonical: text("10.00 EUR")}
		res, err := engine.Steps(context.Background(), onlyonce.Op{Name: "POST /payments"}, req, handler)
		if err != nil {
			fmt.Println(onlyonce.CodeOf(err))
			continue
		}
		fmt.Println(string(res.Answer.Body))
	}
	fmt.Println(len(t.charged), "charge")
	// Output:
	// outcome_unknown
	// succeeded ch_1
	// 1 charge
}
