package money

import (
	"fmt"
	"strconv"
	"strings"
)

// Error is a refusal of this package. Its values are constants, compared with
// [errors.Is].
type Error string

const (
	// ErrUnknownCurrency means that a code is not an active ISO 4217 currency
	// with a minor unit.
	ErrUnknownCurrency Error = "unknown currency"
	// ErrCurrencyMismatch means that two amounts of different currencies met.
	ErrCurrencyMismatch Error = "currencies differ"
	// ErrOverflow means that a result does not fit into 64 bits.
	ErrOverflow Error = "amount overflows"
)

// Error returns the refusal in words.
func (e Error) Error() string { return string(e) }

// Amount is a sum of money: Minor of the smallest units of Currency. It may be
// negative. The zero value is nothing, in no currency. Amounts are comparable
// with ==.
type Amount struct {
	// Minor counts minor units: cents for EUR, yen for JPY, fils for BHD.
	Minor int64 `json:"amount"`
	// Currency says which units are counted.
	Currency Currency `json:"currency"`
}

// Add returns a + b. Different currencies give [ErrCurrencyMismatch], a sum
// outside 64 bits gives [ErrOverflow]; the amount returned with an error is
// zero.
func (a Amount) Add(b Amount) (Amount, error) {
	if a.Currency != b.Currency {
		return Amount{}, fmt.Errorf("add %v and %v: %w", a, b, ErrCurrencyMismatch)
	}
	sum := a.Minor + b.Minor
	if (sum >= a.Minor) != (b.Minor >= 0) {
		return Amount{}, fmt.Errorf("add %v and %v: %w", a, b, ErrOverflow)
	}
	return Amount{Minor: sum, Currency: a.Currency}, nil
}

// Sub returns a - b, with the errors of [Amount.Add].
func (a Amount) Sub(b Amount) (Amount, error) {
	if a.Currency != b.Currency {
		return Amount{}, fmt.Errorf("subtract %v from %v: %w", b, a, ErrCurrencyMismatch)
	}
	difference := a.Minor - b.Minor
	if (difference <= a.Minor) != (b.Minor >= 0) {
		return Amount{}, fmt.Errorf("subtract %v from %v: %w", b, a, ErrOverflow)
	}
	return Amount{Minor: difference, Currency: a.Currency}, nil
}

// String returns the amount for people, "15.00 ARS": as many decimals as the
// currency has, a point and no grouping, a leading minus below zero. An amount
// in an unknown currency is shown as its minor units, with the code in quotes.
func (a Amount) String() string {
	digits, ok := a.Currency.Exponent()
	if !ok {
		return fmt.Sprintf("%d minor units of %s", a.Minor, strconv.QuoteToASCII(string(a.Currency)))
	}
	text, sign := strconv.FormatInt(a.Minor, 10), ""
	if after, negative := strings.CutPrefix(text, "-"); negative {
		text, sign = after, "-"
	}
	if missing := digits + 1 - len(text); missing > 0 {
		text = strings.Repeat("0", missing) + text
	}
	whole, fraction := text[:len(text)-digits], text[len(text)-digits:]
	if digits > 0 {
		whole += "."
	}
	return sign + whole + fraction + " " + string(a.Currency)
}
