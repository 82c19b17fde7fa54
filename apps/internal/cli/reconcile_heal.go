package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/provider"
)

// errNotAsked is proof that nothing was sent.
var errNotAsked = errors.New("reconciliation calls no provider")

// reportOnly makes the same bytes as the processor's adapter, so that recorded
// steps are recognised, and calls nobody.
type reportOnly struct{ processor.Provider }

// providerNamed is one of that name.
func providerNamed(name string) provider.Provider {
	return &reportOnly{processor.Provider{Promises: provider.Traits{Name: name}}}
}

// Charge sends nothing.
func (*reportOnly) Charge(context.Context, onlyonce.Sending) (provider.Outcome, error) {
	return provider.Outcome{}, onlyonce.NotAppliedError(errNotAsked)
}

// Refund sends nothing.
func (*reportOnly) Refund(context.Context, onlyonce.Sending) (provider.Outcome, error) {
	return provider.Outcome{}, onlyonce.NotAppliedError(errNotAsked)
}

// FindCharge asks nobody.
func (*reportOnly) FindCharge(context.Context, onlyonce.Sending) (provider.Outcome, bool, error) {
	return provider.Outcome{}, false, errNotAsked
}

// FindRefund asks nobody.
func (*reportOnly) FindRefund(context.Context, onlyonce.Sending) (provider.Outcome, bool, error) {
	return provider.Outcome{}, false, errNotAsked
}

// healing gives a run what it settles keys by: an engine, and the service's own
// handlers.
func healing(cfg reconcile.Config) (reconcile.Config, *onlyonce.Engine, error) {
	engine, err := onlyonce.New(cfg.DB.Keys(), onlyonce.Config{})
	if err != nil {
		return cfg, nil, fmt.Errorf("settle keys: %w", err)
	}
	cfg.Engine = engine
	cfg.Recover = func(ctx context.Context, key onlyonce.Key) (onlyonce.Result, error) {
		rec, _, err := findKey(ctx, cfg.DB, key)
		if err == nil {
			err = recoverKey(ctx, cfg.DB, rec, providerNamed(cfg.Provider.Name))
		}
		return onlyonce.Result{}, err
	}
	return cfg, engine, nil
}
