package dynamostore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Renew makes the lease that long from now, also when it was over, as long as nobody
// has taken the key. Whoever watches it has to begin anew.
func (s *Store) Renew(ctx context.Context, owner onlyonce.Owner, lease time.Duration) (bool, error) {
	if lease <= 0 {
		return false, configError("lease", "must be positive, got %v", lease)
	}
	return s.move(ctx, "renew lease", owner.Key, func(old row) (row, verdict) {
		if !old.holdsInProgress(owner) {
			return old, refused
		}
		old.lease = whole(lease)
		old.LeaseEnd = s.now().Add(old.lease)
		old.renewal++
		return old, changed
	})
}

// verdict is what became of a row.
type verdict uint8

const (
	refused verdict = iota // it is not the caller's to change
	stands                 // it is as it should be already
	changed
)

// move brings a key's row into another state. It is true when the row is in that
// state, whether this call brought it there or an earlier one.
func (s *Store) move(ctx context.Context, op string, key onlyonce.Key, fn func(old row) (row, verdict)) (bool, error) {
	var v verdict
	err := s.change(ctx, op, key, func(_ context.Context, old row) (*write, error) {
		var next row
		if next, v = fn(old); v != changed {
			return nil, nil
		}
		return &write{next: next}, nil
	})
	return v != refused && err == nil, err
}

// Complete stores the answer, however large, lets the key's resource go and keeps its
// request no longer. It is durable when Held is true. Repeating it gives the expiry
// of the answer that stands. A crash leaves the key as it was, or completed.
func (s *Store) Complete(ctx context.Context, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	c := completing{store: s, owner: owner, answer: answer}
	err := s.change(ctx, opComplete, owner.Key, c.decide)
	return c.end(ctx, err)
}

const opComplete = "complete key"

// standingAnswer is what was settled of the owner's key before.
func standingAnswer(old row, owner onlyonce.Owner) onlyonce.Settled {
	if !old.owned(owner) || old.State != onlyonce.Completed {
		return onlyonce.Settled{}
	}
	return onlyonce.Settled{Held: true, ExpiresAt: old.ExpiresAt}
}

// completing is an answer on its way into a row.
type completing struct {
	store   *Store
	owner   onlyonce.Owner
	answer  onlyonce.Answer
	settled onlyonce.Settled
	// stored is the answer once its parts are written, expires when it does.
	stored  *storedAnswer
	expires time.Time
}

// decide completes a row that the owner may complete.
func (c *completing) decide(ctx context.Context, old row) (*write, error) {
	if c.settled = standingAnswer(old, c.owner); c.settled.Held || !old.completable(c.owner) {
		return nil, nil
	}
	next, err := c.row(ctx, old)
	c.settled = onlyonce.Settled{Held: true, ExpiresAt: next.ExpiresAt}
	return &write{next: next}, err
}

// row is the completed row. The answer's parts are written the first time.
func (c *completing) row(ctx context.Context, old row) (row, error) {
	next := old
	next.State, next.Reason, next.keep, next.Holds = onlyonce.Completed, "", nil, false
	if c.stored == nil {
		c.expires = c.store.now().Add(old.Retention)
	}
	next.ExpiresAt = c.expires
	next.CompletedAt = c.expires.Add(-old.Retention)
	if c.stored == nil {
		var err error
		if c.stored, err = c.store.storeAnswer(ctx, next, c.answer); err != nil {
			c.stored = nil
			return next, err
		}
	}
	next.answer = c.stored
	return next, nil
}

// end gives what came of it, and deletes what was stored of the answer if no row can
// refer to it.
func (c *completing) end(ctx context.Context, err error) (onlyonce.Settled, error) {
	mine := c.settled.Held && c.settled.ExpiresAt.Equal(c.expires)
	if !mine || (err != nil && !errors.Is(err, onlyonce.ErrUncertain)) {
		c.store.dropAnswer(ctx, c.owner.Key, c.stored)
	}
	if err != nil {
		return onlyonce.Settled{}, err
	}
	return c.settled, nil
}

// Release frees the key, lets its resource go and keeps its request no longer; it
// expires like an answer. Behind a step that is begun or done it holds on to both,
// and lives for onlyonce.FreedStepRetention at least.
func (s *Store) Release(ctx context.Context, owner onlyonce.Owner, reason string) (bool, error) {
	return s.move(ctx, "release key", owner.Key, func(old row) (row, verdict) {
		switch {
		case !old.owned(owner):
			return old, refused
		case old.State == onlyonce.FailedRetryable:
			return old, stands
		case old.State != onlyonce.InProgress:
			return old, refused
		}
		return s.freed(old, reason), changed
	})
}

// freed is the row of a key that is free.
func (s *Store) freed(r row, reason string) row {
	r.State, r.Reason = onlyonce.FailedRetryable, reason
	if r.hasStep() {
		r.ExpiresAt = s.now().Add(max(r.Retention, onlyonce.FreedStepRetention))
		return r
	}
	r.ExpiresAt = s.now().Add(r.Retention)
	r.keep, r.Holds = nil, false
	return r
}

// Park puts the key in doubt; what it holds and keeps stays, and 4 KB of the reason. With LeaseOver it parks
// somebody else's attempt, whose lease this handle must have watched for all of its
// length.
func (s *Store) Park(ctx context.Context, park onlyonce.ParkRequest) (bool, error) {
	return s.move(ctx, "park key", park.Owner.Key, func(old row) (row, verdict) {
		switch {
		case !old.owned(park.Owner):
			return old, refused
		case old.State == onlyonce.InDoubt:
			return old, stands
		case old.State != onlyonce.InProgress, park.LeaseOver && s.seen(old) > 0:
			return old, refused
		}
		return parked(old, park.Reason), changed
	})
}

func parked(r row, reason string) row {
	r.State, r.Reason = onlyonce.InDoubt, reason
	return r
}

// maxReason is how much of a reason is kept, in bytes.
const maxReason = 4 << 10

// reasonOf is a reason as an item has it: the rest of a long one is cut off, so that
// there is room for it in any item.
func reasonOf(reason string) string {
	reason = valid(reason)
	if len(reason) <= maxReason {
		return reason
	}
	return strings.ToValidUTF8(reason[:maxReason], "") // no half of a character
}
