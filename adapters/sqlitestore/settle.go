package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Renew makes the lease end that long from now, also when it was over, as long
// as nobody has taken the key.
func (s *Store) Renew(ctx context.Context, owner onlyonce.Owner, lease time.Duration) (bool, error) {
	if lease <= 0 {
		return false, configError("lease", "must be positive, got %v", lease)
	}
	var held bool
	err := s.write(ctx, "renew lease", func(ctx context.Context, q querier) error {
		end := s.now().Add(fromMicros(micros(lease)))
		n, err := exec(ctx, q, renewKey, ownerArgs(owner, end.UnixMicro())...)
		held = n == 1
		return err
	})
	return held && err == nil, err
}

// Complete stores the answer, lets the key's resource go and keeps its request no
// longer. It is on the disk when Held is true. Repeating it gives the expiry of
// the answer that stands.
func (s *Store) Complete(ctx context.Context, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	var settled onlyonce.Settled
	err := s.write(ctx, "complete key", func(ctx context.Context, q querier) error {
		var err error
		settled, err = s.complete(ctx, q, owner, answer)
		return err
	})
	if err != nil {
		return onlyonce.Settled{}, err
	}
	return settled, nil
}

// complete completes the key inside a transaction.
func (s *Store) complete(ctx context.Context, q querier, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	now := s.now()
	header := blob(onlyonce.EncodeHeader(answer.Header))
	body := optionalBlob(answer.Body, !answer.NotRetained)
	if _, err := exec(ctx, q, completeKey, ownerArgs(owner, answer.Status, header, body, now.UnixMicro())...); err != nil {
		return onlyonce.Settled{}, err
	}
	state, expires, err := readOwned(ctx, q, owner)
	if err != nil || state != onlyonce.Completed {
		return onlyonce.Settled{}, err
	}
	return onlyonce.Settled{Held: true, ExpiresAt: expires}, nil
}

// readOwned tells where a key stands that is still this owner's; the empty
// state when it is not.
func readOwned(ctx context.Context, q querier, owner onlyonce.Owner) (onlyonce.State, time.Time, error) {
	var state onlyonce.State
	var expires sql.NullInt64
	err := q.QueryRowContext(ctx, ownedState, ownerArgs(owner)...).Scan(&state, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return "", time.Time{}, nil
	}
	return state, optionalTime(expires), err
}

// Release frees the key, lets its resource go and keeps its request no longer; it
// expires like an answer. Behind a step that is begun or done it holds on to both,
// and lives for onlyonce.FreedStepRetention at least.
func (s *Store) Release(ctx context.Context, owner onlyonce.Owner, reason string) (bool, error) {
	return s.settle(ctx, "release key", settling{owner, releaseKey, onlyonce.FailedRetryable}, func() []any {
		return ownerArgs(owner, reason, s.now().UnixMicro(), micros(onlyonce.FreedStepRetention))
	})
}

// Park puts the key in doubt; what it holds and keeps stays. With LeaseOver it parks somebody else's attempt,
// whose lease must be over by the host's clock.
func (s *Store) Park(ctx context.Context, park onlyonce.ParkRequest) (bool, error) {
	return s.settle(ctx, "park key", settling{park.Owner, parkKey, onlyonce.InDoubt}, func() []any {
		return ownerArgs(park.Owner, park.Reason, park.LeaseOver, s.now().UnixMicro())
	})
}

// settling is a guarded statement that brings the owner's key to a state.
type settling struct {
	owner onlyonce.Owner
	query string
	to    onlyonce.State
}

// settle runs the statement. It is true when the key is in that state by this
// owner, whether this call brought it there or an earlier one.
func (s *Store) settle(ctx context.Context, op string, st settling, args func() []any) (bool, error) {
	var held bool
	err := s.write(ctx, op, func(ctx context.Context, q querier) error {
		n, err := exec(ctx, q, st.query, args()...)
		if err != nil {
			return err
		}
		held = n == 1
		if held {
			return nil
		}
		state, _, err := readOwned(ctx, q, st.owner)
		held = state == st.to
		return err
	})
	return held && err == nil, err
}
