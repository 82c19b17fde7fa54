package storefault

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
)

func (s *Store) steps() onlyonce.StepStore        { return s.Store.(onlyonce.StepStore) }     //nolint:forcetypeassert // documented to panic
func (s *Store) settings() onlyonce.SettingStore  { return s.Store.(onlyonce.SettingStore) }  //nolint:forcetypeassert // documented to panic
func (s *Store) operator() onlyonce.OperatorStore { return s.Store.(onlyonce.OperatorStore) } //nolint:forcetypeassert // documented to panic

// BeginStep passes the call on, or fails it.
func (s *Store) BeginStep(ctx context.Context, owner onlyonce.Owner, intent onlyonce.Intent) (bool, error) {
	return call(ctx, s.inject(BeginStep, owner.Key), func() (bool, error) { return s.steps().BeginStep(ctx, owner, intent) })
}

// EndStep passes the call on, or fails it.
func (s *Store) EndStep(ctx context.Context, owner onlyonce.Owner, end onlyonce.StepEnd) (bool, error) {
	return call(ctx, s.inject(EndStep, owner.Key), func() (bool, error) { return s.steps().EndStep(ctx, owner, end) })
}

// Steps passes the call on, or fails it.
func (s *Store) Steps(ctx context.Context, key onlyonce.Key) ([]onlyonce.StepRecord, error) {
	return call(ctx, s.inject(Steps, key), func() ([]onlyonce.StepRecord, error) { return s.steps().Steps(ctx, key) })
}

// Setting passes the call on, or fails it.
func (s *Store) Setting(ctx context.Context, kind, id string) ([]byte, bool, error) {
	r, err := call(ctx, s.inject(Setting, onlyonce.Key{}), func() (found[[]byte], error) {
		v, ok, err := s.settings().Setting(ctx, kind, id)
		return found[[]byte]{v, ok}, err
	})
	return r.value, r.ok, err
}

// AddSetting passes the call on, or fails it.
func (s *Store) AddSetting(ctx context.Context, kind, id string, value []byte) ([]byte, error) {
	return call(ctx, s.inject(AddSetting, onlyonce.Key{}), func() ([]byte, error) { return s.settings().AddSetting(ctx, kind, id, value) })
}

// List passes the call on.
func (s *Store) List(ctx context.Context, filter onlyonce.ListFilter) (onlyonce.ListPage, error) {
	return s.operator().List(ctx, filter)
}

// AddAudit passes the call on, or fails it.
func (s *Store) AddAudit(ctx context.Context, entry onlyonce.AuditEntry) error {
	_, err := call(ctx, s.inject(AddAudit, entry.Key), func() (struct{}, error) { return struct{}{}, s.operator().AddAudit(ctx, entry) })
	return err
}

// Audit passes the call on.
func (s *Store) Audit(ctx context.Context, key onlyonce.Key) ([]onlyonce.AuditEntry, error) {
	return s.operator().Audit(ctx, key)
}

// TxStore is a store with transactions and faults.
type TxStore[Tx any] struct {
	*Store
	tx onlyonce.TxStore[Tx]
}

// NewTx wraps a store with transactions.
func NewTx[Tx any](store onlyonce.TxStore[Tx], inject Injector) *TxStore[Tx] {
	return &TxStore[Tx]{Store: New(store, inject), tx: store}
}

// claimed is the result of Atomic.
type claimed struct {
	claim   onlyonce.Claim
	settled onlyonce.Settled
}

// Atomic passes the call on, or fails it.
func (s *TxStore[Tx]) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	r, err := call(ctx, s.inject(Atomic, req.Key), func() (claimed, error) {
		c, st, err := s.tx.Atomic(ctx, req, fn)
		return claimed{c, st}, err
	})
	return r.claim, r.settled, err
}

// Finish passes the call on, or fails it.
func (s *TxStore[Tx]) Finish(ctx context.Context, owner onlyonce.Owner, fn onlyonce.TxFunc[Tx]) (onlyonce.Settled, error) {
	return call(ctx, s.inject(Finish, owner.Key), func() (onlyonce.Settled, error) { return s.tx.Finish(ctx, owner, fn) })
}

// CompleteTx passes the call on, or fails it.
func (s *TxStore[Tx]) CompleteTx(ctx context.Context, tx Tx, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	return call(ctx, s.inject(CompleteTx, owner.Key), func() (onlyonce.Settled, error) { return s.tx.CompleteTx(ctx, tx, owner, answer) })
}

// stepped is the result of StepTx.
type stepped struct {
	result []byte
	held   bool
}

// StepTx passes the call on, or fails it. A fault that loses the reply also loses
// that of a step whose function failed.
func (s *TxStore[Tx]) StepTx(ctx context.Context, owner onlyonce.Owner, step onlyonce.TxStep, fn onlyonce.TxStepFunc[Tx]) ([]byte, bool, error) {
	r, err := call(ctx, s.inject(StepTx, owner.Key), func() (stepped, error) {
		result, held, err := s.tx.StepTx(ctx, owner, step, fn)
		return stepped{result, held}, err
	})
	return r.result, r.held, err
}

func (s *Store) recovery() onlyonce.RecoveryStore {
	return s.Store.(onlyonce.RecoveryStore) //nolint:forcetypeassert // documented panic
}

// Due passes the call on, or fails it.
func (s *Store) Due(ctx context.Context, req onlyonce.DueRequest) ([]onlyonce.Due, error) {
	return call(ctx, s.inject(Due, onlyonce.Key{}), func() ([]onlyonce.Due, error) { return s.recovery().Due(ctx, req) })
}

// Kept passes the call on, or fails it.
func (s *Store) Kept(ctx context.Context, key onlyonce.Key) ([]byte, bool, error) {
	r, err := call(ctx, s.inject(Kept, key), func() (found[[]byte], error) {
		keep, ok, err := s.recovery().Kept(ctx, key)
		return found[[]byte]{keep, ok}, err
	})
	return r.value, r.ok, err
}

// Requeue passes the call on, or fails it.
func (s *Store) Requeue(ctx context.Context, key onlyonce.Key) (bool, error) {
	return call(ctx, s.inject(Requeue, key), func() (bool, error) { return s.recovery().Requeue(ctx, key) })
}
