package routestore

import (
	"context"
	"reflect"

	"github.com/onlyonce-go/onlyonce"
)

// TxStore is a Store whose homes have transactions of one driver. A transaction is
// one home's: a handler is given that of its key's home, and finds there what the
// service keeps of the scope.
type TxStore[Tx any] struct {
	*Store
	tx map[*place]onlyonce.TxStore[Tx]
}

// NewTx makes a TxStore. All homes that have a store must have transactions of this
// driver, which is CodeConfig otherwise, as is all that New refuses.
func NewTx[Tx any](cfg Config) (*TxStore[Tx], error) {
	s, err := open(cfg)
	if err != nil {
		return nil, err
	}
	t := &TxStore[Tx]{Store: s, tx: map[*place]onlyonce.TxStore[Tx]{}}
	for _, p := range s.local {
		tx, ok := onlyonce.TransactionsOf[Tx](p.Store)
		if !ok {
			return nil, configError("Homes: the store of %s has no transactions of type %v: use New", p.Name, reflect.TypeFor[Tx]())
		}
		t.tx[p] = tx
	}
	return t, nil
}

// Atomic claims the key, runs fn and completes in one transaction of the key's home.
// A key that moves is moved first, by a write of its own that stays when the
// transaction is rolled back.
func (t *TxStore[Tx]) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	if err := req.ValidateAtomic(); err != nil {
		return onlyonce.Claim{}, onlyonce.Settled{}, err
	}
	var settled onlyonce.Settled
	claim, err := t.claim(ctx, req, func(p *place) (claim onlyonce.Claim, err error) {
		claim, settled, err = t.tx[p].Atomic(ctx, req, fn)
		return claim, err // a handler's error comes back as it is
	})
	return claim, settled, err
}

// Finish runs fn and completes the owner's key in one transaction of the home that
// has its record.
func (t *TxStore[Tx]) Finish(ctx context.Context, owner onlyonce.Owner, fn onlyonce.TxFunc[Tx]) (onlyonce.Settled, error) {
	p, err := t.locate(ctx, owner.Key, true)
	if err != nil {
		return onlyonce.Settled{}, err
	}
	return t.tx[p].Finish(ctx, owner, fn)
}

// CompleteTx completes the owner's key in the caller's own transaction, which must be
// one of the home that Where names: in another home's the attempt is not known, Held
// is false, and the caller rolls back.
func (t *TxStore[Tx]) CompleteTx(ctx context.Context, tx Tx, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	p, err := t.locate(ctx, owner.Key, true)
	if err != nil {
		return onlyonce.Settled{}, err
	}
	return t.tx[p].CompleteTx(ctx, tx, owner, answer)
}

// StepTx runs fn and records its result as a step that is done, in one transaction of
// the home that has the key's record.
func (t *TxStore[Tx]) StepTx(ctx context.Context, owner onlyonce.Owner, step onlyonce.TxStep, fn onlyonce.TxStepFunc[Tx]) (result []byte, held bool, err error) {
	p, err := t.locate(ctx, owner.Key, true)
	if err != nil {
		return nil, false, err
	}
	return t.tx[p].StepTx(ctx, owner, step, fn)
}
