package pgstore

import (
	"context"
	"fmt"
	"math/rand/v2"
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
func (s *Store) Sweep(ctx context.Context, req onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	var res onlyonce.SweepResult
	if req.Limit <= 0 {
		return res, configError("SweepRequest.Limit must be positive, got %d", req.Limit)
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
	if err := x.commit(ctx); err != nil {
		return res, classify("sweep", err, committing)
	}
	return w.res, nil
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

func (w *sweep) sweepKeys(ctx context.Context, c *cursor) error {
	win := c.window(w.keyPages, w.x.s.cfg.SweepPages)
	deleted, last, err := w.delete(ctx, w.x.s.sql.deleteExpired, pgx.QueryExecModeExec, tid(win.from), tid(win.to), w.now, int64(w.req.Limit))
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
	found, err := w.x.tx.Query(ctx, s.sql.lockAbandoned, pgx.QueryExecModeExec, tid(win.from), tid(win.to), w.now, micros(w.req.Grace), int64(w.req.Limit))
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
	err = w.x.tx.QueryRow(ctx, s.sql.decideAbandoned, pgx.QueryExecModeExec, digests, w.now,
		onlyonce.ReasonAbandoned, onlyonce.ReasonUnfinishedStep, onlyonce.ReasonSweptFree, onlyonce.ReasonUnansweredStep,
		micros(onlyonce.FreedStepRetention)).Scan(&w.res.Freed, &w.res.Parked)
	return len(digests), last, err
}

func (w *sweep) sweepSteps(ctx context.Context, c *cursor) error {
	win := c.window(w.stepPages, w.x.s.cfg.SweepPages)
	n, last, err := w.delete(ctx, w.x.s.sql.deleteExpiredSteps, pgx.QueryExecModeExec,
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
