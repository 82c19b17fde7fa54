package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

const (
	// stageBatch is how many rows one transaction stages: its statement's
	// arguments stay below what SQLite takes, and its writer is free soon.
	stageBatch = 500
	// window is how many lines one transaction works on later.
	window = 5000
)

// stage reads the report to its end. Nothing but staged rows has been written
// when it fails.
func (r *run) stage(ctx context.Context) error {
	reader, err := report.NewReader(r.cfg.Report, r.cfg.Format)
	if err != nil {
		return err
	}
	r.reader = reader
	batch := make([]report.Row, 0, stageBatch)
	for {
		row, err := reader.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		ended := err != nil
		if !ended {
			batch = append(batch, row)
			r.last = int64(row.Line)
		}
		if len(batch) == stageBatch || (ended && len(batch) > 0) {
			if err := r.write(ctx, batch); err != nil {
				return err
			}
			batch = batch[:0]
			stats := reader.Stats()
			r.cfg.Progress(Progress{Phase: Reading, Bytes: stats.Bytes, Rows: stats.Rows})
		}
		if ended {
			r.stats = reader.Stats()
			return r.whole()
		}
	}
}

// whole refuses to take a report for complete that may have been cut off.
func (r *run) whole() error {
	if r.cfg.CompleteUntil.IsZero() || !r.reader.Unended() {
		return nil
	}
	return &report.Error{
		Line: int(r.last), Text: "the last line has no end: the report may have been cut off, and is not taken for complete",
		Hint: "get the report again; if the provider ends no last line, end it by hand, or leave --complete-until out",
	}
}

// write stages a batch.
func (r *run) write(ctx context.Context, batch []report.Row) error {
	args := make([]any, 0, len(batch)*stagedColumns)
	for _, row := range batch {
		var amount any = row.Amount
		if row.UnknownCurrency {
			amount = nil
		}
		args = append(args, r.lock.run, row.Line, string(row.Type), row.ID, row.Reference, amount, row.Currency, row.Shown, row.Created.UnixMicro())
	}
	query := insertRows + strings.Repeat(rowValues+", ", len(batch)-1) + rowValues + insertRowsOnce
	err := r.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
		_, err := tx.Exec(ctx, query, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("stage rows: %w", err)
	}
	return nil
}

// inWindows runs a statement for each book on all staged lines, some at a time.
// Its arguments are the run, the type and the two ends of a window.
func (r *run) inWindows(ctx context.Context, phase Phase, query func(payments.Book) string) error {
	for from := int64(0); from < r.last; from += window {
		for _, book := range payments.Books() {
			err := r.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
				_, err := tx.Exec(ctx, query(book), r.lock.run, book.Type, from, from+window)
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", phase, err)
			}
		}
		r.cfg.Progress(Progress{Phase: phase, Done: min(from+window, r.last), Of: r.last})
	}
	return nil
}

// clean deletes the staged rows of a run, some at a time: last those by which it is
// known that there are any.
func clean(ctx context.Context, d *db.Database, run int64) error {
	if err := deleteAll(ctx, d, deleteUnmatched, run, run, window); err != nil {
		return err
	}
	if err := deleteAll(ctx, d, deleteLastUnmatched, run); err != nil {
		return err
	}
	return deleteAll(ctx, d, deleteRows, run, window, run)
}

// deleteAll repeats a statement until it deletes nothing.
func deleteAll(ctx context.Context, d *db.Database, statement string, args ...any) error {
	for {
		n := int64(0)
		err := d.Write(ctx, func(ctx context.Context, tx db.Tx) error {
			var err error
			n, err = tx.Exec(ctx, statement, args...)
			return err
		})
		if err != nil {
			return fmt.Errorf("delete staged rows: %w", err)
		}
		if n == 0 {
			return nil
		}
	}
}

// cleanDead deletes what runs before this one have left when they died.
func (r *run) cleanDead(ctx context.Context) error {
	for {
		var dead int64
		err := r.cfg.DB.Read(ctx, func(ctx context.Context, tx db.Tx) error {
			return tx.QueryRow(ctx, deadRun, r.lock.run).Scan(&dead)
		})
		if err != nil {
			return fmt.Errorf("look for rows of earlier runs: %w", err)
		}
		if dead == 0 {
			return nil
		}
		if err := clean(ctx, r.cfg.DB, dead); err != nil {
			return err
		}
	}
}
