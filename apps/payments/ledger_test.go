package payments_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// Whatever happens, each transfer's entries sum to zero in their currency, and
// the ledger says what the processor says.
func TestLedger(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			const seed = 7
			var wg sync.WaitGroup
			for c := range 4 {
				wg.Go(func() { b.randomly(t, rand.New(rand.NewPCG(seed, uint64(c))), c) })
			}
			wg.Wait()
			b.checkLedger(t)
			stats := b.processor.Stats()
			if len(stats.DuplicateCharges)+len(stats.DuplicateRefunds) > 0 {
				t.Errorf("duplicates: %+v", stats)
			}
			if got, want := b.available(t), strconv.FormatInt(stats.Charged["ARS"]-stats.Refunded["ARS"], 10); got != want {
				t.Errorf("balance is %s, the processor has %s", got, want)
			}
		})
	}
}

// randomly charges and refunds, some of it twice.
func (b *bundle) randomly(t *testing.T, r *rand.Rand, client int) {
	t.Helper()
	sources := []string{"tok_visa", "tok_chargeDeclined", "tok_visa", "tok_error_after"}
	send := func(path, key, body string) reply {
		for {
			got, err := b.try(t.Context(), http.MethodPost, path, body, "Idempotency-Key", key)
			if err != nil {
				t.Error(err)
				return reply{}
			}
			if got.status == 409 || got.status == 503 {
				continue // with the same key, as a client would
			}
			return got
		}
	}
	for i := range 8 {
		key := strconv.Itoa(client) + "-" + strconv.Itoa(i)
		charge := send("/charges", "c"+key, chargeBody(r.IntN(5000)+1, sources[r.IntN(len(sources))]))
		if charge.status != 201 {
			continue
		}
		for range r.IntN(3) {
			send("/refunds", "r"+key+"-"+strconv.Itoa(r.IntN(2)), refundBody(charge.text(t, "id"), 100))
		}
	}
}

func (b *bundle) checkLedger(t *testing.T) {
	t.Helper()
	path := "/ledger?limit=100"
	for path != "" {
		r := b.get(t, path).want(t, 200, "")
		var page struct {
			Data []struct {
				ID      string
				Entries []struct {
					Currency string
					Amount   int64
				}
			}
			Next string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(r.body), &page); err != nil {
			t.Fatal(err)
		}
		for _, transfer := range page.Data {
			sums := map[string]int64{}
			for _, e := range transfer.Entries {
				sums[e.Currency] += e.Amount
			}
			for currency, sum := range sums {
				if sum != 0 || len(transfer.Entries) < 2 {
					t.Errorf("%s sums to %d in %s", transfer.ID, sum, currency)
				}
			}
		}
		path = ""
		if page.Next != "" {
			path = "/ledger?limit=100&cursor=" + page.Next
		}
	}
}

// The database itself refuses what the service must never write.
func TestDatabaseGuards(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			id := b.charged(t, "c1", 1000)
			b.post(t, "/refunds", "r1", refundBody(id, 400)).want(t, 201, "")
			b.call(t, http.MethodPut, "/orders/o1", orderBody("prod_mate", 1)).want(t, 201, "")
			for name, statement := range map[string]string{
				"a transfer is changed":              `UPDATE payments_transfers SET amount = 1`,
				"a transfer is deleted":              `DELETE FROM payments_transfers`,
				"a second row for an operation":      `INSERT INTO payments_charges (id, merchant, operation, amount, currency, source, description, metadata, status, processor_id, created_us) SELECT 'ch_2', merchant, operation, amount, currency, source, description, metadata, status, 'pc_2', created_us FROM payments_charges`,
				"a charge is written down twice":     `INSERT INTO payments_charges (id, merchant, operation, amount, currency, source, description, metadata, status, processor_id, created_us) SELECT 'ch_2', merchant, 'op_2', amount, currency, source, description, metadata, status, processor_id, created_us FROM payments_charges`,
				"a subject has two transfers":        `INSERT INTO payments_transfers (id, merchant, operation, kind, subject, debit, credit, amount, currency, created_us) SELECT 'tr_' || id, merchant, 'op_' || id, kind, subject, debit, credit, amount, currency, created_us FROM payments_transfers`,
				"more is refunded than was taken":    `UPDATE payments_charges SET refunded = amount + 1`,
				"stock is negative":                  `UPDATE payments_products SET stock = -1`,
				"an order is paid without a charge":  `UPDATE payments_orders SET status = 'paid'`,
				"an order waits for no checkout":     `UPDATE payments_orders SET status = 'pending'`,
				"an order has a state of its own":    `UPDATE payments_orders SET status = 'paying'`,
				"a refund is half done":              `UPDATE payments_refunds SET status = 'pending'`,
				"an amount is negative":              `UPDATE payments_refunds SET amount = -1`,
				"a transfer stays within an account": `INSERT INTO payments_transfers (id, merchant, operation, kind, subject, debit, credit, amount, currency, created_us) VALUES ('tr_x', 'dev', 'op_x', 'charge', 'ch_x', 'merchant', 'merchant', 1, 'ARS', 1)`,
			} {
				err := b.db.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
					_, err := tx.Exec(ctx, statement)
					return err
				})
				if err == nil {
					t.Errorf("the database allows that %s", name)
				} else if strings.Contains(err.Error(), "syntax") || strings.Contains(err.Error(), "no such") {
					t.Errorf("%s: %v", name, err)
				}
			}
			b.checkLedger(t)
		})
	}
}
