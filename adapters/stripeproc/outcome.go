package stripeproc

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/stripe/stripe-go/v85"

	"github.com/onlyonce-go/onlyonce/provider"
)

// chargeOutcome is what a payment intent says became of a charge. One that is not
// final is an error: nobody knows yet.
func (p *Provider) chargeOutcome(pi *stripe.PaymentIntent) (provider.Outcome, error) {
	out := provider.Outcome{ID: pi.ID}
	amount := pi.Amount
	switch {
	case pi.Status == stripe.PaymentIntentStatusSucceeded:
		out.Status = provider.Succeeded
		if pi.AmountReceived > 0 {
			amount = pi.AmountReceived
		}
	case pi.Status == stripe.PaymentIntentStatusCanceled:
		out.Status = provider.Declined
		out.Code, out.Message = firstOf(string(pi.CancellationReason), "canceled"), "the payment intent was canceled"
	case pi.Status == stripe.PaymentIntentStatusRequiresPaymentMethod && pi.LastPaymentError != nil:
		// Its confirmation failed. Without an error it has not been confirmed.
		out.Status = provider.Declined
		out.Code, out.Message = p.reason(pi.LastPaymentError)
	default:
		return provider.Outcome{}, notFinal("payment intent", pi.ID, string(pi.Status))
	}
	var err error
	if out.Amount, out.Currency, err = fromStripe(amount, string(pi.Currency)); err != nil {
		return provider.Outcome{}, fmt.Errorf("read payment intent %s: %w", pi.ID, err)
	}
	return out, nil
}

// refundOutcome is what a refund says of itself. Pending counts as done: Stripe has
// accepted it and taken it from the balance; should the bank send it back, Stripe
// says so by an event.
func (p *Provider) refundOutcome(r *stripe.Refund) (provider.Outcome, error) {
	out := provider.Outcome{ID: r.ID}
	switch r.Status {
	case stripe.RefundStatusSucceeded, stripe.RefundStatusPending:
		out.Status = provider.Succeeded
	case stripe.RefundStatusFailed, stripe.RefundStatusCanceled:
		out.Status = provider.Declined
		out.Code = firstOf(string(r.FailureReason), string(r.Status))
		out.Message = "the refund is " + string(r.Status)
	default:
		return provider.Outcome{}, notFinal("refund", r.ID, string(r.Status))
	}
	var err error
	if out.Amount, out.Currency, err = fromStripe(r.Amount, string(r.Currency)); err != nil {
		return provider.Outcome{}, fmt.Errorf("read refund %s: %w", r.ID, err)
	}
	return out, nil
}

func notFinal(what, id, status string) error {
	return fmt.Errorf("%s %s is %q, which is not final: ask again later, or cancel it and settle the key by hand", what, id, status)
}

// declinedOutcome is a decline that came as an error. The amount is what was asked
// for, as the recorded request has it.
func (p *Provider) declinedOutcome(e *Error, request []byte) (provider.Outcome, error) {
	out := provider.Outcome{Status: provider.Declined}
	out.Code, out.Message = p.reason(e.answer)
	if pi := e.answer.PaymentIntent; pi != nil {
		out.ID = pi.ID
	}
	form, err := url.ParseQuery(string(request))
	if err != nil || !form.Has(fieldCurrency) {
		return out, nil //nolint:nilerr // a decline is one, whatever its amount
	}
	amount, err := strconv.ParseInt(form.Get(fieldAmount), 10, 64)
	if err != nil {
		return out, nil //nolint:nilerr // as above
	}
	if out.Amount, out.Currency, err = fromStripe(amount, form.Get(fieldCurrency)); err != nil {
		return provider.Outcome{}, fmt.Errorf("read recorded request: %w", err)
	}
	return out, nil
}

// reason is why there is no success: the bank's code where it gave one.
func (p *Provider) reason(e *stripe.Error) (code, message string) {
	return firstOf(string(e.DeclineCode), string(e.Code), string(e.Type)), p.client.redact(e.Msg)
}
