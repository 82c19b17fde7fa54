package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/apps/payments/money"
)

// maxText is the longest text that is kept of a row, in bytes.
const maxText = 255

// checkText refuses what no database keeps, or no column is meant to hold.
func checkText(text string) error {
	switch {
	case len(text) > maxText:
		return faulty("is it the right column?", "has %d bytes, more than %d", len(text), maxText)
	case !utf8.ValidString(text):
		return faulty("save the report as UTF-8", "is not valid UTF-8")
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return faulty("is a quote missing, or one too many?", "holds a control character")
	}
	return nil
}

// parseMinor reads a whole number of minor units.
func parseMinor(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && text[0] != '+' {
		return n, nil
	}
	d, notDecimal := parseDecimal(text)
	switch {
	case notDecimal != nil:
		return 0, faulty("is it the right column?", "%q is no whole number", text)
	case d.fraction != "":
		return 0, faulty("are its amounts in major units? then give --amounts major", "%q is no whole number of minor units", text)
	default:
		return 0, errTooLarge()
	}
}

func errTooLarge() error {
	return faulty("is it the right column?", "is more than 64 bits of minor units")
}

// decimal is a number as it is written: its digits before and behind the point.
type decimal struct {
	negative        bool
	whole, fraction string
}

// parseDecimal reads a decimal number. A comma may group its thousands if there is
// a point too: a comma alone could be either.
func parseDecimal(text string) (decimal, error) {
	var d decimal
	rest, negative := strings.CutPrefix(text, "-")
	whole, fraction, point := strings.Cut(rest, ".")
	if strings.Contains(whole, ",") {
		if !point || !grouped(whole) {
			return d, faulty("write it with a point and without grouping, like 1234.50", "%q has a comma, which may stand for thousands or for the decimal point", text)
		}
		whole = strings.ReplaceAll(whole, ",", "")
	}
	if whole == "" || !digitsOnly(whole) || (point && fraction == "") || !digitsOnly(fraction) {
		return d, faulty("write it like 1234.50; is it the right column?", "%q is no decimal number", text)
	}
	return decimal{negative: negative, whole: whole, fraction: fraction}, nil
}

func digitsOnly(text string) bool { return strings.Trim(text, "0123456789") == "" }

// grouped tells whether commas stand before every third digit and nowhere else.
func grouped(whole string) bool {
	groups := strings.Split(whole, ",")
	for i, g := range groups {
		if (i > 0 && len(g) != 3) || g == "" || len(g) > 3 {
			return false
		}
	}
	return true
}

// minor is the number in minor units of a currency with so many digits behind
// the point. Nothing is rounded: digits too many must be zeros.
func (d decimal) minor(exponent int) (int64, error) {
	fraction := d.fraction
	if len(fraction) > exponent {
		if strings.Trim(fraction[exponent:], "0") != "" {
			return 0, faulty("is it the right currency?", "has more than the %d decimals of its currency", exponent)
		}
		fraction = fraction[:exponent]
	}
	fraction += strings.Repeat("0", exponent-len(fraction))
	sign := ""
	if d.negative {
		sign = "-"
	}
	n, err := strconv.ParseInt(sign+d.whole+fraction, 10, 64)
	if err != nil {
		return 0, errTooLarge()
	}
	return n, nil
}

// amountOf reads an amount. known is false where the currency is not one, so that
// only the notation could be checked.
func amountOf(text, currency string, major bool) (minor int64, known bool, err error) {
	exponent, known := money.Currency(currency).Exponent()
	if !major {
		minor, err = parseMinor(text)
		return minor, known, err
	}
	d, err := parseDecimal(text)
	if err != nil || !known {
		return 0, known, err
	}
	minor, err = d.minor(exponent)
	return minor, known, err
}

// signed makes a row's amount positive: reports write refunds with a minus.
func signed(minor int64, t Type) (int64, error) {
	switch {
	case minor >= 0:
		return minor, nil
	case minor == math.MinInt64:
		return 0, errTooLarge()
	case t != Refund:
		return 0, faulty("is it the right column?", "is negative, and the row is a %s", t)
	}
	return -minor, nil
}

// timeLayouts are the ways to write a moment that cannot be mistaken. Without a
// zone it is UTC.
var timeLayouts = []string{
	time.RFC3339Nano, "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02",
}

// parseTime reads a moment.
func parseTime(text string) (time.Time, error) {
	for _, layout := range timeLayouts {
		if t, err := time.ParseInLocation(layout, text, time.UTC); err == nil {
			return checkYear(text, t.UTC())
		}
	}
	return time.Time{}, faulty("it must be RFC 3339 or like 2026-01-31 15:04:05, in UTC; spreadsheets rewrite times", "%q is no time", text)
}

// checkYear refuses what cannot be kept in microseconds, or is nobody's payment.
func checkYear(text string, t time.Time) (time.Time, error) {
	if y := t.Year(); y < 1970 || y > 9999 {
		return time.Time{}, faulty("is it the right column?", "%q is no time between 1970 and 9999", text)
	}
	return t, nil
}

// plural is "1 field" or "2 fields".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
