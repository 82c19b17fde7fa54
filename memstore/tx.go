package memstore

import (
	"context"
	"errors"
	"sync"

	"github.com/onlyonce-go/onlyonce"
)

// Tx is a transaction on a Store: what is registered with OnCommit happens
// together with the commit, or not at all.
type Tx struct {
	store *Store

	mu          sync.Mutex
	onCommit    []func()
	completions []completion
}

// completion is a CompleteTx that comes with its transaction's commit.
type completion struct {
	owner onlyonce.Owner
	done  row
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

// commit does all that was registered; ErrConflict, and nothing is done, when
// a key that was to be completed is no longer its owner's, or is settled. The
// store's mutex is held.
func (t *Tx) commit() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.completions {
		if t.store.completable(c.owner) == nil {
			return lostMeanwhile("commit transaction")
		}
	}
	for _, c := range t.completions {
		rec := t.store.completable(c.owner)
		rec.State, rec.Answer, rec.Reason = c.done.State, c.done.Answer, c.done.Reason
		rec.CompletedAt, rec.ExpiresAt, rec.keep = c.done.CompletedAt, c.done.ExpiresAt, nil
		t.store.letGo(&rec.Record)
	}
	for _, fn := range t.onCommit {
		fn()
	}
	return nil
}

// completable is the owner's row while there is something to complete.
func (s *Store) completable(o onlyonce.Owner) *row {
	rec := s.owned(o)
	if rec == nil || (rec.State != onlyonce.InProgress && rec.State != onlyonce.InDoubt) {
		return nil
	}
	return rec
}

func lostMeanwhile(op string) error {
	return &onlyonce.Error{Code: onlyonce.CodeConflict, Op: op, Hint: "the key was changed while the transaction was open; everything was rolled back"}
}

// Atomic claims, runs fn and completes as one step. A duplicate meets the open
// claim and is busy at once.
func (s *Store) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[*Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	claim, next, err := s.openClaim(ctx, req)
	if err != nil || next == nil {
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
	if !s.unchanged(digest, next) {
		return claim, onlyonce.Settled{}, lostMeanwhile("run transaction")
	}
	if err := tx.commit(); err != nil {
		return claim, onlyonce.Settled{}, err
	}
	settled := s.complete(next, *answer)
	s.records[digest] = next
	claim.Record = clone(next.Record)
	return claim, settled, nil
}

// unchanged tells whether an open claim may still be committed: the attempt
// holds its own earlier claim, or the record is as it was judged. A former owner
// may have completed late, or renewed its lease.
func (s *Store) unchanged(digest onlyonce.Digest, next *row) bool {
	old, now := s.open[digest].old, s.records[digest]
	switch {
	case now == nil:
		return true // there was none, or it has expired and been swept
	case now == next:
		return s.completable(next.Owner()) != nil
	default:
		return now.Owner() == old.Owner() && now.State == old.State && now.LeaseEnd.Equal(old.LeaseEnd)
	}
}

// openClaim claims for a transaction: nobody else sees the row before it
// commits. The row is nil when fn must not run.
func (s *Store) openClaim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, *row, error) {
	if err := errors.Join(checkClaim(ctx, req), req.ValidateAtomic()); err != nil {
		return onlyonce.Claim{}, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if claim, busy := s.underWay(req); busy {
		return claim, nil, nil
	}
	claim, next := s.judge(req)
	old := s.records[req.Key.Digest()]
	switch {
	case next != nil:
	case claim.Verdict.Owns():
		next = old // this attempt's own claim, made before
	default:
		return claim, nil, nil
	}
	open := openClaim{record: next.Record}
	if old != nil {
		open.old = old.Record
	}
	s.open[req.Key.Digest()] = open
	return claim, next, nil
}

// Finish runs fn and completes the owner's key as one step.
func (s *Store) Finish(ctx context.Context, owner onlyonce.Owner, fn onlyonce.TxFunc[*Tx]) (onlyonce.Settled, error) {
	if settled, done, err := s.finished(ctx, owner); done || err != nil {
		return settled, err
	}
	tx := &Tx{store: s}
	answer, err := fn(ctx, tx)
	if err != nil || answer == nil {
		return onlyonce.Settled{}, err
	}
	var settled onlyonce.Settled
	var failure error
	_, err = s.write(ctx, owner, func(rec *row) bool {
		if rec.State == onlyonce.InProgress || rec.State == onlyonce.InDoubt {
			failure = tx.commit()
		}
		if failure == nil {
			settled = s.complete(rec, *answer)
		}
		return settled.Held
	})
	if failure != nil {
		return onlyonce.Settled{}, failure
	}
	return settled, err
}

// finished tells whether fn must not run: an earlier Finish has committed, or
// the owner has lost the key.
func (s *Store) finished(ctx context.Context, owner onlyonce.Owner) (onlyonce.Settled, bool, error) {
	settled, done := onlyonce.Settled{}, true
	_, err := s.write(ctx, owner, func(rec *row) bool {
		done = s.completable(owner) == nil
		if rec.State == onlyonce.Completed {
			settled = onlyonce.Settled{Held: true, ExpiresAt: rec.ExpiresAt}
		}
		return done
	})
	return settled, done, err
}

// CompleteTx completes the key when the caller's transaction commits, which it
// does not, with ErrConflict, when the owner has lost the key by then. In
// memory a transaction ends with the function it was given to. An owner that has
// completed the key before is told so by Settled.Earlier.
func (s *Store) CompleteTx(ctx context.Context, tx *Tx, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	var settled onlyonce.Settled
	_, err := s.write(ctx, owner, func(rec *row) bool {
		done, before := *rec, rec.State == onlyonce.Completed
		done.Holds = false // it is let go with the commit
		settled = s.complete(&done, answer)
		switch {
		case before:
			settled = onlyonce.Settled{Earlier: true, ExpiresAt: settled.ExpiresAt}
		case settled.Held:
			settled = tx.complete(completion{owner, done})
		}
		return settled.Held
	})
	return settled, err
}

// complete registers a completion. Of several for one key the first stands.
func (t *Tx) complete(c completion) onlyonce.Settled {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, before := range t.completions {
		if before.owner == c.owner {
			return onlyonce.Settled{Held: true, ExpiresAt: before.done.ExpiresAt}
		}
	}
	t.completions = append(t.completions, c)
	return onlyonce.Settled{Held: true, ExpiresAt: c.done.ExpiresAt}
}

// Do runs fn as a transaction of the caller's own and commits it unless fn
// returns an error. It returns ErrConflict, and nothing has happened, when a
// key that CompleteTx was to complete has been taken over or settled meanwhile.
func (s *Store) Do(fn func(tx *Tx) error) error {
	tx := &Tx{store: s}
	if err := fn(tx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return tx.commit()
}
