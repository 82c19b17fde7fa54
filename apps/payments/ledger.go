package payments

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/event"
	"github.com/onlyonce-go/onlyonce/apps/payments/money"
	"github.com/onlyonce-go/onlyonce/apps/payments/outbox"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// The accounts. A charge makes the processor owe money to the service, which
// owes it to the merchant; a refund takes both back.
const (
	accountProcessor = "processor"
	accountMerchant  = "merchant"
)

// transfer is one amount that went from an account to another.
type transfer struct {
	ID        string         `json:"id"`
	Kind      string         `json:"kind"`
	Subject   string         `json:"subject"`
	Amount    int64          `json:"amount"`
	Currency  money.Currency `json:"currency"`
	Entries   []entry        `json:"entries"`
	CreatedAt time.Time      `json:"created_at"`

	seq int64
}

// entry is one side of a transfer: debits are positive, credits negative.
type entry struct {
	Account  string         `json:"account"`
	Currency money.Currency `json:"currency"`
	Amount   int64          `json:"amount"`
}

// post writes a charge's or a refund's transfer, and the event that tells others of
// it. They are in the transaction of what they are about, and unique for each
// operation and subject.
func post(ctx context.Context, w writing, t transfer) error {
	debit, credit := accountProcessor, accountMerchant
	if t.Kind == "refund" {
		debit, credit = credit, debit
	}
	_, err := w.tx.Exec(ctx, `INSERT INTO payments_transfers
		(id, merchant, operation, kind, subject, debit, credit, amount, currency, created_us)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		newID("tr_"), w.op.merchant, w.op.reference, t.Kind, t.Subject, debit, credit, t.Amount, string(t.Currency), t.CreatedAt.UnixMicro())
	if err != nil {
		return fmt.Errorf("post transfer: %w", err)
	}
	return outbox.Add(ctx, w.tx, t.event(w.op))
}

// event is what others are told. What is replayed is not posted, so nobody is told of
// it again (rule R4).
func (t transfer) event(op operation) event.Event {
	kind := event.ChargeSucceeded
	if t.Kind == "refund" {
		kind = event.RefundSucceeded
	}
	return event.Event{
		ID: event.IDOf(kind, op.reference), Kind: kind, Merchant: op.merchant, Amount: t.Amount, Currency: t.Currency,
		Subject: t.Subject, Operation: op.reference, OccurredAt: t.CreatedAt,
	}
}

func (s *Service) listTransfers(ctx context.Context, tx db.Tx, q pageQuery) ([]item, error) {
	const query = `SELECT seq, id, kind, subject, debit, credit, amount, currency, created_us FROM payments_transfers` + pageOf
	return collect(ctx, tx, q.of(query), func(row db.Row) (item, error) {
		var t transfer
		var debit, credit, currency string
		var created int64
		if err := row.Scan(&t.seq, &t.ID, &t.Kind, &t.Subject, &debit, &credit, &t.Amount, &currency, &created); err != nil {
			return item{}, err
		}
		t.Currency, t.CreatedAt = money.Currency(currency), timeOf(created)
		t.Entries = []entry{{debit, t.Currency, t.Amount}, {credit, t.Currency, -t.Amount}}
		return item{seq: t.seq, value: t}, nil
	})
}

// balance is what a merchant has in one currency.
type balance struct {
	Currency money.Currency `json:"currency"`
	// Available is what was charged less what was refunded.
	Available int64 `json:"available"`
	// LedgerSum is the sum of all entries of the currency: zero.
	LedgerSum int64 `json:"ledger_sum"`
}

func (s *Service) getBalance(w http.ResponseWriter, r *http.Request) {
	merchant := merchantOf(r.Context())
	balances := []balance{}
	err := s.cfg.DB.Read(r.Context(), func(ctx context.Context, tx db.Tx) error {
		return tx.Each(ctx, `SELECT e.currency,
				CAST(sum(CASE WHEN e.account = ? THEN -e.amount ELSE 0 END) AS BIGINT),
				CAST(sum(e.amount) AS BIGINT)
			FROM payments_entries e WHERE e.merchant = ? GROUP BY e.currency ORDER BY e.currency`,
			[]any{accountMerchant, merchant}, func(row db.Row) error {
				var b balance
				var currency string
				if err := row.Scan(&currency, &b.Available, &b.LedgerSum); err != nil {
					return err
				}
				b.Currency = money.Currency(currency)
				balances = append(balances, b)
				return nil
			})
	})
	if err != nil {
		s.broken(w, r, fmt.Errorf("read balance: %w", err))
		return
	}
	send(w, oncehttp.JSON(http.StatusOK, map[string]any{"data": balances}))
}
