package portable

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// mine reads the key's row; nil when it is not this owner's, whatever its state.
func (t *txn) mine(ctx context.Context, owner onlyonce.Owner) (*row, error) {
	var at sight
	if err := t.look(ctx, at.readKey(owner.Key)); err != nil || at.key == nil || at.key.Owner() != owner {
		return nil, err
	}
	return at.key, nil
}

// Renew makes the lease end that long from now, unless the owner has lost the key.
// Four round trips.
func (s *Store) Renew(ctx context.Context, owner onlyonce.Owner, lease time.Duration) (bool, error) {
	if lease <= 0 {
		return false, configError("a lease must be positive, got %v", lease)
	}
	var renewed *row
	err := s.transact(ctx, "renew lease", func(ctx context.Context, t *txn) error {
		renewed = nil
		r, err := t.mine(ctx, owner)
		if err != nil || r == nil || r.State != onlyonce.InProgress {
			return err
		}
		next := *r
		next.lease, next.renewal, next.LeaseEnd = whole(lease), r.renewal+1, t.now().Add(whole(lease))
		renewed = &next
		return t.must(ctx, changeKey, r.change(&next, false)...)
	})
	if err != nil || renewed == nil {
		return false, err
	}
	s.leased(renewed)
	return true, nil
}

// Complete stores the answer, unless the owner has lost the key. Repeated, the first
// answer stands. With the answer the resource is free and the kept request gone. Four
// round trips, one more for a resource.
func (s *Store) Complete(ctx context.Context, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	var settled onlyonce.Settled
	err := s.transact(ctx, "complete key", func(ctx context.Context, t *txn) (err error) {
		settled, err = t.complete(ctx, owner, answer)
		return err
	})
	if err != nil {
		return onlyonce.Settled{}, err
	}
	if settled.Held {
		s.ended(owner.Key)
	}
	return settled, nil
}

// complete completes the owner's key.
func (t *txn) complete(ctx context.Context, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	r, err := t.mine(ctx, owner)
	if err != nil || r == nil {
		return onlyonce.Settled{}, err
	}
	if done, settled := r.settled(); done {
		return settled, nil
	}
	return t.store(ctx, r, answer)
}

// settled tells whether there is nothing left to complete, and what stands.
func (r *row) settled() (bool, onlyonce.Settled) {
	switch r.State {
	case onlyonce.InProgress, onlyonce.InDoubt:
		return false, onlyonce.Settled{}
	case onlyonce.Completed:
		return true, onlyonce.Settled{Held: true, ExpiresAt: r.ExpiresAt}
	case onlyonce.FailedRetryable:
	}
	return true, onlyonce.Settled{}
}

// store writes the answer of a row that was just read, or written.
func (t *txn) store(ctx context.Context, r *row, answer onlyonce.Answer) (onlyonce.Settled, error) {
	now := t.now()
	expires := now.Add(r.Retention)
	var body []byte
	if !answer.NotRetained {
		body = notNil(answer.Body)
	}
	err := t.must(ctx, completeKey, r.guard(int64(answer.Status), notNil(onlyonce.EncodeHeader(answer.Header)), body,
		now.UnixMicro(), expires.UnixMicro())...)
	if err == nil {
		err = t.letGo(ctx, r)
	}
	if err != nil {
		return onlyonce.Settled{}, err
	}
	return onlyonce.Settled{Held: true, ExpiresAt: expires}, nil
}

// Release frees the key, unless the owner has lost it or is done with it, and with it
// the resource; the kept request goes. Behind a step that is begun or done all of it
// stays. Repeating it is harmless. Four round trips, five where steps were begun.
func (s *Store) Release(ctx context.Context, owner onlyonce.Owner, reason string) (bool, error) {
	return s.settle(ctx, "release key", settling{owner, onlyonce.FailedRetryable, func(ctx context.Context, t *txn, r *row) (bool, error) {
		steps, err := t.steps(ctx, r)
		if err != nil {
			return false, err
		}
		return true, t.free(ctx, r, steps, reason)
	}})
}

// free frees a key in progress that has these steps.
func (t *txn) free(ctx context.Context, r *row, steps []step, reason string) error {
	behind, call := traces(steps)
	next := *r
	next.State, next.Reason = onlyonce.FailedRetryable, printable(reason)
	life := r.Retention
	if behind {
		life = max(life, onlyonce.FreedStepRetention)
	} else {
		next.Holds, next.kept = false, false
	}
	next.ExpiresAt = t.now().Add(life)
	if err := t.must(ctx, changeKey, r.change(&next, call)...); err != nil || behind {
		return err
	}
	if r.kept {
		if err := t.keep(ctx, &next, nil); err != nil {
			return err
		}
	}
	return t.letGo(ctx, r)
}

// Park puts the key in doubt, unless the owner has lost it or is done with it. It
// keeps its resource and its request. Repeating it is harmless. With LeaseOver it
// parks somebody else's attempt, whose lease must be over: by the clock, or because
// this handle has watched it for all of it. Four round trips.
func (s *Store) Park(ctx context.Context, park onlyonce.ParkRequest) (bool, error) {
	return s.settle(ctx, "park key", settling{park.Owner, onlyonce.InDoubt, func(ctx context.Context, t *txn, r *row) (bool, error) {
		if park.LeaseOver && s.remaining(r, t.now()) > 0 {
			return false, nil
		}
		return true, t.park(ctx, r, park.Reason)
	}})
}

// park puts a key in progress in doubt.
func (t *txn) park(ctx context.Context, r *row, reason string) error {
	next := *r
	next.State, next.Reason = onlyonce.InDoubt, printable(reason)
	return t.must(ctx, changeKey, r.change(&next, false)...)
}

// settling brings an owner's key in progress to a state.
type settling struct {
	owner onlyonce.Owner
	to    onlyonce.State
	// write tells whether it did.
	write func(ctx context.Context, t *txn, r *row) (bool, error)
}

// settle is true when the key is in that state by this owner, whether this call
// brought it there or an earlier one.
func (s *Store) settle(ctx context.Context, op string, st settling) (bool, error) {
	var held bool
	err := s.transact(ctx, op, func(ctx context.Context, t *txn) error {
		held = false
		r, err := t.mine(ctx, st.owner)
		if err != nil || r == nil {
			return err
		}
		if r.State != onlyonce.InProgress {
			held = r.State == st.to
			return nil
		}
		held, err = st.write(ctx, t, r)
		return err
	})
	if err != nil {
		return false, err
	}
	if held {
		s.ended(st.owner.Key)
	}
	return held, nil
}
