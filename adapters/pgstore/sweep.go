package pgstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
)

// cursors are the pages at which the next sweep goes on. They need not survive:
// a new process begins anywhere.
type cursors struct {
	mu          sync.Mutex
	keys, steps cursor
	// Of the partitions that are swept row by row.
	answers, requests cursor
}

type cursor struct {
	begun bool
	page  int64
}

// window is the pages one sweep looks at: from until before to.
type window struct {
	from, to, pages int64
}

// window starts where the last one ended. A table that fits into one window is
// looked at as a whole.
func (c *cursor) window(pages, most int64) window {
	if pages <= most {
		return window{to: pages, pages: pages}
	}
	if !c.begun {
		c.begun, c.page = true, rand.Int64N(pages)
	}
	if c.page >= pages {
		c.page = 0
	}
	return window{from: c.page, to: min(c.page+most, pages), pages: pages}
}

// whole: nothing of the table is outside of the window.
func (w window) whole() bool { return w.from == 0 && w.to == w.pages }

func tid(page int64) string { return fmt.Sprintf("(%d,0)", page) }

// Sweep deletes and decides what is due in one window of pages. At most one
// sweep of a database runs at a time; others get Busy. More is set when a limit
// was reached, or when a window that is not the whole table had something in
// it: what is due at one time lies together. A crash leaves nothing half done.
//
// Where the tables have partitions, those whose period is over are emptied as well,
// if the role may: see MaintainPartitions. An error of that comes beside the result
// of the sweep, which stands.
func (s *Store) Sweep(ctx context.Context, req onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	var res onlyonce.SweepResult
	if err := req.Validate(); err != nil {
		return res, err
	}
	x, err := s.session(ctx)
	if err != nil {
		return res, classify("sweep", err, undone)
	}
	defer x.close(ctx)
	w := &sweep{x: x, req: req}
	if err := w.begin(ctx); err != nil || !w.locked {
		res.Busy = err == nil
		return res, classify("sweep", err, undone)
	}
	s.sweep.mu.Lock()
	defer s.sweep.mu.Unlock()
	if err := w.sweepKeys(ctx, &s.sweep.keys); err != nil {
		return res, classify("sweep keys", err, undone)
	}
	if err := w.sweepSteps(ctx, &s.sweep.steps); err != nil {
		return res, classify("sweep steps", err, undone)
	}
	if x.form == beside {
		if err := w.sweepRest(ctx, &s.sweep); err != nil {
			return res, classify("sweep partitions", err, undone)
		}
	}
	if err := x.commit(ctx); err != nil {
		return res, classify("sweep", err, committing)
	}
	return w.res, w.maintain(ctx)
}

// sweep is one Sweep on its way. Its statements are not prepared, so that they
// are planned for the size the tables have.
type sweep struct {
	x                   *session
	req                 onlyonce.SweepRequest
	locked              bool
	now                 time.Time
	keyPages, stepPages int64
	res                 onlyonce.SweepResult
}

func (w *sweep) begin(ctx context.Context) error {
	s := w.x.s
	return w.x.begin(ctx, pgx.ReadCommitted, &stmt{
		sql: s.sql.sweepStart, args: []any{int64(s.salt), s.now()},
		dest: []any{&w.locked, &w.now, &w.keyPages, &w.stepPages},
	})
}

// sql is a statement in the form of the tables.
func (w *sweep) sql(t text) string { return t.in(w.x.form) }

func (w *sweep) sweepKeys(ctx context.Context, c *cursor) error {
	win := c.window(w.keyPages, w.x.s.cfg.SweepPages)
	deleted, last, err := w.delete(ctx, w.sql(w.x.s.sql.deleteExpired), pgx.QueryExecModeExec, tid(win.from), tid(win.to), w.now, int64(w.req.Limit))
	if err != nil {
		return err
	}
	decided, lastDecided, err := w.decide(ctx, win)
	if err != nil {
		return err
	}
	w.res.Deleted = deleted
	next := win.to
	if deleted == w.req.Limit {
		next, w.res.More = min(next, last), true
	}
	if decided == w.req.Limit {
		next, w.res.More = min(next, lastDecided), true
	}
	w.res.More = w.res.More || (deleted+decided > 0 && !win.whole())
	c.page = next
	return nil
}

// delete runs a statement that deletes and counts.
func (w *sweep) delete(ctx context.Context, sql string, args ...any) (n int, last int64, err error) {
	err = w.x.tx.QueryRow(ctx, sql, args...).Scan(&n, &last)
	return n, last, err
}

// decide frees or parks abandoned attempts.
func (w *sweep) decide(ctx context.Context, win window) (n int, last int64, err error) {
	s := w.x.s
	found, err := w.x.tx.Query(ctx, w.sql(s.sql.lockAbandoned), pgx.QueryExecModeExec, tid(win.from), tid(win.to), w.now, micros(w.req.Grace), int64(w.req.Limit))
	if err != nil {
		return 0, 0, err
	}
	var digests [][]byte
	var digest []byte
	_, err = pgx.ForEachRow(found, []any{&digest, &last}, func() error {
		digests = append(digests, digest)
		return nil
	})
	if err != nil || len(digests) == 0 {
		return 0, 0, err
	}
	err = w.x.tx.QueryRow(ctx, w.sql(s.sql.decideAbandoned), pgx.QueryExecModeExec, digests, w.now,
		onlyonce.ReasonAbandoned, onlyonce.ReasonUnfinishedStep, onlyonce.ReasonSweptFree, onlyonce.ReasonUnansweredStep,
		micros(onlyonce.FreedStepRetention)).Scan(&w.res.Freed, &w.res.Parked)
	return len(digests), last, err
}

func (w *sweep) sweepSteps(ctx context.Context, c *cursor) error {
	win := c.window(w.stepPages, w.x.s.cfg.SweepPages)
	n, last, err := w.delete(ctx, w.sql(w.x.s.sql.deleteExpiredSteps), pgx.QueryExecModeExec,
		tid(win.from), tid(win.to), w.now, micros(w.req.StepRetention), int64(w.req.Limit))
	if err != nil {
		return err
	}
	w.res.Steps, c.page = n, win.to
	if n == w.req.Limit {
		c.page, w.res.More = last, true
	}
	w.res.More = w.res.More || (n > 0 && !win.whole())
	return nil
}

// sweepRest deletes what is not wanted of the partitions that are never emptied.
func (w *sweep) sweepRest(ctx context.Context, c *cursors) error {
	p := w.x.s.sql.parts
	var answers, requests int64
	if err := w.x.tx.QueryRow(ctx, p.restSizes, pgx.QueryExecModeExec).Scan(&answers, &requests); err != nil {
		return err
	}
	for _, r := range []rest{
		{&c.answers, answers, p.deleteAnswers, []any{w.now, int64(w.req.Limit)}},
		{&c.requests, requests, p.deleteRequests, []any{int64(w.req.Limit)}},
	} {
		if err := w.sweepPart(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// rest is a partition that is swept row by row.
type rest struct {
	*cursor
	pages int64
	sql   string
	args  []any
}

func (w *sweep) sweepPart(ctx context.Context, r rest) error {
	win := r.window(r.pages, w.x.s.cfg.SweepPages)
	n, last, err := w.delete(ctx, r.sql, slices.Concat([]any{pgx.QueryExecModeExec, tid(win.from), tid(win.to)}, r.args)...)
	if err != nil {
		return err
	}
	r.page = win.to
	if n == w.req.Limit {
		r.page, w.res.More = last, true
	}
	w.res.More = w.res.More || (n > 0 && !win.whole())
	return nil
}

// maintain empties partitions, where there are any and the role may.
func (w *sweep) maintain(ctx context.Context) error {
	if w.x.form != beside {
		return nil
	}
	may, err := w.x.mayEmpty(ctx)
	if err != nil {
		return classify("maintain partitions", err, undone)
	}
	if may {
		_, err = w.x.maintain(ctx)
	}
	return err
}
