package payments

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/provider"
)

// checkoutInput is what a merchant asks for. Its order keeps it as JSON.
type checkoutInput struct {
	Lines       []orderLine       `json:"lines"`
	Source      string            `json:"source"`
	Description string            `json:"description"`
	Metadata    map[string]string `json:"metadata"`
}

// readCheckout reads a checkout's request by pure syntax.
func readCheckout(r *http.Request, body []byte) (checkoutInput, error) {
	o, fault := readBody(r, body)
	if fault != nil {
		return checkoutInput{}, fault
	}
	lines, err := readLines(o)
	if err != nil {
		return checkoutInput{}, err
	}
	in := checkoutInput{
		Lines: lines, Source: o.text("source", 1, 255), Description: o.text("description", 0, 1000), Metadata: o.metadata(),
	}
	return in, o.done()
}

// charge is the charge that pays the order of a checkout.
func (in checkoutInput) charge(o order) chargeInput {
	return chargeInput{
		Amount: o.Total, Currency: o.Currency, Source: in.Source, Description: in.Description, Metadata: in.Metadata, Order: o.ID,
	}
}

// createCheckout orders and pays. It runs in three steps: a transaction writes
// the order and takes its stock, a call charges the card, a transaction writes
// what came of it. However often it is interrupted, and whoever goes on with it,
// the stock is taken once, and given back once or not at all.
func (s *Service) createCheckout(ctx context.Context, in checkoutInput) (onlyonce.Answer, error) {
	op := operationOf(ctx)
	if answer, err := s.checkedOut(ctx, op, in); answer != nil || err != nil {
		return answerOf(answer), err
	}
	o, err := onlyonce.StepTx(ctx, s.engine, stepReserve, func(ctx context.Context, tx db.Tx) (order, error) {
		return s.reserve(ctx, tx, op, in)
	})
	refusal, isRefusal := errors.AsType[*refusedError](err)
	switch {
	case isRefusal:
		return refusal.answer, nil // nothing was written
	case errors.Is(err, errReservedBefore):
		return onlyonce.Answer{}, stranded(ctx, "%w", err)
	case err != nil:
		return onlyonce.Answer{}, err
	}
	out, err := s.payCheckout(ctx, op, o, in.charge(o))
	if err != nil {
		return onlyonce.Answer{}, err
	}
	return s.engine.Finish(ctx, func(ctx context.Context, tx db.Tx) (onlyonce.Answer, error) {
		return s.writeCheckout(ctx, writing{tx, op}, o, checkoutEnd{in.charge(o), out})
	})
}

// notTaken is the outcome of a checkout whose card was never charged, and never
// will be.
const notTaken provider.Status = "not taken"

// payCheckout charges the card. That the provider took nothing on ends the
// checkout: its reservation must not be kept for nobody.
func (s *Service) payCheckout(ctx context.Context, op operation, o order, c chargeInput) (provider.Outcome, error) {
	late, err := s.overdue(ctx, op, o)
	switch {
	case err != nil:
		return provider.Outcome{}, err
	case late:
		return provider.Outcome{Status: notTaken}, nil
	}
	out, err := s.charge(ctx, c.request())
	if onlyonce.IsNotApplied(err) {
		s.warnNothingTaken(ctx, err)
		return provider.Outcome{Status: notTaken}, nil
	}
	return out, err
}

// checkedOut answers a checkout that was carried out under an earlier life of its
// key; nil: there is none that has ended.
func (s *Service) checkedOut(ctx context.Context, op operation, in checkoutInput) (answer *onlyonce.Answer, err error) {
	err = s.cfg.DB.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		o, err := scanOrder(tx.QueryRow(ctx, selectOrder+" WHERE merchant = ? AND operation = ?", op.merchant, op.reference))
		switch {
		case errors.Is(err, db.ErrNoRows) || (err == nil && o.Status == orderPending):
			return nil
		case err != nil:
			return err
		case o.asked != textOf(in):
			answer = keyReused(op, o.ID)
			return nil
		}
		a, err := endedCheckout(ctx, tx, op, o)
		answer = &a
		return err
	})
	if err != nil {
		return nil, unavailable("look for earlier checkout", err)
	}
	return answer, nil
}

// endedCheckout is what a checkout that has ended was answered with.
func endedCheckout(ctx context.Context, tx db.Tx, op operation, o order) (onlyonce.Answer, error) {
	if err := o.readLines(ctx, tx, op.merchant); err != nil {
		return onlyonce.Answer{}, err
	}
	switch o.Status {
	case orderPaid:
		return o.bought(), nil
	case orderCancelled:
		return o.notPaid(), nil
	}
	c, err := scanCharge(tx.QueryRow(ctx, selectCharge+" WHERE merchant = ? AND operation = ?", op.merchant, op.reference))
	switch {
	case errors.Is(err, db.ErrNoRows): // the processor refused the request itself
		return with(problem(codeChargeRefused, "The processor refused the request."), "order", o.ID).Answer(), nil
	case err != nil:
		return onlyonce.Answer{}, fmt.Errorf("find charge of checkout: %w", err)
	}
	return declinedCheckout(c), nil
}

// refusedError rolls a step back with the answer that the operation then has.
type refusedError struct{ answer onlyonce.Answer }

// Error says that there is an answer.
func (e *refusedError) Error() string { return fmt.Sprintf("refused with status %d", e.answer.Status) }

// errReservedBefore is a pending order of an earlier life of the key: whether its
// card was charged is not recorded any more.
var errReservedBefore = errors.New("the order was reserved under an earlier life of the key")

// reserve writes the order as pending and takes its stock, or refuses. It is one
// step: it runs in a life of the key that has not reserved yet.
func (s *Service) reserve(ctx context.Context, tx db.Tx, op operation, in checkoutInput) (order, error) {
	earlier, err := scanOrder(tx.QueryRow(ctx, selectOrder+" WHERE merchant = ? AND operation = ?", op.merchant, op.reference))
	switch {
	case err == nil:
		return order{}, fmt.Errorf("%w: %s", errReservedBefore, earlier.ID)
	case !errors.Is(err, db.ErrNoRows):
		return order{}, fmt.Errorf("look for earlier order: %w", err)
	}
	o, refusal, err := s.place(ctx, tx, placing{
		merchant: op.merchant, operation: op.reference, key: op.key,
		id: newID("ord_"), status: orderPending, asked: textOf(in), lines: in.Lines,
	})
	if refusal != nil {
		return order{}, &refusedError{*refusal}
	}
	return o, err
}

// checkoutEnd is what a checkout asked the provider for, and what came of it.
type checkoutEnd struct {
	asked chargeInput
	out   provider.Outcome
}

// writeCheckout writes the end of a checkout: paid, or its stock given back.
func (s *Service) writeCheckout(ctx context.Context, w writing, o order, end checkoutEnd) (onlyonce.Answer, error) {
	switch end.out.Status {
	case provider.Succeeded:
		c := s.chargeOf(end.asked, end.out)
		o.Status, o.Charge = orderPaid, c.ID
		if err := s.recordCharge(ctx, w, c, end.out.ID); err != nil {
			return onlyonce.Answer{}, err
		}
		return o.bought(), payOrder(ctx, w, c, orderPending)
	case provider.Declined:
		c := s.chargeOf(end.asked, end.out)
		if err := s.recordCharge(ctx, w, c, end.out.ID); err != nil {
			return onlyonce.Answer{}, err
		}
		return declinedCheckout(c), unreserve(ctx, w, o, orderDeclined)
	case provider.Refused:
		return with(refusedSource(end.asked.Source, end.out), "order", o.ID).Answer(), unreserve(ctx, w, o, orderDeclined)
	case notTaken:
		return o.notPaid(), unreserve(ctx, w, o, orderCancelled)
	default:
		return onlyonce.Answer{}, unreadable(ctx, end.out)
	}
}

// bought is what a paid checkout is answered with.
func (o order) bought() onlyonce.Answer { return created("/orders/"+o.ID, o) }

// notPaid is what a checkout is answered with that the provider took nothing of.
// It is final, whatever its status: the reservation it had is gone.
func (o order) notPaid() onlyonce.Answer {
	p := problem(codeNotTaken, "The processor took nothing on. No money moved; the order is cancelled and its stock is free again.")
	a := with(p, "order", o.ID).Answer()
	a.Outcome = onlyonce.Final
	return a
}

// declinedCheckout is what a checkout with a declined card is answered with.
func declinedCheckout(c charge) onlyonce.Answer {
	p := problem(codeCardDeclined, "The card was declined: "+c.DeclineCode+". The order is closed and its stock is free again.")
	return with(with(with(p, "charge", c.ID), "decline_code", c.DeclineCode), "order", c.Order).Answer()
}
