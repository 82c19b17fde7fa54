package stripeproc

import (
	"fmt"
	"math"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// unit is how Stripe's unit of a currency differs from ISO 4217's minor unit,
// which is what the rest of onlyonce counts in ("Supported currencies").
type unit struct {
	// times and per: an amount of ours is times/per of Stripe's.
	times, per int64
	// multiple is what Stripe's amount has to be a multiple of.
	multiple int64
}

func unitOf(currency string) (unit, error) {
	if len(currency) != 3 || strings.Trim(currency, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return unit{}, fmt.Errorf("currency %q is not an upper-case ISO 4217 code", currency)
	}
	switch currency {
	case "ISK", "UGX":
		// No decimals for ISO 4217; two for Stripe, which must be 00.
		return unit{times: 100, per: 1, multiple: 100}, nil
	case "MGA":
		// Two decimals for ISO 4217, none for Stripe.
		return unit{times: 1, per: 100, multiple: 1}, nil
	case "BHD", "JOD", "KWD", "OMR", "TND":
		// Three decimals for both, of which the last must be 0.
		return unit{times: 1, per: 1, multiple: 10}, nil
	case "IQD", "LYD", "CLF", "UYW", "UYI":
		// Stripe does not say in which unit it would take them: a guess could
		// be wrong by a factor of ten or more.
		return unit{}, fmt.Errorf("currency %s is not one that Stripe documents the unit of", currency)
	}
	return unit{times: 1, per: 1, multiple: 1}, nil
}

// toStripe is an amount in Stripe's unit. Nothing is ever rounded.
func toStripe(amount int64, currency string) (int64, error) {
	u, err := unitOf(currency)
	switch {
	case err != nil:
		return 0, err
	case amount <= 0:
		return 0, fmt.Errorf("amount %d %s is not positive", amount, currency)
	case amount > math.MaxInt64/u.times:
		return 0, fmt.Errorf("amount %d %s is too large", amount, currency)
	case amount%u.per != 0 || amount*u.times/u.per%u.multiple != 0:
		return 0, fmt.Errorf("amount %d %s cannot be charged by Stripe: it must be a multiple of %d", amount, currency, max(u.per, u.multiple/u.times))
	}
	return amount * u.times / u.per, nil
}

// fromStripe is the way back, for what Stripe says has moved.
func fromStripe(amount int64, currency string) (int64, string, error) {
	currency = strings.ToUpper(currency)
	u, err := unitOf(currency)
	switch {
	case err != nil:
		return 0, "", err
	case amount < 0 || amount > math.MaxInt64/u.per || amount%u.times != 0:
		return 0, "", fmt.Errorf("stripe's amount %d %s is no amount in minor units", amount, currency)
	}
	return amount / u.times * u.per, currency, nil
}

// unsendable is the refusal of a request that Stripe could not be asked.
func unsendable(op, format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeInvalidRequest, Op: op, Hint: fmt.Sprintf(format, args...)}
}
