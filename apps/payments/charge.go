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
	"github.com/onlyonce-go/onlyonce/oncehttp"
	"github.com/onlyonce-go/onlyonce/provider"
)

// chargeInput is what a merchant asks for.
type chargeInput struct {
	Amount      int64
	Currency    money.Currency
	Source      string
	Description string
	Metadata    map[string]string
	Order       string
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
	// Refunded has been given back.
	Refunded  int64     `json:"refunded"`
	CreatedAt time.Time `json:"created_at"`

	seq       int64
	processor string
}

const (
	statusSucceeded = "succeeded"
	statusFailed    = "failed"
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

// createCharge asks whether it may, takes the money, and writes the charge, its
// transfer and its answer in one transaction. It runs in steps: after a crash
// anywhere the next attempt goes on behind the last step whose end is known. As
// long as that is not known nobody else pays the order: its key holds it.
func (s *Service) createCharge(ctx context.Context, in chargeInput) (onlyonce.Answer, error) {
	op := operationOf(ctx)
	if answer, err := s.checkCharge(ctx, op, in); answer != nil || err != nil {
		return answerOf(answer), err
	}
	out, err := s.charge(ctx, in.request())
	switch {
	case onlyonce.IsNotApplied(err):
		return s.tryLater(ctx, err), nil
	case err != nil:
		return onlyonce.Answer{}, err
	}
	return s.engine.Finish(ctx, func(ctx context.Context, tx db.Tx) (onlyonce.Answer, error) {
		return s.writeCharge(ctx, writing{tx, op}, in, out)
	})
}

// request is what the provider is asked for.
func (in chargeInput) request() provider.ChargeRequest {
	return provider.ChargeRequest{
		Amount: in.Amount, Currency: string(in.Currency), Source: in.Source,
		Description: in.Description, Metadata: in.Metadata,
	}
}

// checkCharge answers what needs no call, or no longer: an operation that was
// carried out under an earlier life of its key (the key has expired, the charge
// has not), an order that cannot be paid. nil: go on.
func (s *Service) checkCharge(ctx context.Context, op operation, in chargeInput) (answer *onlyonce.Answer, err error) {
	err = s.cfg.DB.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		c, err := scanCharge(tx.QueryRow(ctx, selectCharge+" WHERE merchant = ? AND operation = ?", op.merchant, op.reference))
		switch {
		case errors.Is(err, db.ErrNoRows):
			answer, err = checkOrder(ctx, tx, op, in)
		case err == nil && !c.asked(in):
			answer = keyReused(op, c.ID)
		case err == nil:
			answer = new(c.answer())
		}
		return err
	})
	if err != nil {
		return nil, unavailable("look whether the charge can be made", err)
	}
	return answer, nil
}

// answerOf is an answer that there may not be.
func answerOf(a *onlyonce.Answer) onlyonce.Answer {
	if a == nil {
		return onlyonce.Answer{}
	}
	return *a
}

// keyReused refuses another request under the key of an operation whose answer
// has expired. Like the guard's own it is not stored.
func keyReused(op operation, id string) *onlyonce.Answer {
	p := problem(codeKeyReused, "The key was used for another operation, which made "+id+". Send this one with a new key.")
	p.Operation = op.reference
	return new(notKept(p))
}

// writeCharge writes what the provider has done: the charge, what it makes of its
// order, and its transfer.
func (s *Service) writeCharge(ctx context.Context, w writing, in chargeInput, out provider.Outcome) (onlyonce.Answer, error) {
	switch out.Status {
	case provider.Succeeded, provider.Declined:
	case provider.Refused:
		return refusedSource(in.Source, out).Answer(), nil
	default:
		return onlyonce.Answer{}, unreadable(ctx, out)
	}
	c := s.chargeOf(in, out)
	if err := s.recordCharge(ctx, w, c, out.ID); err != nil {
		return onlyonce.Answer{}, err
	}
	if c.Order != "" && c.Status == statusSucceeded {
		if err := payOrder(ctx, w, c, orderOpen); err != nil {
			return onlyonce.Answer{}, err
		}
	}
	return c.answer(), nil
}

// refusedSource says that the provider refuses the request itself.
func refusedSource(source string, out provider.Outcome) *oncehttp.Problem {
	if out.Code == codeUnknownSource {
		return with(problem(codeUnknownSource, "source "+source+" is not known to the processor."), "field", "source")
	}
	return with(problem(codeChargeRefused, "The processor refuses the request: "+out.Code+"."), "processor_code", out.Code)
}

// chargeOf is the charge that the provider has made of a request.
func (s *Service) chargeOf(in chargeInput, out provider.Outcome) charge {
	c := charge{
		ID: newID("ch_"), Amount: in.Amount, Currency: in.Currency, Status: statusSucceeded, Source: in.Source,
		Description: in.Description, Metadata: in.Metadata, Order: in.Order, CreatedAt: s.now(),
	}
	if out.Status != provider.Succeeded {
		c.Status, c.DeclineCode = statusFailed, out.Code
	}
	return c
}

// recordCharge writes a charge and its transfer. A decline need not have a name at
// the provider; money that has moved without one could never be given back.
func (s *Service) recordCharge(ctx context.Context, w writing, c charge, processorID string) error {
	if c.Status == statusSucceeded && processorID == "" {
		return stranded(ctx, "the step's recorded result is a success without the provider's id")
	}
	if err := insertCharge(ctx, w, c, processorID); err != nil || c.Status != statusSucceeded {
		return err
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
		orNull(c.Order), c.Status, orNull(c.DeclineCode), orNull(processorID), c.CreatedAt.UnixMicro())
	if err != nil {
		return fmt.Errorf("insert charge: %w", err)
	}
	return nil
}

const selectCharge = `SELECT seq, id, amount, currency, status, source, description, metadata,
	coalesce(order_id, ''), coalesce(decline_code, ''), refunded, coalesce(processor_id, ''), created_us
	FROM payments_charges`

func scanCharge(row db.Row) (charge, error) {
	var c charge
	var currency, metadata string
	var created int64
	err := row.Scan(&c.seq, &c.ID, &c.Amount, &currency, &c.Status, &c.Source, &c.Description, &metadata,
		&c.Order, &c.DeclineCode, &c.Refunded, &c.processor, &created)
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

// busy refuses while another operation works on what this one needs.
func busy(op operation, detail string) *onlyonce.Answer {
	p := problem(codeResourceBusy, detail)
	p.RetryAfter, p.Operation = time.Second, op.reference
	return new(notKept(p))
}

// refused is a final refusal.
func refused(p *oncehttp.Problem) *onlyonce.Answer { return new(p.Answer()) }
