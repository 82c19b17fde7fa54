package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Due gives keys whose turn has come by this process's clock, those of a bounded look
// at the index that have been due longest, and puts each one's next turn off by a
// conditional write: of several recoverers each turn goes to one. The lease of one in
// progress must have been watched by this handle. A crash behind it, or an error,
// costs turns, not keys: the next ones come after their pause.
//
// Config.Logger is told of a key whose row, or what is kept of its request, cannot be
// read. Where no other is given, that is the error, each time.
func (s *Store) Due(ctx context.Context, req onlyonce.DueRequest) ([]onlyonce.Due, error) {
	if err := req.Validate(); err != nil {
		return nil, err
	}
	g := giving{store: s, req: req, until: microsOf(s.now()) - micros(req.Grace)}
	rows, err := g.look(ctx)
	if err != nil {
		return nil, err
	}
	var given []onlyonce.Due
	for _, r := range rows {
		if len(given) == req.Limit {
			break
		}
		d, ok, err := g.turn(ctx, r)
		if err = g.pass(ctx, err); err != nil && len(given) == 0 {
			return nil, err
		}
		if err != nil {
			break // what was given is given
		}
		if ok {
			given = append(given, d)
		}
	}
	if len(given) == 0 {
		return nil, g.damaged
	}
	return given, nil
}

const opDue = "give turns"

// giving is a Due on its way.
type giving struct {
	store *Store
	req   onlyonce.DueRequest
	until int64
	// damaged is what could not be read of keys that were passed over.
	damaged error
}

// pass passes over what is damaged.
func (g *giving) pass(ctx context.Context, err error) error {
	if !errors.Is(err, errDamaged) {
		return err
	}
	g.store.damaged(ctx, opDue, err)
	g.damaged = errors.Join(g.damaged, err)
	return nil
}

// look finds the rows whose turn has come, those longest due first.
func (g *giving) look(ctx context.Context) ([]row, error) {
	s := g.store
	found, err := s.look(ctx, looking{op: opDue, by: &s.due, until: g.until, limit: max(g.req.Limit, 100)})
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, c := range found {
		r, err := s.loadCandidate(ctx, opDue, c)
		if err = g.pass(ctx, err); err != nil {
			return nil, err
		}
		if s.isDue(r, g.req, g.until) {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.due, b.due) })
	return rows, nil
}

// loadCandidate reads the row that the index speaks of.
func (s *Store) loadCandidate(ctx context.Context, op string, c candidate) (row, error) {
	d, ok := c.digest()
	if !ok {
		return row{}, fmt.Errorf("read item %s: %w", c.partition, errDamaged)
	}
	return s.loadDigest(ctx, op, d)
}

// isDue tells whether the row's turn had come at a moment.
func (s *Store) isDue(r row, req onlyonce.DueRequest, until int64) bool {
	if !r.found || r.keep == nil || (req.Operations != nil && !slices.Contains(req.Operations, r.Operation)) {
		return false
	}
	watched := r.State != onlyonce.InProgress || s.over(r, req.Grace)
	if r.due > until {
		return false
	}
	switch r.State {
	case onlyonce.InProgress:
		return watched
	case onlyonce.InDoubt:
		return true
	case onlyonce.FailedRetryable:
		return r.hasCall() && !r.Expired(s.now())
	default:
		return false
	}
}

// turn puts the row's next turn off; false if somebody else was there first.
func (g *giving) turn(ctx context.Context, old row) (onlyonce.Due, bool, error) {
	s := g.store
	keep, err := s.fetch(ctx, old.Key, old.keep)
	if errors.Is(err, errPartMissing) {
		return onlyonce.Due{}, false, s.incomplete(ctx, opDue, old)
	}
	if err != nil {
		return onlyonce.Due{}, false, err
	}
	next := old
	next.turn++
	next.due = microsOf(s.now()) + micros(g.req.Until(next.turn))
	done, _, err := s.apply(ctx, write{op: opDue, old: old, next: next}, nil)
	if err != nil || !done {
		return onlyonce.Due{}, false, err
	}
	return onlyonce.Due{Record: next.shared(), Keep: keep, Turn: next.turn}, true, nil
}

// Kept reads what was kept with the key's present life, with strong consistency;
// false if nothing is, or the record has expired.
func (s *Store) Kept(ctx context.Context, key onlyonce.Key) ([]byte, bool, error) {
	const op = "read what is kept"
	for range 2 {
		r, err := s.load(ctx, op, key)
		if err != nil || !r.found || r.keep == nil || r.Expired(s.now()) {
			return nil, false, err
		}
		keep, err := s.fetch(ctx, key, r.keep)
		if !errors.Is(err, errPartMissing) {
			return keep, err == nil, err
		}
		if err := s.incomplete(ctx, op, r); err != nil {
			return nil, false, err
		}
	}
	return nil, false, conflict(op, errPartMissing)
}

// Requeue makes the key's next turn the first again, and due at once, whatever the
// grace. It returns false when nothing is kept, or the record has expired. An attempt
// in progress is not disturbed: its key is due when its lease is over.
func (s *Store) Requeue(ctx context.Context, key onlyonce.Key) (bool, error) {
	return s.move(ctx, "requeue key", key, func(old row) (row, verdict) {
		if !old.found || old.keep == nil || old.Expired(s.now()) {
			return old, refused
		}
		old.turn, old.due = 0, 0
		return old, changed
	})
}

// over tells whether the lease of a row in progress has been watched to its end, and
// for the grace behind it.
func (s *Store) over(r row, grace time.Duration) bool {
	return s.seen(r) <= -whole(grace)
}
