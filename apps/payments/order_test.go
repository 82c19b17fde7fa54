package payments_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
)

func orderBody(product string, quantity int) string {
	return fmt.Sprintf(`{"lines":[{"product":%q,"quantity":%d}]}`, product, quantity)
}

// stock is how many of a product are left.
func (b *bundle) stock(t *testing.T, id string) int {
	t.Helper()
	var v struct {
		Data []struct {
			ID    string
			Stock int
		}
	}
	if err := json.Unmarshal([]byte(b.get(t, "/products").want(t, 200, "").body), &v); err != nil {
		t.Fatal(err)
	}
	for _, p := range v.Data {
		if p.ID == id {
			return p.Stock
		}
	}
	t.Fatalf("there is no product %s", id)
	return 0
}

func TestOrder(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			body := `{"lines":[{"product":"prod_yerba","quantity":2},{"product":"prod_mate","quantity":1}]}`
			first := b.post(t, "/orders", "o1", body).want(t, 201, "")
			if first.text(t, "total") != "9900" || first.text(t, "status") != "open" {
				t.Errorf("order is %s", first.body)
			}
			if again := b.post(t, "/orders", "o1", body); !again.replayed() || again.body != first.body {
				t.Errorf("replay %s of %s", again.body, first.body)
			}
			if got := b.get(t, "/orders/"+first.text(t, "id")).want(t, 200, ""); got.body != first.body {
				t.Errorf("the order reads %s, want %s", got.body, first.body)
			}
			if n := b.stock(t, "prod_yerba"); n != 38 {
				t.Errorf("%d of 40 are left, want 38", n)
			}
			// What is refused takes nothing, of no line.
			r := b.post(t, "/orders", "o2", `{"lines":[{"product":"prod_mate","quantity":1},{"product":"prod_yerba","quantity":39}]}`).want(t, 409, "out_of_stock")
			if r.text(t, "field") != "lines/1/quantity" || r.text(t, "available") != "38" {
				t.Errorf("it does not say what is missing: %s", r.body)
			}
			b.post(t, "/orders", "o3", orderBody("prod_none", 1)).want(t, 422, "unknown_product")
			b.post(t, "/orders", "o4", `{"lines":[{"product":"prod_mate","quantity":1},{"product":"prod_poster","quantity":1}]}`).want(t, 422, "mixed_currencies")
			if n := b.stock(t, "prod_mate"); n != 99 {
				t.Errorf("%d of 100 are left, want 99", n)
			}
		})
	}
}

// Stock is never oversold, by orders under keys or by named ones, and every
// duplicate takes its stock once.
func TestStockIsNeverOversold(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			var wg sync.WaitGroup
			var mu sync.Mutex
			sold := map[string]bool{}
			for i := range 48 {
				wg.Go(func() {
					name := strconv.Itoa(i / 2) // each is sent twice
					method, path := http.MethodPost, "/orders"
					if i%4 < 2 {
						method, path = http.MethodPut, "/orders/named-"+name
					}
					for {
						r, err := b.try(t.Context(), method, path, orderBody("prod_yerba", 3), "Idempotency-Key", name)
						if err != nil {
							t.Error(err)
							return
						}
						if r.status == 503 || (r.status == 409 && r.text(t, "error") == "request_in_progress") {
							continue // as a client would
						}
						mu.Lock()
						defer mu.Unlock()
						switch {
						case r.status < 300:
							sold[r.text(t, "id")] = true
						default:
							r.want(t, 409, "out_of_stock")
						}
						return
					}
				})
			}
			wg.Wait()
			if len(sold) != 13 || b.stock(t, "prod_yerba") != 1 {
				t.Errorf("%d orders of 3 were taken of 40, %d are left", len(sold), b.stock(t, "prod_yerba"))
			}
		})
	}
}

// A client's own id makes an order idempotent without a key.
func TestPutOrder(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			put := func(id, body string) reply {
				return b.call(t, http.MethodPut, "/orders/"+id, body, "Idempotency-Key", "k")
			}
			first := put("order-1", orderBody("prod_mate", 2)).want(t, 201, "")
			if got := first.header.Get("Idempotency-Status"); got != "ignored" {
				t.Errorf("a key is %q here, want ignored", got)
			}
			if again := put("order-1", `{"lines":[{"quantity":2,"product":"prod_mate"}]}`).want(t, 200, ""); again.body != first.body {
				t.Errorf("the same order again is %s, first %s", again.body, first.body)
			}
			put("order-1", orderBody("prod_mate", 3)).want(t, 409, "order_exists")
			put("ord_x", orderBody("prod_mate", 3)).want(t, 400, "invalid_request")
			put("order-2", orderBody("prod_last_one", 2)).want(t, 409, "out_of_stock")
			put("order-2", orderBody("prod_last_one", 1)).want(t, 201, "") // nothing was pinned
			if n := b.stock(t, "prod_mate"); n != 98 {
				t.Errorf("%d of 100 are left, want 98", n)
			}
			if got := b.get(t, "/orders/order-1").want(t, 200, ""); got.body != first.body {
				t.Errorf("the order reads %s, want %s", got.body, first.body)
			}
		})
	}
}

func payBody(order, source string, amount int) string {
	return fmt.Sprintf(`{"amount":%d,"currency":"ARS","source":%q,"order":%q}`, amount, source, order)
}

// An order is paid by one charge, whatever the keys; a declined card leaves it
// open for another one, a charge in doubt does not. (C12, B56, B75)
func TestOrderIsPaidOnce(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			b.call(t, http.MethodPut, "/orders/o1", orderBody("prod_mate", 1)).want(t, 201, "")
			b.post(t, "/charges", "k0", payBody("none", "tok_visa", 1500)).want(t, 422, "unknown_order")
			b.post(t, "/charges", "k1", payBody("o1", "tok_visa", 1501)).want(t, 422, "order_amount_differs")
			b.post(t, "/charges", "k2", payBody("o1", "tok_chargeDeclined", 1500)).want(t, 402, "card_declined")
			b.loseAnswers()
			b.post(t, "/charges", "k3", payBody("o1", "tok_visa", 1500)).want(t, 409, "outcome_unknown")
			b.mend()
			busy := b.post(t, "/charges", "k4", payBody("o1", "tok_visa", 1500)).want(t, 409, "resource_busy")
			if busy.header.Get("Retry-After") == "" {
				t.Error("it does not say when to come back")
			}
			paid := b.post(t, "/charges", "k3", payBody("o1", "tok_visa", 1500)).want(t, 201, "")
			again := b.post(t, "/charges", "k4", payBody("o1", "tok_visa", 1500)).want(t, 409, "order_paid")
			if again.text(t, "charge") != paid.text(t, "id") {
				t.Errorf("it does not name the charge: %s", again.body)
			}
			if got := b.get(t, "/orders/o1"); got.text(t, "status") != "paid" || got.text(t, "charge") != paid.text(t, "id") {
				t.Errorf("the order is %s", got.body)
			}
			b.once(t, 1, 0)
		})
	}
}

func TestParallelPaymentsOfOneOrder(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			b.call(t, http.MethodPut, "/orders/o1", orderBody("prod_mate", 1)).want(t, 201, "")
			var wg sync.WaitGroup
			for i := range 16 {
				wg.Go(func() {
					r, err := b.try(t.Context(), http.MethodPost, "/charges", payBody("o1", "tok_visa", 1500), "Idempotency-Key", strconv.Itoa(i))
					if err != nil || (r.status != 201 && r.status != 409) {
						t.Errorf("%d %s, %v", r.status, r.body, err)
					}
				})
			}
			wg.Wait()
			b.once(t, 1, 0)
		})
	}
}

// A late retry after the key has expired finds the order. (T2)
func TestExpiredKeyFindsItsOrder(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{config: payments.Config{Retention: time.Millisecond}})
			first := b.post(t, "/orders", "o1", orderBody("prod_mate", 1)).want(t, 201, "")
			for {
				if r := b.post(t, "/orders", "o1", orderBody("prod_mate", 1)).want(t, 201, ""); !r.replayed() {
					if r.body != first.body {
						t.Errorf("another order: %s, first %s", r.body, first.body)
					}
					break
				}
			}
			if n := b.stock(t, "prod_mate"); n != 99 {
				t.Errorf("%d of 100 are left, want 99", n)
			}
		})
	}
}
