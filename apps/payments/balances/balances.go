package balances

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/event"
	"github.com/onlyonce-go/onlyonce/apps/payments/money"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// Consumer is the name that the inbox knows these balances by, and the brokers' name
// for their queue, their durable consumer or their group.
const Consumer = "balances"

// ErrOverflow refuses an event whose sum would not fit: a balance is a 64-bit number of
// minor units. The balance stays as it was.
var ErrOverflow = errors.New("the balance would not fit into 64 bits")

// Balance is what a merchant has in one currency.
type Balance struct {
	Merchant string         `json:"merchant"`
	Currency money.Currency `json:"currency"`
	// Amount is in minor units: charges less refunds. It is below zero where refunds
	// were told of first, or where charges are from before there were events.
	Amount int64 `json:"amount"`
}

// All statements of the package, in words that both databases know. The names of
// merchants are compared byte for byte in either.
const (
	table       = "merchant_balances"
	createTable = `CREATE TABLE merchant_balances (
		merchant TEXT NOT NULL,
		currency TEXT NOT NULL,
		amount   BIGINT NOT NULL,
		PRIMARY KEY (merchant, currency)
	)`

	// The bounds are checked before anything is added: SQLite would go on with a
	// floating-point number where 64 bits are not enough.
	addAmount = `INSERT INTO merchant_balances (merchant, currency, amount) VALUES (?, ?, ?)
		ON CONFLICT (merchant, currency) DO UPDATE SET amount = merchant_balances.amount + excluded.amount
		WHERE merchant_balances.amount BETWEEN ? AND ?`

	selectAll = `SELECT merchant, currency, amount FROM merchant_balances`
)

// Prepare makes the table of balances where there is none. Several processes may do so
// at once.
func Prepare(ctx context.Context, d *db.Database) error {
	if err := d.Ensure(ctx, table, createTable); err != nil {
		return fmt.Errorf("prepare balances: %w", err)
	}
	return nil
}

// Kept tells whether a database has balances. It changes nothing.
func Kept(ctx context.Context, d *db.Database) (bool, error) {
	there, err := d.Has(ctx, table)
	if err != nil {
		return false, fmt.Errorf("look for balances: %w", err)
	}
	return there, nil
}

// Apply adds the event in a message to its merchant's balance, in the transaction that
// the inbox records the message in. An event that cannot be read, and one whose sum
// does not fit, are errors: nothing is added, and the inbox keeps the message for a
// person. A database that does not answer before ctx ends is CodeStoreUnavailable, for
// which no event is parked.
func Apply(ctx context.Context, tx db.Tx, msg inbox.Message) error {
	e, err := event.Read(msg)
	if err != nil {
		return err
	}
	amount := e.Kind.Sign() * e.Amount
	least, most := int64(math.MinInt64), math.MaxInt64-amount
	if amount < 0 {
		least, most = math.MinInt64-amount, math.MaxInt64
	}
	n, err := tx.Exec(ctx, addAmount, e.Merchant, string(e.Currency), amount, least, most)
	switch {
	case err != nil && ctx.Err() != nil:
		// Nothing else takes time: the database hangs, which is no fault of the event's.
		return &onlyonce.Error{
			Code: onlyonce.CodeStoreUnavailable, Op: "add to balance", RetryAfter: time.Second, Err: err,
			Hint: "the database did not answer in time; nothing was added",
		}
	case err != nil:
		return fmt.Errorf("add to balance: %w", err)
	case n == 0:
		return fmt.Errorf("add %d %s to the balance of %s: %w", amount, e.Currency, e.Merchant, ErrOverflow)
	}
	return nil
}

// List reads all balances, by merchant and currency in the order of their bytes; of one
// merchant alone where it is named.
func List(ctx context.Context, d *db.Database, merchant string) ([]Balance, error) {
	query, args := selectAll, []any(nil)
	if merchant != "" {
		query, args = query+" WHERE merchant = ?", []any{merchant}
	}
	var all []Balance
	err := d.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		return tx.Each(ctx, query, args, func(row db.Row) error {
			var b Balance
			var currency string
			err := row.Scan(&b.Merchant, &currency, &b.Amount)
			b.Currency = money.Currency(currency)
			all = append(all, b)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read balances: %w", err)
	}
	slices.SortFunc(all, func(a, b Balance) int {
		return cmp.Or(strings.Compare(a.Merchant, b.Merchant), strings.Compare(string(a.Currency), string(b.Currency)))
	})
	return all, nil
}
