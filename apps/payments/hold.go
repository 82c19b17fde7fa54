package payments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// hold is something that an operation keeps from others while it runs: the
// amount of a refund, an order that is being paid.
type hold struct {
	merchant, operation, key string
	fence                    int64
	// order is empty for a refund, refund for an order.
	order, refund string
	// amount is a refund's, asked what the charge of an order asks for.
	amount int64
	asked  string
}

// id names what is held: the order or the refund.
func (h hold) id() string { return h.order + h.refund }

// name is the key of the operation that holds it.
func (h hold) name() onlyonce.Key { return onlyonce.Key{Scope: h.merchant, Value: h.key} }

// writer is the operation, for what is written in its stead.
func (h hold) writer() operation {
	return operation{merchant: h.merchant, reference: h.operation, key: h.key, fence: h.fence}
}

// letRefundGo gives back what a refund reserved that came to nothing. If that
// fails, freeStale does it later.
func (s *Service) letRefundGo(ctx context.Context, op operation) {
	s.letGo(ctx, hold{merchant: op.merchant, operation: op.reference, fence: op.fence})
}

// letOrderGo does the same for an order; an empty one is none.
func (s *Service) letOrderGo(ctx context.Context, op operation, order string) {
	if order != "" {
		s.letGo(ctx, hold{merchant: op.merchant, operation: op.reference, fence: op.fence, order: order})
	}
}

func (s *Service) letGo(ctx context.Context, h hold) {
	if err := s.cfg.DB.Write(ctx, h.free); err != nil {
		s.warn(ctx, "hold not given back", err, slog.String("operation", h.operation))
	}
}

// free gives back what is held, unless a later attempt holds it now.
func (h hold) free(ctx context.Context, tx db.Tx) error {
	if h.order != "" {
		_, err := tx.Exec(ctx, `UPDATE payments_orders SET status = 'open', held_by = NULL, held_key = NULL, held_fence = NULL, held_asked = NULL
			WHERE merchant = ? AND id = ? AND status = 'paying' AND held_by = ? AND held_fence = ?`,
			h.merchant, h.order, h.operation, h.fence)
		if err != nil {
			return fmt.Errorf("free order: %w", err)
		}
		return nil
	}
	var charge string
	var amount int64
	err := tx.QueryRow(ctx, `DELETE FROM payments_refunds
		WHERE merchant = ? AND operation = ? AND status = 'pending' AND held_fence = ? RETURNING charge_id, amount`,
		h.merchant, h.operation, h.fence).Scan(&charge, &amount)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("take back refund: %w", err)
	}
	_, err = tx.Exec(ctx, `UPDATE payments_charges SET reserved = reserved - ? WHERE merchant = ? AND id = ?`, amount, h.merchant, charge)
	if err != nil {
		return fmt.Errorf("take back reserved amount: %w", err)
	}
	return nil
}

const (
	selectHeldRefunds = `SELECT merchant, operation, held_key, held_fence, '' AS held_order, id AS refund, amount, '' AS asked
		FROM payments_refunds WHERE status = 'pending'`
	selectHeldOrders = `SELECT merchant, held_by AS operation, held_key, held_fence, id AS held_order, '' AS refund, 0 AS amount, coalesce(held_asked, '') AS asked
		FROM payments_orders WHERE status = 'paying'`
)

// listHolds reads holds with a query made of the two above.
func listHolds(ctx context.Context, d *db.Database, query string, args ...any) ([]hold, error) {
	var holds []hold
	err := d.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		holds = nil
		return tx.Each(ctx, query, args, func(row db.Row) error {
			var h hold
			if err := row.Scan(&h.merchant, &h.operation, &h.key, &h.fence, &h.order, &h.refund, &h.amount, &h.asked); err != nil {
				return err
			}
			holds = append(holds, h)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list holds: %w", err)
	}
	return holds, nil
}

// Hold is what the operation of a key keeps from others: an order that it is
// paying, or the amount of a refund.
type Hold struct {
	// Order is the order's id, Refund the refund's: one of the two is set.
	Order, Refund string
	// Reference is what the processor knows the charge or the refund by.
	Reference string
}

// Holds lists what a key holds. A completed key that holds something was settled
// by an operator: the service asks the processor what became of it. A database
// without the service's tables has no holds.
func Holds(ctx context.Context, d *db.Database, key onlyonce.Key) ([]Hold, error) {
	if d.Ping(ctx) != nil {
		return nil, nil
	}
	holds, err := listHolds(ctx, d,
		selectHeldRefunds+` AND merchant = ? AND held_key = ? UNION ALL `+selectHeldOrders+` AND merchant = ? AND held_key = ?`,
		key.Scope, key.Value, key.Scope, key.Value)
	var list []Hold
	for _, h := range holds {
		step := stepRefund
		if h.order != "" {
			step = stepCharge
		}
		list = append(list, Hold{Order: h.order, Refund: h.refund, Reference: referenceOf(key, step)})
	}
	return list, err
}
