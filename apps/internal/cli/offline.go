package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/stripeproc"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/provider"
)

// answerOffline lets the service make the answer of what is recorded, without its
// provider.
func answerOffline(ctx context.Context, d *db.Database, rec onlyonce.Record, steps []onlyonce.StepRecord) error {
	p, err := offlineFor(steps)
	if err != nil {
		return err
	}
	return recoverKey(ctx, d, rec, p)
}

// offline is a provider that is not asked: it makes the same bytes as the adapter
// that recorded a key's steps, so that they are recognised, and calls nobody.
// None of its errors proves anything: what this program does not send, the service
// may have sent.
type offline struct {
	provider.Provider
	name string
}

// offlineFor is one for a key with such steps. The recorded bytes say which adapter
// made them; an account's name in the steps may be any.
func offlineFor(steps []onlyonce.StepRecord) (provider.Provider, error) {
	all, _ := calls(steps)
	if len(all) == 0 {
		return offline{&processor.Provider{}, processor.ProviderName}, nil
	}
	if bytes.HasPrefix(all[0].Request, []byte("{")) {
		return offline{&processor.Provider{}, all[0].Provider}, nil
	}
	form, err := url.ParseQuery(string(all[0].Request))
	if err != nil {
		return nil, &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "read recorded request", Err: err,
			Hint: "no adapter that this program knows has recorded step " + all[0].Name + ": let the service go on with it",
		}
	}
	stripe, err := stripeproc.New(stripeproc.Config{
		Key: "sk_offline_none", Name: all[0].Provider, OffSession: form.Has("off_session"), Transport: nowhere{},
	})
	if err != nil {
		return nil, fmt.Errorf("make the provider's requests: %w", err)
	}
	return offline{stripe, all[0].Provider}, nil
}

var errOffline = errors.New("the provider is not asked here")

// nowhere is a transport by which nothing leaves.
type nowhere struct{}

// RoundTrip sends nothing.
func (nowhere) RoundTrip(*http.Request) (*http.Response, error) { return nil, errOffline }

// Traits promise nothing: then what is not known is neither asked nor sent again.
func (o offline) Traits() provider.Traits { return provider.Traits{Name: o.name} }

// Charge sends nothing, and proves nothing.
func (offline) Charge(context.Context, onlyonce.Sending) (provider.Outcome, error) {
	return provider.Outcome{}, errOffline
}

// Refund sends nothing, and proves nothing.
func (offline) Refund(context.Context, onlyonce.Sending) (provider.Outcome, error) {
	return provider.Outcome{}, errOffline
}

// FindCharge asks nobody.
func (offline) FindCharge(context.Context, onlyonce.Sending) (provider.Outcome, bool, error) {
	return provider.Outcome{}, false, errOffline
}

// FindRefund asks nobody.
func (offline) FindRefund(context.Context, onlyonce.Sending) (provider.Outcome, bool, error) {
	return provider.Outcome{}, false, errOffline
}
