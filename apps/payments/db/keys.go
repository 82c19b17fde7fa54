package db

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
)

// Keys is a store of idempotency keys with all that the service and its
// operators need of it, in the terms of this package's Tx.
type Keys interface {
	onlyonce.TxStore[Tx]
	onlyonce.StepStore
	onlyonce.SettingStore
	onlyonce.OperatorStore
	onlyonce.RecoveryStore
}

// driverKeys is a store as its adapter gives it.
type driverKeys[T any] interface {
	onlyonce.TxStore[T]
	onlyonce.StepStore
	onlyonce.SettingStore
	onlyonce.OperatorStore
	onlyonce.RecoveryStore
}

// adapted is a driver's store whose transactions are handed out as Tx.
type adapted[T any] struct {
	driverKeys[T]
	wrap   func(T) Tx
	unwrap func(Tx) (T, bool)
}

func sqliteKeys(store driverKeys[*sql.Tx]) Keys {
	return adapted[*sql.Tx]{driverKeys: store, wrap: FromSQL, unwrap: func(tx Tx) (*sql.Tx, bool) {
		t, ok := tx.(sqlTx)
		return t.raw, ok
	}}
}

func postgresKeys(store driverKeys[pgx.Tx]) Keys {
	return adapted[pgx.Tx]{driverKeys: store, wrap: FromPgx, unwrap: func(tx Tx) (pgx.Tx, bool) {
		t, ok := tx.(pgxTx)
		return t.raw, ok
	}}
}

// Atomic runs fn in the driver's transaction.
func (a adapted[T]) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	return a.driverKeys.Atomic(ctx, req, a.inside(fn))
}

// Finish runs fn in the driver's transaction.
func (a adapted[T]) Finish(ctx context.Context, owner onlyonce.Owner, fn onlyonce.TxFunc[Tx]) (onlyonce.Settled, error) {
	return a.driverKeys.Finish(ctx, owner, a.inside(fn))
}

// CompleteTx completes the key in a transaction of this database.
func (a adapted[T]) CompleteTx(ctx context.Context, tx Tx, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	raw, ok := a.unwrap(tx)
	if !ok {
		return onlyonce.Settled{}, fmt.Errorf("complete key in transaction: %T is of another database", tx)
	}
	return a.driverKeys.CompleteTx(ctx, raw, owner, answer)
}

// StepTx runs fn in the driver's transaction.
func (a adapted[T]) StepTx(ctx context.Context, owner onlyonce.Owner, step onlyonce.TxStep, fn onlyonce.TxStepFunc[Tx]) ([]byte, bool, error) {
	return a.driverKeys.StepTx(ctx, owner, step, func(ctx context.Context, tx T) ([]byte, error) { return fn(ctx, a.wrap(tx)) })
}

func (a adapted[T]) inside(fn onlyonce.TxFunc[Tx]) onlyonce.TxFunc[T] {
	return func(ctx context.Context, tx T) (*onlyonce.Answer, error) { return fn(ctx, a.wrap(tx)) }
}
