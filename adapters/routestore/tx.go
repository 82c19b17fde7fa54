package routestore

import (
	"context"
	"errors"
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
	claim, err := t.claim(ctx, req, func(g goal) (claim onlyonce.Claim, err error) {
		claim, settled, err = t.atomic(ctx, g, req, fn)
		return claim, err
	})
	return claim, settled, err
}

// atomic does it at one home.
func (t *TxStore[Tx]) atomic(ctx context.Context, g goal, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	if g.life != 0 {
		return t.resume(ctx, g, req, fn)
	}
	ran := false
	claim, settled, err := t.tx[g.place].Atomic(ctx, req, func(ctx context.Context, tx Tx) (*onlyonce.Answer, error) {
		ran = true
		return fn(ctx, tx)
	})
	if !ran {
		err = g.failed(err)
	}
	return claim, settled, err // a handler's error comes back as it is
}

// resume does it at the old home of a key that stays there. The key is claimed first,
// since a transaction that has begun a new life there could not be taken back, and the
// transaction finds that claim again. Rolled back, it is free again at once; after a
// crash when its lease is over.
func (t *TxStore[Tx]) resume(ctx context.Context, g goal, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	mine, err := g.Store.Claim(ctx, req)
	if err != nil || !mine.Verdict.Owns() || g.begun(mine) {
		return mine, onlyonce.Settled{}, g.failed(err)
	}
	claim, settled, err := t.tx[g.place].Atomic(ctx, req, fn)
	free := !settled.Held && mine.From == onlyonce.FailedRetryable
	if free && !errors.Is(err, onlyonce.ErrUncertain) && !errors.Is(err, onlyonce.ErrTxEnded) {
		ctx, cancel := t.patient(context.WithoutCancel(ctx))
		defer cancel()
		_, _ = g.Store.Release(ctx, mine.Record.Owner(), onlyonce.ReasonNotRun) // else its lease ends it
	}
	return claim, settled, err
}

// Finish runs fn and completes the owner's key in one transaction of the home that
// has its record.
func (t *TxStore[Tx]) Finish(ctx context.Context, owner onlyonce.Owner, fn onlyonce.TxFunc[Tx]) (onlyonce.Settled, error) {
	p, err := t.placeOf(ctx, owner)
	if err != nil {
		return onlyonce.Settled{}, err
	}
	return t.tx[p].Finish(ctx, owner, fn)
}

// CompleteTx completes the owner's key in the caller's own transaction, which must be
// one of the home that Where names: in another home's the attempt is not known, Held
// is false, and the caller rolls back.
func (t *TxStore[Tx]) CompleteTx(ctx context.Context, tx Tx, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	p, err := t.placeOf(ctx, owner)
	if err != nil {
		return onlyonce.Settled{}, err
	}
	return t.tx[p].CompleteTx(ctx, tx, owner, answer)
}

// StepTx runs fn and records its result as a step that is done, in one transaction of
// the home that has the key's record.
func (t *TxStore[Tx]) StepTx(ctx context.Context, owner onlyonce.Owner, step onlyonce.TxStep, fn onlyonce.TxStepFunc[Tx]) (result []byte, held bool, err error) {
	p, err := t.placeOf(ctx, owner)
	if err != nil {
		return nil, false, err
	}
	return t.tx[p].StepTx(ctx, owner, step, fn)
}
