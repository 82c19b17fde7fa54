package reconcile

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// Kind says what does not agree.
type Kind string

// The kinds of findings. docs/RECONCILIATION.md says what to do about each.
const (
	// AmountDiffers: both have it, and not with the same amount or currency.
	AmountDiffers Kind = "amount_differs"
	// MissingHere: the report has it, the books do not.
	MissingHere Kind = "missing_here"
	// MissingThere: the books have it, and no report has shown it.
	MissingThere Kind = "missing_there"
	// DuplicateRow: the report has one id more than once.
	DuplicateRow Kind = "duplicate_row"
	// DuplicateEffect: two ids have one reference: it was charged, or given
	// back, twice.
	DuplicateEffect Kind = "duplicate_effect"
	// UnknownCurrency: the report names a currency that is none.
	UnknownCurrency Kind = "unknown_currency"
	// UnknownType: the report has rows of a type that says nothing here.
	UnknownType Kind = "unknown_type"
	// StillUnknown: a key is in doubt, and the report does not settle it.
	StillUnknown Kind = "still_unknown"
	// Healable: a key whose end the report, or its own record, proves.
	Healable Kind = "healable"
	// Contradiction: the report shows an effect that was settled or answered
	// otherwise. Never healed, never dropped.
	Contradiction Kind = "contradiction"
)

// Kinds are all of them, the worst first.
func Kinds() []Kind {
	return []Kind{
		Contradiction, DuplicateEffect, AmountDiffers, MissingHere, MissingThere,
		StillUnknown, Healable, DuplicateRow, UnknownCurrency, UnknownType,
	}
}

// Status says where a finding stands.
type Status string

// The statuses.
const (
	// Open: somebody has to look at it.
	Open Status = "open"
	// Healed: a run has settled it.
	Healed Status = "healed"
	// Resolved: a later run has seen that it is no longer so.
	Resolved Status = "resolved"
	// Accepted: a person has explained it.
	Accepted Status = "accepted"
)

// Finding is something that does not agree.
type Finding struct {
	ID       int64  `json:"id"`
	Provider string `json:"provider"`
	Kind     Kind   `json:"kind"`
	// Type is charge or refund; for an unknown type the report's own word.
	Type string `json:"type"`
	// ProviderID is the provider's name for the effect, Reference ours.
	ProviderID string `json:"provider_id,omitempty"`
	Reference  string `json:"reference,omitempty"`
	// Merchant and Operation say whose key it is about, where that is known.
	Merchant  string `json:"merchant,omitempty"`
	Operation string `json:"operation,omitempty"`
	// Ours and Theirs are what the two have.
	Ours   string `json:"ours,omitempty"`
	Theirs string `json:"theirs,omitempty"`
	// Detail says more, and what to do.
	Detail string `json:"detail"`
	Status Status `json:"status"`
	// First and Last are when it was found first and last, Runs how often.
	First    time.Time `json:"first_seen"`
	Last     time.Time `json:"last_seen"`
	FirstRun int64     `json:"first_run"`
	LastRun  int64     `json:"last_run"`
	Runs     int64     `json:"runs"`
	// Closed and ClosedBy say since when, and why, it is not open.
	Closed   *time.Time `json:"closed_at,omitempty"`
	ClosedBy string     `json:"closed_by,omitempty"`
}

// findingsBatch is how many findings one transaction writes.
const findingsBatch = 100

// found notes a finding; flush writes it.
func (r *run) found(ctx context.Context, f Finding) error {
	if f.Status == "" {
		f.Status = Open
	}
	r.pending = append(r.pending, f)
	if len(r.pending) < findingsBatch {
		return nil
	}
	return r.flush(ctx)
}

// flush writes what was found so far.
func (r *run) flush(ctx context.Context) error {
	if len(r.pending) == 0 {
		return nil
	}
	err := r.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
		if err := r.lock.held(ctx, tx, r.last); err != nil {
			return err
		}
		for _, f := range r.pending {
			if _, err := tx.Exec(ctx, upsertFinding, r.upsertArgs(f)...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store findings: %w", err)
	}
	r.pending = r.pending[:0]
	return nil
}

func (r *run) upsertArgs(f Finding) []any {
	var closed any
	by := ""
	if f.Status != Open {
		closed, by = r.startedUS, r.name()
	}
	return []any{
		r.cfg.Provider.Name, string(f.Kind), f.Type, f.ProviderID, f.Reference, f.Merchant, f.Operation, f.Ours, f.Theirs, f.Detail,
		string(f.Status), r.startedUS, r.startedUS, r.lock.run, r.lock.run, closed, by,
	}
}

// name is how findings name the run that closed them.
func (r *run) name() string { return fmt.Sprintf("run %d of %s", r.lock.run, r.cfg.Actor) }

func scanFinding(row db.Row) (Finding, error) {
	var f Finding
	var kind, status string
	var first, last, closed int64
	err := row.Scan(&f.ID, &f.Provider, &kind, &f.Type, &f.ProviderID, &f.Reference, &f.Merchant, &f.Operation, &f.Ours, &f.Theirs, &f.Detail,
		&status, &first, &last, &f.FirstRun, &f.LastRun, &f.Runs, &closed, &f.ClosedBy)
	f.Kind, f.Status = Kind(kind), Status(status)
	f.First, f.Last = time.UnixMicro(first).UTC(), time.UnixMicro(last).UTC()
	if closed != 0 {
		at := time.UnixMicro(closed).UTC()
		f.Closed = &at
	}
	return f, err
}

// ListOpen calls fn for every open finding, oldest first.
func ListOpen(ctx context.Context, d *db.Database, fn func(Finding) error) error {
	return findings{d, selectOpen, nil}.each(ctx, fn)
}

// ListRun calls fn for every finding that a run has found, oldest first.
func ListRun(ctx context.Context, d *db.Database, run int64, fn func(Finding) error) error {
	return findings{d, selectOfRun, []any{run}}.each(ctx, fn)
}

// findings are those that a query selects, behind an id and up to a limit.
type findings struct {
	db    *db.Database
	query string
	args  []any
}

// each reads page by page, so that fn may take its time.
func (q findings) each(ctx context.Context, fn func(Finding) error) error {
	last := int64(0)
	for {
		var page []Finding
		err := q.db.Read(ctx, func(ctx context.Context, tx db.Tx) error {
			page = page[:0]
			return tx.Each(ctx, q.query, slices.Concat(q.args, []any{last, findingsBatch}), func(row db.Row) error {
				f, err := scanFinding(row)
				page = append(page, f)
				return err
			})
		})
		if err != nil {
			return fmt.Errorf("list findings: %w", err)
		}
		for _, f := range page {
			if err := fn(f); err != nil {
				return err
			}
			last = f.ID
		}
		if len(page) < findingsBatch {
			return nil
		}
	}
}

// Accept closes an open finding with a person's explanation. It counts no longer,
// until what it is about looks otherwise. It returns an *onlyonce.Error with
// CodeNotFound for one that is not there or not open.
func Accept(ctx context.Context, d *db.Database, id int64, by string) (Finding, error) {
	var f Finding
	err := d.Write(ctx, func(ctx context.Context, tx db.Tx) error {
		n, err := tx.Exec(ctx, acceptFinding, by, id)
		if err != nil {
			return fmt.Errorf("accept finding: %w", err)
		}
		if n == 0 {
			return &onlyonce.Error{Code: onlyonce.CodeNotFound, Op: "accept finding", Hint: fmt.Sprintf("there is no open finding %d; onlyonce reconcile list lists them", id)}
		}
		if f, err = scanFinding(tx.QueryRow(ctx, selectFinding, id)); err != nil {
			return fmt.Errorf("read finding: %w", err)
		}
		return nil
	})
	return f, err
}
