package payments_test

import (
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/provider"
)

// A provider need not name what it declines: any number of such charges, checkouts
// and refunds can be written down.
func TestDeclinesWithoutName(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			id := b.charged(t, "c1", 1500)
			declined := provider.Outcome{Status: provider.Declined, Code: "lost_card"}
			for _, key := range []string{"k1", "k2"} {
				body := chargeBody(1500, "tok_error_before")
				b.post(t, "/charges", key, body).want(t, 409, "outcome_unknown")
				b.settle(t, key, result(t, "charge", declined))
				charge := b.post(t, "/charges", key, body).want(t, 402, "card_declined").text(t, "charge")
				b.get(t, "/charges/"+charge).want(t, 200, "")

				cart := cartBody("prod_mate", 1, "tok_error_before")
				b.post(t, "/checkout", "cart_"+key, cart).want(t, 409, "outcome_unknown")
				b.settle(t, "cart_"+key, result(t, "charge", declined))
				b.post(t, "/checkout", "cart_"+key, cart).want(t, 402, "card_declined")

				b.lose()
				b.post(t, "/refunds", "refund_"+key, refundBody(id, 100)).want(t, 409, "outcome_unknown")
				b.mend()
				b.settle(t, "refund_"+key, result(t, "refund", declined))
				b.post(t, "/refunds", "refund_"+key, refundBody(id, 100)).want(t, 422, "refund_refused")
			}
			b.get(t, "/charges").want(t, 200, "")
			if got := b.available(t); got != "1500" {
				t.Errorf("balance is %s, want 1500", got)
			}
		})
	}
}

// A success without a name could never be refunded, nor found in a report: a person
// has to look.
func TestSuccessWithoutName(t *testing.T) {
	t.Parallel()
	b := setup(t, apptest.SQLite(t), options{})
	id := b.charged(t, "c1", 1500)
	body := chargeBody(1500, "tok_error_before")
	b.post(t, "/charges", "k1", body).want(t, 409, "outcome_unknown")
	b.lose()
	b.post(t, "/refunds", "r1", refundBody(id, 100)).want(t, 409, "outcome_unknown")
	b.mend()
	for key, step := range map[string]string{"k1": "charge", "r1": "refund"} {
		b.settle(t, key, result(t, step, provider.Outcome{Status: provider.Succeeded}))
	}
	b.post(t, "/charges", "k1", body)
	b.post(t, "/refunds", "r1", refundBody(id, 100))
	for _, key := range []string{"k1", "r1"} {
		if state := b.state(t, key); state != onlyonce.InDoubt {
			t.Errorf("%s is %s", key, state)
		}
	}
	if got := b.available(t); got != "1500" {
		t.Errorf("balance is %s, want 1500", got)
	}
}

// A reservation that only a person can end is warned of once, not in every round.
func TestWarnsOfReservationOnce(t *testing.T) {
	t.Parallel()
	var clock clock
	b := setup(t, apptest.SQLite(t), options{config: payments.Config{Now: clock.now}})
	for _, key := range []string{"k1", "k2"} {
		b.post(t, "/checkout", key, cartBody("prod_mate", 1, "tok_error_before")).want(t, 409, "outcome_unknown")
		_, err := b.service.Engine().Settle(t.Context(), onlyonce.Settlement{
			Key: dev(key), Actor: "op", Reason: "a guess", Applied: &onlyonce.Answer{Status: 402, Body: []byte("{}")},
		})
		if err != nil {
			t.Fatal(err)
		}
		if order, err := payments.ReservedBy(t.Context(), b.db, dev(key)); err != nil || !strings.HasPrefix(order, "ord_") {
			t.Errorf("%s reserves for %q, %v", key, order, err)
		}
	}
	if order, err := payments.ReservedBy(t.Context(), b.db, dev("none")); err != nil || order != "" {
		t.Errorf("an unknown key reserves for %q, %v", order, err)
	}
	clock.advance(15 * time.Minute)
	for range 3 {
		b.endOverdue(t)
	}
	if n := strings.Count(b.log.String(), "reservation stays"); n != 2 {
		t.Errorf("it was warned %d times of 2 reservations:\n%s", n, b.log)
	}
}
