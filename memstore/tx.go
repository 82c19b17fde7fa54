package memstore

import (
	"context"
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

// Tx is a transaction on a Store: what is registered with OnCommit happens
// together with the commit, or not at all.
type Tx struct {
	store *Store

	mu       sync.Mutex
	onCommit []func()
}

// Store is the store the transaction is on.
func (t *Tx) Store() *Store { return t.store }

// OnCommit registers a business write. All of a transaction's writes run under
// the store's mutex, in order, when it commits; they must not use the store.
func (t *Tx) OnCommit(fn func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.onCommit = append(t.onCommit, fn)
}

func (t *Tx) commit() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, fn := range t.onCommit {
		fn()
	}
}

// Atomic claims, runs fn and completes as one step. A duplicate meets the open
// claim and is busy at once.
func (s *Store) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[*Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	claim, rec, err := s.openClaim(ctx, req)
	if err != nil || rec == nil {
		return claim, onlyonce.Settled{}, err
	}
	digest := req.Key.Digest()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, digest)
	}()
	tx := &Tx{store: s}
	answer, err := fn(ctx, tx)
	if err != nil || answer == nil {
		return claim, onlyonce.Settled{}, err
	}
	if err := ctx.Err(); err != nil {
		return claim, onlyonce.Settled{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.records[digest]; now != nil && (now.Fence != s.open[digest].old.Fence || now.State != s.open[digest].old.State) {
		// The former owner completed late: its answer stands.
		return claim, onlyonce.Settled{}, onlyonce.ErrConflict
	}
	settled := s.complete(rec, *answer)
	s.records[digest] = rec
	tx.commit()
	claim.Record = *rec
	return claim, settled, nil
}

// openClaim claims for a transaction: nobody else sees the record before it
// commits. rec is nil when fn must not run.
func (s *Store) openClaim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, *onlyonce.Record, error) {
	if err := checkClaim(ctx, req); err != nil {
		return onlyonce.Claim{}, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if claim, busy := s.underWay(req); busy {
		return claim, nil, nil
	}
	claim, rec := s.judge(req)
	switch {
	case rec != nil:
	case claim.Verdict.Owns():
		own := claim.Record // this attempt's own claim, made before
		rec = &own
	default:
		return claim, nil, nil
	}
	open := openClaim{record: *rec}
	if old := s.records[req.Key.Digest()]; old != nil {
		open.old = *old
	}
	s.open[req.Key.Digest()] = open
	return claim, rec, nil
}

// Finish runs fn and completes the owner's key as one step.
func (s *Store) Finish(ctx context.Context, owner onlyonce.Owner, fn onlyonce.TxFunc[*Tx]) (onlyonce.Settled, error) {
	var settled onlyonce.Settled
	done, err := s.write(ctx, owner, func(rec *onlyonce.Record) bool {
		settled = onlyonce.Settled{Held: true, ExpiresAt: rec.ExpiresAt}
		return rec.State == onlyonce.Completed
	})
	if done || err != nil {
		return settled, err
	}
	tx := &Tx{store: s}
	answer, err := fn(ctx, tx)
	if err != nil || answer == nil {
		return onlyonce.Settled{}, err
	}
	settled = onlyonce.Settled{}
	_, err = s.write(ctx, owner, func(rec *onlyonce.Record) bool {
		again := rec.State == onlyonce.Completed
		settled = s.complete(rec, *answer)
		if settled.Held && !again {
			tx.commit()
		}
		return settled.Held
	})
	return settled, err
}

// CompleteTx completes the key when the caller's transaction commits. In
// memory a transaction ends with the function it was given to, so it is
// registered to happen together with the other writes.
func (s *Store) CompleteTx(ctx context.Context, tx *Tx, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	var settled onlyonce.Settled
	_, err := s.write(ctx, owner, func(rec *onlyonce.Record) bool {
		probe := *rec
		settled = s.complete(&probe, answer)
		if settled.Held {
			tx.OnCommit(func() { *rec = probe })
		}
		return settled.Held
	})
	return settled, err
}

// Do runs fn as a transaction of the caller's own and commits it unless fn
// returns an error.
func (s *Store) Do(fn func(tx *Tx) error) error {
	tx := &Tx{store: s}
	if err := fn(tx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	tx.commit()
	return nil
}
