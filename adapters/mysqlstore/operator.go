package mysqlstore

import (
	"context"
	"encoding/hex"

	"github.com/onlyonce-go/onlyonce"
)

// defaultPage is how many records List gives when it is not told.
const defaultPage = 100

// List gives records in the order of their digests. It takes no lock. What is in
// doubt has an index of its own; any other filter reads on until a page is full,
// which on a big table may take long.
func (s *Store) List(ctx context.Context, f onlyonce.ListFilter) (page onlyonce.ListPage, err error) {
	after, err := hex.DecodeString(f.After)
	if err != nil || (len(after) != 0 && len(after) != len(onlyonce.Digest{})) {
		return page, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "list keys", Hint: "the cursor is not one this store gave out", Err: err}
	}
	if f.State != "" && numberOf(f.State) == 0 {
		return page, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "list keys", Hint: "there is no state " + string(f.State)}
	}
	limit := f.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	text, args := listKeys, []any{blob(after)}
	switch {
	case f.State == onlyonce.InDoubt:
		text = listDoubt
	case f.State != "":
		text, args = text+` AND k.state = ?`, append(args, numberOf(f.State))
	}
	if f.Scope != "" {
		text, args = text+` AND k.scope = ?`, append(args, bytesOf(f.Scope))
	}
	text, args = text+` ORDER BY k.digest LIMIT ?`, append(args, limit+1)
	err = s.single(ctx, "list keys", undone, func(q querier) error {
		page.Records = nil
		return each(ctx, q, query{s.sql(text), args}, func(row scanner) error {
			r, err := scanKey(row)
			if err == nil {
				page.Records = append(page.Records, r.Record)
			}
			return err
		})
	})
	if err != nil {
		return onlyonce.ListPage{}, err
	}
	if len(page.Records) > limit {
		last := page.Records[limit-1].Key.Digest()
		page.Records, page.Next = page.Records[:limit], hex.EncodeToString(last[:])
	}
	return page, nil
}

// AddAudit keeps an entry. Repeated after ErrUncertain it may stand twice.
func (s *Store) AddAudit(ctx context.Context, e onlyonce.AuditEntry) error {
	d := e.Key.Digest()
	return s.single(ctx, "add audit entry", committing, func(q querier) error {
		return exec(ctx, q, s.sql(insertAudit), d[:], bytesOf(e.Key.Scope), bytesOf(e.Key.Value),
			bytesOf(e.Action), bytesOf(e.Actor), bytesOf(e.Reason), e.Fence)
	})
}

// Audit lists the entries of a key, oldest first.
func (s *Store) Audit(ctx context.Context, key onlyonce.Key) (entries []onlyonce.AuditEntry, err error) {
	d := key.Digest()
	err = s.single(ctx, "read audit", undone, func(q querier) error {
		entries = nil
		return each(ctx, q, query{selectAudit, []any{d[:], bytesOf(key.Scope), bytesOf(key.Value)}}, func(row scanner) error {
			e := onlyonce.AuditEntry{Key: key}
			var at int64
			err := row.Scan(&e.Action, &e.Actor, &e.Reason, &e.Fence, &at)
			e.At = instant(at)
			entries = append(entries, e)
			return err
		})
	})
	return entries, err
}
