package storefault

import (
	"context"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Method names a call to a store.
type Method string

// The calls that can be made to fail.
const (
	Claim      Method = "claim"
	Renew      Method = "renew"
	Complete   Method = "complete"
	Release    Method = "release"
	Park       Method = "park"
	Get        Method = "get"
	Sweep      Method = "sweep"
	Atomic     Method = "atomic"
	Finish     Method = "finish"
	CompleteTx Method = "complete_tx"
	BeginStep  Method = "begin_step"
	EndStep    Method = "end_step"
	Steps      Method = "steps"
	StepTx     Method = "step_tx"
	Due        Method = "due"
	Kept       Method = "kept"
	Requeue    Method = "requeue"
	Setting    Method = "setting"
	AddSetting Method = "add_setting"
	AddAudit   Method = "add_audit"
)

// Fault is what happens to one call. The zero value lets it pass.
type Fault struct {
	// Before fails the call with this error; it does not happen.
	Before error
	// After lets the call happen and loses its reply: the caller gets this
	// error instead.
	After error
	// Hold runs before the call: to block, to signal, to advance a clock. It
	// must return when ctx ends.
	Hold func(ctx context.Context)
	// HoldReply runs after the call, before its reply is passed on.
	HoldReply func(ctx context.Context)
}

// ErrDown is a store that cannot be reached: nothing happened.
var ErrDown = &onlyonce.Error{Code: onlyonce.CodeUnreachable, Op: "call store", Hint: "storefault: the store is down"}

// Injector decides what happens to a call. It must be safe for concurrent use.
type Injector func(method Method, key onlyonce.Key) Fault

// Script is an Injector that gives each method its faults in order, one a
// call, and lets pass what is left.
func Script(faults map[Method][]Fault) Injector {
	var mu sync.Mutex
	next := map[Method]int{}
	return func(m Method, _ onlyonce.Key) Fault {
		mu.Lock()
		defer mu.Unlock()
		i := next[m]
		next[m]++
		if i >= len(faults[m]) {
			return Fault{}
		}
		return faults[m][i]
	}
}

// Store is a store with faults. It has all the optional powers of an
// onlyonce.Store and panics when one is used that the store beneath lacks.
type Store struct {
	onlyonce.Store
	inject Injector
}

var (
	_ onlyonce.StepStore     = (*Store)(nil)
	_ onlyonce.SettingStore  = (*Store)(nil)
	_ onlyonce.OperatorStore = (*Store)(nil)
	_ onlyonce.RecoveryStore = (*Store)(nil)
	_ onlyonce.TxStore[int]  = (*TxStore[int])(nil)
)

// New wraps a store.
func New(store onlyonce.Store, inject Injector) *Store {
	return &Store{Store: store, inject: inject}
}

// call applies a fault to one call.
func call[T any](ctx context.Context, f Fault, fn func() (T, error)) (T, error) {
	var zero T
	if f.Hold != nil {
		f.Hold(ctx)
	}
	if f.Before != nil {
		return zero, f.Before
	}
	v, err := fn()
	if f.HoldReply != nil {
		f.HoldReply(ctx)
	}
	if f.After != nil {
		return zero, f.After
	}
	return v, err
}

// Claim passes the call on, or fails it.
func (s *Store) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	return call(ctx, s.inject(Claim, req.Key), func() (onlyonce.Claim, error) { return s.Store.Claim(ctx, req) })
}

// Renew passes the call on, or fails it.
func (s *Store) Renew(ctx context.Context, owner onlyonce.Owner, lease time.Duration) (bool, error) {
	return call(ctx, s.inject(Renew, owner.Key), func() (bool, error) { return s.Store.Renew(ctx, owner, lease) })
}

// Complete passes the call on, or fails it.
func (s *Store) Complete(ctx context.Context, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	return call(ctx, s.inject(Complete, owner.Key), func() (onlyonce.Settled, error) { return s.Store.Complete(ctx, owner, answer) })
}

// Release passes the call on, or fails it.
func (s *Store) Release(ctx context.Context, owner onlyonce.Owner, reason string) (bool, error) {
	return call(ctx, s.inject(Release, owner.Key), func() (bool, error) { return s.Store.Release(ctx, owner, reason) })
}

// Park passes the call on, or fails it.
func (s *Store) Park(ctx context.Context, park onlyonce.ParkRequest) (bool, error) {
	return call(ctx, s.inject(Park, park.Owner.Key), func() (bool, error) { return s.Store.Park(ctx, park) })
}

// found is what reading gives: a value and whether there is one.
type found[T any] struct {
	value T
	ok    bool
}

// Get passes the call on, or fails it.
func (s *Store) Get(ctx context.Context, key onlyonce.Key) (onlyonce.Record, bool, error) {
	r, err := call(ctx, s.inject(Get, key), func() (found[onlyonce.Record], error) {
		rec, ok, err := s.Store.Get(ctx, key)
		return found[onlyonce.Record]{rec, ok}, err
	})
	return r.value, r.ok, err
}

// Sweep passes the call on, or fails it.
func (s *Store) Sweep(ctx context.Context, req onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	return call(ctx, s.inject(Sweep, onlyonce.Key{}), func() (onlyonce.SweepResult, error) { return s.Store.Sweep(ctx, req) })
}
