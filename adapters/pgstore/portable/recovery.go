package portable

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
)

// Due gives keys whose turn has come and puts their next turn off, each in a
// transaction of its own: of several recoverers, in any processes, each turn goes to
// one. A crash behind it, or ErrUncertain, costs a turn, not the key: the next one
// comes after its pause. A key that another transaction is at, as long as it stays there,
// is passed over when Config.LockTimeout has passed. Two round trips with nothing due, one
// more for each operation that is asked for beyond the first, four or five for each turn
// that is given, three for each key that has yet to be watched.
//
// Where leases are watched, a key in progress is given only to a handle that has seen
// its owner's claim unchanged for a whole lease and the grace; a look by Due counts. One
// call looks at the keys longest due, DueRequest.Limit and a hundred more of each
// operation; if all of these leave it short, at as many from where the call before
// ended, and so through all of them.
func (s *Store) Due(ctx context.Context, req onlyonce.DueRequest) ([]onlyonce.Due, error) {
	if err := errors.Join(req.Validate(), operationsText(req.Operations)); err != nil {
		return nil, err
	}
	now, err := s.read(ctx, opDue)
	if err != nil {
		return nil, err
	}
	g := &giving{s: s, req: req, past: now.Add(-req.Grace).UnixMicro()}
	err = g.longestDue(ctx)
	if err == nil && len(g.full) > 0 && len(g.given) < req.Limit {
		err = g.goOn(ctx)
	}
	if err != nil && len(g.given) == 0 {
		return nil, err
	}
	return g.given, nil // turns that are given
}

const opDue = "look for turns"

// giveTurn gives a key's turn, if it has come and nobody else was given it meanwhile, or
// is at it.
func (s *Store) giveTurn(ctx context.Context, key onlyonce.Key, req onlyonce.DueRequest) (given *onlyonce.Due, err error) {
	err = s.passing(ctx, "give turn", func(ctx context.Context, t *txn) error {
		given = nil
		var at sight
		var k kept
		if err := t.look(ctx, at.readKey(key), k.read(key)); err != nil {
			return err
		}
		r, now := at.key, t.now()
		if r == nil || !r.kept || !k.found || r.turnAt > now.Add(-req.Grace).UnixMicro() {
			return nil
		}
		if due, err := t.isDue(ctx, r, now, req.Grace); err != nil || !due {
			return err
		}
		next := *r
		next.turns++
		next.turnAt = now.Add(whole(req.Until(int(next.turns)))).UnixMicro()
		given = &onlyonce.Due{Record: r.Record, Keep: k.keep, Turn: int(next.turns)}
		return t.must(ctx, changeKey, r.change(&next, true)...)
	})
	if inTheWay(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return given, nil
}

// isDue tells whether a row whose turn has come is one that nobody else may be
// working on, and that somebody has to.
func (t *txn) isDue(ctx context.Context, r *row, now time.Time, grace time.Duration) (bool, error) {
	switch r.State {
	case onlyonce.InProgress:
		return t.s.remaining(r, now) <= -grace, nil
	case onlyonce.InDoubt:
		return true, nil
	case onlyonce.FailedRetryable:
		steps, err := t.steps(ctx, r)
		_, call := traces(steps)
		return call && !r.Expired(now), err
	case onlyonce.Completed:
	}
	return false, nil
}

// kept is what is kept of a key.
type kept struct {
	keep    []byte
	expires *int64
	found   bool
}

func (k *kept) read(key onlyonce.Key) question {
	return question{
		sql: selectKept, args: []any{key.Scope, key.Value}, first: func() { *k = kept{} },
		row: func(rows pgx.Rows) error {
			k.found = true
			return rows.Scan(&k.keep, &k.expires)
		},
	}
}

// Kept reads what was kept with the key's present life; false if nothing is, or the
// record has expired. One round trip.
func (s *Store) Kept(ctx context.Context, key onlyonce.Key) ([]byte, bool, error) {
	var k kept
	now, err := s.read(ctx, "read what is kept", k.read(key))
	if err != nil || !k.found || (k.expires != nil && *k.expires <= now.UnixMicro()) {
		return nil, false, err
	}
	return k.keep, true, nil
}

// Requeue makes the key's next turn the first again, and due at once, whatever the
// grace. It returns false when nothing is kept, or the record has expired. An attempt
// in progress is not disturbed: its key is due when its lease is over. Repeating it is
// harmless. Four round trips, five where steps were begun.
func (s *Store) Requeue(ctx context.Context, key onlyonce.Key) (bool, error) {
	var found bool
	err := s.transact(ctx, "requeue key", func(ctx context.Context, t *txn) error {
		found = false
		var at sight
		err := t.look(ctx, at.readKey(key))
		r := at.key
		if err != nil || r == nil || !r.kept || r.Expired(t.now()) {
			return err
		}
		steps, err := t.steps(ctx, r)
		if err != nil {
			return err
		}
		_, call := traces(steps)
		next := *r
		next.turns, next.turnAt, found = 0, 0, true
		return t.must(ctx, changeKey, r.change(&next, call)...)
	})
	return found && err == nil, err
}
