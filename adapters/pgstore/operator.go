package pgstore

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
)

// defaultPage is how many records List gives when it is not told.
const defaultPage = 100

// List gives records in the order of their digests. What is in doubt has an
// index of its own; any other filter reads on until a page is full, which on a
// big table may take long.
func (s *Store) List(ctx context.Context, f onlyonce.ListFilter) (onlyonce.ListPage, error) {
	after, err := hex.DecodeString(f.After)
	if err != nil || (len(after) != 0 && len(after) != len(onlyonce.Digest{})) {
		return onlyonce.ListPage{}, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "list keys", Hint: "the cursor is not one this store gave out", Err: err}
	}
	if f.State != "" && numberOf(f.State) == 0 {
		return onlyonce.ListPage{}, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "list keys", Hint: "there is no state " + string(f.State)}
	}
	limit := f.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	// Not prepared, so that it is planned for its filter and its limit: a plan
	// for any filter would read and sort the whole table.
	sql, args := s.sql.listKeys, []any{pgx.QueryExecModeExec, notNil(after), numberOf(f.State), f.Scope, int64(limit) + 1, s.now()}
	if f.State == onlyonce.InDoubt {
		sql, args = s.sql.listDoubt, []any{pgx.QueryExecModeExec, notNil(after), f.Scope, int64(limit) + 1, s.now()}
	}
	records, err := collect(ctx, s, query{"list keys", sql, args}, scanRecord)
	if err != nil {
		return onlyonce.ListPage{}, err
	}
	page := onlyonce.ListPage{Records: records}
	if len(records) > limit {
		last := records[limit-1].Key.Digest()
		page.Records, page.Next = records[:limit], hex.EncodeToString(last[:])
	}
	return page, nil
}

func scanRecord(r pgx.CollectableRow) (onlyonce.Record, error) {
	row := &keyRow{}
	if err := r.Scan(row.dest()...); err != nil {
		return onlyonce.Record{}, err
	}
	return row.record()
}

// AddAudit keeps an entry. Repeated after ErrUncertain it may stand twice.
func (s *Store) AddAudit(ctx context.Context, e onlyonce.AuditEntry) error {
	d := e.Key.Digest()
	var ok bool
	return s.write(ctx, "add audit entry", &stmt{sql: s.sql.addAudit, dest: []any{&ok}, args: []any{
		d[:], e.Key.Scope, e.Key.Value, printable(e.Action), printable(e.Actor), printable(e.Reason), e.Fence, s.now(),
	}})
}

// Audit lists the entries of a key, oldest first.
func (s *Store) Audit(ctx context.Context, key onlyonce.Key) ([]onlyonce.AuditEntry, error) {
	d := key.Digest()
	q := query{"read audit", s.sql.audit, []any{d[:], key.Scope, key.Value}}
	return collect(ctx, s, q, func(row pgx.CollectableRow) (onlyonce.AuditEntry, error) {
		e := onlyonce.AuditEntry{Key: key}
		var at time.Time
		err := row.Scan(&e.Action, &e.Actor, &e.Reason, &e.Fence, &at)
		e.At = at.UTC()
		return e, err
	})
}
