package sqlitestore

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// List gives records in the order of their digests. It takes no lock; records
// that come and go between pages may be missed or seen, none is seen twice.
// What is in doubt or in progress is found by an index; a list of one scope,
// or of other states, reads through the table.
func (s *Store) List(ctx context.Context, filter onlyonce.ListFilter) (onlyonce.ListPage, error) {
	after, err := hex.DecodeString(filter.After)
	if err != nil {
		return onlyonce.ListPage{}, &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "list keys", Hint: "the cursor is not one this store gave out", Err: err,
		}
	}
	limit := filter.Limit
	if limit <= 0 {
		limit = 100
	}
	query, more := listQuery(filter.State)
	args := append([]any{blob(after), filter.Scope, s.now().UnixMicro(), limit + 1}, more...)
	var page onlyonce.ListPage
	err = s.each(ctx, query, args, func(row scanner) error {
		r, err := scanKey(row)
		page.Records = append(page.Records, r.Record)
		return err
	})
	if err != nil {
		return onlyonce.ListPage{}, s.fail("list keys", err)
	}
	if len(page.Records) > limit {
		page.Records = page.Records[:limit]
		last := page.Records[limit-1].Key.Digest()
		page.Next = hex.EncodeToString(last[:])
	}
	return page, nil
}

func listQuery(state onlyonce.State) (query string, args []any) {
	switch state {
	case "":
		return listAll, nil
	case onlyonce.InDoubt:
		return listDoubt, nil
	case onlyonce.InProgress:
		return listInProgress, nil
	default:
		return listState, []any{state}
	}
}

// each reads all rows of a query from the read pool.
func (s *Store) each(ctx context.Context, query string, args []any, fn func(scanner) error) error {
	rows, err := s.reader.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// AddAudit keeps an entry for good; the time is the host's.
func (s *Store) AddAudit(ctx context.Context, entry onlyonce.AuditEntry) error {
	digest := entry.Key.Digest()
	return s.write(ctx, "add audit entry", func(ctx context.Context, q querier) error {
		_, err := exec(ctx, q, insertAudit, digest[:], entry.Key.Scope, entry.Key.Value,
			entry.Action, entry.Actor, entry.Reason, entry.Fence, s.now().UnixMicro())
		return err
	})
}

// Audit lists the entries of a key, oldest first.
func (s *Store) Audit(ctx context.Context, key onlyonce.Key) ([]onlyonce.AuditEntry, error) {
	digest := key.Digest()
	var entries []onlyonce.AuditEntry
	err := s.each(ctx, selectAudit, []any{digest[:], key.Scope, key.Value}, func(row scanner) error {
		e := onlyonce.AuditEntry{Key: key}
		var at int64
		err := row.Scan(&e.Action, &e.Actor, &e.Reason, &e.Fence, &at)
		e.At = time.UnixMicro(at).UTC()
		entries = append(entries, e)
		return err
	})
	if err != nil {
		return nil, s.fail("read audit", err)
	}
	return entries, nil
}
