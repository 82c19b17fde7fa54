package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// period is the time of which the report says everything: what the operator has
// said, else from the oldest to the newest row. What the provider may not have
// reported yet is left out.
func (r *run) period() (from, until time.Time) {
	from, until = r.cfg.From, r.cfg.CompleteUntil
	if from.IsZero() {
		from = r.stats.Oldest
	}
	if until.IsZero() {
		until = r.stats.Newest
	}
	if from.IsZero() {
		return from, from
	}
	return from, until.Add(-r.cfg.Visible)
}

// resolve closes findings of earlier runs, where there is evidence: that a report
// does not speak of them is none.
func (r *run) resolve(ctx context.Context) error {
	var open int64
	err := r.cfg.DB.Read(ctx, func(ctx context.Context, tx db.Tx) error {
		return tx.QueryRow(ctx, openElsewhere, r.cfg.Provider.Name, r.lock.run).Scan(&open)
	})
	if err != nil {
		return fmt.Errorf("look for earlier findings: %w", err)
	}
	if open == 0 {
		return nil
	}
	sound, err := r.ids(ctx, selectSeenSound, r.lock.run, r.cfg.Provider.Name, r.lock.run)
	if err != nil {
		return fmt.Errorf("look for resolved findings: %w", err)
	}
	meant, err := r.meantNow(ctx)
	if err != nil {
		return fmt.Errorf("look for resolved types: %w", err)
	}
	for batch := range slices.Chunk(append(sound, meant...), findingsBatch) {
		err := r.close(ctx, func(ctx context.Context, tx db.Tx) error {
			for _, id := range batch {
				if _, err := tx.Exec(ctx, resolveOne, r.startedUS, r.name(), id, r.lock.run); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return r.close(ctx, func(ctx context.Context, tx db.Tx) error {
		for _, book := range payments.Books() {
			if _, err := tx.Exec(ctx, resolveWritten(book), r.startedUS, r.name(), r.cfg.Provider.Name, book.Type, r.lock.run); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, resolveKeys, r.startedUS, r.name(), r.cfg.Provider.Name, r.lock.run)
		return err
	})
}

// close changes findings while the right to is held.
func (r *run) close(ctx context.Context, fn func(ctx context.Context, tx db.Tx) error) error {
	err := r.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
		if err := r.lock.held(ctx, tx, r.last); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("resolve findings: %w", err)
	}
	return nil
}

// maxResolved bounds how many findings one run resolves by its rows; the next one
// goes on.
const maxResolved = 100_000

func (r *run) ids(ctx context.Context, query string, args ...any) ([]int64, error) {
	var ids []int64
	err := r.each(ctx, query, args, func(_ context.Context, row db.Row) error {
		var id int64
		err := row.Scan(&id)
		if len(ids) < maxResolved {
			ids = append(ids, id)
		}
		return err
	})
	return ids, err
}

// meantNow are the findings about types that have got a meaning.
func (r *run) meantNow(ctx context.Context) ([]int64, error) {
	var ids []int64
	err := r.each(ctx, selectUnknownTypes, []any{r.cfg.Provider.Name, r.lock.run}, func(_ context.Context, row db.Row) error {
		var id int64
		var name string
		if err := row.Scan(&id, &name); err != nil {
			return err
		}
		if _, known := r.cfg.Format.Types[strings.ToLower(name)]; known {
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}
