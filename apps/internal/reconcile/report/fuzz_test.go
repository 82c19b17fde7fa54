package report_test

import (
	"errors"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
	"github.com/onlyonce-go/onlyonce/apps/payments/money"
)

// Whatever stands in a file, it is read to its end or refused with a place and a
// hint, and what is read can be kept.
func FuzzReader(f *testing.F) {
	f.Add(stripeActivity, uint8(1))
	f.Add(stripeItemized, uint8(1))
	f.Add(processorHeader+"charge,pc_1,oo_1,,1500,ARS,2026-01-31T10:00:00Z\n", uint8(0))
	f.Add("type,id,amount,currency,created\ncharge,a,\"1,234.50\",EUR,2026-01-31\n", uint8(2))
	f.Add("\"type\n,id", uint8(0))
	f.Fuzz(func(t *testing.T, text string, format uint8) {
		formats := []report.Format{
			named(t, report.FormatProcessor), named(t, report.FormatStripe),
			own(t, map[string]string{"type": "type", "id": "id", "amount": "amount", "currency": "currency", "created": "created"}),
		}
		rows, stats, err := all(text, formats[int(format)%len(formats)])
		if err != nil {
			e, ok := errors.AsType[*report.Error](err)
			if !ok || e.Line < 1 || e.Text == "" || e.Hint == "" || rows != nil {
				t.Fatalf("%d rows, %#v", len(rows), err)
			}
			return
		}
		if stats.Bytes != int64(len(text)) || stats.Rows != int64(len(rows)) {
			t.Fatalf("it ends after %d of %d bytes with %d rows, and counts %d", stats.Bytes, len(text), len(rows), stats.Rows)
		}
		last := 1
		for _, r := range rows {
			if r.ID == "" || r.Amount < 0 || r.Line <= last || (r.Type != report.Charge && r.Type != report.Refund) || r.Created.IsZero() {
				t.Fatalf("behind line %d: %+v", last, r)
			}
			for _, kept := range []string{r.ID, r.Reference, r.Currency} {
				if !utf8.ValidString(kept) || strings.ContainsRune(kept, 0) || len(kept) > 255 {
					t.Fatalf("%q cannot be kept", kept)
				}
			}
			last = r.Line
		}
	})
}

// An amount that is read is the number that is written, to the last digit.
func FuzzAmount(f *testing.F) {
	for _, text := range []string{"0", "15", "15.0", "15.00", "1,234.50", "-0.01", "92233720368547758.07", "1e3", "٣", "0x10", "1_000", "Inf"} {
		f.Add(text, "EUR")
	}
	f.Add("1.234", "BHD")
	f.Add("1234.000", "JPY")
	f.Fuzz(func(t *testing.T, text, currency string) {
		exponent, ok := money.Currency(currency).Exponent()
		if !ok || strings.ContainsAny(text, "\"\r\n") {
			return
		}
		rows, _, err := all("type,id,amount,currency,created\nrefund,a,\""+text+"\","+currency+",2026-01-31\n",
			own(t, map[string]string{"type": "type", "id": "id", "amount": "amount", "currency": "currency", "created": "created"}))
		if err != nil {
			return
		}
		want, ok := new(big.Rat).SetString(strings.ReplaceAll(strings.TrimSpace(text), ",", ""))
		if !ok {
			t.Fatalf("%q is read as %d", text, rows[0].Amount)
		}
		want.Abs(want).Mul(want, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(exponent)), nil)))
		if want.Cmp(new(big.Rat).SetInt64(rows[0].Amount)) != 0 {
			t.Fatalf("%q %s is read as %d", text, currency, rows[0].Amount)
		}
	})
}
