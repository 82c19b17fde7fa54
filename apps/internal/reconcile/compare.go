package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile/report"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/money"
)

// each streams a query over the staged rows. fn may write, by another connection.
func (r *run) each(ctx context.Context, query string, args []any, fn func(ctx context.Context, row db.Row) error) error {
	return r.read(ctx, func(ctx context.Context, tx db.Tx) error {
		return tx.Each(ctx, query, args, func(row db.Row) error { return fn(ctx, row) })
	})
}

// sameReference finds effects that have happened twice and are both not in the
// books. Their rows need no other explanation.
func (r *run) sameReference(ctx context.Context) error {
	if !r.shows {
		return nil
	}
	var explain []Finding
	err := r.each(ctx, selectSameReference, []any{r.lock.run}, func(ctx context.Context, row db.Row) error {
		f := Finding{Kind: DuplicateEffect}
		var first, second string
		var n, from, to int64
		if err := row.Scan(&f.Type, &f.Reference, &first, &second, &n, &from, &to); err != nil {
			return err
		}
		f.Theirs = first + " and " + second
		f.Detail = fmt.Sprintf("lines %d to %d have %d rows under one reference: give one %s back, or find out who else uses the reference", from, to, n, f.Type)
		if len(explain) < maxExplained {
			explain = append(explain, f)
		}
		return r.found(ctx, f)
	})
	if err != nil {
		return fmt.Errorf("look for duplicate effects: %w", err)
	}
	return r.explain(ctx, explain...)
}

// maxExplained bounds how many duplicate effects are kept in memory. Rows of more
// are reported as missing here too.
const maxExplained = 10_000

// explain notes that the rows of findings need no other one.
func (r *run) explain(ctx context.Context, findings ...Finding) error {
	for batch := range slices.Chunk(findings, findingsBatch) {
		err := r.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
			for _, f := range batch {
				if _, err := tx.Exec(ctx, explainRows, r.lock.run, f.Type, f.Reference); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("explain rows: %w", err)
		}
	}
	return nil
}

// compare looks at the rows that the books have, and at what is wrong with rows by
// themselves.
func (r *run) compare(ctx context.Context) error {
	for _, book := range payments.Books() {
		var n int64
		err := r.read(ctx, func(ctx context.Context, tx db.Tx) error {
			return tx.QueryRow(ctx, countMatched(book), r.lock.run, book.Type).Scan(&n)
		})
		if err != nil {
			return fmt.Errorf("count matched rows: %w", err)
		}
		r.result.Matched[book.Type] += n
		if err := r.differing(ctx, book); err != nil {
			return fmt.Errorf("compare amounts: %w", err)
		}
	}
	if err := r.each(ctx, selectUnknownCurrency, []any{r.lock.run}, r.unknownCurrency); err != nil {
		return fmt.Errorf("look for unknown currencies: %w", err)
	}
	err := r.each(ctx, selectSameID, []any{r.lock.run}, func(ctx context.Context, row db.Row) error {
		f := Finding{Kind: DuplicateRow}
		var n, from, to int64
		if err := row.Scan(&f.Type, &f.ProviderID, &f.Reference, &n, &from, &to); err != nil {
			return err
		}
		f.Theirs = fmt.Sprintf("%d rows", n)
		f.Detail = fmt.Sprintf("lines %d to %d have %d rows with one id: was the report joined of two? if the provider has done it %d times, ask it", from, to, n, n)
		return r.found(ctx, f)
	})
	if err != nil {
		return fmt.Errorf("look for duplicate rows: %w", err)
	}
	return nil
}

func (r *run) unknownCurrency(ctx context.Context, row db.Row) error {
	f := Finding{Kind: UnknownCurrency}
	var line int64
	if err := row.Scan(&line, &f.Type, &f.ProviderID, &f.Reference, &f.Theirs); err != nil {
		return err
	}
	f.Detail = fmt.Sprintf("line %d: its currency is no active one of ISO 4217, so its amount could not be compared", line)
	return r.found(ctx, f)
}

// differing finds rows that the books have otherwise.
func (r *run) differing(ctx context.Context, book payments.Book) error {
	return r.each(ctx, selectDiffering(book), []any{r.lock.run, book.Type}, func(ctx context.Context, row db.Row) error {
		f := Finding{Kind: AmountDiffers, Type: book.Type}
		var line, amount int64
		var id, currency, status string
		if err := row.Scan(&line, &f.ProviderID, &f.Reference, &f.Theirs, &id, &f.Merchant, &f.Operation, &amount, &currency, &status); err != nil {
			return err
		}
		f.Ours = shown(amount, currency)
		f.Detail = fmt.Sprintf("line %d: compare %s with the provider's record; the books are corrected by a contrary entry, never changed", line, id)
		if status != payments.StatusSucceeded {
			f.Kind, f.Ours = Contradiction, status+", "+f.Ours
			f.Detail = fmt.Sprintf("line %d: the provider says that money moved, and told us that it did not: %s is %s", line, id, status)
		}
		return r.found(ctx, f)
	})
}

// missing finds what only one of the two has.
func (r *run) missing(ctx context.Context) error {
	for _, book := range payments.Books() {
		if err := r.shownTwice(ctx, book); err != nil {
			return fmt.Errorf("look for effects of earlier reports: %w", err)
		}
		if err := r.missingHere(ctx, book); err != nil {
			return fmt.Errorf("look for what is missing here: %w", err)
		}
		if err := r.missingThere(ctx, book); err != nil {
			return fmt.Errorf("look for what is missing there: %w", err)
		}
	}
	return nil
}

// shownTwice finds effects of which an earlier report has shown the first.
func (r *run) shownTwice(ctx context.Context, book payments.Book) error {
	if !r.shows {
		return nil
	}
	var explain []Finding
	err := r.each(ctx, selectShownTwice(book), []any{r.lock.run, book.Type}, func(ctx context.Context, row db.Row) error {
		f := Finding{Kind: DuplicateEffect, Type: book.Type}
		var line int64
		var id, theirs, first string
		if err := row.Scan(&line, &theirs, &f.Reference, &f.Theirs, &id, &f.Merchant, &f.Operation, &first); err != nil {
			return err
		}
		if !r.cfg.Provider.names(report.Type(book.Type), theirs) {
			return nil // another name of the same
		}
		f.Ours, f.Theirs = id+", "+first, first+" and "+theirs
		f.Detail = fmt.Sprintf("line %d: a report has shown the reference under another id: give one %s back", line, f.Type)
		if len(explain) < maxExplained {
			explain = append(explain, f)
		}
		return r.found(ctx, f)
	})
	if err != nil {
		return err
	}
	return r.explain(ctx, explain...)
}

func (r *run) missingHere(ctx context.Context, book payments.Book) error {
	return r.each(ctx, selectMissingHere(book), []any{r.lock.run, book.Type}, func(ctx context.Context, row db.Row) error {
		f := Finding{Kind: MissingHere, Type: book.Type}
		var line int64
		if err := row.Scan(&line, &f.ProviderID, &f.Reference, &f.Theirs); err != nil {
			return err
		}
		f.Detail = fmt.Sprintf("line %d: ", line)
		switch {
		case f.Reference == "":
			f.Detail += "the report has no reference of ours; look it up at the provider by its id"
		case strings.HasPrefix(f.Reference, "oo_"):
			f.Detail += "the reference is of our making, and no key is left that has made it: look for its request in the logs"
		default:
			f.Detail += "the reference is not of our making: does another program use the provider's account?"
		}
		return r.found(ctx, f)
	})
}

// missingThere finds what the books have and no report has shown, of the time that
// this one is about.
func (r *run) missingThere(ctx context.Context, book payments.Book) error {
	from, until := r.period()
	if !from.Before(until) {
		return nil
	}
	args := []any{from.UnixMicro(), until.UnixMicro(), book.Type, book.Type}
	return r.each(ctx, selectMissingThere(book), args, func(ctx context.Context, row db.Row) error {
		f := Finding{Kind: MissingThere, Type: book.Type}
		var amount int64
		var id, currency string
		if err := row.Scan(&f.ProviderID, &id, &f.Merchant, &f.Operation, &amount, &currency); err != nil {
			return err
		}
		f.Ours = id + ", " + shown(amount, currency)
		f.Detail = "no report has shown it: is the report whole, and of the right account? if it was made before the report begins, reconcile the report before"
		return r.found(ctx, f)
	})
}

// unknownTypes reports the types that have no meaning, each once.
func (r *run) unknownTypes(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(r.stats.Unknown)) {
		u := r.stats.Unknown[name]
		err := r.found(ctx, Finding{
			Kind: UnknownType, Type: name, Theirs: fmt.Sprintf("%d rows", u.Rows),
			Detail: fmt.Sprintf("line %d and others: say what it means with --types %s=charge, refund or skip, or look at the rows by hand", u.Line, name),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// shown is an amount for people.
func shown(minor int64, currency string) string {
	return money.Amount{Minor: minor, Currency: money.Currency(currency)}.String()
}
