package reconcile

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// Provider is what has to be known of a provider to compare its report with the
// intents of steps.
type Provider struct {
	// Name is the one that steps name.
	Name string
	// Decode reads what a recorded request asks for. What it does not understand
	// is an error, and the step is then left to a person.
	Decode func(t report.Type, request []byte) (Asked, error)
	// Names tells whether an id of the report is the one that the service keeps
	// of such an effect; nil: every one is. Some reports name another object of
	// the same payment: then amounts can be compared, but the id not recorded.
	Names func(t report.Type, id string) bool
}

// Asked is what a step has asked the provider for.
type Asked struct {
	// Amount is in minor units of Currency. An empty currency is that of Charge.
	Amount   int64
	Currency string
	// Charge is the provider's id of the charge that a refund gives back.
	Charge string
}

// names is Names, or yes.
func (p Provider) names(t report.Type, id string) bool { return p.Names == nil || p.Names(t, id) }

// Processor is the simulated processor.
func Processor() Provider { return Provider{Name: "processor", Decode: decodeProcessor} }

// Stripe is Stripe, by the adapter of this project.
func Stripe() Provider {
	return Provider{Name: "stripe", Decode: decodeStripe, Names: func(t report.Type, id string) bool {
		if t == report.Charge {
			return strings.HasPrefix(id, "pi_")
		}
		return strings.HasPrefix(id, "re_") || strings.HasPrefix(id, "pyr_")
	}}
}

func decodeProcessor(t report.Type, request []byte) (Asked, error) {
	if t == report.Refund {
		r, err := processor.DecodeRefundRequest(request)
		return Asked{Amount: r.Amount, Charge: r.Charge}, err
	}
	r, err := processor.DecodeChargeRequest(request)
	return Asked{Amount: r.Amount, Currency: string(r.Currency)}, err
}

// stripeUnits are the currencies in which Stripe's amounts are not in the minor
// unit of ISO 4217: what was asked for in these is left to a person.
const stripeUnits = "ISK UGX MGA IQD LYD CLF UYW UYI"

// decodeStripe reads the forms that the adapter for Stripe sends.
func decodeStripe(t report.Type, request []byte) (Asked, error) {
	form, err := url.ParseQuery(string(request))
	if err != nil {
		return Asked{}, fmt.Errorf("decode request: %w", err)
	}
	amount, err := strconv.ParseInt(form.Get("amount"), 10, 64)
	if err != nil {
		return Asked{}, fmt.Errorf("decode request: %w", err)
	}
	asked := Asked{Amount: amount, Currency: strings.ToUpper(form.Get("currency")), Charge: form.Get("payment_intent")}
	switch {
	case t == report.Charge && asked.Currency == "", t == report.Refund && asked.Charge == "":
		return Asked{}, errors.New("decode request: it is another kind of request")
	case asked.Currency != "" && strings.Contains(stripeUnits, asked.Currency):
		return Asked{}, fmt.Errorf("decode request: amounts in %s are in another unit", asked.Currency)
	}
	return asked, nil
}
