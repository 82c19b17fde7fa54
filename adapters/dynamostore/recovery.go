package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Due gives keys whose turn has come by this process's clock, those of a bounded look
// at the index that have been due longest, and puts each one's next turn off by a
// conditional write: of several recoverers each turn goes to one. The lease of one in
// progress must have been watched by this handle. A crash behind it, or an error,
// costs turns, not keys: the next ones come after their pause.
func (s *Store) Due(ctx context.Context, req onlyonce.DueRequest) ([]onlyonce.Due, error) {
	const op = "give turns"
	if req.Limit <= 0 {
		return nil, configError("DueRequest.Limit", "must be positive, got %d", req.Limit)
	}
	until := microsOf(s.now()) - micros(req.Grace)
	found, err := s.look(ctx, looking{op: op, by: &s.due, until: until, limit: max(req.Limit, 100)})
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, c := range found {
		r, err := s.loadCandidate(ctx, op, c)
		if err != nil {
			return nil, err
		}
		if s.isDue(r, req, until) {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.due, b.due) })
	var given []onlyonce.Due
	for _, r := range rows {
		if len(given) == req.Limit {
			break
		}
		d, ok, err := s.giveTurn(ctx, op, r, req)
		if err != nil && len(given) == 0 {
			return nil, err
		}
		if err != nil {
			break // what was given is given
		}
		if ok {
			given = append(given, d)
		}
	}
	return given, nil
}

// loadCandidate reads the row that the index speaks of.
func (s *Store) loadCandidate(ctx context.Context, op string, c candidate) (row, error) {
	d, ok := c.digest()
	if !ok {
		return row{}, nil
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

// giveTurn puts the row's next turn off; false if somebody else was there first.
func (s *Store) giveTurn(ctx context.Context, op string, old row, req onlyonce.DueRequest) (onlyonce.Due, bool, error) {
	keep, err := s.fetch(ctx, old.Key, old.keep)
	if errors.Is(err, errPartMissing) {
		return onlyonce.Due{}, false, nil // it has just been settled
	}
	if err != nil {
		return onlyonce.Due{}, false, err
	}
	next := old
	next.turn++
	next.due = microsOf(s.now()) + micros(req.Until(next.turn))
	done, _, err := s.apply(ctx, write{op: op, old: old, next: next}, nil)
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
