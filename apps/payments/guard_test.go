package payments_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
)

// A page that is loaded again makes a new key: while what became of the first is
// not known, the order is nobody else's. Then the first one decides. (C12, B56, B75)
func TestNewKeyAfterReload(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			pay := b.ordered(t)
			b.lose()
			b.post(t, "/charges", "c1", pay).want(t, 409, "outcome_unknown")
			b.mend()
			for range 2 {
				busy := b.post(t, "/charges", "c2", pay).want(t, 409, "resource_busy")
				if busy.header.Get("Retry-After") == "" || busy.header.Get("X-Should-Retry") != "true" || busy.text(t, "operation") != dev("c1").Operation() {
					t.Errorf("it does not say what to wait for: %v %s", busy.header, busy.body)
				}
			}
			b.post(t, "/charges", "c3", payBody("o1", "tok_visa", 1)).want(t, 409, "resource_busy") // not even looked at
			b.settle(t, "c1")                                                                       // proved not applied: somebody else may
			b.post(t, "/charges", "c2", pay).want(t, 201, "")
			b.post(t, "/charges", "c1", pay).want(t, 409, "order_paid")
			b.once(t, 1, 0)
			b.checkLedger(t)
		})
	}
}

// A charge that was made and could not be written down keeps its order: another
// key does not pay it again, its own goes on. (C12, O2)
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

// The same for a refund and its charge.
func TestUnwrittenRefundKeepsItsCharge(t *testing.T) {
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
			b.post(t, "/refunds", "r2", refundBody(id, 1)).want(t, 409, "resource_busy")
			b.post(t, "/refunds", "r1", refundBody(id, 700)).want(t, 201, "")
			b.once(t, 1, 1)
			if got := b.available(t); got != "300" {
				t.Errorf("balance is %s, want 300", got)
			}
		})
	}
}

// Two merchants' orders of one name are two orders. (S1, C12)
func TestResourcesAreTheMerchants(t *testing.T) {
	t.Parallel()
	acmeKey, acmeHash := payments.NewAPIKey()
	evilKey, evilHash := payments.NewAPIKey()
	merchants, err := payments.ParseMerchants(map[string][]string{"acme": {acmeHash}, "evil": {evilHash}})
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, apptest.SQLite(t), options{config: payments.Config{Merchants: merchants}})
	pay := func(key, source string) reply {
		auth := []string{"Authorization", "Bearer " + key, "Idempotency-Key", "k"}
		b.call(t, http.MethodPut, "/orders/o1", orderBody("prod_mate", 1), auth...)
		return b.call(t, http.MethodPost, "/charges", payBody("o1", source, 1500), auth...)
	}
	pay(acmeKey, "tok_error_after").want(t, 409, "outcome_unknown")
	pay(evilKey, "tok_visa").want(t, 201, "")
	pay(acmeKey, "tok_error_after").want(t, 201, "")
	b.once(t, 2, 0)
}

// An id that is no name of anything is refused like one that is not there.
func TestOddResources(t *testing.T) {
	t.Parallel()
	b := setup(t, apptest.SQLite(t), options{})
	for i, id := range []string{"a\nb", "ключ", strings.Repeat("🧉", 100), "\u007f"} {
		key := string(rune('a' + i))
		body := strings.ReplaceAll(payBody("ID", "tok_visa", 1), "ID", strings.ReplaceAll(id, "\n", `\n`))
		b.post(t, "/charges", key, body).want(t, 422, "unknown_order")
		refund := strings.ReplaceAll(refundBody("ID", 1), "ID", strings.ReplaceAll(id, "\n", `\n`))
		b.post(t, "/refunds", "r"+key, refund).want(t, 422, "unknown_charge")
	}
	b.once(t, 0, 0)
}

// Money that moved for an order which cannot be paid any more is not written off:
// the key goes in doubt, and a person is needed.
func TestOrderThatWasPaidMeanwhile(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			pay := b.ordered(t)
			other := b.charged(t, "c0", 1500)
			b.loseAnswers()
			b.post(t, "/charges", "c1", pay).want(t, 409, "outcome_unknown")
			b.mend()
			f := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				// Behind the service's back, between its check and its last step.
				b.exec(t, "UPDATE payments_orders SET status = 'paid', charge_id = ? WHERE id = 'o1'", other)
				b.processor.ServeHTTP(w, r)
			})
			b.fault.Store(&f)
			for range 2 {
				b.post(t, "/charges", "c1", pay).want(t, 409, "outcome_unknown")
			}
			if b.state(t, "c1") != onlyonce.InDoubt || !strings.Contains(b.log.String(), "a person is needed") {
				t.Errorf("the key is %s, and nobody is told", b.state(t, "c1"))
			}
			b.checkLedger(t)
		})
	}
}
