package mysqlstore

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Renew makes the lease end that long from now, also when it was over, as long as
// nobody has taken the key.
func (s *Store) Renew(ctx context.Context, owner onlyonce.Owner, lease time.Duration) (bool, error) {
	if lease <= 0 {
		return false, configError("the lease must be positive, got %v", lease)
	}
	var renewal int64
	err := s.single(ctx, "renew lease", committing, func(q querier) (err error) {
		us := micros(lease)
		renewal, err = told(ctx, q, s.sql(renewKey), ownerArgs(owner, us, us)...)
		return err
	})
	if err != nil || renewal == 0 {
		return false, err
	}
	s.note(&keyRow{Record: onlyonce.Record{Fence: owner.Fence}, digest: owner.Key.Digest(), renewal: renewal, lease: lease})
	return true, nil
}

// Complete stores the answer, lets the key's resource go and keeps its request no
// longer: one statement, or a transaction where there is something of both. Repeating
// it gives the expiry of the answer that stands.
func (s *Store) Complete(ctx context.Context, owner onlyonce.Owner, answer onlyonce.Answer) (settled onlyonce.Settled, err error) {
	const op = "complete key"
	err = s.single(ctx, op, committing, func(q querier) error {
		settled, err = s.completeBare(ctx, q, owner, answer)
		return err
	})
	if err != nil || settled.Held {
		return settled, err
	}
	row, err := s.owned(ctx, owner)
	if err != nil || row == nil || row.State == onlyonce.FailedRetryable || row.State == onlyonce.Completed {
		return settledBefore(row), err
	}
	err = s.inTx(ctx, op, func(q querier) error {
		done, err := s.completeAll(ctx, q, owner, answer)
		settled = done.Settled
		return err
	})
	if err != nil {
		return onlyonce.Settled{}, err
	}
	return settled, nil
}

// settledBefore is the result of completing a key that is the owner's in this row.
func settledBefore(row *keyRow) onlyonce.Settled {
	if row == nil || row.State != onlyonce.Completed {
		return onlyonce.Settled{}
	}
	return onlyonce.Settled{Held: true, ExpiresAt: row.ExpiresAt}
}

// owned reads the owner's row; nil when it is not the owner's any more.
func (s *Store) owned(ctx context.Context, owner onlyonce.Owner) (row *keyRow, err error) {
	err = s.single(ctx, "read key", undone, func(q querier) error {
		row, err = s.readOwned(ctx, q, ownedKey, owner)
		return err
	})
	return row, err
}

// completeBare completes a key that has nothing in other tables.
func (s *Store) completeBare(ctx context.Context, q querier, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	expires, err := told(ctx, q, s.sql(completeBare), answerArgs(owner, answer)...)
	if err != nil || expires == 0 {
		return onlyonce.Settled{}, err
	}
	s.forget(owner.Key.Digest())
	return onlyonce.Settled{Held: true, ExpiresAt: instant(expires)}, nil
}

// answerArgs are the arguments of completeKey.
func answerArgs(owner onlyonce.Owner, answer onlyonce.Answer) []any {
	return ownerArgs(owner, answer.Status, blob(onlyonce.EncodeHeader(answer.Header)), optional(answer.Body, !answer.NotRetained))
}

// completion is what became of completing a key inside a transaction.
type completion struct {
	onlyonce.Settled
	// fresh: it was this statement, not an earlier one of the same owner.
	fresh bool
}

// completeAll completes a key inside a transaction, whatever it has elsewhere. The row
// is locked and read as it is now, whatever the transaction's snapshot.
func (s *Store) completeAll(ctx context.Context, q querier, owner onlyonce.Owner, answer onlyonce.Answer) (none completion, err error) {
	row, err := s.readOwned(ctx, q, lockOwned, owner)
	if err != nil || row == nil || row.State == onlyonce.FailedRetryable || row.State == onlyonce.Completed {
		return completion{Settled: settledBefore(row)}, err
	}
	expires, err := told(ctx, q, s.sql(completeKey), answerArgs(owner, answer)...)
	if err != nil || expires == 0 {
		return none, err
	}
	if row.Holds {
		if err := letGo(ctx, q, row); err != nil {
			return none, err
		}
	}
	if row.kept {
		if err := exec(ctx, q, deleteKept, row.digest[:]); err != nil {
			return none, err
		}
	}
	s.forget(row.digest)
	return completion{onlyonce.Settled{Held: true, ExpiresAt: instant(expires)}, true}, nil
}

// completeTx completes a key inside a transaction.
func (s *Store) completeTx(ctx context.Context, q querier, owner onlyonce.Owner, answer onlyonce.Answer) (completion, error) {
	settled, err := s.completeBare(ctx, q, owner, answer)
	if err != nil || settled.Held {
		return completion{settled, true}, err
	}
	return s.completeAll(ctx, q, owner, answer)
}

// Release frees the key, lets its resource go and keeps its request no longer; it
// expires like an answer. Behind a step that is begun or done it holds on to both,
// and lives for onlyonce.FreedStepRetention at least. It is a transaction: the key's
// row is locked before its steps are looked at, since one that is just being recorded
// counts.
func (s *Store) Release(ctx context.Context, owner onlyonce.Owner, reason string) (held bool, err error) {
	err = s.inTx(ctx, "release key", func(q querier) error {
		row, err := s.readOwned(ctx, q, lockOwned, owner)
		held = err == nil && row != nil && row.State == onlyonce.FailedRetryable
		if err != nil || row == nil || row.State != onlyonce.InProgress {
			return err
		}
		behind, err := readSteps(ctx, q, row)
		if err == nil {
			held, err = s.free(ctx, q, freeing{row, behind, reason})
		}
		return err
	})
	return held && err == nil, err
}

// behind is what of a life's steps is begun or done.
type behind struct{ steps, calls, begun int }

func readSteps(ctx context.Context, q querier, row *keyRow) (b behind, err error) {
	err = q.QueryRowContext(ctx, stepsBehind, bytesOf(onlyonce.ProviderStore), row.digest[:], row.Origin).Scan(&b.steps, &b.calls, &b.begun)
	return b, err
}

// freeing is a locked row that is to be freed.
type freeing struct {
	*keyRow
	behind behind
	reason string
}

// free frees a locked row.
func (s *Store) free(ctx context.Context, q querier, row freeing) (bool, error) {
	life, stays := micros(row.Retention), row.behind.steps > 0
	if stays {
		life = max(life, micros(onlyonce.FreedStepRetention))
	}
	n, err := told(ctx, q, s.sql(freeKey), ownerArgs(row.Owner(), bytesOf(row.reason), row.Holds && stays, life, life)...)
	if err != nil || n == 0 {
		return false, err
	}
	if row.Holds && !stays {
		if err := letGo(ctx, q, row.keyRow); err != nil {
			return false, err
		}
	}
	if row.kept {
		if err := exec(ctx, q, freeKept, stays, row.behind.calls > 0, row.digest[:]); err != nil {
			return false, err
		}
	}
	s.forget(row.digest)
	return true, nil
}

// Park puts the key in doubt; what it holds and keeps stays. With LeaseOver it parks
// somebody else's attempt, whose lease must be over by the server's clock; in a
// Galera cluster this Store must have watched all of it.
func (s *Store) Park(ctx context.Context, park onlyonce.ParkRequest) (held bool, err error) {
	query, args := parkKey, ownerArgs(park.Owner, bytesOf(park.Reason))
	if park.LeaseOver && s.watch == nil {
		query += leaseOver
	}
	if park.LeaseOver && s.watch != nil {
		row, err := s.owned(ctx, park.Owner)
		if err != nil || row == nil || row.State != onlyonce.InProgress || !s.leaseOver(row, 0) {
			return err == nil && row != nil && row.State == onlyonce.InDoubt, err
		}
		query, args = query+notRenewed, append(args, row.renewal)
	}
	err = s.single(ctx, "park key", committing, func(q querier) error {
		n, err := told(ctx, q, s.sql(query), args...)
		if held = n != 0; held || err != nil {
			return err
		}
		row, err := s.readOwned(ctx, q, ownedKey, park.Owner)
		held = err == nil && row != nil && row.State == onlyonce.InDoubt
		return err
	})
	if held && err == nil {
		s.forget(park.Owner.Key.Digest())
	}
	return held && err == nil, err
}
