package payments

import (
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/money"
)

const selectOrder = `SELECT seq, id, status, total, currency, coalesce(charge_id, ''), asked, created_us FROM payments_orders`

func scanOrder(row db.Row) (order, error) {
	var o order
	var currency string
	var created int64
	err := row.Scan(&o.seq, &o.ID, &o.Status, &o.Total, &currency, &o.Charge, &o.asked, &created)
	o.Currency, o.CreatedAt = money.Currency(currency), timeOf(created)
	return o, err
}

func (o *order) readLines(ctx context.Context, tx db.Tx, merchant string) error {
	o.Lines = []orderLine{}
	err := tx.Each(ctx, `SELECT product, quantity, unit_price FROM payments_order_lines
		WHERE merchant = ? AND order_id = ? ORDER BY line`, []any{merchant, o.ID}, func(row db.Row) error {
		var l orderLine
		if err := row.Scan(&l.Product, &l.Quantity, &l.UnitPrice); err != nil {
			return err
		}
		o.Lines = append(o.Lines, l)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read lines of order: %w", err)
	}
	return nil
}

func (s *Service) findOrder(ctx context.Context, tx db.Tx, merchant, id string) (any, error) {
	o, err := scanOrder(tx.QueryRow(ctx, selectOrder+" WHERE merchant = ? AND id = ?", merchant, id))
	if err != nil {
		return nil, err
	}
	return o, o.readLines(ctx, tx, merchant)
}

func (s *Service) listOrders(ctx context.Context, tx db.Tx, q pageQuery) ([]item, error) {
	items, err := collect(ctx, tx, q.of(selectOrder+pageOf), func(row db.Row) (item, error) {
		o, err := scanOrder(row)
		return item{seq: o.seq, value: &o}, err
	})
	for _, i := range items {
		if o, ok := i.value.(*order); ok && err == nil {
			err = o.readLines(ctx, tx, q.merchant)
		}
	}
	return items, err
}

// checkOrder says why an order cannot be paid by a charge; nil: it can, or there
// is none to be paid.
func checkOrder(ctx context.Context, tx db.Tx, op operation, in chargeInput) (*onlyonce.Answer, error) {
	if in.Order == "" {
		return nil, nil
	}
	o, err := scanOrder(tx.QueryRow(ctx, selectOrder+" WHERE merchant = ? AND id = ?", op.merchant, in.Order))
	switch {
	case errors.Is(err, db.ErrNoRows):
		return refused(with(problem(codeUnknownOrder, "There is no order "+in.Order+"."), "field", "order")), nil
	case err != nil:
		return nil, fmt.Errorf("find order: %w", err)
	case o.Total != in.Amount || o.Currency != in.Currency:
		p := problem(codeOrderAmount, "The order is of "+money.Amount{Minor: o.Total, Currency: o.Currency}.String()+".")
		return refused(with(p, "field", "amount")), nil
	}
	switch o.Status {
	case orderOpen:
		return nil, nil
	case orderPaid:
		return refused(with(problem(codeOrderPaid, "The order has been paid."), "charge", o.Charge)), nil
	case orderPending:
		return busy(op, "The order is being paid by the checkout that made it."), nil
	default:
		return refused(problem(codeOrderClosed, "The order is "+o.Status+".")), nil
	}
}

// payOrder writes that a charge has paid its order, which until then is in the
// state from. Nobody else can have paid it: the charge's key has it.
func payOrder(ctx context.Context, w writing, c charge, from string) error {
	n, err := w.tx.Exec(ctx, `UPDATE payments_orders SET status = 'paid', charge_id = ?, checkout_key = NULL
		WHERE merchant = ? AND id = ? AND status = ? AND total = ? AND currency = ?`,
		c.ID, w.op.merchant, c.Order, from, c.Amount, string(c.Currency))
	if err != nil {
		return fmt.Errorf("write order paid: %w", err)
	}
	if n != 1 {
		return stranded(ctx, "the card was charged for order %s, which cannot be paid any more", c.Order)
	}
	return nil
}
