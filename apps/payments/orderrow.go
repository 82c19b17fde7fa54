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

// holdOrder keeps an order from being paid by two charges: one operation pays
// at a time, and as long as its outcome is not known nobody else does, whatever
// the key (rule C12). A charge for no order holds none.
func (s *Service) holdOrder(ctx context.Context, op operation, in chargeInput) (*onlyonce.Answer, error) {
	if in.Order == "" {
		return nil, nil
	}
	for again := true; ; again = false {
		var n int64
		var o order
		err := s.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
			var err error
			n, err = tx.Exec(ctx, `UPDATE payments_orders SET status = 'paying', held_by = ?, held_key = ?, held_fence = ?, held_asked = ?
				WHERE merchant = ? AND id = ? AND total = ? AND currency = ?
					AND (status = 'open' OR (status = 'paying' AND held_by = ? AND held_fence <= ?))`,
				op.reference, op.key, op.fence, in.text(), op.merchant, in.Order, in.Amount, string(in.Currency), op.reference, op.fence)
			if err != nil || n == 1 {
				return err
			}
			o, err = scanOrder(tx.QueryRow(ctx, selectOrder+" WHERE merchant = ? AND id = ?", op.merchant, in.Order))
			if errors.Is(err, db.ErrNoRows) {
				return nil
			}
			return err
		})
		switch {
		case err != nil:
			return nil, unavailable("hold order", err)
		case n == 1:
			return nil, nil
		case again && o.Status == orderPaying && s.freedOrder(ctx, op.merchant, in.Order):
			continue
		}
		return orderRefusal(op, in, o), nil
	}
}

// orderRefusal says why an order cannot be paid.
func orderRefusal(op operation, in chargeInput, o order) *onlyonce.Answer {
	switch {
	case o.ID == "":
		return refused(with(problem(codeUnknownOrder, "There is no order "+in.Order+"."), "field", "order"))
	case o.Total != in.Amount || o.Currency != in.Currency:
		p := problem(codeOrderAmount, "The order is of "+money.Amount{Minor: o.Total, Currency: o.Currency}.String()+".")
		return refused(with(p, "field", "amount"))
	case o.Status == orderPaid:
		return refused(with(problem(codeOrderPaid, "The order has been paid."), "charge", o.Charge))
	default:
		return busy(op, "Another charge is paying the order, or its outcome is not known yet.")
	}
}

// settleOrder notes what became of an order's charge.
func settleOrder(ctx context.Context, w writing, c charge) error {
	if c.Status != statusSucceeded {
		return freeOrder(ctx, w, c.Order)
	}
	n, err := w.tx.Exec(ctx, `UPDATE payments_orders SET status = 'paid', charge_id = ?, held_asked = NULL
		WHERE merchant = ? AND id = ? AND status = 'paying' AND held_by = ?`, c.ID, w.op.merchant, c.Order, w.op.reference)
	if err != nil {
		return fmt.Errorf("write order paid: %w", err)
	}
	if n != 1 {
		return fmt.Errorf("write order paid: %s is not held by this operation", c.Order)
	}
	return nil
}

// freeOrder opens an order again in the transaction that ends its operation.
func freeOrder(ctx context.Context, w writing, id string) error {
	if id == "" {
		return nil
	}
	return hold{merchant: w.op.merchant, operation: w.op.reference, fence: w.op.fence, order: id}.free(ctx, w.tx)
}
