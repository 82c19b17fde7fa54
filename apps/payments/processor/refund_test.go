package processor_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

func TestRefundFaults(t *testing.T) {
	t.Parallel()
	// A fault after the effect leaves a refund, one before it none.
	want := map[string]int{
		"error_before": 0, "error_before_always": 0, "rate_limited": 0, "in_progress": 0,
		"error_after": 1, "gateway_timeout_after": 1, "reset_after": 1, "timeout": 1,
	}
	for _, name := range processor.Faults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, processor.Config{Hang: time.Nanosecond})
			paid := mustCharge(t, b, "key-1", charge("tok_visa", "order-1"))
			body := processor.RefundRequest{Charge: paid.ID, Amount: 1500, Reference: "refund-1", Simulate: name}.Encode()
			if _, err := b.client.Refund(t.Context(), "key-2", body); err == nil {
				t.Error("the first attempt did not fail")
			}
			if got := b.server.Stats().Refunds; got != want[name] {
				t.Errorf("%d refunds after the first attempt, want %d", got, want[name])
			}
			second, err := b.client.Refund(t.Context(), "key-2", body)
			if name == "error_before_always" {
				if err == nil {
					t.Error("the second attempt did not fail")
				}
				return
			}
			if err != nil || second.Replayed != (want[name] == 1) {
				t.Errorf("second attempt: %+v, %v", second, err)
			}
			if got := b.server.Stats().Refunds; got != 1 {
				t.Errorf("%d refunds after the second attempt, want 1", got)
			}
		})
	}
}

func TestRefundRefusals(t *testing.T) {
	t.Parallel()
	b := setup(t, processor.Config{})
	paid := mustCharge(t, b, "key-1", charge("tok_visa", "order-1"))
	declined := mustCharge(t, b, "key-2", charge("tok_chargeDeclined", "order-2"))
	for name, tt := range map[string]struct {
		request processor.RefundRequest
		status  int
		code    string
	}{
		"more than was taken": {processor.RefundRequest{Charge: paid.ID, Amount: 1501}, 422, processor.CodeRefundExceedsCharge},
		"unknown charge":      {processor.RefundRequest{Charge: "pc_none", Amount: 1}, 422, processor.CodeUnknownCharge},
		"declined charge":     {processor.RefundRequest{Charge: declined.ID, Amount: 1}, 422, processor.CodeNotRefundable},
		"nothing":             {processor.RefundRequest{Charge: paid.ID}, 400, processor.CodeInvalidRequest},
		"no charge":           {processor.RefundRequest{Amount: 1}, 400, processor.CodeInvalidRequest},
		"unknown fault":       {processor.RefundRequest{Charge: paid.ID, Amount: 1, Simulate: "visa"}, 400, processor.CodeUnknownFault},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := b.client.Refund(t.Context(), "refund "+http.StatusText(tt.status), tt.request.Encode())
			if err == nil || processor.FateOf(err) != processor.NotSent {
				t.Errorf("a key with a space: %v, want not sent", err)
			}
			_, err = b.client.Refund(t.Context(), "refund-"+tt.code, tt.request.Encode())
			e, ok := errors.AsType[*processor.Error](err)
			if !ok || e.Status != tt.status || e.Code != tt.code || e.Fate() != processor.Refused {
				t.Errorf("Refund: %v, want %d %s, refused", err, tt.status, tt.code)
			}
		})
	}
}

// TestRefundsNeverExceedTheCharge lets 64 refunds of a tenth race, each with a
// key of its own.
func TestRefundsNeverExceedTheCharge(t *testing.T) {
	t.Parallel()
	b := setup(t, processor.Config{KeysOptional: true})
	paid := mustCharge(t, b, "key-1", charge("tok_visa", "order-1"))
	body := processor.RefundRequest{Charge: paid.ID, Amount: 150, Reference: "refund-1"}.Encode()
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			// Most are refused; what counts is the sum.
			_, _ = b.client.Refund(t.Context(), "", body)
		})
	}
	all.Wait()
	got, err := b.client.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := processor.Stats{
		Charges: 1, Refunds: 10,
		ChargesByReference: map[string]int{"order-1": 1},
		RefundsByReference: map[string]int{"refund-1": 10},
		DuplicateCharges:   []string{},
		DuplicateRefunds:   []string{"refund-1"},
		Charged:            got.Charged,
		Refunded:           got.Charged,
	}
	if diff := cmp.Diff(want, got); diff != "" || got.Refunded["ARS"] != 1500 {
		t.Errorf("statistics (-want +got):\n%s", diff)
	}
	if _, found, err := b.client.FindRefund(t.Context(), "refund-1"); !found || err != nil {
		t.Errorf("FindRefund = %t, %v", found, err)
	}
}
