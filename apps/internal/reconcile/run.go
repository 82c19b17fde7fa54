package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// Result is what a run has found and done.
type Result struct {
	Run    int64  `json:"run"`
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
	// Rows are those that were compared; Oldest and Newest their first and last
	// moment.
	Rows   int64      `json:"rows"`
	Oldest *time.Time `json:"oldest,omitempty"`
	Newest *time.Time `json:"newest,omitempty"`
	// Skipped counts the rows that move no customer's money, by their type.
	Skipped map[string]int64 `json:"skipped"`
	// Matched counts the rows that agree with the books, by type.
	Matched map[string]int64 `json:"matched"`
	// Breaks counts the open findings of this run, by kind.
	Breaks map[Kind]int64 `json:"breaks"`
	// Healed counts the keys that were settled, Resolved the findings of earlier
	// runs that are no longer so, Accepted those found again that a person has
	// explained.
	Healed   int64 `json:"healed"`
	Resolved int64 `json:"resolved"`
	Accepted int64 `json:"accepted"`
	// InProgress counts the keys at which an attempt is under way: they were left
	// alone. Others counts keys in doubt over another provider.
	InProgress int64 `json:"in_progress"`
	Others     int64 `json:"others"`
	// OpenBefore counts the open findings of earlier runs that this report says
	// nothing about.
	OpenBefore int64 `json:"open_before"`
	// Uncertain counts the keys that were being settled when the store failed.
	Uncertain int64 `json:"uncertain"`
	// Notes say what the report could not be asked.
	Notes []string `json:"notes"`
}

// Found tells whether anything does not agree.
func (r Result) Found() bool { return len(r.Breaks) > 0 }

// run is a run at work.
type run struct {
	cfg       Config
	lock      *lock
	startedUS int64
	reader    *report.Reader
	stats     report.Stats
	// last is the last staged line; 0: none is.
	last int64
	// shows: rows are left that no book has, so that references can be looked up.
	shows   bool
	pending []Finding
	result  Result
}

// Run reads a report and compares it. A report that cannot be read is a
// *report.Error, and leaves nothing behind; another run at work is a *BusyError.
// Errors of the database leave staged rows, which the next run deletes, and may
// leave findings; keys that were settled stay settled.
func Run(ctx context.Context, cfg Config) (Result, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return Result{}, fmt.Errorf("reconcile: %w", err)
	}
	lock, started, err := acquire(ctx, cfg)
	if err != nil {
		return Result{}, err
	}
	r := &run{cfg: cfg, lock: lock, startedUS: started.UnixMicro(), result: Result{
		Run: lock.run, File: cfg.File, Skipped: map[string]int64{}, Matched: map[string]int64{}, Breaks: map[Kind]int64{}, Notes: []string{},
	}}
	ctx, lost := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		lock.keep(ctx, lost)
	}()
	err = r.work(ctx)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errLockLost) {
		err = cause
	}
	lost(nil)
	<-kept
	return r.result, errors.Join(err, r.leave(ctx))
}

// leaveWithin bounds how long a run cleans up that was stopped. What it leaves the
// next run deletes.
const leaveWithin = 10 * time.Second

// leave deletes the staged rows and gives the right back.
func (r *run) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	r.cfg.Progress(Progress{Phase: Cleaning})
	err := clean(ctx, r.cfg.DB, r.lock.run)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return errors.Join(err, r.lock.release(ctx))
}

func (r *run) work(ctx context.Context) error {
	// The margin is kept away from it later, so it may be that much ahead.
	if r.cfg.CompleteUntil.Add(-r.cfg.Visible).UnixMicro() > r.startedUS {
		return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "reconcile", Hint: "--complete-until is in the future: a report can only be complete up to a time that has passed"}
	}
	for _, phase := range []func(context.Context) error{
		r.cleanDead, r.stage, r.match, r.sameReference, r.intents, r.reconciled,
		r.completed, r.compare, r.missing, r.unknownTypes, r.flush, r.resolve, r.sum,
	} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// match finds the rows that the books do not have.
func (r *run) match(ctx context.Context) error {
	if err := r.inWindows(ctx, Matching, insertUnmatched); err != nil {
		return err
	}
	n, err := r.unmatched(ctx)
	r.shows = n > 0
	return err
}

// unmatched counts the rows with a reference that nothing explains yet.
func (r *run) unmatched(ctx context.Context) (n int64, err error) {
	err = r.read(ctx, func(ctx context.Context, tx db.Tx) error {
		return tx.QueryRow(ctx, countUnmatched, r.lock.run).Scan(&n)
	})
	return n, err
}

// read looks at the staged rows, which must all be there.
func (r *run) read(ctx context.Context, fn func(ctx context.Context, tx db.Tx) error) error {
	return r.cfg.DB.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		if err := r.lock.held(ctx, tx, r.last); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// reconciled notes which rows of the books the report has shown.
func (r *run) reconciled(ctx context.Context) error {
	return r.inWindows(ctx, Comparing, insertReconciled)
}

// sum counts what was found, and ends the run.
func (r *run) sum(ctx context.Context) error {
	res := &r.result
	res.SHA256, res.Rows, res.Skipped = r.reader.Sum(), r.stats.Rows, r.stats.Skipped
	if res.Rows > 0 {
		res.Oldest, res.Newest = &r.stats.Oldest, &r.stats.Newest
	}
	r.note()
	return r.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
		clear(res.Breaks)
		res.Accepted = 0
		err := tx.Each(ctx, countFindings, []any{r.lock.run}, func(row db.Row) error {
			var kind, status string
			var n int64
			err := row.Scan(&kind, &status, &n)
			switch Status(status) {
			case Open:
				res.Breaks[Kind(kind)] = n
			case Accepted:
				res.Accepted += n
			case Healed, Resolved: // counted elsewhere
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("count findings: %w", err)
		}
		if err := tx.QueryRow(ctx, countOpen, r.lock.run).Scan(&res.OpenBefore); err != nil {
			return fmt.Errorf("count open findings: %w", err)
		}
		if err := tx.QueryRow(ctx, countResolved, r.name()).Scan(&res.Resolved); err != nil {
			return fmt.Errorf("count resolved findings: %w", err)
		}
		summary, err := json.Marshal(res)
		if err != nil {
			return fmt.Errorf("encode result: %w", err)
		}
		if _, err := tx.Exec(ctx, endRun, res.SHA256, string(summary), r.lock.run); err != nil {
			return fmt.Errorf("end run: %w", err)
		}
		return nil
	})
}

// note says what the report could not be asked, and what makes it look like
// another one than was meant.
func (r *run) note() {
	matched := int64(0)
	for _, book := range payments.Books() {
		matched += r.result.Matched[book.Type]
		if !r.reader.Has(report.Type(book.Type)) {
			r.result.Notes = append(r.result.Notes, fmt.Sprintf("the report has no column with our references of %ss: none that is in doubt can be settled by it", book.Type))
		}
	}
	if r.stats.Rows > 0 && matched == 0 {
		r.result.Notes = append(r.result.Notes, "not one row agrees with the books: is it the report of this account, and is its column of ids the one with the ids that the service keeps?")
	}
}
