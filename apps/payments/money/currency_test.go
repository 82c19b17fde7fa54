package money_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/apps/payments/money"
)

// TestExponent checks the codes whose exponent people get wrong, and the
// currencies that came and went lately.
func TestExponent(t *testing.T) {
	t.Parallel()
	want := map[money.Currency]int{
		"USD": 2, "EUR": 2, "GBP": 2, "ARS": 2, "HUF": 2, "TWD": 2, "IDR": 2, "COP": 2, "MGA": 2, "MRU": 2,
		"XAD": 2, "XCD": 2, "XCG": 2, "ZWG": 2, "SLE": 2, "VED": 2, "VES": 2, "CHE": 2, "USN": 2, "BOV": 2,
		"BIF": 0, "CLP": 0, "DJF": 0, "GNF": 0, "ISK": 0, "JPY": 0, "KMF": 0, "KRW": 0, "PYG": 0, "RWF": 0,
		"UGX": 0, "UYI": 0, "VND": 0, "VUV": 0, "XAF": 0, "XOF": 0, "XPF": 0,
		"BHD": 3, "IQD": 3, "JOD": 3, "KWD": 3, "LYD": 3, "OMR": 3, "TND": 3,
		"CLF": 4, "UYW": 4,
	}
	got := make(map[money.Currency]int)
	for code := range want {
		if digits, ok := code.Exponent(); ok {
			got[code] = digits
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("exponents (-want +got):\n%s", diff)
	}
}

func TestCurrencies(t *testing.T) {
	t.Parallel()
	all := money.Currencies()
	counts := make(map[int]int)
	for _, c := range all {
		digits, ok := c.Exponent()
		if !ok {
			t.Errorf("%s is listed and has no exponent", c)
		}
		counts[digits]++
	}
	if diff := cmp.Diff(map[int]int{0: 17, 2: 139, 3: 7, 4: 2}, counts); diff != "" {
		t.Errorf("currencies by exponent (-want +got):\n%s", diff)
	}
	slices.Sort(all)
	if unique := slices.Compact(slices.Clone(all)); len(unique) != len(all) {
		t.Errorf("%d codes are listed twice", len(all)-len(unique))
	}
}

func TestParseCurrencyRefuses(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]string{
		"nothing": "", "lower case": "usd", "mixed case": "Usd", "too short": "US", "too long": "USDT",
		"white space": " USD", "trailing space": "USD ", "across two codes": "D A", "look-alike": "ＵＳＤ",
		"withdrawn guilder": "ANG", "withdrawn kuna": "HRK", "withdrawn lev": "BGN", "withdrawn leone": "SLL",
		"withdrawn convertible peso": "CUC", "withdrawn zimbabwe dollar": "ZWL",
		"gold": "XAU", "drawing rights": "XDR", "testing": "XTS", "none": "XXX", "unassigned": "ZZZ", "bitcoin": "BTC",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := money.ParseCurrency(code)
			if got != "" || !errors.Is(err, money.ErrUnknownCurrency) {
				t.Errorf("ParseCurrency(%q) = %q, %v; want an unknown currency", code, got, err)
			}
		})
	}
}

func FuzzParseCurrency(f *testing.F) {
	for _, seed := range []string{"EUR", "eur", "", "AED AFN", "N A", "JPYK", "\x00\x00\x00"} {
		f.Add(seed)
	}
	listed := money.Currencies()
	f.Fuzz(func(t *testing.T, s string) {
		got, err := money.ParseCurrency(s)
		known := slices.Contains(listed, money.Currency(s))
		if known != (err == nil) || (known && string(got) != s) {
			t.Fatalf("ParseCurrency(%q) = %q, %v; listed: %t", s, got, err, known)
		}
		if known && (len(s) != 3 || strings.ToUpper(s) != s) {
			t.Fatalf("%q is listed and not three upper-case letters", s)
		}
	})
}
