package processor_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/apps/payments/money"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

func TestFindCharge(t *testing.T) {
	t.Parallel()

	t.Run("by_reference_whatever_is_in_it", func(t *testing.T) {
		t.Parallel()
		b := setup(t, processor.Config{})
		const reference = "order/1?a=b&c=ü #"
		made := mustCharge(t, b, "key-1", charge("tok_visa", reference))
		got, found, err := b.client.FindCharge(t.Context(), reference)
		if diff := cmp.Diff(made, got); !found || err != nil || diff != "" {
			t.Errorf("FindCharge = %t, %v (-want +got):\n%s", found, err, diff)
		}
		if _, found, err := b.client.FindCharge(t.Context(), "order"); found || err != nil {
			t.Errorf("FindCharge of another reference = %t, %v", found, err)
		}
	})

	t.Run("prefers_the_one_that_took_money", func(t *testing.T) {
		t.Parallel()
		b := setup(t, processor.Config{})
		declined := mustCharge(t, b, "key-1", charge("tok_chargeDeclined", "order-1"))
		if got, _, err := b.client.FindCharge(t.Context(), "order-1"); err != nil || got.ID != declined.ID {
			t.Errorf("FindCharge = %v, %v; want the declined one", got.ID, err)
		}
		paid := mustCharge(t, b, "key-2", charge("tok_visa", "order-1"))
		if got, _, err := b.client.FindCharge(t.Context(), "order-1"); err != nil || got.ID != paid.ID {
			t.Errorf("FindCharge = %v, %v; want the paid one", got.ID, err)
		}
	})

	t.Run("not_before_it_becomes_visible", func(t *testing.T) {
		t.Parallel()
		now := newClock()
		b := setup(t, processor.Config{VisibleAfter: time.Minute, Now: now.Now})
		mustCharge(t, b, "key-1", charge("tok_visa", "order-1"))
		now.advance(time.Minute - time.Microsecond)
		if _, found, err := b.client.FindCharge(t.Context(), "order-1"); found || err != nil {
			t.Errorf("too early: %t, %v", found, err)
		}
		if all, _, err := b.client.ListCharges(t.Context(), "", 0); len(all) != 1 || err != nil {
			t.Errorf("list: %v, %v; want the charge at once", all, err)
		}
		now.advance(time.Microsecond)
		if _, found, err := b.client.FindCharge(t.Context(), "order-1"); !found || err != nil {
			t.Errorf("in time: %t, %v", found, err)
		}
	})

	t.Run("unsupported_is_an_error_and_not_absence", func(t *testing.T) {
		t.Parallel()
		b := setup(t, processor.Config{NoLookup: true})
		_, found, err := b.client.FindCharge(t.Context(), "order-1")
		e, ok := errors.AsType[*processor.Error](err)
		if found || !ok || e.Status != http.StatusMethodNotAllowed || e.Code != processor.CodeLookupUnsupported {
			t.Errorf("FindCharge = %t, %v", found, err)
		}
		if _, found, err := b.client.FindRefund(t.Context(), "order-1"); found || err == nil {
			t.Errorf("FindRefund = %t, %v", found, err)
		}
	})

	t.Run("an_empty_reference_is_not_asked_for", func(t *testing.T) {
		t.Parallel()
		b := setup(t, processor.Config{})
		mustCharge(t, b, "key-1", charge("tok_visa", ""))
		if _, found, err := b.client.FindCharge(t.Context(), ""); found || processor.FateOf(err) != processor.NotSent {
			t.Errorf("FindCharge = %t, %v", found, err)
		}
	})
}

// TestListFollowsCursors reads pages while more charges arrive.
func TestListFollowsCursors(t *testing.T) {
	t.Parallel()
	b := setup(t, processor.Config{})
	var want, got []string
	add := func(n int) {
		for range n {
			key := fmt.Sprintf("key-%d", len(want))
			want = append(want, mustCharge(t, b, key, charge("tok_visa", "")).ID)
		}
	}
	add(5)
	cursor := ""
	for {
		data, next, err := b.client.ListCharges(t.Context(), cursor, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range data {
			got = append(got, c.ID)
		}
		if next == "" {
			break
		}
		if cursor == "" {
			add(2)
		}
		cursor = next
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("charges listed (-want +got):\n%s", diff)
	}
	if refunds, next, err := b.client.ListRefunds(t.Context(), "", 0); len(refunds) != 0 || next != "" || err != nil {
		t.Errorf("ListRefunds = %v, %q, %v", refunds, next, err)
	}
	for _, cursor := range []string{"-1", "x"} {
		if _, _, err := b.client.ListCharges(t.Context(), cursor, 0); processor.FateOf(err) != processor.Refused {
			t.Errorf("cursor %q: %v, want refused", cursor, err)
		}
	}
	if data, _, err := b.client.ListCharges(t.Context(), "999", 1000); len(data) != 0 || err != nil {
		t.Errorf("cursor beyond the end: %v, %v", data, err)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	b := setup(t, processor.Config{})
	euros := charge("tok_visa", "order-2")
	euros.Currency = "EUR"
	for i, r := range []processor.ChargeRequest{
		charge("tok_visa", "order-1"), charge("tok_visa", "order-1"), euros, charge("tok_chargeDeclined", "order-2"), charge("tok_visa", ""),
	} {
		mustCharge(t, b, fmt.Sprintf("key-%d", i), r)
	}
	got, err := b.client.Stats(t.Context())
	want := processor.Stats{
		Charges: 4, Declined: 1,
		ChargesByReference: map[string]int{"order-1": 2, "order-2": 1},
		RefundsByReference: map[string]int{},
		DuplicateCharges:   []string{"order-1"},
		DuplicateRefunds:   []string{},
		Charged:            map[money.Currency]int64{"ARS": 4500, "EUR": 1500},
		Refunded:           map[money.Currency]int64{},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("statistics, %v (-want +got):\n%s", err, diff)
	}
}
