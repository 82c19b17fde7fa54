package processor_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/apps/payments/money"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// FuzzChargeRequest checks that any request survives its encoding and that the
// encoding is always the same.
func FuzzChargeRequest(f *testing.F) {
	f.Add(int64(1500), "ARS", "tok_visa", "order-1", "channel")
	f.Add(int64(-1), "", "", "\x00<>&\u2028", "\xff")
	f.Fuzz(func(t *testing.T, amount int64, currency, source, reference, meta string) {
		r := processor.ChargeRequest{
			Amount: amount, Currency: money.Currency(currency), Source: source, Reference: reference,
			Metadata: map[string]string{"a": meta, "b": reference},
		}
		first, err := processor.DecodeChargeRequest(r.Encode())
		if err != nil {
			t.Fatalf("decode %s: %v", r.Encode(), err)
		}
		// Broken UTF-8 is mended once; what was mended stays as it is.
		second, err := processor.DecodeChargeRequest(first.Encode())
		if diff := cmp.Diff(first, second); err != nil || diff != "" {
			t.Fatalf("decode again: %v (-first +second):\n%s", err, diff)
		}
		if !bytes.Equal(r.Encode(), r.Encode()) || !bytes.Equal(first.Encode(), second.Encode()) {
			t.Fatal("the same request was encoded differently")
		}
	})
}

func TestDecodeRefundRequest(t *testing.T) {
	t.Parallel()
	want := processor.RefundRequest{Charge: "pc_1", Amount: 5, Reference: "refund-1", Simulate: "timeout"}
	got, err := processor.DecodeRefundRequest(want.Encode())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("decoded, %v (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"", "{", "{}{}", `{"amonut":1}`, "[]"} {
		if _, err := processor.DecodeRefundRequest([]byte(text)); err == nil {
			t.Errorf("%q was taken for a refund", text)
		}
	}
}
