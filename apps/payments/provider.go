package payments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// provider is the processor's name in derived keys.
const provider = "processor"

// result is what the processor made of a request, as the step records it.
type result struct {
	// ID is the processor's own; empty when it refused.
	ID string `json:"id,omitempty"`
	// Declined is why the card's bank refused.
	Declined string `json:"declined,omitempty"`
	// Refused is the code of a refusal by the processor itself.
	Refused string `json:"refused,omitempty"`
	Message string `json:"message,omitempty"`
}

// errDiffers is a look-up that found something else than was sent.
var errDiffers = errors.New("the processor has another amount or currency under our reference")

// asker sends one kind of request to the processor, and asks what became of it.
type asker struct {
	step string
	// send and find call the processor.
	send func(ctx context.Context, key string, body []byte) (result, error)
	find func(ctx context.Context, reference string) (result, bool, error)
	// final are the codes of refusals that are the request's fault.
	final []string
}

// reference is our name for the step's effect, known before it is sent.
func (a asker) reference(ctx context.Context) string {
	d := onlyonce.Derivation{Key: onlyonce.AttemptFrom(ctx).Owner().Key, Step: a.step, Provider: provider}
	return d.Reference()
}

// call performs the step: at most one effect at the processor over all attempts.
// errNotApplied says that none happened; other errors are to be returned as
// they are.
func (s *Service) call(ctx context.Context, a asker, body []byte) (result, error) {
	asked := "" // the key whose earlier sends the processor was asked about
	raw, err := onlyonce.Call(ctx, onlyonce.Effect{
		Name: a.step, Provider: provider, Request: body, Memory: s.cfg.ProcessorMemory,
		Send: func(ctx context.Context, sending onlyonce.Sending) ([]byte, error) {
			res, err := a.send(ctx, sending.Key, sending.Request)
			return a.judge(res, err, asked == sending.Key)
		},
		Check: func(ctx context.Context, sending onlyonce.Sending) ([]byte, bool, error) {
			asked = sending.Key
			res, found, err := a.find(ctx, sending.Reference)
			if err != nil || !found {
				return nil, false, err
			}
			return encoded(res), true, nil
		},
	})
	if err != nil {
		return result{}, err
	}
	var res result
	if err := json.Unmarshal(raw, &res); err != nil {
		return result{}, &onlyonce.Error{Code: onlyonce.CodeStepChanged, Op: "read result of step " + a.step, Err: err}
	}
	return res, nil
}

// errNotApplied marks a call of which it is proved that nothing came.
var errNotApplied = errors.New("the processor took nothing on")

// judge says what an answer proves. A refusal speaks of its own send alone: when
// the same key was sent before, nothing is proved of what came of that.
func (a asker) judge(res result, err error, again bool) ([]byte, error) {
	if err == nil {
		return encoded(res), nil
	}
	fate := processor.FateOf(err)
	if again || fate == processor.Unknown {
		return nil, err
	}
	if e, ok := errors.AsType[*processor.Error](err); ok && fate == processor.Refused {
		if slices.Contains(a.final, e.Code) {
			return encoded(result{Refused: e.Code, Message: e.Message}), nil
		}
	}
	return nil, onlyonce.NotAppliedError(fmt.Errorf("%w: %w", errNotApplied, err))
}

func encoded(res result) []byte {
	text, err := json.Marshal(res)
	if err != nil {
		return nil // four strings
	}
	return text
}

// tryLater answers for a processor that took nothing on: the same key is free.
func (s *Service) tryLater(ctx context.Context, err error) onlyonce.Answer {
	op := operationOf(ctx)
	s.warn(ctx, "processor took nothing on", err, slog.String("operation", op.reference))
	p := problem(codeProcessorUnavailable, "The processor could not be reached, or took nothing on. No money moved.")
	p.RetryAfter, p.Operation = time.Second, op.reference
	return notKept(p)
}

// chargeAsker charges cards.
func (s *Service) chargeAsker(in chargeInput) asker {
	read := func(c processor.Charge) result {
		return result{ID: c.ID, Declined: c.DeclineCode, Message: c.Message}
	}
	return asker{
		step:  "charge",
		final: []string{processor.CodeUnknownSource},
		send: func(ctx context.Context, key string, body []byte) (result, error) {
			c, err := s.cfg.Processor.Charge(ctx, key, body)
			return read(c), err
		},
		find: func(ctx context.Context, reference string) (result, bool, error) {
			c, found, err := s.cfg.Processor.FindCharge(ctx, reference)
			if err == nil && found && (c.Amount != in.Amount || c.Currency != in.Currency) {
				err = errDiffers
			}
			return read(c), found, err
		},
	}
}

// refundAsker gives money back.
func (s *Service) refundAsker(in refundInput) asker {
	read := func(r processor.Refund) result { return result{ID: r.ID} }
	return asker{
		step:  "refund",
		final: []string{processor.CodeUnknownCharge, processor.CodeNotRefundable, processor.CodeRefundExceedsCharge},
		send: func(ctx context.Context, key string, body []byte) (result, error) {
			r, err := s.cfg.Processor.Refund(ctx, key, body)
			return read(r), err
		},
		find: func(ctx context.Context, reference string) (result, bool, error) {
			r, found, err := s.cfg.Processor.FindRefund(ctx, reference)
			if err == nil && found && r.Amount != in.Amount {
				err = errDiffers
			}
			return read(r), found, err
		},
	}
}

// created is a 201 with the place of what was made.
func created(path string, v any) onlyonce.Answer {
	a := oncehttp.JSON(http.StatusCreated, v)
	http.Header(a.Header).Set("Location", path)
	return a
}
