package payments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/money"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// chargeInput is what a merchant asks for. An order that is being paid keeps it
// as JSON.
type chargeInput struct {
	Amount      int64             `json:"amount"`
	Currency    money.Currency    `json:"currency"`
	Source      string            `json:"source"`
	Description string            `json:"description"`
	Metadata    map[string]string `json:"metadata"`
	Order       string            `json:"order"`
}

// text is what is kept of it.
func (in chargeInput) text() string {
	text, err := json.Marshal(in)
	if err != nil {
		return "" // strings and numbers
	}
	return string(text)
}

// readCharge reads a charge's request by pure syntax.
func readCharge(r *http.Request, body []byte) (chargeInput, error) {
	o, fault := readBody(r, body)
	if fault != nil {
		return chargeInput{}, fault
	}
	in := chargeInput{
		Amount: o.amount(), Currency: o.currency(), Source: o.text("source", 1, 255),
		Description: o.text("description", 0, 1000), Metadata: o.metadata(), Order: o.text("order", 0, 100),
	}
	return in, o.done()
}

// charge is a charge as merchants see it.
type charge struct {
	ID          string            `json:"id"`
	Amount      int64             `json:"amount"`
	Currency    money.Currency    `json:"currency"`
	Status      string            `json:"status"`
	Source      string            `json:"source"`
	Description string            `json:"description"`
	Metadata    map[string]string `json:"metadata"`
	Order       string            `json:"order,omitempty"`
	DeclineCode string            `json:"decline_code,omitempty"`
	// Refunded has been given back, RefundPending is about to be.
	Refunded      int64     `json:"refunded"`
	RefundPending int64     `json:"refund_pending"`
	CreatedAt     time.Time `json:"created_at"`

	seq       int64
	processor string
}

const (
	statusSucceeded = "succeeded"
	statusFailed    = "failed"
	statusPending   = "pending"
)

// asked tells whether a charge is the one that in asks for.
func (c charge) asked(in chargeInput) bool {
	return c.Amount == in.Amount && c.Currency == in.Currency && c.Source == in.Source &&
		c.Description == in.Description && c.Order == in.Order && maps.Equal(c.Metadata, in.Metadata)
}

// answer is what creating the charge is answered with.
func (c charge) answer() onlyonce.Answer {
	if c.Status == statusSucceeded {
		return created("/charges/"+c.ID, c)
	}
	p := problem(codeCardDeclined, "The card was declined: "+c.DeclineCode+".")
	return with(with(p, "charge", c.ID), "decline_code", c.DeclineCode).Answer()
}

// createCharge takes the money, then writes the charge, its transfer and its
// answer in one transaction. It runs in steps: after a crash anywhere the next
// attempt goes on behind the last step whose end is known.
func (s *Service) createCharge(ctx context.Context, in chargeInput) (onlyonce.Answer, error) {
	op := operationOf(ctx)
	answer, written, err := s.chargeWritten(ctx, op, in)
	if written || err != nil {
		return answer, err
	}
	asker := s.chargeAsker(in)
	left, refusal, err := s.orderLeft(ctx, op, asker, in.Order)
	switch {
	case refusal != nil || err != nil:
		return answerOf(refusal), err
	case left != nil:
		return s.finishCharge(ctx, left.by, in, left.result)
	}
	refusal, err = s.holdOrder(ctx, op, in)
	if refusal != nil || err != nil {
		return answerOf(refusal), err
	}
	body := processor.ChargeRequest{
		Amount: in.Amount, Currency: in.Currency, Source: in.Source, Reference: asker.reference(ctx), Metadata: in.Metadata,
	}.Encode()
	res, err := s.call(ctx, asker, body)
	if tookNothing(err) {
		s.letOrderGo(ctx, op, in.Order)
		return s.tryLater(ctx, err), nil
	}
	if err != nil {
		return onlyonce.Answer{}, err
	}
	return s.finishCharge(ctx, op, in, res)
}

// finishCharge writes what the processor has done, and completes the key with it.
func (s *Service) finishCharge(ctx context.Context, op operation, in chargeInput, res result) (onlyonce.Answer, error) {
	return s.engine.Finish(ctx, func(ctx context.Context, tx db.Tx) (onlyonce.Answer, error) {
		return s.writeCharge(ctx, writing{tx, op}, in, res)
	})
}

// answerOf is a refusal as an answer; nil is none.
func answerOf(refusal *onlyonce.Answer) onlyonce.Answer {
	if refusal == nil {
		return onlyonce.Answer{}
	}
	return *refusal
}

// chargeWritten answers an operation that was carried out under an earlier life
// of its key: the key has expired, the charge has not.
func (s *Service) chargeWritten(ctx context.Context, op operation, in chargeInput) (onlyonce.Answer, bool, error) {
	var c charge
	err := s.cfg.DB.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		var err error
		c, err = scanCharge(tx.QueryRow(ctx, selectCharge+" WHERE merchant = ? AND operation = ?", op.merchant, op.reference))
		return err
	})
	switch {
	case errors.Is(err, db.ErrNoRows):
		return onlyonce.Answer{}, false, nil
	case err != nil:
		return onlyonce.Answer{}, false, unavailable("look for earlier charge", err)
	case !c.asked(in):
		return keyReused(op, c.ID), true, nil
	}
	return c.answer(), true, nil
}

// keyReused refuses another request under the key of an operation whose answer
// has expired. Like the guard's own it is not stored.
func keyReused(op operation, id string) onlyonce.Answer {
	p := problem(codeKeyReused, "The key was used for another operation, which made "+id+". Send this one with a new key.")
	p.Operation = op.reference
	return notKept(p)
}

// writeCharge writes what the processor has done.
func (s *Service) writeCharge(ctx context.Context, w writing, in chargeInput, res result) (onlyonce.Answer, error) {
	if res.Refused != "" {
		if err := freeOrder(ctx, w, in.Order); err != nil {
			return onlyonce.Answer{}, err
		}
		return with(problem(codeUnknownSource, "source "+in.Source+" is not known to the processor."), "field", "source").Answer(), nil
	}
	c := s.chargeOf(in, res)
	return c.answer(), s.recordCharge(ctx, w, c, res.ID)
}

// chargeOf is the charge that the processor has made of a request.
func (s *Service) chargeOf(in chargeInput, res result) charge {
	c := charge{
		ID: newID("ch_"), Amount: in.Amount, Currency: in.Currency, Status: statusSucceeded, Source: in.Source,
		Description: in.Description, Metadata: in.Metadata, Order: in.Order, DeclineCode: res.Declined, CreatedAt: s.now(),
	}
	if res.Declined != "" {
		c.Status = statusFailed
	}
	return c
}

// recordCharge writes a charge, what it makes of its order, and its transfer.
func (s *Service) recordCharge(ctx context.Context, w writing, c charge, processorID string) error {
	if err := insertCharge(ctx, w, c, processorID); err != nil {
		return err
	}
	if c.Order != "" {
		if err := settleOrder(ctx, w, c); err != nil {
			return err
		}
	}
	if c.Status != statusSucceeded {
		return nil
	}
	return post(ctx, w, transfer{Kind: "charge", Subject: c.ID, Amount: c.Amount, Currency: c.Currency, CreatedAt: c.CreatedAt})
}

func insertCharge(ctx context.Context, w writing, c charge, processorID string) error {
	metadata, err := json.Marshal(c.Metadata)
	if err != nil {
		return fmt.Errorf("encode metadata: %w", err)
	}
	_, err = w.tx.Exec(ctx, `INSERT INTO payments_charges
		(id, merchant, operation, amount, currency, source, description, metadata, order_id, status, decline_code, processor_id, created_us)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		c.ID, w.op.merchant, w.op.reference, c.Amount, string(c.Currency), c.Source, c.Description, string(metadata),
		orNull(c.Order), c.Status, orNull(c.DeclineCode), processorID, c.CreatedAt.UnixMicro())
	if err != nil {
		return fmt.Errorf("insert charge: %w", err)
	}
	return nil
}

const selectCharge = `SELECT seq, id, amount, currency, status, source, description, metadata,
	coalesce(order_id, ''), coalesce(decline_code, ''), refunded, reserved - refunded, processor_id, created_us
	FROM payments_charges`

func scanCharge(row db.Row) (charge, error) {
	var c charge
	var currency, metadata string
	var created int64
	err := row.Scan(&c.seq, &c.ID, &c.Amount, &currency, &c.Status, &c.Source, &c.Description, &metadata,
		&c.Order, &c.DeclineCode, &c.Refunded, &c.RefundPending, &c.processor, &created)
	if err != nil {
		return charge{}, err
	}
	if err := json.Unmarshal([]byte(metadata), &c.Metadata); err != nil {
		return charge{}, fmt.Errorf("read metadata of %s: %w", c.ID, err)
	}
	c.Currency, c.CreatedAt = money.Currency(currency), timeOf(created)
	return c, nil
}

func (s *Service) findCharge(ctx context.Context, tx db.Tx, merchant, id string) (any, error) {
	return scanCharge(tx.QueryRow(ctx, selectCharge+" WHERE merchant = ? AND id = ?", merchant, id))
}

func (s *Service) listCharges(ctx context.Context, tx db.Tx, q pageQuery) ([]item, error) {
	return collect(ctx, tx, q.of(selectCharge+pageOf), func(row db.Row) (item, error) {
		c, err := scanCharge(row)
		return item{seq: c.seq, value: c}, err
	})
}

// busy refuses while another operation holds what this one needs.
func busy(op operation, detail string) *onlyonce.Answer {
	p := problem(codeResourceBusy, detail)
	p.RetryAfter, p.Operation = time.Second, op.reference
	a := notKept(p)
	return &a
}

// refused is a final refusal.
func refused(p *oncehttp.Problem) *onlyonce.Answer {
	a := p.Answer()
	return &a
}
