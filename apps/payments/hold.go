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
	// order is empty for a refund.
	order string
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
		_, err := tx.Exec(ctx, `UPDATE payments_orders SET status = 'open', held_by = NULL, held_key = NULL, held_fence = NULL
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

// freedSome frees what is held by operations of a merchant that have come to
// nothing, and tells whether there were any.
func (s *Service) freedSome(ctx context.Context, merchant string) bool {
	n, err := s.freeStale(ctx, merchant)
	if err != nil {
		s.warn(ctx, "holds not looked through", err)
	}
	return n > 0
}

// maxHolds bounds how many holds are looked at in one go.
const maxHolds = 100

// freeStale gives back what is held by attempts of which it is proved that they
// had no effect: their key is free again or gone. A crash, an unreachable
// database or an operator's word may have kept the attempt from doing so itself.
// What is in progress or in doubt stays held.
func (s *Service) freeStale(ctx context.Context, merchant string) (int, error) {
	holds, err := s.holds(ctx, merchant)
	if err != nil {
		return 0, err
	}
	freed := 0
	for _, h := range holds {
		rec, found, err := s.cfg.DB.Keys().Get(ctx, onlyonce.Key{Scope: h.merchant, Value: h.key})
		if err != nil {
			return freed, fmt.Errorf("read key of hold: %w", err)
		}
		if found && rec.State != onlyonce.FailedRetryable {
			continue
		}
		// Whoever claims the key meanwhile holds it again with a higher fence.
		if err := s.cfg.DB.Write(ctx, h.free); err != nil {
			return freed, err
		}
		freed++
	}
	return freed, nil
}

func (s *Service) holds(ctx context.Context, merchant string) ([]hold, error) {
	var holds []hold
	err := s.cfg.DB.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		return tx.Each(ctx, `SELECT merchant, operation, held_key, held_fence, '' FROM payments_refunds
			WHERE status = 'pending' AND merchant = ?
			UNION ALL SELECT merchant, held_by, held_key, held_fence, id FROM payments_orders
			WHERE status = 'paying' AND merchant = ? LIMIT ?`,
			[]any{merchant, merchant, maxHolds}, func(row db.Row) error {
				var h hold
				if err := row.Scan(&h.merchant, &h.operation, &h.key, &h.fence, &h.order); err != nil {
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
