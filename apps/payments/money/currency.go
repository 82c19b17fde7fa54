package money

import (
	"fmt"
	"strings"
)

// The active codes of ISO 4217, by the number of digits of their minor unit,
// in alphabetical order and separated by one space.
const (
	noDigits = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"

	twoDigits = "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP " +
		"BYN BZD CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB " +
		"EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES " +
		"KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR " +
		"MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD " +
		"RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP " +
		"TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW ZWG"

	threeDigits = "BHD IQD JOD KWD LYD OMR TND"

	fourDigits = "CLF UYW"
)

// Currency is an ISO 4217 alphabetic code such as "EUR". A value that did not
// come from [ParseCurrency] may name no currency at all; [Currency.Exponent]
// tells.
type Currency string

// ParseCurrency returns the currency with the code s. It takes the code as the
// standard writes it: exactly three upper-case letters, nothing around them.
// Anything else is an error that matches [ErrUnknownCurrency]; there is no
// guessing, because "usd" from a careless caller is better refused than fixed.
func ParseCurrency(s string) (Currency, error) {
	c := Currency(s)
	if _, ok := c.Exponent(); !ok {
		return "", fmt.Errorf("parse currency %q: %w", s, ErrUnknownCurrency)
	}
	return c, nil
}

// Exponent returns how many digits of an amount stand behind the decimal point:
// 2 for EUR, 0 for JPY, 3 for BHD, 4 for CLF. It reports false where c is not an
// active currency.
func (c Currency) Exponent() (digits int, ok bool) {
	if len(c) != 3 || !upper(c[0]) || !upper(c[1]) || !upper(c[2]) {
		return 0, false
	}
	// Every code is surrounded by spaces or an end and holds none, so three
	// letters are found only where a whole code begins.
	switch code := string(c); {
	case strings.Contains(twoDigits, code):
		return 2, true
	case strings.Contains(noDigits, code):
		return 0, true
	case strings.Contains(threeDigits, code):
		return 3, true
	case strings.Contains(fourDigits, code):
		return 4, true
	default:
		return 0, false
	}
}

// Currencies returns every known currency, those with two digits first, then
// those with none, three and four; within each group in alphabetical order. The
// caller owns the slice.
func Currencies() []Currency {
	codes := strings.Fields(strings.Join([]string{twoDigits, noDigits, threeDigits, fourDigits}, " "))
	all := make([]Currency, len(codes))
	for i, code := range codes {
		all[i] = Currency(code)
	}
	return all
}

// upper reports whether b is an ASCII upper-case letter.
func upper(b byte) bool { return 'A' <= b && b <= 'Z' }
