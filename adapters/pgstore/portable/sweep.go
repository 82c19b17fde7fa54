package portable

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
)

const (
	// chunk is how many rows one transaction of a sweep deletes.
	chunk = 100
	// maxBatch is how many rows of each kind one call reads, whatever it is asked for.
	maxBatch = 10 * chunk
	// sweepLease is how long a sweeper that has vanished keeps others away, by the
	// clocks of the nodes. Two at once do no harm: every write is conditional.
	sweepLease = time.Minute
	sweepName  = "sweep"
)

// Sweep deletes and decides what is due, in the order of the indexes on when it was,
// in transactions of at most a hundred rows. One sweep runs at a time, as long as none
// takes more than a minute; others get Busy. A crash leaves nothing half done, and
// keeps others away for that minute. A failure leaves done what was done; what follows
// waits for the next sweep. A row that another transaction is at, as long as it stays
// there, is passed over when Config.LockTimeout has passed, and left to a later sweep.
// One call touches a thousand rows of each kind at the most.
//
// Where leases are watched, an attempt is decided only by a handle that has seen it
// unchanged for a whole lease and the grace; a look by Sweep counts, and the first is
// one. A process that sweeps once and ends decides about no attempt.
func (s *Store) Sweep(ctx context.Context, req onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	if err := req.Validate(); err != nil {
		return onlyonce.SweepResult{}, err
	}
	req.Limit = min(req.Limit, maxBatch)
	w := &sweep{s: s, req: req, token: onlyonce.NewToken()}
	if err := w.begin(ctx); err != nil || w.until == 0 {
		return onlyonce.SweepResult{Busy: err == nil}, err
	}
	defer w.end(ctx)
	for _, phase := range []func(context.Context) error{w.expired, w.abandoned, w.steps} {
		if err := phase(ctx); err != nil {
			return w.res, err
		}
	}
	return w.res, nil
}

// sweep is one Sweep on its way.
type sweep struct {
	s     *Store
	req   onlyonce.SweepRequest
	token onlyonce.Token
	now   time.Time
	until int64 // 0: somebody else sweeps
	res   onlyonce.SweepResult
}

// begin makes this sweep the only one.
func (w *sweep) begin(ctx context.Context) error {
	return w.s.transact(ctx, "begin sweep", func(ctx context.Context, t *txn) error {
		w.until = 0
		var owner []byte
		var until int64
		err := t.look(ctx, question{sql: selectSweeper, args: []any{sweepName}, row: func(rows pgx.Rows) error {
			return rows.Scan(&owner, &until)
		}})
		if err != nil {
			return err
		}
		w.now = t.now()
		if owner != nil && until > w.now.UnixMicro() {
			return nil
		}
		w.until = w.now.Add(sweepLease).UnixMicro()
		if owner == nil {
			return t.must(ctx, insertSweeper, sweepName, w.token[:], w.until)
		}
		return t.must(ctx, changeSweeper, sweepName, w.token[:], w.until, owner, until)
	})
}

// end lets the next sweep begin. When it fails, that waits for a minute.
func (w *sweep) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = w.s.transact(ctx, "end sweep", func(ctx context.Context, t *txn) error {
		_, err := t.exec(ctx, changeSweeper, sweepName, w.token[:], int64(0), w.token[:], w.until)
		return err
	})
}

// passing is transact for work that others need not wait for: it does not wait again for
// a transaction that it has waited for in vain. See inTheWay.
func (s *Store) passing(ctx context.Context, op string, fn func(context.Context, *txn) error) error {
	return unlocked(s.transact(ctx, op, func(ctx context.Context, t *txn) error { return stopWaiting(fn(ctx, t)) }))
}

// inTheWay tells whether nothing was done because somebody else is at it.
func inTheWay(err error) bool {
	return errors.Is(err, errLocked) || errors.Is(err, onlyonce.ErrConflict)
}

// inChunks runs fn on a chunk at a time, and where somebody is in the way of one, on each
// of its rows. A row that he is at is passed over.
func inChunks[T any](all []T, size int, fn func([]T) error) error {
	for some := range slices.Chunk(all, size) {
		err := fn(some)
		switch {
		case inTheWay(err) && size > 1:
			err = inChunks(some, 1, fn)
		case inTheWay(err):
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// expired deletes expired records; their steps stay.
func (w *sweep) expired(ctx context.Context) error {
	var found []*row
	_, err := w.s.read(ctx, "find expired keys", question{
		sql: selectExpired, args: []any{w.now.UnixMicro(), int64(w.req.Limit)}, first: func() { found = nil },
		row: func(rows pgx.Rows) (err error) {
			var r row
			var attempt []byte
			var state int64
			if err = rows.Scan(&r.Key.Scope, &r.Key.Value, &r.Fence, &attempt, &state, &r.version, &r.Resource, &r.Holds); err != nil {
				return err
			}
			copy(r.Attempt[:], attempt)
			r.State, err = stateOf(state)
			found = append(found, &r)
			return err
		},
	})
	if err == nil {
		err = inChunks(found, chunk, func(some []*row) error { return w.deleteKeys(ctx, some) })
	}
	w.more(len(found), w.res.Deleted)
	return err
}

// more notes that there may be more of what was found: as much as was asked for, and
// something has come of it.
func (w *sweep) more(found, done int) { w.res.More = w.res.More || (found == w.req.Limit && done > 0) }

// deleteKeys deletes rows as they were found, and what they hold. One that was changed
// since is left.
func (w *sweep) deleteKeys(ctx context.Context, found []*row) error {
	var deleted int
	err := w.s.passing(ctx, "delete expired keys", func(ctx context.Context, t *txn) error {
		deleted = 0
		var keys, holds []write
		for _, r := range found {
			keys = append(keys, write{deleteKey, r.guard(w.now.UnixMicro())})
		}
		counts, err := t.execAll(ctx, keys)
		if err != nil {
			return err
		}
		for i, r := range found {
			deleted += int(counts[i])
			if counts[i] == 1 && r.Holds {
				holds = append(holds, write{dropResource, []any{r.Key.Scope, r.Resource, r.Key.Value}})
			}
		}
		if len(holds) > 0 {
			_, err = t.execAll(ctx, holds)
		}
		return err
	})
	if err == nil {
		w.res.Deleted += deleted
	}
	return err
}

// abandoned decides attempts whose lease has been over for the grace as a takeover
// would.
func (w *sweep) abandoned(ctx context.Context) error {
	var found []onlyonce.Key
	_, err := w.s.read(ctx, "find abandoned keys", question{
		sql: selectAbandoned, args: []any{w.now.Add(-w.req.Grace).UnixMicro(), int64(w.req.Limit)}, first: func() { found = nil },
		row: func(rows pgx.Rows) error {
			var key onlyonce.Key
			err := rows.Scan(&key.Scope, &key.Value)
			found = append(found, key)
			return err
		},
	})
	for _, key := range found {
		if err != nil {
			break
		}
		err = w.decide(ctx, key)
	}
	w.more(len(found), w.res.Freed+w.res.Parked)
	return err
}

// decide frees or parks one key, unless somebody is at it.
func (w *sweep) decide(ctx context.Context, key onlyonce.Key) error {
	var to onlyonce.State
	err := w.s.passing(ctx, "decide abandoned key", func(ctx context.Context, t *txn) error {
		to = ""
		var at sight
		err := t.look(ctx, at.readKey(key))
		r := at.key
		if err != nil || r == nil || r.State != onlyonce.InProgress || w.s.remaining(r, t.now()) > -w.req.Grace {
			return err
		}
		steps, err := t.steps(ctx, r)
		if err != nil {
			return err
		}
		if reason := holdBack(r, steps); reason != "" {
			to = onlyonce.InDoubt
			return t.park(ctx, r, reason)
		}
		to = onlyonce.FailedRetryable
		return t.free(ctx, r, steps, onlyonce.ReasonSweptFree)
	})
	if inTheWay(err) {
		return nil
	}
	if err != nil || to == "" {
		return err
	}
	w.s.ended(key)
	if to == onlyonce.InDoubt {
		w.res.Parked++
	} else {
		w.res.Freed++
	}
	return nil
}

// holdBack says why an abandoned attempt must not be run again unasked; empty: it may.
func holdBack(r *row, steps []step) string {
	switch r.Abandon {
	case onlyonce.AbandonHold:
		return onlyonce.ReasonAbandoned
	case onlyonce.AbandonRerun:
		return ""
	case onlyonce.AbandonResume:
	}
	reason := ""
	for _, s := range steps {
		switch s.State {
		case onlyonce.StepBegun:
			return onlyonce.ReasonUnfinishedStep
		case onlyonce.StepDone:
			reason = onlyonce.ReasonUnansweredStep
		case onlyonce.StepNotApplied:
		}
	}
	return reason
}

// steps deletes steps of lives that are over and that have outlived their retention.
func (w *sweep) steps(ctx context.Context) error {
	var found []write
	_, err := w.s.read(ctx, "find dead steps", question{
		sql: selectDeadSteps, args: []any{w.now.Add(-w.req.StepRetention).UnixMicro(), int64(w.req.Limit)}, first: func() { found = nil },
		row: func(rows pgx.Rows) error {
			var r row
			var name string
			var occurrence int
			err := rows.Scan(&r.Key.Scope, &r.Key.Value, &r.Origin, &name, &occurrence)
			found = append(found, write{deleteStep, stepKey(&r, name, occurrence)})
			return err
		},
	})
	if err == nil {
		err = inChunks(found, chunk, func(some []write) error { return w.deleteSteps(ctx, some) })
	}
	w.more(len(found), w.res.Steps)
	return err
}

func (w *sweep) deleteSteps(ctx context.Context, found []write) error {
	var counts []int64
	err := w.s.passing(ctx, "delete dead steps", func(ctx context.Context, t *txn) (err error) {
		counts, err = t.execAll(ctx, found)
		return err
	})
	for _, n := range counts {
		if err == nil {
			w.res.Steps += int(n)
		}
	}
	return err
}
