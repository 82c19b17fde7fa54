package cli

import (
	"context"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
)

// healing gives a run what it settles keys by: an engine, and the service's own
// handlers.
func healing(cfg reconcile.Config) (reconcile.Config, *onlyonce.Engine, error) {
	engine, err := onlyonce.New(cfg.DB.Keys(), onlyonce.Config{})
	if err != nil {
		return cfg, nil, fmt.Errorf("settle keys: %w", err)
	}
	cfg.Engine = engine
	cfg.Recover = func(ctx context.Context, key onlyonce.Key) (onlyonce.Result, error) {
		rec, steps, err := findKey(ctx, cfg.DB.Keys(), key)
		if err == nil {
			err = answerOffline(ctx, cfg.DB, rec, steps)
		}
		return onlyonce.Result{}, err
	}
	return cfg, engine, nil
}
