package money_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/payments/money"
)

func TestString(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		minor    int64
		currency money.Currency
		want     string
	}{
		{1500, "ARS", "15.00 ARS"},
		{0, "EUR", "0.00 EUR"},
		{5, "EUR", "0.05 EUR"},
		{-5, "EUR", "-0.05 EUR"},
		{-100, "EUR", "-1.00 EUR"},
		{1500, "JPY", "1500 JPY"},
		{-1, "JPY", "-1 JPY"},
		{0, "JPY", "0 JPY"},
		{1500, "BHD", "1.500 BHD"},
		{12, "CLF", "0.0012 CLF"},
		{math.MaxInt64, "USD", "92233720368547758.07 USD"},
		{math.MinInt64, "USD", "-92233720368547758.08 USD"},
		{math.MinInt64, "KRW", "-9223372036854775808 KRW"},
		{7, "", `7 minor units of ""`},
		{7, "usd", `7 minor units of "usd"`},
	} {
		if got := (money.Amount{Minor: tt.minor, Currency: tt.currency}).String(); got != tt.want {
			t.Errorf("%d %s is shown as %q, want %q", tt.minor, tt.currency, got, tt.want)
		}
	}
}

func TestMixedCurrenciesAreRefused(t *testing.T) {
	t.Parallel()
	euro, yen := money.Amount{Minor: 1, Currency: "EUR"}, money.Amount{Minor: 1, Currency: "JPY"}
	if got, err := euro.Add(yen); got != (money.Amount{}) || !errors.Is(err, money.ErrCurrencyMismatch) {
		t.Errorf("Add = %v, %v; want a mismatch", got, err)
	}
	if got, err := euro.Sub(yen); got != (money.Amount{}) || !errors.Is(err, money.ErrCurrencyMismatch) {
		t.Errorf("Sub = %v, %v; want a mismatch", got, err)
	}
}

func TestAmountAsJSON(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(money.Amount{Minor: 9007199254740993, Currency: "EUR"})
	if want := `{"amount":9007199254740993,"currency":"EUR"}`; err != nil || string(got) != want {
		t.Errorf("JSON = %s, %v; want %s", got, err, want)
	}
}

// FuzzArithmetic compares Add and Sub with arithmetic that cannot overflow.
func FuzzArithmetic(f *testing.F) {
	for _, edge := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1} {
		for _, other := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
			f.Add(edge, other)
		}
	}
	f.Fuzz(func(t *testing.T, x, y int64) {
		a, b := money.Amount{Minor: x, Currency: "EUR"}, money.Amount{Minor: y, Currency: "EUR"}
		sum, err := a.Add(b)
		checkExact(t, new(big.Int).Add(big.NewInt(x), big.NewInt(y)), sum, err)
		difference, err := a.Sub(b)
		checkExact(t, new(big.Int).Sub(big.NewInt(x), big.NewInt(y)), difference, err)
	})
}

func checkExact(t *testing.T, want *big.Int, got money.Amount, err error) {
	t.Helper()
	if !want.IsInt64() {
		if got != (money.Amount{}) || !errors.Is(err, money.ErrOverflow) {
			t.Fatalf("got %v, %v; want an overflow, for the result is %s", got, err, want)
		}
		return
	}
	if err != nil || got.Minor != want.Int64() || got.Currency != "EUR" {
		t.Fatalf("got %v, %v; want %s minor units", got, err, want)
	}
}

// FuzzString reads what people are shown back as a fraction and compares it
// with the minor units.
func FuzzString(f *testing.F) {
	all := money.Currencies()
	for i := range all {
		f.Add(int64(-12345), uint8(i))
	}
	f.Add(int64(math.MinInt64), uint8(0))
	f.Fuzz(func(t *testing.T, minor int64, which uint8) {
		c := all[int(which)%len(all)]
		text := money.Amount{Minor: minor, Currency: c}.String()
		number, code, _ := strings.Cut(text, " ")
		read, ok := new(big.Rat).SetString(number)
		if !ok || code != string(c) {
			t.Fatalf("%q is not a number and a code", text)
		}
		digits, _ := c.Exponent()
		unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)
		if want := new(big.Rat).SetFrac(big.NewInt(minor), unit); read.Cmp(want) != 0 {
			t.Fatalf("%d minor units are shown as %q", minor, text)
		}
		if _, fraction, _ := strings.Cut(number, "."); len(fraction) != digits {
			t.Fatalf("%q has %d decimals, want %d", text, len(fraction), digits)
		}
	})
}
