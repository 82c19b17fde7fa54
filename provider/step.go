package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
)

// ErrDiffers is a look-up that found something else under our reference than was
// asked for. Nothing is sent again: a person has to look at it.
var ErrDiffers = errors.New("the provider has another amount or currency under our reference")

// Charge performs a step that takes money: at most one charge over all attempts
// at the key. req.Reference is filled in. A decline or a refusal of the request
// is an Outcome.
//
// An error for which onlyonce.IsNotApplied is true proves that nothing happened,
// and the handler may say so; every other one is to be returned as it is. It
// needs a handler run by onlyonce.Engine.Steps.
func Charge(ctx context.Context, p Provider, step string, req ChargeRequest) (Outcome, error) {
	req.Reference = onlyonce.ReferenceFor(ctx, step, p.Traits().Name)
	body, err := p.EncodeCharge(req)
	if err != nil {
		return Outcome{}, fmt.Errorf("encode charge: %w", err)
	}
	return call(ctx, p.Traits(), effect{
		name: step, body: body, amount: req.Amount, currency: req.Currency, send: p.Charge, find: p.FindCharge,
	})
}

// Refund performs a step that gives money back, as [Charge] takes it.
func Refund(ctx context.Context, p Provider, step string, req RefundRequest) (Outcome, error) {
	req.Reference = onlyonce.ReferenceFor(ctx, step, p.Traits().Name)
	body, err := p.EncodeRefund(req)
	if err != nil {
		return Outcome{}, fmt.Errorf("encode refund: %w", err)
	}
	return call(ctx, p.Traits(), effect{
		name: step, body: body, amount: req.Amount, currency: req.Currency, send: p.Refund, find: p.FindRefund,
	})
}

// effect is one of the two, as a step.
type effect struct {
	name     string
	body     []byte
	amount   int64
	currency string
	send     func(ctx context.Context, s onlyonce.Sending) (Outcome, error)
	find     func(ctx context.Context, s onlyonce.Sending) (Outcome, bool, error)
}

func call(ctx context.Context, t Traits, e effect) (Outcome, error) {
	raw, err := onlyonce.Call(ctx, onlyonce.Effect{
		Name: e.name, Provider: t.Name, Request: e.body, Memory: t.Memory, Visible: t.Visible,
		Send:  func(ctx context.Context, s onlyonce.Sending) ([]byte, error) { return recorded(e.send(ctx, s)) },
		Check: e.check(t),
	})
	if err != nil {
		return refusal(err)
	}
	var out Outcome
	if err := json.Unmarshal(raw, &out); err != nil {
		return Outcome{}, &onlyonce.Error{
			Code: onlyonce.CodeStepChanged, Op: "read result of step " + e.name, Err: err,
			Hint: "what is recorded of the step is no provider's outcome",
		}
	}
	return out, nil
}

// check asks the provider, where it can be asked.
func (e effect) check(t Traits) func(ctx context.Context, s onlyonce.Sending) ([]byte, bool, error) {
	if !t.Lookup {
		return nil
	}
	return func(ctx context.Context, s onlyonce.Sending) ([]byte, bool, error) {
		out, found, err := e.find(ctx, s)
		switch {
		case err != nil || !found:
			return nil, false, err
		case out.Amount != e.amount || out.Currency != e.currency:
			return nil, false, &onlyonce.Error{
				Code: onlyonce.CodeOutcomeUnknown, Op: "look up step " + e.name, Hint: "compare the provider's record with the order; nothing is sent again",
				Err: fmt.Errorf("%w: %d %s, not %d %s", ErrDiffers, out.Amount, out.Currency, e.amount, e.currency),
			}
		}
		raw, err := encoded(out, nil)
		return raw, err == nil, err
	}
}

// recorded is what the step keeps of a send: its outcome, or the refusal, so that a
// handler which went on from there is told the same again.
func recorded(out Outcome, err error) ([]byte, error) {
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || !onlyonce.IsNotApplied(err) {
		return encoded(out, err)
	}
	said, encodeErr := encoded(Outcome{Status: Refused, Code: refused.Code, Message: refused.Message}, nil)
	if encodeErr != nil {
		return nil, err
	}
	return nil, onlyonce.NotAppliedError(&onlyonce.RefusalError{Result: said, Err: err})
}

func encoded(out Outcome, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// refusal makes an Outcome of a refusal that is proved to be the request's own
// fault, whatever was sent before.
func refusal(err error) (Outcome, error) {
	if !onlyonce.IsNotApplied(err) {
		return Outcome{}, err
	}
	var out Outcome
	if e, ok := errors.AsType[*onlyonce.RefusalError](err); ok && json.Unmarshal(e.Result, &out) == nil && out.Status == Refused {
		return out, nil
	}
	return Outcome{}, err
}
