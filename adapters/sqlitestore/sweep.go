package sqlitestore

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
)

// SweepRows is how many rows of each kind one Sweep touches at most, however
// large its Limit: every claim waits for the whole batch, and at this size that
// is not seen among the slowest claims (docs/OPERATIONS.md has the measurement).
const SweepRows = 100

// Sweep does one batch of housekeeping in one transaction, of at most SweepRows.
// The write lock lets one sweeper in at a time; it is held for the whole batch.
func (s *Store) Sweep(ctx context.Context, req onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	if err := req.Validate(); err != nil {
		return onlyonce.SweepResult{}, err
	}
	var res onlyonce.SweepResult
	err := s.write(ctx, "sweep", func(ctx context.Context, q querier) error {
		b := batch{ctx: ctx, q: q, limit: min(req.Limit, SweepRows), now: s.now().UnixMicro()}
		b.expired()
		b.abandoned(b.now - micros(req.Grace))
		b.steps(b.now - micros(req.StepRetention))
		res = b.res
		return b.err
	})
	if err != nil {
		return onlyonce.SweepResult{}, err
	}
	return res, nil
}

// batch is one Sweep; after an error the rest does nothing.
type batch struct {
	ctx   context.Context //nolint:containedctx // lives as long as one transaction
	q     querier
	limit int
	now   int64
	res   onlyonce.SweepResult
	err   error
}

func (b *batch) exec(query string, args ...any) int {
	if b.err != nil {
		return 0
	}
	n, err := exec(b.ctx, b.q, query, args...)
	b.err = err
	return n
}

// more notes whether the query, asked only when the limit was reached, finds
// that something is left to do.
func (b *batch) more(done int, query string, cutoff int64) {
	if b.err != nil || done < b.limit {
		return
	}
	var left bool
	b.err = b.q.QueryRowContext(b.ctx, query, cutoff).Scan(&left)
	b.res.More = b.res.More || left
}

// expired deletes expired records; their steps stay.
func (b *batch) expired() {
	b.res.Deleted = b.exec(sweepExpired, b.now, b.limit)
	b.more(b.res.Deleted, anyExpired, b.now)
}

// abandoned decides attempts whose lease was over at cutoff as a takeover
// would.
func (b *batch) abandoned(cutoff int64) {
	b.res.Parked = b.exec(sweepPark, cutoff, b.limit,
		onlyonce.ReasonAbandoned, onlyonce.ReasonUnfinishedStep, onlyonce.ReasonUnansweredStep)
	if left := b.limit - b.res.Parked; left > 0 {
		b.res.Freed = b.exec(sweepFree, cutoff, left, onlyonce.ReasonSweptFree, b.now, micros(onlyonce.FreedStepRetention))
	}
	b.more(b.res.Parked+b.res.Freed, anyAbandoned, cutoff)
}

// steps deletes steps of lives that are over, unchanged since cutoff.
func (b *batch) steps(cutoff int64) {
	b.res.Steps = b.exec(sweepSteps, cutoff, b.limit)
	b.more(b.res.Steps, anyDeadSteps, cutoff)
}
