package memstore

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Sweep does one batch of housekeeping.
func (s *Store) Sweep(ctx context.Context, req onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	if err := errors.Join(ctx.Err(), req.Validate()); err != nil {
		return onlyonce.SweepResult{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var res onlyonce.SweepResult
	now := s.now()
	for digest, rec := range s.records {
		switch {
		case rec.Expired(now):
			if res.Deleted == req.Limit {
				res.More = true
				continue
			}
			s.letGo(&rec.Record)
			delete(s.records, digest)
			res.Deleted++
		case rec.State == onlyonce.InProgress && !now.Before(rec.LeaseEnd.Add(req.Grace)):
			if res.Freed+res.Parked == req.Limit {
				res.More = true
				continue
			}
			s.decideAbandoned(rec, &res)
		}
	}
	s.sweepSteps(now.Add(-req.StepRetention), req.Limit, &res)
	return res, nil
}

// decideAbandoned does what a takeover would: only what has left no effect is
// freed.
func (s *Store) decideAbandoned(rec *row, res *onlyonce.SweepResult) {
	reason := ""
	switch rec.Abandon {
	case onlyonce.AbandonHold:
		reason = onlyonce.ReasonAbandoned
	case onlyonce.AbandonResume:
		reason = s.traceOf(&rec.Record)
	case onlyonce.AbandonRerun:
	}
	if reason == "" {
		s.free(rec, onlyonce.ReasonSweptFree)
		res.Freed++
		return
	}
	rec.State, rec.Reason = onlyonce.InDoubt, reason
	res.Parked++
}

// traceOf says which effect the steps of the record's life may have had; empty:
// it is proved that they had none.
func (s *Store) traceOf(rec *onlyonce.Record) string {
	trace := ""
	for _, st := range s.steps[rec.Key.Digest()] {
		switch {
		case st.origin != rec.Origin || st.State == onlyonce.StepNotApplied:
		case st.State == onlyonce.StepBegun:
			return onlyonce.ReasonUnfinishedStep
		default:
			trace = onlyonce.ReasonUnansweredStep
		}
	}
	return trace
}

// sweepSteps deletes steps of dead lives that have not changed since before.
func (s *Store) sweepSteps(before time.Time, limit int, res *onlyonce.SweepResult) {
	for digest, steps := range s.steps {
		live := s.records[digest]
		kept := steps[:0]
		for _, st := range steps {
			dead := (live == nil || live.Origin != st.origin) && st.changed.Before(before)
			if dead && res.Steps < limit {
				res.Steps++
				continue
			}
			res.More = res.More || dead
			kept = append(kept, st)
		}
		s.steps[digest] = kept
		if len(kept) == 0 {
			delete(s.steps, digest)
		}
	}
}

// List gives records in the order of their digests.
func (s *Store) List(ctx context.Context, f onlyonce.ListFilter) (onlyonce.ListPage, error) {
	after, err := hex.DecodeString(f.After)
	if err != nil {
		return onlyonce.ListPage{}, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "list keys", Hint: "the cursor is not one this store gave out", Err: err}
	}
	if err := ctx.Err(); err != nil {
		return onlyonce.ListPage{}, err
	}
	limit := f.Limit
	if limit <= 0 {
		limit = 100
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	digests := slices.SortedFunc(maps.Keys(s.records), func(a, b onlyonce.Digest) int { return bytes.Compare(a[:], b[:]) })
	var page onlyonce.ListPage
	for _, d := range digests {
		rec := s.records[d]
		if bytes.Compare(d[:], after) <= 0 || rec.Expired(now) ||
			(f.State != "" && rec.State != f.State) || (f.Scope != "" && rec.Key.Scope != f.Scope) {
			continue
		}
		if len(page.Records) == limit {
			last := page.Records[limit-1].Key.Digest()
			page.Next = hex.EncodeToString(last[:])
			break
		}
		page.Records = append(page.Records, clone(rec.Record))
	}
	return page, nil
}

// AddAudit keeps an entry.
func (s *Store) AddAudit(_ context.Context, entry onlyonce.AuditEntry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry.At = s.now()
	s.audit = append(s.audit, entry)
	return nil
}

// Audit lists the entries of a key.
func (s *Store) Audit(_ context.Context, key onlyonce.Key) ([]onlyonce.AuditEntry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []onlyonce.AuditEntry
	for _, e := range s.audit {
		if e.Key == key {
			out = append(out, e)
		}
	}
	return out, nil
}
