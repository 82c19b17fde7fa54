package payments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// standing is how an operation that holds something stands.
type standing uint8

const (
	// standingOpen: it is under way, in doubt, or has sent something, so that
	// its own retry has to go on from there.
	standingOpen standing = iota
	// standingVoid: it is proved that it had no effect.
	standingVoid
	// standingSettled: an operator has said how it ended, but nobody has written
	// it down: completing a key otherwise ends its hold in one transaction.
	standingSettled
	// standingGone: its record has expired, and with it what it knew.
	standingGone
)

// standingOf looks at the key behind a hold, and at its answer where it has one.
// A key that is free again proves nothing by itself: its attempt may have failed
// behind a finished step.
func (s *Service) standingOf(ctx context.Context, h hold) (standing, *onlyonce.Answer, error) {
	rec, found, err := s.cfg.DB.Keys().Get(ctx, h.name())
	switch {
	case err != nil:
		return standingOpen, nil, fmt.Errorf("read key of hold: %w", err)
	case !found || h.fence < rec.Origin: // the record is of a later life of the key
		return standingGone, nil, nil
	case rec.State == onlyonce.Completed:
		return standingSettled, rec.Answer, nil
	case rec.State != onlyonce.FailedRetryable:
		return standingOpen, nil, nil
	}
	steps, err := s.cfg.DB.Keys().Steps(ctx, h.name())
	if err != nil {
		return standingOpen, nil, fmt.Errorf("read steps of hold: %w", err)
	}
	for _, step := range steps {
		if step.State != onlyonce.StepNotApplied {
			return standingOpen, nil, nil
		}
	}
	return standingVoid, nil, nil
}

// freedOrder ends the hold on an order if its operation has ended, and tells
// whether it did.
func (s *Service) freedOrder(ctx context.Context, merchant, order string) bool {
	return s.freedSome(ctx, selectHeldOrders+` AND merchant = ? AND id = ?`, merchant, order)
}

// freedRefunds does the same for the refunds of a charge.
func (s *Service) freedRefunds(ctx context.Context, merchant, charge string) bool {
	return s.freedSome(ctx, selectHeldRefunds+` AND merchant = ? AND charge_id = ?`, merchant, charge)
}

func (s *Service) freedSome(ctx context.Context, query string, args ...any) bool {
	holds, err := listHolds(ctx, s.cfg.DB, query, args...)
	if err != nil {
		s.warn(ctx, "holds not looked through", err)
	}
	return s.freeStale(ctx, holds) > 0
}

// holdsPage is how many holds housekeeping reads at a time.
const holdsPage = 100

// freeAll looks through the holds of all merchants.
func (s *Service) freeAll(ctx context.Context) error {
	const query = `SELECT * FROM (` + selectHeldRefunds + ` UNION ALL ` + selectHeldOrders + `)
		AS holds WHERE (merchant, operation, held_order) > (?, ?, ?) ORDER BY merchant, operation, held_order LIMIT ?`
	var last hold
	for {
		holds, err := listHolds(ctx, s.cfg.DB, query, last.merchant, last.operation, last.order, holdsPage)
		if err != nil {
			return err
		}
		s.freeStale(ctx, holds)
		if len(holds) < holdsPage || ctx.Err() != nil {
			return nil
		}
		last = holds[len(holds)-1]
	}
}

// freeStale ends those of the holds whose operation has ended without doing so
// itself: a crash, an unreachable database or an operator's word came between.
// What cannot be decided stays held, and is logged where only a person can.
func (s *Service) freeStale(ctx context.Context, holds []hold) int {
	ended := 0
	for _, h := range holds {
		done, err := s.endHold(ctx, h)
		if err != nil && ctx.Err() == nil {
			s.warn(ctx, "hold stays", err, slog.String("operation", h.operation), slog.String("held", h.id()))
		}
		if done {
			ended++
		}
	}
	return ended
}

// endHold frees what is held by an operation of which it is proved that it had
// no effect, and writes down the effect of one that an operator has settled. It
// tells whether the hold has ended. Whoever claims the key meanwhile holds again,
// with a higher fence, and nothing is changed.
func (s *Service) endHold(ctx context.Context, h hold) (bool, error) {
	stands, answer, err := s.standingOf(ctx, h)
	switch {
	case err != nil || stands == standingOpen:
		return false, err
	case stands == standingVoid:
		return s.freeHold(ctx, h)
	}
	e, err := s.effectOf(h)
	if err != nil {
		return false, err
	}
	res, found, err := e.find(ctx, referenceOf(h.name(), e.step))
	switch {
	case err != nil:
		return false, fmt.Errorf("ask processor about hold: %w", err)
	case found && stands == standingSettled:
		return s.adopt(ctx, h, e, settled{result: res, answer: answer})
	case found:
		return false, errors.New("a person is needed: its key has expired, and the processor has carried it out as " + res.ID +
			"; sending the same request again with the same key completes it")
	case stands == standingSettled && answer.Status < 400:
		return false, errors.New("a person is needed: its key was settled as applied, and the processor does not know it")
	}
	// Nobody has an effect: its key expired long after anything could have been
	// sent, or an operator says that it was refused.
	return s.freeHold(ctx, h)
}

func (s *Service) freeHold(ctx context.Context, h hold) (bool, error) {
	if err := s.cfg.DB.Write(ctx, h.free); err != nil {
		return false, err
	}
	return true, nil
}

// held is the effect that a hold is kept for: how the processor is asked about
// it, and what is written of it.
type held struct {
	asker
	write func(ctx context.Context, w writing, done settled) error
}

// settled is what became of an operation that an operator has settled: the
// processor's word and the answer that is replayed.
type settled struct {
	result
	answer *onlyonce.Answer
}

func (s *Service) effectOf(h hold) (held, error) {
	if h.refund != "" {
		return held{asker: s.refundAsker(refundInput{Amount: h.amount}), write: func(ctx context.Context, w writing, done settled) error {
			r, err := scanRefund(w.tx.QueryRow(ctx, selectRefund+" WHERE r.merchant = ? AND r.id = ?", h.merchant, h.refund))
			if err == nil {
				_, err = s.writeRefund(ctx, w, r, done.result)
			}
			return err
		}}, nil
	}
	var in chargeInput
	if err := json.Unmarshal([]byte(h.asked), &in); err != nil {
		return held{}, fmt.Errorf("read what the holder of the order asks for: %w", err)
	}
	return held{asker: s.chargeAsker(in), write: func(ctx context.Context, w writing, done settled) error {
		c := s.chargeOf(in, done.result)
		if id := namedIn(done.answer); id != "" {
			c.ID = id // what the replayed answer names is there
		}
		return s.recordCharge(ctx, w, c, done.ID)
	}}, nil
}

// namedIn is the id of the charge that an operator's answer names, if it does.
func namedIn(a *onlyonce.Answer) string {
	var named struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(a.Body, &named) != nil || !strings.HasPrefix(named.ID, "ch_") || len(named.ID) > 100 {
		return ""
	}
	return named.ID
}

// errNotHeld rolls an adoption back: the hold has ended, or a later attempt has
// it.
var errNotHeld = errors.New("no longer held")

// adopt writes what the processor has done for an operation that an operator has
// settled, with its transfer, and ends the hold, in one transaction.
func (s *Service) adopt(ctx context.Context, h hold, e held, done settled) (bool, error) {
	err := s.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
		if err := h.lock(ctx, tx); err != nil {
			return err
		}
		return e.write(ctx, writing{tx, h.writer()}, done)
	})
	if errors.Is(err, errNotHeld) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("write down what was settled: %w", err)
	}
	s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "settled operation written down",
		slog.String("operation", h.operation), slog.String("held", h.id()), slog.String("processor_id", done.ID))
	return true, nil
}

// lock makes sure that the hold is still this one until the transaction ends.
func (h hold) lock(ctx context.Context, tx db.Tx) error {
	query := `UPDATE payments_refunds SET held_fence = held_fence
		WHERE merchant = ? AND id = ? AND status = 'pending' AND operation = ? AND held_fence = ?`
	if h.order != "" {
		query = `UPDATE payments_orders SET held_fence = held_fence
			WHERE merchant = ? AND id = ? AND status = 'paying' AND held_by = ? AND held_fence = ?`
	}
	n, err := tx.Exec(ctx, query, h.merchant, h.id(), h.operation, h.fence)
	switch {
	case err != nil:
		return fmt.Errorf("lock hold: %w", err)
	case n != 1:
		return errNotHeld
	}
	return nil
}

// left is what an earlier life of a key has done and not written down. What is
// held stays held by that life until it is: were the new one to take it over and
// fail, it would look like an attempt that has sent nothing.
type left struct {
	by     operation
	result result
}

// leftover is what is looked for: how the processor is asked, and what selects the
// hold.
type leftover struct {
	asker
	query string
	args  []any
}

// orderLeft is leftBy for the order that a charge pays; an empty one is none.
func (s *Service) orderLeft(ctx context.Context, op operation, a asker, order string) (*left, *onlyonce.Answer, error) {
	if order == "" {
		return nil, nil, nil
	}
	return s.leftBy(ctx, op, leftover{
		asker: a, query: selectHeldOrders + ` AND merchant = ? AND id = ? AND held_by = ?`, args: []any{op.merchant, order, op.reference},
	})
}

// leftBy asks what became of what an earlier life of the key has left held; nil
// is nothing. Its steps are gone with it, so that without asking the effect would
// be sent again, and the processor may have forgotten the first. While the processor cannot be asked, the caller is refused.
func (s *Service) leftBy(ctx context.Context, op operation, l leftover) (*left, *onlyonce.Answer, error) {
	holds, err := listHolds(ctx, s.cfg.DB, l.query, l.args...)
	if err != nil {
		return nil, nil, unavailable("look for hold", err)
	}
	if len(holds) == 0 {
		return nil, nil, nil
	}
	key := holds[0].name()
	rec, found, err := s.cfg.DB.Keys().Get(ctx, key)
	switch {
	case err != nil:
		return nil, nil, unavailable("read key of hold", err)
	case found && holds[0].fence >= rec.Origin: // of this life: its steps know
		return nil, nil, nil
	}
	res, found, err := l.find(ctx, referenceOf(key, l.step))
	switch {
	case err != nil:
		s.warn(ctx, "hold stays", err, slog.String("operation", op.reference), slog.String("held", holds[0].id()))
		return nil, busy(op, "Whether an earlier request under this key was carried out cannot be found out now."), nil
	case !found:
		return nil, nil, nil
	}
	return &left{by: holds[0].writer(), result: res}, nil, nil
}
