package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/money"
	"github.com/onlyonce-go/onlyonce/provider"
)

// ProviderName is the processor's name in derived keys and references, where
// [Provider.Promises] names no other.
const ProviderName = "processor"

// Provider is a processor as an adapter for package provider. It is safe for
// concurrent use and must not be changed after its first.
type Provider struct {
	// Client calls the processor.
	Client *Client
	// Promises is what Traits returns; an empty name is [ProviderName]. It must be
	// true of the server: Memory is at most its Config.KeyMemory, and zero makes a
	// provider to which no key is sent; Lookup is false where it has NoLookup;
	// Visible is at least its VisibleAfter.
	Promises provider.Traits
}

var _ provider.Provider = (*Provider)(nil)

// Traits says what the processor promises.
func (p *Provider) Traits() provider.Traits {
	traits := p.Promises
	traits.Name = cmp.Or(traits.Name, ProviderName)
	return traits
}

// EncodeCharge makes the bytes of a charge. It fails for text that is not UTF-8,
// which could only be sent as another text. The description stays here: the
// processor has no place for one.
func (p *Provider) EncodeCharge(req provider.ChargeRequest) ([]byte, error) {
	texts := []string{req.Currency, req.Source, req.Reference}
	for name, value := range req.Metadata {
		texts = append(texts, name, value)
	}
	if err := checkText(texts...); err != nil {
		return nil, err
	}
	return ChargeRequest{
		Amount: req.Amount, Currency: money.Currency(req.Currency), Source: req.Source,
		Reference: req.Reference, Metadata: req.Metadata,
	}.Encode(), nil
}

// EncodeRefund makes the bytes of a refund, as [Provider.EncodeCharge] does for a
// charge. The currency is the charge's and is not sent.
func (p *Provider) EncodeRefund(req provider.RefundRequest) ([]byte, error) {
	if err := checkText(req.Charge, req.Reference); err != nil {
		return nil, err
	}
	return RefundRequest{Charge: req.Charge, Amount: req.Amount, Reference: req.Reference}.Encode(), nil
}

func checkText(texts ...string) error {
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%q is not UTF-8", text)
		}
	}
	return nil
}

// Charge sends the recorded bytes of a charge.
func (p *Provider) Charge(ctx context.Context, s onlyonce.Sending) (provider.Outcome, error) {
	charge, err := p.Client.Charge(ctx, p.key(s), s.Request)
	if err != nil {
		return provider.Outcome{}, proof(err)
	}
	return outcomeOfCharge(charge), nil
}

// Refund sends the recorded bytes of a refund.
func (p *Provider) Refund(ctx context.Context, s onlyonce.Sending) (provider.Outcome, error) {
	refund, err := p.Client.Refund(ctx, p.key(s), s.Request)
	if err != nil {
		return provider.Outcome{}, proof(err)
	}
	return outcomeOfRefund(refund), nil
}

// FindCharge asks for the charge with our reference.
func (p *Provider) FindCharge(ctx context.Context, s onlyonce.Sending) (provider.Outcome, bool, error) {
	charge, found, err := p.Client.FindCharge(ctx, s.Reference)
	if err != nil || !found {
		return provider.Outcome{}, false, err
	}
	return outcomeOfCharge(charge), true, nil
}

// FindRefund asks for the refund with our reference.
func (p *Provider) FindRefund(ctx context.Context, s onlyonce.Sending) (provider.Outcome, bool, error) {
	refund, found, err := p.Client.FindRefund(ctx, s.Reference)
	if err != nil || !found {
		return provider.Outcome{}, false, err
	}
	return outcomeOfRefund(refund), true, nil
}

// key is the key to send; empty where the processor honours none.
func (p *Provider) key(s onlyonce.Sending) string {
	if p.Promises.Memory == 0 {
		return ""
	}
	return s.Key
}

func outcomeOfCharge(c Charge) provider.Outcome {
	out := provider.Outcome{Status: provider.Succeeded, ID: c.ID, Amount: c.Amount, Currency: string(c.Currency)}
	if !c.Succeeded() {
		out.Status, out.Code, out.Message = provider.Declined, c.DeclineCode, c.Message
	}
	return out
}

func outcomeOfRefund(r Refund) provider.Outcome {
	return provider.Outcome{Status: provider.Succeeded, ID: r.ID, Amount: r.Amount, Currency: string(r.Currency)}
}

// ownFault are the codes of refusals that the same request will meet again. The
// others (too many requests, no access, a key that is missing) are nobody's word on
// the request.
func ownFault() []string {
	return []string{
		CodeInvalidRequest, CodeUnknownSource, CodeUnknownFault,
		CodeUnknownCharge, CodeNotRefundable, CodeRefundExceedsCharge,
	}
}

// proof marks an error of one send with what it proves (rule D3).
func proof(err error) error {
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok || e.Fate() == Unknown:
		return err
	case e.Fate() == Refused && slices.Contains(ownFault(), e.Code):
		return onlyonce.NotAppliedError(&provider.RefusedError{Code: e.Code, Message: e.Message, Err: err})
	default:
		return onlyonce.NotAppliedError(err)
	}
}
