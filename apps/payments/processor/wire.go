package processor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments/money"
)

// Header names of the processor's own idempotency.
const (
	// HeaderKey carries the caller's key.
	HeaderKey = "Idempotency-Key"
	// HeaderReplayed is "true" on an answer that was given before.
	HeaderReplayed = "Idempotent-Replayed"
)

// Codes of refusals, in the "code" of their body and in [Error.Code].
const (
	// CodeInvalidRequest: the request makes no sense; nothing was done. 400.
	CodeInvalidRequest = "invalid_request"
	// CodeKeyRequired: there is no Idempotency-Key; nothing was done. 400.
	CodeKeyRequired = "idempotency_key_required"
	// CodeUnknownSource: there is no such card; nothing was done. 400.
	CodeUnknownSource = "unknown_source"
	// CodeUnknownFault: "simulate" names no fault; nothing was done. 400.
	CodeUnknownFault = "unknown_fault"
	// CodeUnknownCharge: the charge to refund does not exist; nothing was done. 422.
	CodeUnknownCharge = "unknown_charge"
	// CodeNotRefundable: the charge to refund was declined; nothing was done. 422.
	CodeNotRefundable = "charge_not_refundable"
	// CodeRefundExceedsCharge: more would be given back than was taken; nothing
	// was done. 422.
	CodeRefundExceedsCharge = "refund_exceeds_charge"
	// CodeRateLimited: too many requests; nothing was done. 429.
	CodeRateLimited = "rate_limited"
	// CodeInProgress: another request with this key is being worked on. 409.
	CodeInProgress = "in_progress"
	// CodeKeyReused: the key was used for another request, which may have been
	// carried out. 409.
	CodeKeyReused = "idempotency_key_reused"
	// CodeInternal: something broke, before or after the effect. 500.
	CodeInternal = "internal_error"
	// CodeGatewayTimeout: somebody in between lost patience. 504.
	CodeGatewayTimeout = "gateway_timeout"
	// CodeUnavailable: the processor cannot record anything any more. 503.
	CodeUnavailable = "unavailable"
	// CodeLookupUnsupported: this processor cannot be asked by reference. 405.
	CodeLookupUnsupported = "lookup_unsupported"
)

// Status is what became of a charge or refund. It is final.
type Status string

const (
	// StatusSucceeded means that money moved.
	StatusSucceeded Status = "succeeded"
	// StatusDeclined means that the card's bank refused and none moved.
	StatusDeclined Status = "declined"
)

// ChargeRequest asks for money from a card.
type ChargeRequest struct {
	// Amount is in minor units, from 1 to [MaxAmount].
	Amount int64 `json:"amount"`
	// Currency is an upper-case ISO 4217 code.
	Currency money.Currency `json:"currency"`
	// Source is the card's token, one of [Sources].
	Source string `json:"source"`
	// Reference is the caller's own name for the charge, for looking it up; at
	// most 255 bytes, and empty where the caller has none.
	Reference string `json:"reference,omitempty"`
	// Metadata is stored and given back.
	Metadata map[string]string `json:"metadata,omitempty"`
	// Simulate names one of [Faults] to commit, instead of what the source
	// would.
	Simulate string `json:"simulate,omitempty"`
}

// RefundRequest asks for money back.
type RefundRequest struct {
	// Charge is the id of the charge.
	Charge string `json:"charge"`
	// Amount is in minor units of the charge's currency. All refunds of a
	// charge together never exceed it.
	Amount int64 `json:"amount"`
	// Reference is the caller's own name for the refund, as for a charge.
	Reference string `json:"reference,omitempty"`
	// Simulate names one of [Faults] to commit.
	Simulate string `json:"simulate,omitempty"`
}

// Charge is an answered request for money from a card.
type Charge struct {
	ID          string            `json:"id"`
	Status      Status            `json:"status"`
	Amount      int64             `json:"amount"`
	Currency    money.Currency    `json:"currency"`
	Source      string            `json:"source"`
	Reference   string            `json:"reference,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	DeclineCode string            `json:"decline_code,omitempty"`
	Message     string            `json:"message,omitempty"`
	CreatedAt   time.Time         `json:"created_at"`
	// Replayed is set by the client where the answer had been given before.
	Replayed bool `json:"-"`
}

// Succeeded reports whether money was taken.
func (c Charge) Succeeded() bool { return c.Status == StatusSucceeded }

// Refund is money given back.
type Refund struct {
	ID        string         `json:"id"`
	Status    Status         `json:"status"`
	Charge    string         `json:"charge"`
	Amount    int64          `json:"amount"`
	Currency  money.Currency `json:"currency"`
	Reference string         `json:"reference,omitempty"`
	CreatedAt time.Time      `json:"created_at"`
	// Replayed is set by the client where the answer had been given before.
	Replayed bool `json:"-"`
}

// Stats is what the processor did since its journal began.
type Stats struct {
	// Charges counts the charges that took money, Declined those that did not,
	// Refunds the refunds.
	Charges  int `json:"charges"`
	Declined int `json:"declined"`
	Refunds  int `json:"refunds"`
	// ChargesByReference counts the charges that took money under each
	// reference, RefundsByReference the refunds.
	ChargesByReference map[string]int `json:"charges_by_reference"`
	RefundsByReference map[string]int `json:"refunds_by_reference"`
	// DuplicateCharges are the references under which money was taken more than
	// once, DuplicateRefunds those under which it was given back more than
	// once; both in order. Wherever a reference names one operation, both must
	// be empty.
	DuplicateCharges []string `json:"duplicate_charges"`
	DuplicateRefunds []string `json:"duplicate_refunds"`
	// Charged and Refunded are sums in minor units. A sum beyond 64 bits stays
	// at the largest number.
	Charged  map[money.Currency]int64 `json:"charged"`
	Refunded map[money.Currency]int64 `json:"refunded"`
}

// page is the body of lists and look-ups.
type page[T any] struct {
	Data []T `json:"data"`
	// Next is the cursor of the next page; empty at the end.
	Next string `json:"next_cursor,omitempty"`
}

// refusal is the body of an error.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Encode returns r as the bytes to send and to keep for sending again: the same
// request always gives the same bytes. Text that is not UTF-8 is mended.
func (r ChargeRequest) Encode() []byte { return encode(r) }

// Encode returns r as bytes, as [ChargeRequest.Encode] does.
func (r RefundRequest) Encode() []byte { return encode(r) }

// DecodeChargeRequest reads what [ChargeRequest.Encode] wrote. Unknown members
// and anything after the object are errors. The values are not checked.
func DecodeChargeRequest(data []byte) (ChargeRequest, error) {
	var r ChargeRequest
	err := decodeStrictly(data, &r)
	return r, err
}

// DecodeRefundRequest reads what [RefundRequest.Encode] wrote, as
// [DecodeChargeRequest] does.
func DecodeRefundRequest(data []byte) (RefundRequest, error) {
	var r RefundRequest
	err := decodeStrictly(data, &r)
	return r, err
}

// encode marshals the types of this file, which cannot fail: they hold nothing
// but text, numbers, times of this century and maps of text.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("processor: encode %T: %v", v, err))
	}
	return data
}

func decodeStrictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("decode request: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("decode request: there is more than one value")
	}
	return nil
}
