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
	"github.com/onlyonce-go/onlyonce/provider"
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

	seq int64
}

func (r refund) asked(in refundInput) bool {
	return r.Charge == in.Charge && r.Amount == in.Amount && r.Reason == in.Reason
}

// answer is what creating the refund is answered with.
func (r refund) answer() onlyonce.Answer {
	if r.Status != statusFailed {
		return created("/refunds/"+r.ID, r)
	}
	code := codeRefundRefused
	switch r.FailureCode {
	case codeUnknownCharge, codeNotRefundable, codeRefundExceeds:
		code = r.FailureCode
	}
	p := with(problem(code, "The processor refused the refund: "+r.FailureCode+"."), "refund", r.ID)
	if code == codeRefundRefused {
		p = with(p, "processor_code", r.FailureCode)
	}
	return p.Answer()
}

// createRefund asks whether it may, gives the money back, and writes the refund,
// its transfer and its answer in one transaction. Refunds of one charge come one
// after the other: the key of the one under way, or in doubt, holds the charge.
func (s *Service) createRefund(ctx context.Context, in refundInput) (onlyonce.Answer, error) {
	op := operationOf(ctx)
	c, answer, err := s.checkRefund(ctx, op, in)
	if answer != nil || err != nil {
		return answerOf(answer), err
	}
	out, err := s.refund(ctx, provider.RefundRequest{
		Charge: c.processor, Amount: in.Amount, Currency: string(c.Currency),
	})
	switch {
	case onlyonce.IsNotApplied(err):
		return s.tryLater(ctx, err), nil
	case err != nil:
		return onlyonce.Answer{}, err
	}
	return s.engine.Finish(ctx, func(ctx context.Context, tx db.Tx) (onlyonce.Answer, error) {
		return s.writeRefund(ctx, writing{tx, op}, s.refundOf(in, c), out)
	})
}

// checkRefund answers what needs no call, or no longer, and finds the charge of
// which money is to be given back.
func (s *Service) checkRefund(ctx context.Context, op operation, in refundInput) (c charge, answer *onlyonce.Answer, err error) {
	err = s.cfg.DB.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		// The key of an earlier refund may have expired, its refund has not.
		r, err := scanRefund(tx.QueryRow(ctx, selectRefund+" WHERE merchant = ? AND operation = ?", op.merchant, op.reference))
		switch {
		case err == nil && !r.asked(in):
			answer = keyReused(op, r.ID)
			return nil
		case err == nil:
			answer = new(r.answer())
			return nil
		case !errors.Is(err, db.ErrNoRows):
			return err
		}
		c, err = scanCharge(tx.QueryRow(ctx, selectCharge+" WHERE merchant = ? AND id = ?", op.merchant, in.Charge))
		if errors.Is(err, db.ErrNoRows) {
			answer = refused(with(problem(codeUnknownCharge, "There is no charge "+in.Charge+"."), "field", "charge"))
			return nil
		}
		answer = c.refusal(in)
		return err
	})
	if err != nil {
		return c, nil, unavailable("look whether the refund can be made", err)
	}
	return c, answer, nil
}

// refusal says why a charge cannot be refunded; nil: it can.
func (c charge) refusal(in refundInput) *onlyonce.Answer {
	switch {
	case c.Status != statusSucceeded:
		return refused(with(problem(codeNotRefundable, "The charge was declined."), "field", "charge"))
	case in.Amount > c.Amount-c.Refunded:
		p := problem(codeRefundExceeds, fmt.Sprintf("Of %d, %d are refunded; %d more are too much.", c.Amount, c.Refunded, in.Amount))
		return refused(with(p, "field", "amount"))
	}
	return nil
}

func (s *Service) refundOf(in refundInput, c charge) refund {
	return refund{ID: newID("re_"), Charge: c.ID, Amount: in.Amount, Currency: c.Currency, Reason: in.Reason, CreatedAt: s.now()}
}

// writeRefund writes what the provider has done.
func (s *Service) writeRefund(ctx context.Context, w writing, r refund, out provider.Outcome) (onlyonce.Answer, error) {
	switch out.Status {
	case provider.Succeeded:
		r.Status = statusSucceeded
	case provider.Declined, provider.Refused:
		r.Status, r.FailureCode = statusFailed, out.Code
		return r.answer(), insertRefund(ctx, w, r, "")
	default:
		return onlyonce.Answer{}, unreadable(ctx, out)
	}
	if out.ID == "" {
		return onlyonce.Answer{}, stranded(ctx, "the step's recorded result is a success without the provider's id")
	}
	if err := insertRefund(ctx, w, r, out.ID); err != nil {
		return onlyonce.Answer{}, err
	}
	n, err := w.tx.Exec(ctx, `UPDATE payments_charges SET refunded = refunded + ?
		WHERE merchant = ? AND id = ? AND status = 'succeeded' AND refunded + ? <= amount`, r.Amount, w.op.merchant, r.Charge, r.Amount)
	if err != nil {
		return onlyonce.Answer{}, fmt.Errorf("write refund of charge: %w", err)
	}
	if n != 1 {
		// Nobody else can have refunded it meanwhile: this key has the charge.
		return onlyonce.Answer{}, stranded(ctx, "money was given back for charge %s, of which nothing is left to refund", r.Charge)
	}
	return r.answer(), post(ctx, w, transfer{Kind: "refund", Subject: r.ID, Amount: r.Amount, Currency: r.Currency, CreatedAt: r.CreatedAt})
}

func insertRefund(ctx context.Context, w writing, r refund, processorID string) error {
	_, err := w.tx.Exec(ctx, `INSERT INTO payments_refunds
		(id, merchant, operation, charge_id, amount, currency, reason, status, failure_code, processor_id, created_us)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		r.ID, w.op.merchant, w.op.reference, r.Charge, r.Amount, string(r.Currency), r.Reason, r.Status,
		orNull(r.FailureCode), orNull(processorID), r.CreatedAt.UnixMicro())
	if err != nil {
		return fmt.Errorf("insert refund: %w", err)
	}
	return nil
}

const selectRefund = `SELECT seq, id, charge_id, amount, currency, status, reason, coalesce(failure_code, ''), created_us
	FROM payments_refunds`

func scanRefund(row db.Row) (refund, error) {
	var r refund
	var currency string
	var created int64
	err := row.Scan(&r.seq, &r.ID, &r.Charge, &r.Amount, &currency, &r.Status, &r.Reason, &r.FailureCode, &created)
	r.Currency, r.CreatedAt = money.Currency(currency), timeOf(created)
	return r, err
}

func (s *Service) findRefund(ctx context.Context, tx db.Tx, merchant, id string) (any, error) {
	return scanRefund(tx.QueryRow(ctx, selectRefund+" WHERE merchant = ? AND id = ?", merchant, id))
}

func (s *Service) listRefunds(ctx context.Context, tx db.Tx, q pageQuery) ([]item, error) {
	return collect(ctx, tx, q.of(selectRefund+pageOf), func(row db.Row) (item, error) {
		r, err := scanRefund(row)
		return item{seq: r.seq, value: r}, err
	})
}
