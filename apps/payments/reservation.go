package payments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// unreserve ends the order of a checkout unpaid and gives its stock back. Both
// hang on the order being pending still, so that over all attempts the stock is
// given back once.
func unreserve(ctx context.Context, w writing, o order, status string) error {
	n, err := w.tx.Exec(ctx, `UPDATE payments_orders SET status = ?, checkout_key = NULL
		WHERE merchant = ? AND id = ? AND status = 'pending'`, status, w.op.merchant, o.ID)
	if err != nil {
		return fmt.Errorf("close order: %w", err)
	}
	if n != 1 {
		return stranded(ctx, "order %s is no longer pending", o.ID)
	}
	for _, i := range byProduct(o.Lines) {
		line := o.Lines[i]
		_, err := w.tx.Exec(ctx, `UPDATE payments_products SET stock = stock + ? WHERE merchant = ? AND id = ?`,
			line.Quantity, w.op.merchant, line.Product)
		if err != nil {
			return fmt.Errorf("give stock back: %w", err)
		}
	}
	return nil
}

// overdue tells whether a checkout has waited too long to still charge the card:
// its card was never asked, and its reservation has run out.
func (s *Service) overdue(ctx context.Context, op operation, o order) (bool, error) {
	if s.now().Sub(o.CreatedAt) < s.cfg.ReserveFor {
		return false, nil
	}
	steps, err := s.cfg.DB.Keys().Steps(ctx, onlyonce.Key{Scope: op.merchant, Value: op.key})
	if err != nil {
		return false, unavailable("look whether the card was asked", err)
	}
	for _, step := range steps {
		if step.Name == stepCharge && step.State != onlyonce.StepNotApplied {
			return false, nil // what became of it comes first
		}
	}
	return true, nil
}

// endOverdue goes on with checkouts that have reserved stock, have charged nobody,
// and whose clients do not come back: they end cancelled. The recoverer leaves
// those alone that were freed, because nothing of them has left the database. One
// whose process died between reserving and charging is due like every abandoned
// attempt: the recoverer goes on with it and charges the card, unless the
// reservation has run out by then.
func (s *Service) endOverdue(ctx context.Context) {
	tick := time.NewTicker(housekeepingEvery)
	defer tick.Stop()
	for {
		if err := s.EndOverdue(ctx); err != nil && ctx.Err() == nil {
			s.warn(ctx, "overdue checkouts not looked through", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// reservation is the pending order of a checkout.
type reservation struct {
	seq       int64
	merchant  string
	key       string
	operation string
}

// overduePage is how many reservations are read at a time.
const overduePage = 100

// EndOverdue cancels checkouts whose card was never asked and that nobody goes on
// with, once they are older than Config.ReserveFor: their stock is given back, and
// a late retry gets that answer. Run does it every minute. Any number of processes
// may do it at once: it goes through the keys.
func (s *Service) EndOverdue(ctx context.Context) error {
	before := s.now().Add(-s.cfg.ReserveFor).UnixMicro()
	for last := int64(0); ctx.Err() == nil; {
		page, err := s.overdueAfter(ctx, last, before)
		if err != nil {
			return fmt.Errorf("list overdue checkouts: %w", err)
		}
		for _, r := range page {
			last = r.seq
			s.endReservation(ctx, r)
		}
		if len(page) < overduePage {
			break
		}
	}
	return ctx.Err()
}

func (s *Service) overdueAfter(ctx context.Context, last, before int64) (page []reservation, err error) {
	err = s.cfg.DB.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		page = nil
		return tx.Each(ctx, `SELECT seq, merchant, checkout_key, operation FROM payments_orders
			WHERE status = 'pending' AND seq > ? AND created_us <= ? ORDER BY seq LIMIT ?`,
			[]any{last, before, overduePage}, func(row db.Row) error {
				var r reservation
				err := row.Scan(&r.seq, &r.merchant, &r.key, &r.operation)
				page = append(page, r)
				return err
			})
	})
	return page, err
}

// errForgotten is a reservation that nothing which runs again would end.
var errForgotten = errors.New("a person is needed: the key knows nothing of a reservation, and the order is pending (onlyonce keys show says what to do)")

// endReservation gives one checkout a turn if its key is free. One whose attempt
// is live or in doubt is the recoverer's.
func (s *Service) endReservation(ctx context.Context, r reservation) {
	key := onlyonce.Key{Scope: r.merchant, Value: r.key}
	rec, found, err := s.cfg.DB.Keys().Get(ctx, key)
	switch {
	case err != nil:
	case !found || rec.State == onlyonce.Completed:
		err = errForgotten
	case rec.State == onlyonce.FailedRetryable:
		_, err = s.Recover(ctx, key)
	}
	lasting := errors.Is(err, errForgotten) || onlyonce.CodeOf(err) == onlyonce.CodeNotFound
	switch {
	case err == nil, ctx.Err() != nil, errors.Is(err, onlyonce.ErrOutcomeUnknown), onlyonce.CodeOf(err) == onlyonce.CodeInProgress:
	case lasting && !s.warned.first(key):
	default:
		s.warn(ctx, "reservation stays", err, slog.String("operation", r.operation))
	}
}

// maxWarned bounds how many keys a process remembers to have warned of. Of more
// than that it warns again.
const maxWarned = 1000

// warnings are the keys that were warned of for what does not change by itself.
type warnings struct {
	mu   sync.Mutex
	keys map[onlyonce.Key]bool
}

// first tells whether a key was not warned of yet, and remembers it.
func (w *warnings) first(key onlyonce.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys[key] {
		return false
	}
	if w.keys == nil || len(w.keys) >= maxWarned {
		w.keys = map[onlyonce.Key]bool{}
	}
	w.keys[key] = true
	return true
}

// ReservedBy is the order that the checkout of a key still reserves stock for; ""
// where there is none.
func ReservedBy(ctx context.Context, d *db.Database, key onlyonce.Key) (id string, err error) {
	err = d.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		return tx.QueryRow(ctx, `SELECT id FROM payments_orders WHERE merchant = ? AND operation = ? AND status = 'pending'`,
			key.Scope, key.Operation()).Scan(&id)
	})
	switch {
	case errors.Is(err, db.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look for a reservation: %w", err)
	}
	return id, nil
}
