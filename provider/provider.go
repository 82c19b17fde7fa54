package provider

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Provider is an adapter to one payment provider. All methods make at most one
// HTTP request, or one for each page of a search, and send nothing again by
// themselves. They are safe for concurrent use.
//
// An error says what it proves: one marked with onlyonce.NotAppliedError means
// that this call had no effect (no connection was obtained, or the provider's
// documented refusal, as a *RefusedError); every other one means that it may
// have had one. A timeout, a broken connection, any 5xx, a conflict and an
// answer that cannot be read are of the second kind (rule D3).
type Provider interface {
	// Traits says what the provider promises. It never changes.
	Traits() Traits

	// EncodeCharge makes the bytes that are recorded with the intent and then
	// sent, again and again the same: equal requests give equal bytes. It fails
	// for what the provider could not be asked at all.
	EncodeCharge(req ChargeRequest) ([]byte, error)
	// EncodeRefund does the same for a refund.
	EncodeRefund(req RefundRequest) ([]byte, error)

	// Charge sends the recorded bytes under the derived key. A card that is
	// declined is an Outcome, not an error.
	Charge(ctx context.Context, s onlyonce.Sending) (Outcome, error)
	// Refund sends the recorded bytes under the derived key.
	Refund(ctx context.Context, s onlyonce.Sending) (Outcome, error)

	// FindCharge asks for the charge with our reference. Of several the one that
	// moved money is returned. False with a nil error: the provider does not see
	// one now, which proves something only later than Traits.Visible. It is not
	// called where Traits.Lookup is false.
	FindCharge(ctx context.Context, s onlyonce.Sending) (Outcome, bool, error)
	// FindRefund asks for the refund with our reference, likewise.
	FindRefund(ctx context.Context, s onlyonce.Sending) (Outcome, bool, error)
}

// Traits says what a provider promises. The zero value promises nothing: then
// an outcome that was lost stays in doubt until a person or a report settles it.
type Traits struct {
	// Name is the provider's name: part of derived keys and references, so it
	// must never change. It names the account too where there are several.
	Name string
	// Memory is how long the provider remembers an idempotency key, counted
	// from its first use, and answers a repeated send with the first result.
	// Zero: it honours none, and nothing is ever sent twice.
	Memory time.Duration
	// Lookup: it can be asked by our reference.
	Lookup bool
	// Visible is how long after a send its effect may take to be found by our
	// reference. Zero: "not found" never proves anything.
	Visible time.Duration
}

// ChargeRequest asks for money.
type ChargeRequest struct {
	// Amount is in minor units of Currency, an upper-case ISO 4217 code.
	Amount   int64
	Currency string
	// Source is the provider's name for what is charged: a card's token.
	Source string
	// Reference is ours, and what the charge is looked up by.
	Reference   string
	Description string
	// Metadata is kept by the provider for people.
	Metadata map[string]string
}

// RefundRequest asks for money back.
type RefundRequest struct {
	// Charge is the provider's id of the charge.
	Charge string
	// Amount is in minor units of Currency, the charge's.
	Amount    int64
	Currency  string
	Reference string
}

// Status is what became of a request, as far as the provider has said.
type Status string

// The statuses. All are final.
const (
	// Succeeded: money moved.
	Succeeded Status = "succeeded"
	// Declined: the provider did what it was asked, and the card's bank refused.
	Declined Status = "declined"
	// Refused: the provider refused the request itself; nothing happened.
	Refused Status = "refused"
)

// Outcome is what the provider made of a request. As JSON it is the result that
// a step records.
type Outcome struct {
	Status Status `json:"status"`
	// ID is the provider's own name; empty when it refused.
	ID string `json:"id,omitempty"`
	// Amount and Currency are what moved, or would have.
	Amount   int64  `json:"amount,omitempty"`
	Currency string `json:"currency,omitempty"`
	// Code and Message say why there is no success, in the provider's words.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// RefusedError is a provider's documented refusal of the request itself: nothing
// happened, and the same request will be refused again. Adapters return it
// marked with onlyonce.NotAppliedError.
type RefusedError struct {
	// Code and Message are the provider's.
	Code, Message string
	// Err is the adapter's own error, if there is more to say.
	Err error
}

// Error is the refusal on one line.
func (e *RefusedError) Error() string { return "refused: " + e.Code + ": " + e.Message }

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }
