package reconcile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// request is one that a client sends until it has its answer.
type request struct{ path, key, body string }

// send sends it once.
func (b *bundle) send(t *testing.T, q request) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, q.path, strings.NewReader(q.body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", q.key)
	rec := httptest.NewRecorder()
	b.service.ServeHTTP(rec, r)
	return rec
}

// Whatever has gone wrong between service and provider, in whatever order: one
// report settles every key, books and provider agree to the last effect, and the
// clients' retries do what was not done, once.
func TestRandomFaults(t *testing.T) { // X2 D4
	t.Parallel()
	onBoth(t, func(on both) {
		t, b := on.t, on.b
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		dice := rand.New(rand.NewPCG(seed, 0))
		moods := []string{"", "", "timeout", "lost", "chargeDeclined"}
		var charges []string
		for i := range 6 { // to be refunded
			charges = append(charges, member(t, b.charge(t, fmt.Sprintf("first-%d", i), "tok_visa", 1000, 201), "id"))
		}
		b.bank.mood = func() string { return moods[dice.IntN(len(moods))] }
		var requests []request
		for i := range 40 {
			q := request{"/charges", fmt.Sprintf("c-%d", i), fmt.Sprintf(`{"amount":%d,"currency":"ARS","source":"tok_visa"}`, 100+dice.IntN(900))}
			if len(charges) > 0 && dice.IntN(4) == 0 { // of each at most one, for doubt holds it
				q = request{"/refunds", fmt.Sprintf("r-%d", i), fmt.Sprintf(`{"charge":%q,"amount":%d}`, charges[0], 1+dice.IntN(900))}
				charges = charges[1:]
			}
			requests = append(requests, q)
			broken := dice.IntN(5) == 0 // writing down fails
			if broken {
				b.exec(t, "ALTER TABLE payments_transfers RENAME TO payments_broken")
			}
			b.send(t, q)
			if broken {
				b.exec(t, "ALTER TABLE payments_broken RENAME TO payments_transfers")
			}
			if dice.IntN(3) == 0 { // an impatient client
				b.send(t, q)
			}
		}
		b.age(t, time.Hour)
		b.bank.shift = time.Hour
		whole := b.config(b.bank.report())
		whole.Heal, whole.From, whole.CompleteUntil = true, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Minute)
		res := b.run(t, whole)
		if res.Found() || res.Uncertain != 0 || res.InProgress != 0 {
			t.Errorf("%+v\n%s", res, strings.Join(b.open(t), "\n"))
		}
		for _, state := range []onlyonce.State{onlyonce.InDoubt, onlyonce.InProgress} {
			page, err := b.db.Keys().List(t.Context(), onlyonce.ListFilter{State: state})
			if err != nil || len(page.Records) != 0 {
				t.Errorf("%d keys are %s, %v", len(page.Records), state, err)
			}
		}
		b.agree(t)
		b.bank.mood = func() string { return "" }
		for _, q := range requests {
			if rec := b.send(t, q); rec.Code != 201 && rec.Code != 402 {
				t.Errorf("%s %s: %d %s", q.path, q.key, rec.Code, rec.Body)
			}
		}
		b.agree(t)
		if res := b.run(t, b.config(b.bank.report())); res.Found() || res.Healed != 0 {
			t.Errorf("%+v\n%s", res, strings.Join(b.open(t), "\n"))
		}
	})
}

// agree compares the books with the bank's own, without what is tested.
func (b *bundle) agree(t *testing.T) {
	t.Helper()
	theirs, references, sum := map[string]int64{}, map[string]bool{}, int64(0)
	for _, e := range b.bank.effects {
		if references[e.reference] {
			t.Errorf("%s was carried out twice", e.reference)
		}
		references[e.reference] = true
		theirs[e.typ+" "+e.id] = e.amount
		if e.typ == "refund" {
			sum -= e.amount
		} else {
			sum += e.amount
		}
	}
	ours := map[string]int64{}
	if err := b.db.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
		return tx.Each(ctx, `SELECT 'charge ' || processor_id, amount FROM payments_charges WHERE status = 'succeeded'
			UNION ALL SELECT 'refund ' || processor_id, amount FROM payments_refunds WHERE status = 'succeeded'`, nil, func(row db.Row) error {
			var id string
			var amount int64
			err := row.Scan(&id, &amount)
			ours[id] = amount
			return err
		})
	}); err != nil {
		t.Fatal(err)
	}
	same(t, ours, theirs)
	b.checkLedger(t, sum)
}
