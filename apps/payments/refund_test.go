package payments_test

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
)

func refundBody(charge string, amount int) string {
	return fmt.Sprintf(`{"charge":%q,"amount":%d}`, charge, amount)
}

func TestRefund(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			id := b.charged(t, "c1", 1500)
			first := b.post(t, "/refunds", "r1", refundBody(id, 600)).want(t, 201, "")
			again := b.post(t, "/refunds", "r1", refundBody(id, 600)).want(t, 201, "")
			if !again.replayed() || again.body != first.body || first.text(t, "status") != "succeeded" {
				t.Errorf("replay %s of %s", again.body, first.body)
			}
			if got := b.get(t, "/refunds/"+first.text(t, "id")).want(t, 200, ""); got.body != first.body {
				t.Errorf("the refund reads %s, want %s", got.body, first.body)
			}
			b.post(t, "/refunds", "r2", refundBody(id, 901)).want(t, 422, "refund_exceeds_charge")
			b.post(t, "/refunds", "r3", refundBody("ch_none", 1)).want(t, 422, "unknown_charge")
			b.post(t, "/refunds", "r4", refundBody(id, 900)).want(t, 201, "")
			b.post(t, "/refunds", "r5", refundBody(id, 1)).want(t, 422, "refund_exceeds_charge")
			declined := b.post(t, "/charges", "c2", chargeBody(10, "tok_chargeDeclined")).want(t, 402, "card_declined").text(t, "charge")
			b.post(t, "/refunds", "r6", refundBody(declined, 1)).want(t, 422, "charge_not_refundable")
			if got := b.get(t, "/charges/"+id).text(t, "refunded"); got != "1500" {
				t.Errorf("%s of 1500 are refunded", got)
			}
			if got := b.available(t); got != "0" {
				t.Errorf("balance is %s, want 0", got)
			}
			b.once(t, 1, 2)
		})
	}
}

// Parallel refunds under different keys never give back more than was taken: they
// come one after the other. (C12)
func TestParallelRefundsNeverExceed(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			id := b.charged(t, "c1", 1000)
			var wg sync.WaitGroup
			var mu sync.Mutex
			given := 0
			for i := range 30 {
				wg.Go(func() {
					r, err := b.try(t.Context(), http.MethodPost, "/refunds", refundBody(id, 70), "Idempotency-Key", "r"+strconv.Itoa(i))
					for err == nil && r.status == 409 { // as a client would
						r.want(t, 409, "resource_busy")
						r, err = b.try(t.Context(), http.MethodPost, "/refunds", refundBody(id, 70), "Idempotency-Key", "r"+strconv.Itoa(i))
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					switch r.status {
					case 201:
						given += 70
					case 422:
					default:
						t.Errorf("%d: %s", r.status, r.body)
					}
				})
			}
			wg.Wait()
			if given != 980 || b.available(t) != "20" {
				t.Errorf("%d of 1000 were given back in parts of 70; balance %s", given, b.available(t))
			}
			b.once(t, 1, 14)
		})
	}
}

// While a refund is in doubt nobody else refunds the charge, whatever the key or
// the amount. (C12)
func TestRefundInDoubtKeepsItsCharge(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			id, other := b.charged(t, "c1", 1000), b.charged(t, "c2", 1000)
			b.loseAnswers()
			b.post(t, "/refunds", "r1", refundBody(id, 600)).want(t, 409, "outcome_unknown")
			b.post(t, "/refunds", "r1", refundBody(id, 600)).want(t, 409, "outcome_unknown")
			busy := b.post(t, "/refunds", "r2", refundBody(id, 1)).want(t, 409, "resource_busy")
			if busy.header.Get("Retry-After") == "" || busy.text(t, "operation") != dev("r1").Operation() {
				t.Errorf("it does not say what to wait for: %v %s", busy.header, busy.body)
			}
			if got := b.get(t, "/refunds").body; got != `{"data":[],"next_cursor":null}` {
				t.Errorf("a refund of which nothing is known is listed: %s", got)
			}
			b.mend()
			b.post(t, "/refunds", "r4", refundBody(other, 1)).want(t, 201, "")
			b.post(t, "/refunds", "r1", refundBody(id, 600)).want(t, 201, "")
			b.post(t, "/refunds", "r3", refundBody(id, 401)).want(t, 422, "refund_exceeds_charge")
			b.post(t, "/refunds", "r2", refundBody(id, 1)).want(t, 201, "")
			b.once(t, 2, 3)
		})
	}
}

// A refund of which an operator has proved that it came to nothing gives the
// charge free. (X3, C12)
func TestRefundThatCameToNothing(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			id := b.charged(t, "c1", 1000)
			b.lose()
			b.post(t, "/refunds", "r1", refundBody(id, 700)).want(t, 409, "outcome_unknown")
			b.mend()
			b.post(t, "/refunds", "r2", refundBody(id, 400)).want(t, 409, "resource_busy")
			b.settle(t, "r1")
			b.post(t, "/refunds", "r3", refundBody(id, 400)).want(t, 201, "")
			// The settled key may run again, and finds less than it wants.
			b.post(t, "/refunds", "r1", refundBody(id, 700)).want(t, 422, "refund_exceeds_charge")
			b.once(t, 1, 1)
		})
	}
}

// A refund that the processor took nothing of frees its key and the charge.
func TestRefundThatWasNotSent(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			id := b.charged(t, "c1", 1000)
			f := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, `{"code":"rate_limited"}`, http.StatusTooManyRequests)
			})
			b.fault.Store(&f)
			b.post(t, "/refunds", "r1", refundBody(id, 700)).want(t, 503, "processor_unavailable")
			b.mend()
			b.post(t, "/refunds", "r2", refundBody(id, 100)).want(t, 201, "")
			b.post(t, "/refunds", "r1", refundBody(id, 700)).want(t, 201, "")
			b.once(t, 1, 2)
		})
	}
}

// What the processor refuses is a failed refund, and stays one. (O2)
func TestRefusedRefund(t *testing.T) {
	t.Parallel()
	for answered, want := range map[string]string{
		`{"code":"refund_exceeds_charge","message":"too much"}`: "refund_exceeds_charge",
		`{"code":"charge_not_refundable","message":"declined"}`: "charge_not_refundable",
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			b := setup(t, apptest.SQLite(t), options{})
			id := b.charged(t, "c1", 1000)
			f := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, answered, http.StatusUnprocessableEntity) })
			b.fault.Store(&f)
			first := b.post(t, "/refunds", "r1", refundBody(id, 700)).want(t, 422, want)
			b.mend()
			if again := b.post(t, "/refunds", "r1", refundBody(id, 700)); !again.replayed() || again.body != first.body {
				t.Errorf("the replay differs: %s", again.body)
			}
			if r := b.get(t, "/refunds/"+first.text(t, "refund")); r.text(t, "status") != "failed" || r.text(t, "failure_code") != want {
				t.Errorf("the refund is %s", r.body)
			}
			b.post(t, "/refunds", "r2", refundBody(id, 1000)).want(t, 201, "")
			b.checkLedger(t)
			b.once(t, 1, 1)
		})
	}
}
