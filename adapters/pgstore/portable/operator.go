package portable

import (
	"context"
	"encoding/hex"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
)

// defaultPage is how many records List gives when it is not told.
const defaultPage = 100

// List gives records in the order of scope and key, as the engine sorts text: not in
// that of their digests, for which there is no index here. It is resumed by its cursor
// all the same; records that come and go between pages may be missed or seen, none is
// seen twice. A state has an index; on engines that spread rows by scope a list of one
// scope is much the cheaper one. Two round trips.
func (s *Store) List(ctx context.Context, f onlyonce.ListFilter) (onlyonce.ListPage, error) {
	if err := checkText(field{"ListFilter.Scope", f.Scope}); err != nil {
		return onlyonce.ListPage{}, err
	}
	after, err := keyOf(f.After)
	if err != nil {
		return onlyonce.ListPage{}, err
	}
	sql, more := listKeys, []any(nil)
	if f.State != "" {
		number := numberOf(f.State)
		if number < 1 {
			return onlyonce.ListPage{}, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "list keys", Hint: "there is no state " + string(f.State)}
		}
		sql, more = listState, []any{number}
	}
	limit := f.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	now, err := s.read(ctx, "list keys")
	if err != nil {
		return onlyonce.ListPage{}, err
	}
	var page onlyonce.ListPage
	_, err = s.read(ctx, "list keys", question{
		sql: sql, args: append([]any{after.Scope, after.Value, f.Scope, now.UnixMicro(), int64(limit) + 1}, more...),
		first: func() { page = onlyonce.ListPage{} },
		row: func(rows pgx.Rows) error {
			r, err := scanRow(rows)
			if err == nil {
				page.Records = append(page.Records, r.Record)
			}
			return err
		},
	})
	if err != nil {
		return onlyonce.ListPage{}, err
	}
	if len(page.Records) > limit {
		page.Records = page.Records[:limit]
		page.Next = cursor(page.Records[limit-1].Key)
	}
	return page, nil
}

// cursor names a key; neither of its parts holds a zero byte.
func cursor(key onlyonce.Key) string {
	return hex.EncodeToString([]byte(key.Scope + "\x00" + key.Value))
}

// keyOf reads a cursor.
func keyOf(cursor string) (onlyonce.Key, error) {
	if cursor == "" {
		return onlyonce.Key{}, nil
	}
	text, err := hex.DecodeString(cursor)
	scope, value, ok := strings.Cut(string(text), "\x00")
	key := onlyonce.Key{Scope: scope, Value: value}
	if err != nil || !ok || key.Validate() != nil {
		return key, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "list keys", Hint: "the cursor is not one this store gave out", Err: err}
	}
	return key, nil
}

// AddAudit keeps an entry. Repeated after ErrUncertain it may stand twice. Four round
// trips.
func (s *Store) AddAudit(ctx context.Context, e onlyonce.AuditEntry) error {
	return s.transact(ctx, "add audit entry", func(ctx context.Context, t *txn) error {
		var last int64
		err := t.look(ctx, question{sql: lastAudit, args: []any{e.Key.Scope, e.Key.Value}, row: func(rows pgx.Rows) error {
			return rows.Scan(&last)
		}})
		if err != nil {
			return err
		}
		return t.must(ctx, insertAudit, e.Key.Scope, e.Key.Value, last+1,
			printable(e.Action), printable(e.Actor), printable(e.Reason), e.Fence, t.now().UnixMicro())
	})
}

// Audit lists the entries of a key, oldest first. One round trip.
func (s *Store) Audit(ctx context.Context, key onlyonce.Key) ([]onlyonce.AuditEntry, error) {
	var entries []onlyonce.AuditEntry
	_, err := s.read(ctx, "read audit", question{
		sql: selectAudit, args: []any{key.Scope, key.Value}, first: func() { entries = nil },
		row: func(rows pgx.Rows) error {
			e := onlyonce.AuditEntry{Key: key}
			var at int64
			err := rows.Scan(&e.Action, &e.Actor, &e.Reason, &e.Fence, &at)
			e.At = time.UnixMicro(at).UTC()
			entries = append(entries, e)
			return err
		},
	})
	return entries, err
}
