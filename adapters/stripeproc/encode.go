package stripeproc

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/provider"
)

// ReferenceKey is the metadata key under which Stripe keeps our reference. It
// must never change: charges that were made before are looked up by it.
const ReferenceKey = "onlyonce_reference"

// Stripe's limits for metadata ("Metadata" in the API reference).
const (
	maxMetadata      = 50
	maxMetadataKey   = 40
	maxMetadataValue = 500
)

// Form fields that are read again from recorded requests.
const (
	fieldAmount        = "amount"
	fieldCurrency      = "currency"
	fieldPaymentIntent = "payment_intent"
)

// EncodeCharge is the form of a PaymentIntent that is created and confirmed in
// one request, sorted by field. It fails for an amount or a currency that Stripe
// has no unit for, and for metadata over Stripe's limits.
func (p *Provider) EncodeCharge(req provider.ChargeRequest) ([]byte, error) {
	const op = "check charge"
	amount, err := toStripe(req.Amount, req.Currency)
	if err != nil {
		return nil, unsendable(op, "%v", err)
	}
	customer, method, saved := strings.Cut(req.Source, "/")
	if !saved {
		customer, method = "", req.Source
	}
	if method == "" || saved && customer == "" {
		return nil, unsendable(op, "source must be a payment method (pm_…), or a customer and a saved one (cus_…/pm_…)")
	}
	form := url.Values{
		fieldAmount:      {strconv.FormatInt(amount, 10)},
		fieldCurrency:    {strings.ToLower(req.Currency)},
		"confirm":        {"true"},
		"payment_method": {method},
		// Cards, and the wallets that are cards: their payments are final at
		// once. Named here, because error_on_requires_action is refused where
		// the methods are left to the Dashboard.
		"payment_method_types[0]": {"card"},
	}
	// Either ends a payment for which the customer's bank has to be asked:
	// nobody is there to show its page.
	if p.cfg.OffSession {
		form.Set("off_session", "true")
	} else {
		form.Set("error_on_requires_action", "true")
	}
	setIf(form, "customer", customer)
	setIf(form, "description", req.Description)
	if err := addMetadata(form, op, req.Reference, req.Metadata); err != nil {
		return nil, err
	}
	return []byte(form.Encode()), nil
}

// EncodeRefund is the form of a refund of a PaymentIntent. req.Charge is the ID
// of a charge's Outcome ("pi_…"). Stripe takes the currency from the charge;
// here it tells the unit of the amount.
func (p *Provider) EncodeRefund(req provider.RefundRequest) ([]byte, error) {
	const op = "check refund"
	amount, err := toStripe(req.Amount, req.Currency)
	if err != nil {
		return nil, unsendable(op, "%v", err)
	}
	if !strings.HasPrefix(req.Charge, "pi_") {
		return nil, unsendable(op, "charge must be the id of a payment intent (pi_…), got %q", req.Charge)
	}
	form := url.Values{
		fieldAmount:        {strconv.FormatInt(amount, 10)},
		fieldPaymentIntent: {req.Charge},
	}
	if err := addMetadata(form, op, req.Reference, nil); err != nil {
		return nil, err
	}
	return []byte(form.Encode()), nil
}

func setIf(form url.Values, name, value string) {
	if value != "" {
		form.Set(name, value)
	}
}

// addMetadata adds our reference and what is for people. Stripe would refuse
// what is over its limits; here the refusal comes before anything is recorded.
func addMetadata(form url.Values, op, reference string, metadata map[string]string) error {
	if !searchable(reference) {
		return unsendable(op, "reference must have 1 to %d letters, digits, - or _, got %q", maxMetadataValue, reference)
	}
	if len(metadata) >= maxMetadata {
		return unsendable(op, "metadata has %d keys; Stripe keeps %d, one of which is %s", len(metadata), maxMetadata, ReferenceKey)
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		value := metadata[key]
		switch {
		case key == ReferenceKey:
			return unsendable(op, "metadata key %s is our own", ReferenceKey)
		case key == "" || utf8.RuneCountInString(key) > maxMetadataKey || strings.ContainsAny(key, "[]"):
			return unsendable(op, "metadata key %q must have 1 to %d characters, none of them a square bracket", key, maxMetadataKey)
		case utf8.RuneCountInString(value) > maxMetadataValue:
			return unsendable(op, "metadata value of %q must have at most %d characters", key, maxMetadataValue)
		}
		form.Set("metadata["+key+"]", value)
	}
	form.Set("metadata["+ReferenceKey+"]", reference)
	return nil
}

// searchable tells whether a reference can stand in a search query as it is.
func searchable(reference string) bool {
	return reference != "" && len(reference) <= maxMetadataValue && !strings.ContainsFunc(reference, func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}
