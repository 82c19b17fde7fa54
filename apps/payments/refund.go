package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/money"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// refundInput is what a merchant asks for.
type refundInput struct {
	Charge string
	Amount int64
	Reason string
}

// readRefund reads a refund's request by pure syntax.
func readRefund(r *http.Request, body []byte) (refundInput, error) {
	o, fault := readBody(r, body)
	if fault != nil {
		return refundInput{}, fault
	}
	in := refundInput{Charge: o.text("charge", 1, 100), Amount: o.amount(), Reason: o.text("reason", 0, 1000)}
	return in, o.done()
}

// refund is a refund as merchants see it.
type refund struct {
	ID          string         `json:"id"`
	Charge      string         `json:"charge"`
	Amount      int64          `json:"amount"`
	Currency    money.Currency `json:"currency"`
	Status      string         `json:"status"`
	Reason      string         `json:"reason"`
	FailureCode string         `json:"failure_code,omitempty"`
	CreatedAt   time.Time      `json:"created_at"`

	seq       int64
	heldFence int64
	processor string // the processor's name for the charge
}

func (r refund) asked(in refundInput) bool {
	return r.Charge == in.Charge && r.Amount == in.Amount && r.Reason == in.Reason
}

// answer is what creating the refund is answered with.
func (r refund) answer() onlyonce.Answer {
	if r.Status != statusFailed {
		return created("/refunds/"+r.ID, r)
	}
	p := problem(r.FailureCode, "The processor refused the refund: "+r.FailureCode+".")
	return with(p, "refund", r.ID).Answer()
}

// createRefund reserves the amount, gives the money back, then writes the
// refund's end, its transfer and its answer in one transaction. As long as its
// outcome is not known the amount stays reserved.
func (s *Service) createRefund(ctx context.Context, in refundInput) (onlyonce.Answer, error) {
	op := operationOf(ctx)
	asker := s.refundAsker(in)
	left, refusal, err := s.leftBy(ctx, op, leftover{
		asker: asker, query: selectHeldRefunds + ` AND merchant = ? AND operation = ? AND amount = ?`, args: []any{op.merchant, op.reference, in.Amount},
	})
	switch {
	case refusal != nil || err != nil:
		return answerOf(refusal), err
	case left != nil:
		return s.finishRefund(ctx, left.by, in, left.result)
	}
	r, refusal, err := s.reserveRefund(ctx, op, in)
	if refusal != nil || err != nil {
		return answerOf(refusal), err
	}
	body := processor.RefundRequest{Charge: r.processor, Amount: r.Amount, Reference: asker.reference(ctx)}.Encode()
	res, err := s.call(ctx, asker, body)
	if tookNothing(err) {
		s.letRefundGo(ctx, op)
		return s.tryLater(ctx, err), nil
	}
	if err != nil {
		return onlyonce.Answer{}, err
	}
	return s.finishRefund(ctx, op, in, res)
}

// finishRefund writes what the processor has done, and completes the key with it.
func (s *Service) finishRefund(ctx context.Context, op operation, in refundInput, res result) (onlyonce.Answer, error) {
	return s.engine.Finish(ctx, func(ctx context.Context, tx db.Tx) (onlyonce.Answer, error) {
		r, err := scanRefund(tx.QueryRow(ctx, selectRefund+" WHERE r.merchant = ? AND r.operation = ?", op.merchant, op.reference))
		switch {
		case err != nil:
			return onlyonce.Answer{}, fmt.Errorf("find refund: %w", err)
		case !r.asked(in):
			return keyReused(op, r.ID), nil
		}
		return s.writeRefund(ctx, writing{tx, op}, r, res)
	})
}

// errRefuse rolls a transaction back because of what was found in it.
var errRefuse = errors.New("refused")

// reserveRefund takes the amount from what is left of the charge and notes the
// refund as pending, both or neither. Another attempt at the same operation
// finds the refund that the first one noted.
func (s *Service) reserveRefund(ctx context.Context, op operation, in refundInput) (refund, *onlyonce.Answer, error) {
	var r refund
	var refusal *onlyonce.Answer
	for range 2 {
		err := s.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
			var err error
			r, refusal, err = s.reserveIn(ctx, tx, op, in)
			if err == nil && refusal != nil {
				err = errRefuse
			}
			return err
		})
		if err != nil && !errors.Is(err, errRefuse) {
			return refund{}, nil, unavailable("reserve refund", err)
		}
		// A refusal may be due to a refund that has come to nothing since.
		if refusal == nil || !s.freedRefunds(ctx, op.merchant, in.Charge) {
			break
		}
	}
	return r, refusal, nil
}

func (s *Service) reserveIn(ctx context.Context, tx db.Tx, op operation, in refundInput) (refund, *onlyonce.Answer, error) {
	r, err := scanRefund(tx.QueryRow(ctx, selectRefund+" WHERE r.merchant = ? AND r.operation = ?", op.merchant, op.reference))
	if err == nil {
		return resumeRefund(ctx, writing{tx, op}, in, r)
	}
	if !errors.Is(err, db.ErrNoRows) {
		return refund{}, nil, fmt.Errorf("find refund: %w", err)
	}
	c, err := scanCharge(tx.QueryRow(ctx, selectCharge+" WHERE merchant = ? AND id = ?", op.merchant, in.Charge))
	switch {
	case errors.Is(err, db.ErrNoRows):
		return refund{}, refused(with(problem(codeUnknownCharge, "There is no charge "+in.Charge+"."), "field", "charge")), nil
	case err != nil:
		return refund{}, nil, fmt.Errorf("find charge: %w", err)
	case c.Status != statusSucceeded:
		return refund{}, refused(with(problem(codeNotRefundable, "The charge was declined."), "field", "charge")), nil
	}
	// One conditional statement decides, whoever else refunds the same charge.
	n, err := tx.Exec(ctx, `UPDATE payments_charges SET reserved = reserved + ?
		WHERE merchant = ? AND id = ? AND status = 'succeeded' AND reserved + ? <= amount`,
		in.Amount, op.merchant, in.Charge, in.Amount)
	if err != nil {
		return refund{}, nil, fmt.Errorf("reserve amount: %w", err)
	}
	if n == 0 {
		p := problem(codeRefundExceeds, fmt.Sprintf("Of %d, %d are refunded or about to be; %d more are too much.", c.Amount, c.Refunded+c.RefundPending, in.Amount))
		return refund{}, refused(with(p, "field", "amount")), nil
	}
	r = refund{
		ID: newID("re_"), Charge: c.ID, Amount: in.Amount, Currency: c.Currency, Status: statusPending,
		Reason: in.Reason, CreatedAt: s.now(), processor: c.processor,
	}
	_, err = tx.Exec(ctx, `INSERT INTO payments_refunds
		(id, merchant, operation, charge_id, amount, currency, reason, status, held_key, held_fence, created_us)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.ID, op.merchant, op.reference, r.Charge, r.Amount, string(r.Currency), r.Reason, r.Status,
		op.key, op.fence, r.CreatedAt.UnixMicro())
	if err != nil {
		return refund{}, nil, fmt.Errorf("insert refund: %w", err)
	}
	return r, nil, nil
}

// resumeRefund goes on with a refund that an earlier attempt noted.
func resumeRefund(ctx context.Context, w writing, in refundInput, r refund) (refund, *onlyonce.Answer, error) {
	switch {
	case !r.asked(in):
		a := keyReused(w.op, r.ID)
		return r, &a, nil
	case r.Status != statusPending:
		a := r.answer()
		return r, &a, nil
	}
	n, err := w.tx.Exec(ctx, `UPDATE payments_refunds SET held_fence = ?
		WHERE merchant = ? AND operation = ? AND status = 'pending' AND held_fence <= ?`,
		w.op.fence, w.op.merchant, w.op.reference, w.op.fence)
	if err != nil {
		return r, nil, fmt.Errorf("resume refund: %w", err)
	}
	if n == 0 {
		return r, nil, onlyonce.ErrLeaseLost
	}
	return r, nil, nil
}

// writeRefund writes what the processor has done.
func (s *Service) writeRefund(ctx context.Context, w writing, r refund, res result) (onlyonce.Answer, error) {
	r.Status, r.FailureCode = statusSucceeded, res.Refused
	charge := `UPDATE payments_charges SET refunded = refunded + ? WHERE merchant = ? AND id = ?`
	if res.Refused != "" {
		r.Status = statusFailed
		charge = `UPDATE payments_charges SET reserved = reserved - ? WHERE merchant = ? AND id = ?`
	}
	n, err := w.tx.Exec(ctx, `UPDATE payments_refunds SET status = ?, failure_code = ?, processor_id = ?
		WHERE merchant = ? AND operation = ? AND status = 'pending'`,
		r.Status, orNull(r.FailureCode), orNull(res.ID), w.op.merchant, w.op.reference)
	if err != nil {
		return onlyonce.Answer{}, fmt.Errorf("write refund: %w", err)
	}
	if n != 1 {
		return onlyonce.Answer{}, fmt.Errorf("write refund: %s is no longer pending", r.ID)
	}
	if _, err := w.tx.Exec(ctx, charge, r.Amount, w.op.merchant, r.Charge); err != nil {
		return onlyonce.Answer{}, fmt.Errorf("write refund of charge: %w", err)
	}
	if r.Status == statusSucceeded {
		if err := post(ctx, w, transfer{Kind: "refund", Subject: r.ID, Amount: r.Amount, Currency: r.Currency, CreatedAt: s.now()}); err != nil {
			return onlyonce.Answer{}, err
		}
	}
	return r.answer(), nil
}

const selectRefund = `SELECT r.seq, r.id, r.charge_id, r.amount, r.currency, r.status, r.reason,
	coalesce(r.failure_code, ''), r.held_fence, c.processor_id, r.created_us
	FROM payments_refunds r JOIN payments_charges c ON c.id = r.charge_id`

func scanRefund(row db.Row) (refund, error) {
	var r refund
	var currency string
	var created int64
	err := row.Scan(&r.seq, &r.ID, &r.Charge, &r.Amount, &currency, &r.Status, &r.Reason,
		&r.FailureCode, &r.heldFence, &r.processor, &created)
	r.Currency, r.CreatedAt = money.Currency(currency), timeOf(created)
	return r, err
}

func (s *Service) findRefund(ctx context.Context, tx db.Tx, merchant, id string) (any, error) {
	return scanRefund(tx.QueryRow(ctx, selectRefund+" WHERE r.merchant = ? AND r.id = ?", merchant, id))
}

func (s *Service) listRefunds(ctx context.Context, tx db.Tx, q pageQuery) ([]item, error) {
	return collect(ctx, tx, q.of(selectRefund+" WHERE r.merchant = ? AND r.seq < ? ORDER BY r.seq DESC LIMIT ?"), func(row db.Row) (item, error) {
		r, err := scanRefund(row)
		return item{seq: r.seq, value: r}, err
	})
}
