package payments_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// exec runs a statement behind the service's back.
func (b *bundle) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if err := b.db.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	}); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// breakFinish makes the transactions fail that write what the processor has
// done, until mended is called.
func (b *bundle) breakFinish(t *testing.T) (mended func()) {
	t.Helper()
	b.exec(t, "ALTER TABLE payments_transfers RENAME TO payments_broken")
	return func() { b.exec(t, "ALTER TABLE payments_broken RENAME TO payments_transfers") }
}

// expired makes a key gone, as it would be months after its last attempt.
func (b *bundle) expired(t *testing.T, key string) {
	t.Helper()
	b.exec(t, "DELETE FROM onlyonce_keys WHERE scope = 'dev' AND key = ?", key)
	if _, found, err := b.db.Keys().Get(t.Context(), onlyonce.Key{Scope: "dev", Value: key}); err != nil || found {
		t.Fatalf("key %s: found %v, %v", key, found, err)
	}
}

// settle settles a key in doubt as applied.
func (b *bundle) settle(t *testing.T, key string, status int, body string) {
	t.Helper()
	_, err := b.service.Engine().Settle(t.Context(), onlyonce.Settlement{
		Key:   onlyonce.Key{Scope: "dev", Value: key},
		Actor: "op", Reason: "seen at the processor", Applied: &onlyonce.Answer{Status: status, Body: []byte(body)},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ordered makes the order o1 and returns the request that pays it.
func (b *bundle) ordered(t *testing.T) string {
	t.Helper()
	b.call(t, http.MethodPut, "/orders/o1", orderBody("prod_mate", 1)).want(t, 201, "")
	return payBody("o1", "tok_visa", 1500)
}

// A charge that was made and could not be written down frees its key, not its
// order: another key does not pay it again. (C12, O2)
func TestUnwrittenChargeKeepsItsOrder(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			pay := b.ordered(t)
			mended := b.breakFinish(t)
			if r := b.post(t, "/charges", "c1", pay); r.status < 500 {
				t.Fatalf("the first attempt did not fail: %d %s", r.status, r.body)
			}
			mended()
			for range 2 {
				b.post(t, "/charges", "c2", pay).want(t, 409, "resource_busy")
			}
			b.once(t, 1, 0)
			b.post(t, "/charges", "c1", pay).want(t, 201, "")
			b.post(t, "/charges", "c2", pay).want(t, 409, "order_paid")
			b.once(t, 1, 0)
			b.checkLedger(t)
		})
	}
}

// The same for what a refund has reserved.
func TestUnwrittenRefundKeepsItsAmount(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			id := b.charged(t, "c1", 1000)
			mended := b.breakFinish(t)
			if r := b.post(t, "/refunds", "r1", refundBody(id, 700)); r.status < 500 {
				t.Fatalf("the first attempt did not fail: %d %s", r.status, r.body)
			}
			mended()
			for range 2 {
				b.post(t, "/refunds", "r2", refundBody(id, 400)).want(t, 422, "refund_exceeds_charge")
			}
			if got := b.get(t, "/charges/"+id).text(t, "refund_pending"); got != "700" {
				t.Errorf("%s are reserved, want 700", got) // what the processor refuses is not proof
			}
			b.post(t, "/refunds", "r1", refundBody(id, 700)).want(t, 201, "")
			b.once(t, 1, 1)
			if got := b.available(t); got != "300" {
				t.Errorf("balance is %s, want 300", got)
			}
		})
	}
}

// When the key has expired meanwhile, the processor is asked. Its word keeps the
// order, and completes the same request in a new life of the key, though the
// processor has forgotten the derived key. (T2)
func TestUnwrittenChargeOutlivesItsKey(t *testing.T) {
	t.Parallel()
	o := options{config: payments.Config{Retention: time.Millisecond}, processor: processor.Config{KeyMemory: time.Nanosecond}}
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), o)
			pay := b.ordered(t)
			id := b.charged(t, "c0", 1000)
			mended := b.breakFinish(t)
			b.post(t, "/charges", "c1", pay)
			b.post(t, "/refunds", "r1", refundBody(id, 700))
			mended()
			b.once(t, 2, 1)
			b.expired(t, "c1")
			b.expired(t, "r1")

			b.lose() // who cannot be asked proves nothing
			b.post(t, "/charges", "c2", pay).want(t, 409, "resource_busy")
			b.post(t, "/charges", "c1", pay).want(t, 409, "resource_busy")
			b.post(t, "/refunds", "r1", refundBody(id, 700)).want(t, 409, "resource_busy")
			b.mend()
			b.post(t, "/charges", "c3", pay).want(t, 409, "resource_busy")
			b.post(t, "/refunds", "r2", refundBody(id, 400)).want(t, 422, "refund_exceeds_charge")

			mended = b.breakFinish(t) // the new life fails as well, and sends nothing
			for range 2 {
				for path, body := range map[string]string{"/charges": pay, "/refunds": refundBody(id, 700)} {
					if r := b.post(t, path, path[1:2]+"1", body); r.status < 500 {
						t.Errorf("%s: %d %s", path, r.status, r.body)
					}
				}
			}
			mended()
			b.once(t, 2, 1)
			b.post(t, "/charges", "c1", pay).want(t, 201, "")
			b.post(t, "/refunds", "r1", refundBody(id, 700)).want(t, 201, "")
			b.once(t, 2, 1)
			if got := b.available(t); got != "1800" {
				t.Errorf("balance is %s, want 1800", got)
			}
		})
	}
}

// The hold of a key that is gone is given back if the processor knows nothing,
// and else kept and reported.
func TestHoldOfAKeyThatIsGone(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{config: payments.Config{Retention: time.Millisecond}})
			pay := b.ordered(t)
			b.exec(t, `UPDATE payments_orders SET status = 'paying', held_by = 'op_gone', held_key = 'gone', held_fence = 1,
				held_asked = '{"amount":1500,"currency":"ARS"}'`)
			b.lose()
			b.post(t, "/charges", "c1", pay).want(t, 409, "resource_busy")
			b.mend()
			mended := b.breakFinish(t)
			b.post(t, "/charges", "c2", pay) // it is free: this one pays, and fails to write it down
			mended()
			b.once(t, 1, 0)
			b.expired(t, "c2")
			b.post(t, "/charges", "c3", pay).want(t, 409, "resource_busy")
			if !strings.Contains(b.log.String(), "a person is needed") {
				t.Error("nobody is told")
			}
			b.once(t, 1, 0)
		})
	}
}

// A key that is used again says nothing of what an earlier life of it has left
// held: the processor is asked.
func TestHoldOfAnEarlierLife(t *testing.T) {
	t.Parallel()
	b := setup(t, apptest.SQLite(t), options{})
	pay := b.ordered(t)
	b.post(t, "/charges", "again", chargeBody(1500, "tok_rate_limited")).want(t, 503, "processor_unavailable")
	b.exec(t, `UPDATE payments_orders SET status = 'paying', held_by = 'op_earlier', held_key = 'again', held_fence = 1,
		held_asked = '{"amount":1500,"currency":"ARS"}'`)
	b.lose()
	b.post(t, "/charges", "c1", pay).want(t, 409, "resource_busy")
	b.mend()
	b.post(t, "/charges", "c1", pay).want(t, 201, "")
}

// What an operator settles as applied is written down, once the processor is
// seen to have done it. (X3)
func TestSettledAsApplied(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			pay := b.ordered(t)
			id := b.charged(t, "c0", 1000)
			b.loseAnswers()
			b.post(t, "/charges", "c1", pay).want(t, 409, "outcome_unknown")
			b.post(t, "/refunds", "r1", refundBody(id, 700)).want(t, 409, "outcome_unknown")
			b.mend()
			b.settle(t, "c1", 201, `{"id":"ch_by_hand"}`)
			b.settle(t, "r1", 201, `{"id":"re_by_hand"}`)
			for key, want := range map[string]payments.Hold{"c1": {Order: "o1"}, "r1": {}} {
				held, err := payments.Holds(t.Context(), b.db, onlyonce.Key{Scope: "dev", Value: key})
				if err != nil || len(held) != 1 || held[0].Order != want.Order || (held[0].Refund == "") != (want.Order != "") || held[0].Reference == "" {
					t.Errorf("%s holds %+v, %v", key, held, err)
				}
			}

			b.post(t, "/charges", "c2", pay).want(t, 409, "order_paid")
			b.post(t, "/refunds", "r2", refundBody(id, 400)).want(t, 422, "refund_exceeds_charge")
			paid := b.get(t, "/charges/ch_by_hand").want(t, 200, "")
			if paid.text(t, "source") != "tok_visa" || paid.text(t, "order") != "o1" {
				t.Errorf("the charge is %s", paid.body)
			}
			if r := b.get(t, "/charges/"+id); r.text(t, "refunded") != "700" || r.text(t, "refund_pending") != "0" {
				t.Errorf("the refund is not written down: %s", r.body)
			}
			if held, err := payments.Holds(t.Context(), b.db, onlyonce.Key{Scope: "dev", Value: "c1"}); err != nil || len(held) != 0 {
				t.Errorf("it still holds %+v, %v", held, err)
			}
			if got := b.available(t); got != "1800" {
				t.Errorf("balance is %s, want 1800", got)
			}
			b.once(t, 2, 1)
			b.checkLedger(t)
		})
	}
}

// Where the processor knows nothing, a success that an operator tells of keeps
// its hold, and a refusal ends it.
func TestSettledWithoutTheProcessor(t *testing.T) {
	t.Parallel()
	for answer, want := range map[int]int{201: 409, 402: 201} {
		t.Run(http.StatusText(answer), func(t *testing.T) {
			t.Parallel()
			for name, open := range apptest.Stores() {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					b := setup(t, open(t), options{})
					pay := b.ordered(t)
					b.lose()
					b.post(t, "/charges", "c1", pay).want(t, 409, "outcome_unknown")
					b.mend()
					b.settle(t, "c1", answer, "{}")
					if r := b.post(t, "/charges", "c2", pay); r.status != want {
						t.Errorf("the next charge gets %d %s, want %d", r.status, r.body, want)
					}
					if told := strings.Contains(b.log.String(), "a person is needed"); told != (want == 409) {
						t.Errorf("a person is called: %t", told)
					}
				})
			}
		})
	}
}

// Housekeeping ends holds that nobody runs into.
func TestRunEndsHolds(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			pay := b.ordered(t)
			b.loseAnswers()
			b.post(t, "/charges", "c1", pay).want(t, 409, "outcome_unknown")
			b.mend()
			b.settle(t, "c1", 201, "{}")
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			var running sync.WaitGroup
			running.Go(func() { b.service.Run(ctx) })
			paid := false
			for !paid && ctx.Err() == nil {
				paid = b.get(t, "/orders/o1").text(t, "status") == "paid"
			}
			stop()
			running.Wait()
			if !paid {
				t.Error("the order stays unpaid")
			}
			b.once(t, 1, 0)
		})
	}
}
