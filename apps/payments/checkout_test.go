package payments_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/provider"
)

// cartBody is a request to buy some of a product.
func cartBody(product string, quantity int, source string) string {
	return fmt.Sprintf(`{"lines":[{"product":%q,"quantity":%d}],"source":%q}`, product, quantity, source)
}

// orderOf reads the order that a checkout has answered with, or refused.
func (b *bundle) orderOf(t *testing.T, r reply) reply {
	t.Helper()
	id := r.text(t, "id")
	if r.status != http.StatusCreated {
		id = r.text(t, "order")
	}
	return b.get(t, "/orders/"+id).want(t, 200, "")
}

// Everything that a checkout can come to: the stock is taken where the order is
// paid, and nowhere else. (O2, O7, R1, B56)
func TestCheckout(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			paid := b.post(t, "/checkout", "k1", cartBody("prod_mate", 2, "tok_visa")).want(t, 201, "")
			if paid.text(t, "status") != "paid" || paid.text(t, "total") != "3000" || paid.header.Get("Location") != "/orders/"+paid.text(t, "id") {
				t.Errorf("the order is %v %s", paid.header, paid.body)
			}
			if order := b.orderOf(t, paid); order.body != paid.body {
				t.Errorf("the order reads %s, want %s", order.body, paid.body)
			}
			charge := b.get(t, "/charges/"+paid.text(t, "charge")).want(t, 200, "")
			if charge.text(t, "order") != paid.text(t, "id") || charge.text(t, "amount") != "3000" {
				t.Errorf("the charge is %s", charge.body)
			}

			declined := b.post(t, "/checkout", "k2", cartBody("prod_mate", 2, "tok_chargeDeclined")).want(t, 402, "card_declined")
			if b.orderOf(t, declined).text(t, "status") != "declined" || b.get(t, "/charges/"+declined.text(t, "charge")).text(t, "status") != "failed" {
				t.Errorf("what was declined is %s", declined.body)
			}
			unknown := b.post(t, "/checkout", "k3", cartBody("prod_mate", 2, "tok_nobody")).want(t, 422, "unknown_source")
			if b.orderOf(t, unknown).text(t, "status") != "declined" {
				t.Errorf("the order of an unknown source is %s", b.orderOf(t, unknown).body)
			}
			b.post(t, "/checkout", "k4", cartBody("prod_mate", 99, "tok_visa")).want(t, 409, "out_of_stock")
			b.post(t, "/checkout", "k5", cartBody("prod_none", 1, "tok_visa")).want(t, 422, "unknown_product")
			notTaken := b.post(t, "/checkout", "k6", cartBody("prod_mate", 2, "tok_rate_limited")).want(t, 503, "payment_not_taken")
			if notTaken.text(t, "retry_with") != "new_key" || notTaken.header.Get("X-Should-Retry") != "false" || b.orderOf(t, notTaken).text(t, "status") != "cancelled" {
				t.Errorf("what was not taken is %v %s", notTaken.header, notTaken.body)
			}
			for key, first := range map[string]reply{"k1": paid, "k6": notTaken} {
				body := map[string]string{"k1": cartBody("prod_mate", 2, "tok_visa"), "k6": cartBody("prod_mate", 2, "tok_rate_limited")}[key]
				if again := b.post(t, "/checkout", key, body); !again.replayed() || again.body != first.body || again.status != first.status {
					t.Errorf("%s: the replay differs: %d %s", key, again.status, again.body)
				}
			}
			if n := b.stock(t, "prod_mate"); n != 98 {
				t.Errorf("%d of 100 are left, want 98", n)
			}
			for _, r := range []reply{declined, notTaken} { // closed is closed
				b.post(t, "/charges", "pay"+r.text(t, "order"), payBody(r.text(t, "order"), "tok_visa", 3000)).want(t, 409, "order_closed")
			}
			b.post(t, "/charges", "again", payBody(paid.text(t, "id"), "tok_visa", 3000)).want(t, 409, "order_paid")
			b.once(t, 1, 0)
			b.checkLedger(t)
			if got := b.available(t); got != "3000" {
				t.Errorf("balance is %s, want 3000", got)
			}
		})
	}
}

// kinds are processors that can be asked, that honour keys, or both, and what is
// believed of them.
func kinds() map[string]options {
	const visible = time.Second // or a slow machine would break the promise
	return map[string]options{
		"keys and lookup": {timeout: time.Second},
		"keys": {
			timeout: time.Second, processor: processor.Config{NoLookup: true}, promises: &provider.Traits{Memory: time.Hour},
		},
		"lookup": {
			timeout: time.Second, processor: processor.Config{IgnoreKeys: true, VisibleAfter: visible / 10},
			promises: &provider.Traits{Lookup: true, Visible: visible},
			config:   payments.Config{Lease: lease}, // "not found" is proof when it is over
		},
	}
}

// Whatever the processor does to a checkout, the stock is neither lost nor taken
// twice, and the card is charged once for what was bought. (C12, D3, D4, B74)
func TestCheckoutWithEveryFault(t *testing.T) {
	t.Parallel()
	for kind, o := range kinds() {
		for store, open := range apptest.Stores() {
			t.Run(kind+"/"+store, func(t *testing.T) {
				t.Parallel()
				b := setup(t, open(t), o)
				bought := 0
				for _, fault := range processor.Faults() {
					if fault == "error_before_always" {
						continue // never ends; see below
					}
					body := cartBody("prod_mate", 1, "tok_"+fault)
					switch r := b.patiently(t, "/checkout", fault, body); {
					case r.status == http.StatusCreated:
						bought++
					case fault == "rate_limited":
						r.want(t, 503, "payment_not_taken")
					default:
						t.Errorf("%s: %d %s", fault, r.status, r.body)
					}
				}
				if n := b.stock(t, "prod_mate"); bought != 6 || n != 100-bought {
					t.Errorf("%d checkouts were paid, %d of 100 are left", bought, n)
				}
				b.once(t, bought, 0)
				b.checkLedger(t)
			})
		}
	}
}

// A card that never answers keeps its stock, until it is proved that it was not
// charged; then nobody goes on with the checkout, and the stock is given back once.
// (B74, X3)
func TestCheckoutThatIsNeverAnswered(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clock clock
			b := setup(t, open(t), options{config: payments.Config{Now: clock.now}})
			body := cartBody("prod_last_one", 1, "tok_error_before_always")
			for range 3 {
				b.post(t, "/checkout", "k1", body).want(t, 409, "outcome_unknown")
			}
			clock.advance(time.Hour)
			b.endOverdue(t)
			b.post(t, "/checkout", "k2", cartBody("prod_last_one", 1, "tok_visa")).want(t, 409, "out_of_stock")
			listed, _ := b.get(t, "/orders").member(t, "data").([]any)
			order, _ := listed[0].(map[string]any)
			if len(listed) != 1 || order["status"] != "pending" {
				t.Errorf("the orders are %v", listed)
			}
			b.post(t, "/charges", "c1", payBody(fmt.Sprint(order["id"]), "tok_visa", 99900)).want(t, 409, "resource_busy")
			b.settle(t, "k1") // nobody comes back for it
			b.endOverdue(t)
			b.endOverdue(t)
			late := b.post(t, "/checkout", "k1", body).want(t, 503, "payment_not_taken")
			if !late.replayed() || b.orderOf(t, late).text(t, "status") != "cancelled" {
				t.Errorf("the late retry gets %v %s", late.header, late.body)
			}
			b.post(t, "/checkout", "k3", cartBody("prod_last_one", 1, "tok_visa")).want(t, 201, "")
			b.once(t, 1, 0)
		})
	}
}

// clock is what the service takes for the time.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

func (b *bundle) endOverdue(t *testing.T) {
	t.Helper()
	if err := b.service.EndOverdue(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A checkout that has reserved and come no further ends by itself: before its time
// is over a retry buys, later it is cancelled. What may have been charged is left
// to those who can ask.
func TestReservationThatNobodyPays(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clock clock
			b := setup(t, open(t), options{config: payments.Config{Now: clock.now}})
			for _, key := range []string{"early", "late", "gone"} {
				b.post(t, "/checkout", key, cartBody("prod_mate", 1, "tok_error_before")).want(t, 409, "outcome_unknown")
				b.settle(t, key) // nothing happened: only the reservation is left
			}
			b.endOverdue(t)
			if n := b.stock(t, "prod_mate"); n != 97 {
				t.Errorf("%d of 100 are left, want 97", n)
			}
			b.post(t, "/checkout", "early", cartBody("prod_mate", 1, "tok_error_before")).want(t, 201, "")
			clock.advance(15 * time.Minute)
			b.post(t, "/checkout", "late", cartBody("prod_mate", 1, "tok_error_before")).want(t, 503, "payment_not_taken")
			b.endOverdue(t)
			if state, n := b.state(t, "gone"), b.stock(t, "prod_mate"); state != onlyonce.Completed || n != 99 {
				t.Errorf("it is %s, %d of 100 are left", state, n)
			}
			b.once(t, 1, 0)
			b.checkLedger(t)
		})
	}
}

// Checkouts that meet never oversell, and duplicates buy once. (C1)
func TestParallelCheckouts(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			sources := []string{"tok_visa", "tok_chargeDeclined", "tok_visa", "tok_error_after"}
			var wg sync.WaitGroup
			var mu sync.Mutex
			bought := map[string]bool{}
			for i := range 32 {
				wg.Go(func() {
					key := fmt.Sprint("k", i/2) // each is sent twice
					for {
						r, err := b.try(t.Context(), http.MethodPost, "/checkout", cartBody("prod_yerba", 5, sources[i/2%4]), "Idempotency-Key", key)
						if err != nil {
							t.Error(err)
							return
						}
						code := ""
						if r.status != http.StatusCreated {
							code = r.text(t, "error")
						}
						switch code {
						case "request_in_progress", "outcome_unknown", "idempotency_store_unavailable":
							continue // as a client would
						case "card_declined", "out_of_stock":
						case "":
							mu.Lock()
							bought[r.text(t, "id")] = true
							mu.Unlock()
						default:
							t.Errorf("%d %s", r.status, r.body)
						}
						return
					}
				})
			}
			wg.Wait()
			if n := b.stock(t, "prod_yerba"); n != 40-5*len(bought) || len(bought) > 8 {
				t.Errorf("%d times 5 were bought of 40, %d are left", len(bought), n)
			}
			b.once(t, len(bought), 0)
			b.checkLedger(t)
		})
	}
}

// A late retry after the key has expired finds how the checkout ended. (T2)
func TestExpiredKeyFindsItsCheckout(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{config: payments.Config{Retention: time.Millisecond}})
			for source, status := range map[string]int{
				"tok_visa": 201, "tok_chargeDeclined": 402, "tok_rate_limited": 503, "tok_nobody": 422,
			} {
				body := cartBody("prod_mate", 1, source)
				first := b.post(t, "/checkout", source, body)
				if first.status != status {
					t.Fatalf("%s: %d %s", source, first.status, first.body)
				}
				r := first
				for again := true; again; again = r.replayed() { // until the answer has expired
					r = b.post(t, "/checkout", source, body)
				}
				if r.status != status || (r.body != first.body && status != 422) {
					t.Errorf("%s: %d %s, first %s", source, r.status, r.body, first.body)
				}
				for {
					r := b.post(t, "/checkout", source, cartBody("prod_mate", 2, source)).want(t, 422, "idempotency_key_reused")
					if strings.Contains(r.body, "ord_") {
						break // said by the service, not by the record that was there still
					}
				}
			}
			b.once(t, 1, 0)
			if n := b.stock(t, "prod_mate"); n != 99 {
				t.Errorf("%d of 100 are left, want 99", n)
			}
		})
	}
}

// A reservation of which the key knows nothing any more is for a person: the card
// may have been charged under the earlier life.
func TestReservationOfAnEarlierLife(t *testing.T) {
	t.Parallel()
	var clock clock
	b := setup(t, apptest.SQLite(t), options{config: payments.Config{Now: clock.now}})
	b.lose()
	body := cartBody("prod_mate", 1, "tok_visa")
	b.post(t, "/checkout", "k1", body).want(t, 409, "outcome_unknown")
	b.mend()
	b.exec(t, "DELETE FROM onlyonce_keys WHERE key = 'k1'")
	clock.advance(time.Hour)
	b.endOverdue(t)
	if !strings.Contains(b.log.String(), "a person is needed") {
		t.Error("nobody is told")
	}
	for range 2 {
		b.post(t, "/checkout", "k1", body).want(t, 409, "outcome_unknown")
	}
	b.once(t, 0, 0)
	if n := b.stock(t, "prod_mate"); n != 99 {
		t.Errorf("%d of 100 are left, want 99", n)
	}
}

// Every request that moves money bears the key that is derived for its step, also
// the second time, and our own reference in its bytes. (D1, D2, B76, B106, B108)
func TestEveryCallIsKeyed(t *testing.T) {
	t.Parallel()
	b := setup(t, apptest.SQLite(t), options{timeout: time.Second, processor: processor.Config{NoLookup: true}})
	var mu sync.Mutex
	seen := map[string]map[string]int{} // by path and derived key
	f := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			mu.Lock()
			if seen[r.URL.Path] == nil {
				seen[r.URL.Path] = map[string]int{}
			}
			seen[r.URL.Path][r.Header.Get("Idempotency-Key")]++
			mu.Unlock()
		}
		b.processor.ServeHTTP(w, r)
	})
	b.fault.Store(&f)
	b.patiently(t, "/charges", "k1", chargeBody(100, "tok_error_after")).want(t, 201, "")
	b.patiently(t, "/checkout", "k2", cartBody("prod_mate", 1, "tok_gateway_timeout_after")).want(t, 201, "")
	id := b.charged(t, "k3", 100)
	b.post(t, "/refunds", "k4", refundBody(id, 1)).want(t, 201, "")

	mu.Lock()
	defer mu.Unlock()
	derived := func(key, step string) string {
		return onlyonce.Derivation{Key: dev(key), Step: step, Provider: "processor"}.DerivedKey()
	}
	for path, want := range map[string]map[string]int{
		"/v1/charges": {derived("k1", "charge"): 2, derived("k2", "charge"): 2, derived("k3", "charge"): 1},
		"/v1/refunds": {derived("k4", "refund"): 1},
	} {
		if fmt.Sprint(seen[path]) != fmt.Sprint(want) {
			t.Errorf("%s: keys %v, want %v", path, seen[path], want)
		}
	}
	for _, key := range []string{"k1", "k2"} {
		steps, err := b.db.Keys().Steps(context.WithoutCancel(t.Context()), dev(key))
		if err != nil {
			t.Fatal(err)
		}
		last := steps[len(steps)-1]
		reference := onlyonce.Derivation{Key: dev(key), Step: "charge", Provider: "processor"}.Reference()
		if last.Reference != reference || !strings.Contains(string(last.Request), reference) {
			t.Errorf("%s: the step has reference %s and request %s", key, last.Reference, last.Request)
		}
		if b.processor.Stats().ChargesByReference[reference] != 1 {
			t.Errorf("%s: the processor does not know the reference", key)
		}
	}
}
