package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

// sweepBatch is how many rows one transaction of a sweeper may touch, so that nobody
// waits for it for long.
const sweepBatch = 100

// most is sweepBatch, and on Vitess one row: two may be on two shards.
func (b *batch) most() int {
	if b.s.at.vitess() {
		return 1
	}
	return sweepBatch
}

// Sweep does one bounded batch of housekeeping, in small transactions. What has
// expired or was abandoned is found by an index in order of time; rows that somebody
// is just working on are left for the next time. A lock lets one sweeper of a database
// in at a time; in a Galera cluster it is one a node, and several do no harm. On
// Vitess each row is a transaction of its own.
func (s *Store) Sweep(ctx context.Context, req onlyonce.SweepRequest) (res onlyonce.SweepResult, err error) {
	const op = "sweep"
	if err := req.Validate(); err != nil {
		return res, err
	}
	l, err := s.line(ctx)
	if err != nil {
		return res, classify(op, err, undone)
	}
	defer l.close(ctx)
	alone, err := l.take(ctx, s.locks+"sweep", 0)
	if err != nil {
		return res, classify(op, err, undone)
	}
	if !alone {
		return onlyonce.SweepResult{Busy: true}, nil
	}
	b := &batch{line: l, req: req}
	for _, part := range []func(context.Context) error{b.expired, b.abandoned, b.steps} {
		if err := part(ctx); err != nil {
			return b.res, classify(op, err, undone)
		}
	}
	return b.res, nil
}

// batch is one Sweep.
type batch struct {
	*line
	req onlyonce.SweepRequest
	res onlyonce.SweepResult
	// later counts attempts that were put off.
	later int
}

// inTx runs fn in a transaction of the sweeper's own connection.
func (b *batch) inTx(ctx context.Context, fn func(q querier) error) error {
	return b.s.repeat(ctx, func() error {
		const op = "sweep"
		defer b.rollback()
		if err := b.begin(ctx, sql.LevelReadCommitted); err != nil {
			return classify(op, err, undone)
		}
		if err := fn(b.tx); err != nil {
			return classify(op, err, undone)
		}
		return b.commit(op)
	})
}

// expired deletes expired records and what goes with them. Their steps stay.
func (b *batch) expired(ctx context.Context) error {
	var digests []any
	err := each(ctx, b.conn, query{b.s.sql(expiredKeys), []any{b.req.Limit}}, func(row scanner) error {
		var d []byte
		err := row.Scan(&d)
		digests = append(digests, d)
		return err
	})
	full := len(digests) == b.req.Limit
	for err == nil && len(digests) > 0 {
		n := min(len(digests), b.most())
		var deleted int64
		err = b.inTx(ctx, func(q querier) (err error) {
			deleted, err = b.delete(ctx, q, digests[:n])
			return err
		})
		if err == nil {
			b.res.Deleted += int(deleted)
		}
		err = passed(err)
		digests = digests[n:]
	}
	b.more(full, b.res.Deleted)
	return err
}

// delete deletes those of the records that have still expired and that nobody is just
// working on. Rows go one by one, by their primary keys: a DELETE of many may be
// planned as a scan, which would wait for rows that are not its own.
func (b *batch) delete(ctx context.Context, q querier, digests []any) (deleted int64, err error) {
	type expired struct {
		digest      []byte
		scope       string
		resource    sql.NullString
		holds, kept bool
	}
	var rows []expired
	ask := query{b.s.sql(lockExpired) + places(len(digests)) + ` FOR UPDATE SKIP LOCKED`, digests}
	err = each(ctx, q, ask, func(row scanner) error {
		var r expired
		err := row.Scan(&r.digest, &r.scope, &r.resource, &r.holds, &r.kept)
		rows = append(rows, r)
		return err
	})
	for _, r := range rows {
		if err == nil && r.holds {
			holds := onlyonce.ResourceDigest(r.scope, r.resource.String)
			err = exec(ctx, q, deleteHold, holds[:], r.digest)
		}
		if err == nil && r.kept {
			err = exec(ctx, q, deleteKept, r.digest)
		}
		if err == nil {
			err = exec(ctx, q, deleteKey, r.digest)
		}
		if err != nil {
			return 0, err
		}
	}
	return int64(len(rows)), err
}

// places is a list of n parameters.
func places(n int) string { return `(` + strings.Repeat(`?, `, n-1) + `?)` }

// abandoned decides attempts whose lease has been over for long, as a takeover would.
func (b *batch) abandoned(ctx context.Context) error {
	var rows []*keyRow
	grace := micros(b.req.Grace)
	err := each(ctx, b.conn, query{b.s.sql(abandonedKeys), []any{grace, b.req.Limit}}, func(row scanner) error {
		r, err := scanKey(row)
		rows = append(rows, r)
		return err
	})
	full := len(rows) == b.req.Limit
	for _, r := range rows {
		if err != nil {
			return err
		}
		switch {
		case b.s.leaseOver(r, b.req.Grace):
			err = b.decide(ctx, r)
		case r.LeaseEnd.After(r.now.Add(-b.req.Grace)):
			err = b.putOff(ctx, r)
		}
		err = passed(err)
	}
	b.more(full, b.res.Freed+b.res.Parked+b.later)
	return err
}

// more notes that a limit was reached. What a batch can do nothing about it will find
// again: only behind one that has done something is another worth its while.
func (b *batch) more(full bool, did int) { b.res.More = b.res.More || (full && did > 0) }

// passed makes nothing of a row that somebody else is working on: it is left for the
// next time, and the others are decided.
func passed(err error) error {
	if errors.Is(err, onlyonce.ErrConflict) {
		return nil
	}
	return err
}

// putOff has the next sweeper look at a renewed attempt when its lease ends.
func (b *batch) putOff(ctx context.Context, found *keyRow) error {
	put := false
	err := b.inTx(ctx, func(q querier) error {
		row, err := b.s.readOwned(ctx, q, lockFree, found.Owner())
		if put = err == nil && row != nil; !put {
			return err
		}
		return exec(ctx, q, lookLater, ownerArgs(row.Owner())...)
	})
	if put && err == nil {
		b.later++
	}
	return err
}

// decide frees or parks an abandoned attempt, unless it has been renewed, taken over
// or settled by now.
func (b *batch) decide(ctx context.Context, found *keyRow) error {
	var parked, freed bool
	err := b.inTx(ctx, func(q querier) error {
		parked, freed = false, false
		row, err := b.s.readOwned(ctx, q, lockFree, found.Owner())
		if err != nil || row == nil || row.State != onlyonce.InProgress || row.renewal != found.renewal {
			return err
		}
		traces, err := readSteps(ctx, q, row)
		if err != nil {
			return err
		}
		if reason := traces.doubt(row.Abandon); reason != "" {
			n, err := told(ctx, q, parkKey, ownerArgs(row.Owner(), bytesOf(reason))...)
			parked = n != 0
			b.s.forget(row.digest)
			return err
		}
		freed, err = b.s.free(ctx, q, freeing{row, traces, onlyonce.ReasonSweptFree})
		return err
	})
	if err != nil {
		return err
	}
	if parked {
		b.res.Parked++
	}
	if freed {
		b.res.Freed++
	}
	return nil
}

// doubt is why an abandoned attempt may have had an effect; empty: it may not, or may
// be rerun all the same.
func (t behind) doubt(abandon onlyonce.Abandon) string {
	switch {
	case abandon == onlyonce.AbandonHold:
		return onlyonce.ReasonAbandoned
	case abandon != onlyonce.AbandonResume || t.steps == 0:
		return ""
	case t.begun > 0:
		return onlyonce.ReasonUnfinishedStep
	default:
		return onlyonce.ReasonUnansweredStep
	}
}

// steps deletes steps that outlived their retention, never those of a life whose
// record is still there.
func (b *batch) steps(ctx context.Context) error {
	var dead [][]any
	err := each(ctx, b.conn, query{b.s.sql(deadSteps), []any{micros(b.req.StepRetention), b.req.Limit}}, func(row scanner) error {
		var digest, name []byte
		var origin, occurrence int64
		err := row.Scan(&digest, &origin, &name, &occurrence)
		dead = append(dead, []any{digest, origin, name, occurrence})
		return err
	})
	full := len(dead) == b.req.Limit
	for err == nil && len(dead) > 0 {
		n := min(len(dead), b.most())
		var deleted int64
		err = b.inTx(ctx, func(q querier) error {
			deleted = 0
			for _, step := range dead[:n] {
				one, err := count(ctx, q, deleteStep, step...)
				if err != nil {
					return err
				}
				deleted += one
			}
			return nil
		})
		if err == nil {
			b.res.Steps += int(deleted)
		}
		err = passed(err)
		dead = dead[n:]
	}
	b.more(full, b.res.Steps)
	return err
}
