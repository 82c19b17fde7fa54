package payments_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/event"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// told are the events that wait, in their order.
func (b *bundle) told(t *testing.T) []event.Event {
	t.Helper()
	var all []event.Event
	if err := b.db.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
		all = nil
		return tx.Each(ctx, "SELECT id, payload, merchant, amount, currency, kind FROM payments_events ORDER BY seq", nil, func(row db.Row) error {
			var id, payload, merchant, currency, kind string
			var amount int64
			if err := row.Scan(&id, &payload, &merchant, &amount, &currency, &kind); err != nil {
				return err
			}
			e, err := event.Read(inbox.Message{ID: id, Payload: []byte(payload)})
			if e.Merchant != merchant || e.Amount != amount || string(e.Currency) != currency || string(e.Kind) != kind {
				t.Errorf("the columns differ from %s", payload)
			}
			all = append(all, e)
			return err
		})
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// facts are what events say, in short.
func facts(events []event.Event) (all []string) {
	for _, e := range events {
		all = append(all, fmt.Sprintf("%s %s %d %s %s %s", e.Kind, e.Subject, e.Amount, e.Currency, e.Merchant, e.Operation))
	}
	return all
}

// Whatever moves money is told of once, in the transaction that writes it down; what is
// replayed, declined or refused is not. (R4, B114)
func TestEvents(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			var want []string
			tell := func(kind, key, subject string, amount int) {
				want = append(want, fmt.Sprintf("%s %s %d ARS dev %s", kind, subject, amount, dev(key).Operation()))
			}
			charge := b.charged(t, "c1", 1500)
			tell("charge.succeeded", "c1", charge, 1500)
			refund := b.post(t, "/refunds", "r1", refundBody(charge, 600)).want(t, 201, "").text(t, "id")
			tell("refund.succeeded", "r1", refund, 600)
			checkout := b.post(t, "/checkout", "k1", `{"lines":[{"product":"prod_mate","quantity":1}],"source":"tok_visa"}`).want(t, 201, "")
			tell("charge.succeeded", "k1", checkout.text(t, "charge"), 1500)
			for range 2 { // refusals, and replays of all
				if b.charged(t, "c1", 1500) != charge {
					t.Error("the charge was made anew")
				}
				b.post(t, "/refunds", "r1", refundBody(charge, 600)).want(t, 201, "")
				b.post(t, "/charges", "c2", chargeBody(10, "tok_chargeDeclined")).want(t, 402, "card_declined")
				b.post(t, "/refunds", "r2", refundBody(charge, 901)).want(t, 422, "refund_exceeds_charge")
				b.post(t, "/charges", "c1", chargeBody(1, "tok_visa")).want(t, 422, "idempotency_key_reused")
			}
			if diff := cmp.Diff(want, facts(b.told(t))); diff != "" {
				t.Error(diff)
			}
			for _, e := range b.told(t) {
				if e.ID != event.IDOf(e.Kind, e.Operation) {
					t.Errorf("the id of %s does not come of its operation", e.Subject)
				}
			}
		})
	}
}

// An answer that could not be written leaves no event, and the retry that writes it
// leaves one, under the id that the first would have had. (B114)
func TestEventOfRetry(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			mended := b.breakFinish(t)
			if r := b.post(t, "/charges", "c1", chargeBody(100, "tok_visa")); r.status < 500 {
				t.Fatalf("%d: %s", r.status, r.body)
			}
			if got := b.told(t); len(got) != 0 {
				t.Errorf("told of what was not written: %v", facts(got))
			}
			mended()
			id := b.charged(t, "c1", 100)
			got := b.told(t)
			if len(got) != 1 || got[0].Subject != id || got[0].ID != event.IDOf(event.ChargeSucceeded, dev("c1").Operation()) {
				t.Errorf("told of %v", facts(got))
			}
			b.once(t, 1, 0)
		})
	}
}

// An operation whose key has expired is not told of again. (R3, R4)
func TestEventsOfExpiredKey(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			id := b.charged(t, "c1", 100)
			b.exec(t, "DELETE FROM payments_events") // they were published
			b.exec(t, "DELETE FROM onlyonce_keys")
			if b.charged(t, "c1", 100) != id {
				t.Error("the charge was made anew")
			}
			if got := b.told(t); len(got) != 0 {
				t.Errorf("told again: %v", facts(got))
			}
		})
	}
}
