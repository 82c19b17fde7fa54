package stripeproc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/stripe/stripe-go/v85"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/provider"
)

const (
	pathPaymentIntents = "/v1/payment_intents"
	pathSearch         = "/v1/payment_intents/search"
	pathRefunds        = "/v1/refunds"
)

// Provider charges and refunds through one Stripe account. It is safe for
// concurrent use. It keeps nothing: a process that dies in a call leaves the intent
// that onlyonce.Call has recorded, by which the next one goes on.
type Provider struct {
	cfg    Config
	client *client
}

var _ provider.Provider = (*Provider)(nil)

// New makes a Provider. It sends nothing: a wrong API key shows in the first call.
func New(cfg Config) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	return &Provider{cfg: cfg, client: newClient(cfg)}, nil
}

// Traits says what Stripe promises, as configured.
func (p *Provider) Traits() provider.Traits { return p.cfg.traits() }

// CloseIdleConnections closes the connections that are not in use.
func (p *Provider) CloseIdleConnections() { p.client.http.CloseIdleConnections() }

// String shows the provider without its key.
func (p *Provider) String() string { return p.cfg.String() }

// GoString is String, so that %#v does not show the key either.
func (p *Provider) GoString() string { return p.cfg.String() }

// LogValue is the provider without its key.
func (p *Provider) LogValue() slog.Value { return p.cfg.LogValue() }

// Charge creates and confirms a PaymentIntent, by one HTTP request. See the
// package's documentation for which errors prove what.
func (p *Provider) Charge(ctx context.Context, s onlyonce.Sending) (provider.Outcome, error) {
	const op = "create payment intent"
	var pi stripe.PaymentIntent
	if err := p.client.do(ctx, sending(op, pathPaymentIntents, s), &pi); err != nil {
		return p.failed(err, s)
	}
	if err := ours(op, object{pi.Object, pi.ID, pi.Metadata}, "payment_intent", s.Reference); err != nil {
		return provider.Outcome{}, err
	}
	return p.chargeOutcome(&pi)
}

// Refund creates a refund, by one HTTP request.
func (p *Provider) Refund(ctx context.Context, s onlyonce.Sending) (provider.Outcome, error) {
	const op = "create refund"
	var r stripe.Refund
	if err := p.client.do(ctx, sending(op, pathRefunds, s), &r); err != nil {
		return p.failed(err, s)
	}
	if err := ours(op, object{r.Object, r.ID, r.Metadata}, "refund", s.Reference); err != nil {
		return provider.Outcome{}, err
	}
	return p.refundOutcome(&r)
}

// sending is the request of the recorded bytes under the derived key.
func sending(op, path string, s onlyonce.Sending) request {
	return request{op: op, method: http.MethodPost, path: path, form: s.Request, key: s.Key}
}

// failed makes of an error what it is: a decline, or an error with what it proves.
func (p *Provider) failed(err error, s onlyonce.Sending) (provider.Outcome, error) {
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok:
		return provider.Outcome{}, err
	case e.answer != nil && declined(e):
		return p.declinedOutcome(e, s.Request)
	}
	return provider.Outcome{}, proved(e)
}

// object is what all of Stripe's objects have.
type object struct {
	kind, id string
	metadata map[string]string
}

// ours refuses an answer that is not the one to our request: recorded as the step's
// result it would stand for good.
func ours(op string, o object, kind, reference string) error {
	if o.kind == kind && o.id != "" && o.metadata[ReferenceKey] == reference {
		return nil
	}
	return fmt.Errorf("stripe: %s: the answer (%s %q) is not about reference %s: look the effect up by it", op, o.kind, o.id, reference)
}
