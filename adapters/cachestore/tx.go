package cachestore

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
)

// TxStore is a store with transactions behind a cache.
type TxStore[Tx any] struct {
	*Store
	tx onlyonce.TxStore[Tx]
}

// NewTx puts a cache before a store with transactions; see New.
func NewTx[Tx any](store onlyonce.TxStore[Tx], cfg Config) (*TxStore[Tx], error) {
	s, err := New(store, cfg)
	if err != nil {
		return nil, err
	}
	return &TxStore[Tx]{Store: s, tx: store}, nil
}

// Atomic answers a replay from the cache, or asks the store: fn runs only there.
// What it completed is read into the cache with Config.ReadBack, after the commit.
func (s *TxStore[Tx]) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	if req.ValidateAtomic() == nil {
		if claim, ok := s.replay(ctx, req); ok {
			return claim, onlyonce.Settled{}, nil
		}
	}
	asked := s.asking()
	claim, settled, err := s.tx.Atomic(ctx, req, fn)
	switch {
	case err != nil:
	case settled.Held:
		s.readBack(ctx, req.Key)
	default:
		s.learn(ctx, asked, req, claim)
	}
	return claim, settled, err
}

// Finish is the store's. What it completed is read into the cache with
// Config.ReadBack, after the commit.
func (s *TxStore[Tx]) Finish(ctx context.Context, owner onlyonce.Owner, fn onlyonce.TxFunc[Tx]) (onlyonce.Settled, error) {
	settled, err := s.tx.Finish(ctx, owner, fn)
	if err == nil && settled.Held {
		s.readBack(ctx, owner.Key)
	}
	return settled, err
}

// CompleteTx is the store's. Only the caller knows when it commits, so nothing is
// cached.
func (s *TxStore[Tx]) CompleteTx(ctx context.Context, tx Tx, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	return s.tx.CompleteTx(ctx, tx, owner, answer)
}

// StepTx is the store's.
func (s *TxStore[Tx]) StepTx(ctx context.Context, owner onlyonce.Owner, step onlyonce.TxStep, fn onlyonce.TxStepFunc[Tx]) ([]byte, bool, error) {
	return s.tx.StepTx(ctx, owner, step, fn)
}
