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

// provider is the processor's name in derived keys, beside the steps' names.
const (
	provider   = "processor"
	stepCharge = "charge"
	stepRefund = "refund"
)

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

// referenceOf is our name for the effect of a key's step, known before it is
// sent.
func referenceOf(key onlyonce.Key, step string) string {
	return onlyonce.Derivation{Key: key, Step: step, Provider: provider}.Reference()
}

// reference is our name for the effect of the attempt that runs.
func (a asker) reference(ctx context.Context) string {
	return referenceOf(onlyonce.AttemptFrom(ctx).Owner().Key, a.step)
}

// call performs the step: at most one effect at the processor over all attempts.
// A final refusal is a result. errNotApplied says that nothing happened; other
// errors are to be returned as they are.
func (s *Service) call(ctx context.Context, a asker, body []byte) (result, error) {
	raw, err := onlyonce.Call(ctx, onlyonce.Effect{
		Name: a.step, Provider: provider, Request: body, Memory: s.cfg.ProcessorMemory,
		Send: func(ctx context.Context, sending onlyonce.Sending) ([]byte, error) {
			return judge(a.send(ctx, sending.Key, sending.Request))
		},
		Check: func(ctx context.Context, sending onlyonce.Sending) ([]byte, bool, error) {
			res, found, err := a.find(ctx, sending.Reference)
			if err != nil || !found {
				return nil, false, err
			}
			return encoded(res), true, nil
		},
	})
	if err != nil {
		return a.refusal(err)
	}
	var res result
	if err := json.Unmarshal(raw, &res); err != nil {
		return result{}, &onlyonce.Error{Code: onlyonce.CodeStepChanged, Op: "read result of step " + a.step, Err: err}
	}
	return res, nil
}

// errNotApplied marks a call of which it is proved that nothing came.
var errNotApplied = errors.New("the processor took nothing on")

// judge says what the answer to one send proves. Whether that holds for the
// step, which may have been sent before, is Call's to say.
func judge(res result, err error) ([]byte, error) {
	switch {
	case err == nil:
		return encoded(res), nil
	case processor.FateOf(err) == processor.Unknown:
		return nil, err
	}
	return nil, onlyonce.NotAppliedError(fmt.Errorf("%w: %w", errNotApplied, err))
}

// refusal tells a refusal that is the request's fault, and so is final, from
// other errors of a step. An error that has a code is Call's, whatever caused it.
func (a asker) refusal(err error) (result, error) {
	if onlyonce.CodeOf(err) != "" {
		return result{}, err
	}
	e, ok := errors.AsType[*processor.Error](err)
	if ok && errors.Is(err, errNotApplied) && e.Fate() == processor.Refused && slices.Contains(a.final, e.Code) {
		return result{Refused: e.Code, Message: e.Message}, nil
	}
	return result{}, err
}

// tookNothing tells whether a failed call is proved to have had no effect. The
// refusal of a later send is a cause of doubt, not such a proof.
func tookNothing(err error) bool {
	return onlyonce.CodeOf(err) == "" && errors.Is(err, errNotApplied)
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
		step:  stepCharge,
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
		step:  stepRefund,
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
