package memstore

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Due gives keys whose turn has come.
func (s *Store) Due(ctx context.Context, req onlyonce.DueRequest) ([]onlyonce.Due, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := req.Validate(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	var rows []*row
	for _, r := range s.records {
		if s.isDue(r, now.Add(-req.Grace)) && (req.Operations == nil || slices.Contains(req.Operations, r.Operation)) {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b *row) int { return a.due.Compare(b.due) })
	var due []onlyonce.Due
	for _, r := range rows[:min(len(rows), req.Limit)] {
		r.turn++
		r.due = now.Add(req.Until(r.turn))
		due = append(due, onlyonce.Due{Record: clone(r.Record), Keep: bytes.Clone(r.keep), Turn: r.turn})
	}
	return due, nil
}

// isDue tells whether the row's turn had come at the time.
func (s *Store) isDue(r *row, at time.Time) bool {
	if r.keep == nil || r.due.After(at) {
		return false
	}
	switch r.State {
	case onlyonce.InProgress:
		return !r.LeaseEnd.After(at)
	case onlyonce.InDoubt:
		return true
	case onlyonce.FailedRetryable:
		return s.hasCall(&r.Record) && !r.Expired(s.now())
	case onlyonce.Completed:
	}
	return false
}

// Kept reads what was kept with the key's present life.
func (s *Store) Kept(ctx context.Context, key onlyonce.Key) ([]byte, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key.Digest()]
	if r == nil || r.keep == nil || r.Expired(s.now()) {
		return nil, false, nil
	}
	return bytes.Clone(r.keep), true, nil
}

// Requeue makes the key's next turn the first again, and due at once.
func (s *Store) Requeue(ctx context.Context, key onlyonce.Key) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key.Digest()]
	if r == nil || r.keep == nil || r.Expired(s.now()) {
		return false, nil
	}
	r.turn, r.due = 0, time.Time{}
	return true, nil
}
