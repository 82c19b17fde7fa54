package stripeproc

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/stripe/stripe-go/v85"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/provider"
)

// Error is a request that brought no result: Stripe's error, an answer that cannot
// be read, or none. It shows neither the API key nor a client secret. What it
// proves is said by its wrapping: only an error that is marked with
// onlyonce.NotAppliedError had no effect. Errors read it with errors.AsType, for
// what support asks for.
type Error struct {
	// Op is what was asked for: "create payment intent".
	Op string
	// Status is the HTTP status; 0 when there was no answer.
	Status int
	// Type, Code, DeclineCode and Message are Stripe's; empty when the answer
	// was not Stripe's.
	Type, Code, DeclineCode, Message string
	// RequestID names the request to Stripe's support ("req_…").
	RequestID string
	// Replayed: it is the stored result of an earlier send (Idempotent-Replayed).
	Replayed bool
	// Hint says what to do next, for people.
	Hint string
	// Err is the transport's error, if there was no answer or it broke off.
	Err error

	answer *stripe.Error
}

// Error gives the request, what was answered, the hint and the cause.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("stripe: " + e.Op)
	if e.Status != 0 {
		fmt.Fprintf(&b, ": http %d", e.Status)
	}
	for _, word := range []string{e.Type, e.Code, e.DeclineCode} {
		if word != "" {
			b.WriteString(" " + word)
		}
	}
	if e.Message != "" {
		fmt.Fprintf(&b, ": %q", e.Message)
	}
	if e.Replayed {
		b.WriteString(" (stored result)")
	}
	if e.RequestID != "" {
		b.WriteString(" (request " + e.RequestID + ")")
	}
	if e.Hint != "" {
		b.WriteString(": " + e.Hint)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap gives the transport's error.
func (e *Error) Unwrap() error { return e.Err }

// hint says what a person does about Stripe's error.
func hint(e *Error) string {
	switch {
	case e.Type == string(stripe.ErrorTypeIdempotency) && e.Status == http.StatusBadRequest:
		return "the key has the result of another request, so nothing is proved of this one; look both up by their reference"
	case e.Status == http.StatusConflict:
		return "an earlier send is still under way; ask again with the same key"
	case e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden:
		return "check the API key, its permissions and its account; nothing happened"
	case rateLimited(e):
		return "nothing happened; ask again later"
	case e.Status >= http.StatusInternalServerError:
		return "it may have happened; Stripe stores this result under the key, so look the effect up by its reference"
	}
	return ""
}

// rateLimited: the limiters run before the idempotency layer, so before anything is
// done ("Advanced error handling"). A 429 for a lock that was waited for in vain
// (lock_timeout) comes from within the request, and is no proof.
func rateLimited(e *Error) bool {
	return e.Status == http.StatusTooManyRequests && e.Code == string(stripe.ErrorCodeRateLimit)
}

// proved returns the error with what it proves. What is not one of the documented
// refusals below proves nothing: a conflict, a key with another request's result,
// any 5xx, 424, an answer that is not Stripe's, and no answer at all, unless the
// transport says that nothing left.
func proved(err *Error) error {
	switch {
	case err.answer == nil, movedMoney(err.answer.PaymentIntent):
		return err
	case refused(err):
		return onlyonce.NotAppliedError(&provider.RefusedError{Code: firstOf(err.Code, err.Type), Message: err.Message, Err: err})
	case err.Status == http.StatusUnauthorized, err.Status == http.StatusForbidden, rateLimited(err):
		// The same request may pass later, when the key is put right or the load
		// is less: not the request's own fault.
		return onlyonce.NotAppliedError(err)
	}
	return err
}

// refused: the request itself is at fault ("Errors" in the API reference: 400, a
// missing or wrong parameter; 404, there is no such payment method or charge).
func refused(e *Error) bool {
	if e.Type != string(stripe.ErrorTypeInvalidRequest) || unproved(stripe.ErrorCode(e.Code)) {
		return false
	}
	return e.Status == http.StatusBadRequest || e.Status == http.StatusNotFound && e.Code == string(stripe.ErrorCodeResourceMissing)
}

// unproved are codes that speak of a request's circumstances, not of its own fault,
// whatever the status they come with.
func unproved(code stripe.ErrorCode) bool {
	return code == stripe.ErrorCodeIdempotencyKeyInUse || code == stripe.ErrorCodeLockTimeout ||
		code == stripe.ErrorCodeRateLimit || code == stripe.ErrorCodePaymentMethodProviderTimeout
}

// movedMoney tells whether an error comes with a payment intent that has moved
// money, or still may. Then it refuses something else than the charge.
func movedMoney(pi *stripe.PaymentIntent) bool {
	return pi != nil && pi.Status != stripe.PaymentIntentStatusRequiresPaymentMethod && pi.Status != stripe.PaymentIntentStatusCanceled
}

// declined tells whether Stripe did what it was asked and the card's bank, or
// Stripe's own rules for fraud, said no: a result.
func declined(e *Error) bool {
	return e.Status == http.StatusPaymentRequired && e.Type == string(stripe.ErrorTypeCard) && !movedMoney(e.answer.PaymentIntent)
}

func firstOf(words ...string) string {
	for _, word := range words {
		if word != "" {
			return word
		}
	}
	return ""
}
