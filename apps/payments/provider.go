package payments

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/provider"
)

// The steps of operations. Their names are part of derived keys and references,
// and must stay what they are.
const (
	stepCharge  = "charge"
	stepRefund  = "refund"
	stepReserve = "reserve"
)

// The resources that operations work on: at most one key of a merchant at a time
// pays an order, or refunds a charge (rule C12).
const (
	resourceOrder  = "order"
	resourceCharge = "charge"
)

var plainID = regexp.MustCompile(`^[!-~]{1,100}$`)

// resourceOf names a resource by the id that a client sent. One that could not
// be a name is named by its digest: whether there is such a thing is decided
// later, and its answer kept.
func resourceOf(kind, id string) string {
	if id == "" {
		return ""
	}
	if !plainID.MatchString(id) {
		sum := sha256.Sum256([]byte(id))
		id = "sha256:" + hex.EncodeToString(sum[:])
	}
	return kind + "/" + id
}

// charge takes the money, as one step.
func (s *Service) charge(ctx context.Context, req provider.ChargeRequest) (provider.Outcome, error) {
	out, err := provider.Charge(ctx, s.cfg.Provider, stepCharge, req)
	if err == nil && out.Status == "" {
		return s.outcomeBefore(ctx, stepCharge)
	}
	return out, err
}

// refund gives money back, as one step.
func (s *Service) refund(ctx context.Context, req provider.RefundRequest) (provider.Outcome, error) {
	out, err := provider.Refund(ctx, s.cfg.Provider, stepRefund, req)
	if err == nil && out.Status == "" {
		return s.outcomeBefore(ctx, stepRefund)
	}
	return out, err
}

// outcomeBefore is the outcome of a step that is done and was recorded by a version
// of this program whose outcomes had no status.
func (s *Service) outcomeBefore(ctx context.Context, name string) (provider.Outcome, error) {
	steps, err := s.cfg.DB.Keys().Steps(ctx, onlyonce.AttemptFrom(ctx).Owner().Key)
	if err != nil {
		return provider.Outcome{}, unavailable("read steps", err)
	}
	var before struct{ ID, Declined, Message string }
	for _, step := range steps {
		if step.Name == name && json.Unmarshal(step.Result, &before) == nil && before.ID != "" {
			out := provider.Outcome{Status: provider.Succeeded, ID: before.ID, Code: before.Declined, Message: before.Message}
			if before.Declined != "" {
				out.Status = provider.Declined
			}
			return out, nil
		}
	}
	return provider.Outcome{}, nil // it has no status: nothing is written of it
}

// tryLater answers for a provider that took nothing on: the same key is free.
func (s *Service) tryLater(ctx context.Context, err error) onlyonce.Answer {
	s.warnNothingTaken(ctx, err)
	p := problem(codeProcessorUnavailable, "The processor could not be reached, or took nothing on. No money moved.")
	p.RetryAfter, p.Operation = time.Second, operationOf(ctx).reference
	return notKept(p)
}

func (s *Service) warnNothingTaken(ctx context.Context, err error) {
	s.warn(ctx, "processor took nothing on", err, slog.String("operation", operationOf(ctx).reference))
}

// stranded ends a run behind money that has moved, or may have, and that nothing
// can be written of. Its key goes in doubt, where a person finds it: nothing that
// runs again would see more.
func stranded(ctx context.Context, format string, args ...any) error {
	onlyonce.Declare(ctx, onlyonce.Unknown)
	return fmt.Errorf("a person is needed: "+format, args...)
}

// unreadable is a recorded outcome that says nothing this program understands.
func unreadable(ctx context.Context, out provider.Outcome) error {
	return stranded(ctx, "the step's recorded status is %q", out.Status)
}
