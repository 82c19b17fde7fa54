package redisstore

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
)

// mostListed bounds a page.
const mostListed = 10_000

// List gives records in the order of their digests. Redis keeps no order, so
// each page walks over all keys of all masters, and with a filter reads two
// fields of each: a second or more for each million of keys. Records that come
// and go between pages may be missed or seen, none is seen twice.
func (s *Store) List(ctx context.Context, filter onlyonce.ListFilter) (onlyonce.ListPage, error) {
	if _, err := hex.DecodeString(filter.After); err != nil {
		return onlyonce.ListPage{}, &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "list keys", Hint: "the cursor is not one this store gave out", Err: err,
		}
	}
	limit := cmp.Or(min(max(filter.Limit, 0), mostListed), 100)
	digests, err := s.nextDigests(ctx, filter, limit+1)
	if err != nil {
		return onlyonce.ListPage{}, err
	}
	var list onlyonce.ListPage
	if len(digests) > limit {
		digests = digests[:limit]
		list.Next = digests[limit-1]
	}
	for _, d := range digests {
		rec, found, err := s.get(ctx, s.recordPrefix()+d)
		if err != nil {
			return onlyonce.ListPage{}, err
		}
		// Since the walk it may have changed, or expired.
		if found && (filter.State == "" || rec.State == filter.State) && (filter.Scope == "" || rec.Key.Scope == filter.Scope) {
			list.Records = append(list.Records, rec)
		}
	}
	return list, nil
}

// nextDigests are the first n behind the cursor of those that fit the filter.
func (s *Store) nextDigests(ctx context.Context, filter onlyonce.ListFilter, n int) ([]string, error) {
	var found []string
	err := s.walk(ctx, position{}, func(p page) (bool, error) {
		behind := slices.DeleteFunc(p.names, func(name string) bool {
			return strings.TrimPrefix(name, s.recordPrefix()) <= filter.After
		})
		fit, err := s.fitting(ctx, p.master, behind, filter)
		for _, name := range fit {
			found = append(found, strings.TrimPrefix(name, s.recordPrefix()))
		}
		slices.Sort(found)
		found = slices.Compact(found) // a walk may come by a key twice
		found = found[:min(n, len(found))]
		return true, err
	})
	return found, err
}

// fitting are the names of those records of one master that fit the filter.
func (s *Store) fitting(ctx context.Context, m master, names []string, filter onlyonce.ListFilter) ([]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	pipe := m.client.Pipeline()
	for _, name := range names {
		pipe.HMGet(ctx, name, "state", "scope")
	}
	cmds, err := pipe.Exec(ctx)
	if err != nil {
		return nil, classify(ctx, call{op: "list keys", reads: true}, err, open)
	}
	var fit []string
	for i, cmd := range cmds {
		v := cmd.(*redis.SliceCmd).Val() //nolint:forcetypeassert // HMGet made it
		if len(v) == 2 && v[0] != nil && (filter.State == "" || v[0] == string(filter.State)) && (filter.Scope == "" || v[1] == filter.Scope) {
			fit = append(fit, names[i])
		}
	}
	return fit, nil
}

// AddAudit keeps an entry for good; its time is the server's. When the reply is
// lost and the client sends it again by itself, it is kept once.
func (s *Store) AddAudit(ctx context.Context, entry onlyonce.AuditEntry) error {
	id := onlyonce.NewToken()
	_, err := s.write(ctx, call{
		op: "add audit entry", script: s.scripts.addAudit, key: s.auditName(entry.Key.Digest()),
		args: []any{id[:], join(entry.Key.Scope, entry.Key.Value, entry.Action, entry.Actor, entry.Reason, strconv.FormatInt(entry.Fence, 10))},
	})
	return err
}

// Audit lists the entries of a key, oldest first.
func (s *Store) Audit(ctx context.Context, key onlyonce.Key) ([]onlyonce.AuditEntry, error) {
	const op = "read audit"
	r, err := s.run(ctx, call{op: op, script: s.scripts.audit, key: s.auditName(key.Digest()), reads: true})
	if err != nil {
		return nil, err
	}
	d := decode(r.value)
	var kept []keptEntry
	for range len(d.values) {
		e, err := decodeEntry(d.text())
		if err != nil || d.err != nil {
			return nil, unreadable(op, err, d.err)
		}
		if e.Key == key {
			kept = append(kept, e)
		}
	}
	slices.SortFunc(kept, func(a, b keptEntry) int { return cmp.Compare(a.seq, b.seq) })
	var entries []onlyonce.AuditEntry
	for _, e := range kept {
		entries = append(entries, e.AuditEntry)
	}
	return entries, errors.Join(d.err)
}

// keptEntry is an entry and its place in the order.
type keptEntry struct {
	onlyonce.AuditEntry
	seq int64
}

// decodeEntry reads an entry's place, its time and what join wrote of it.
func decodeEntry(text string) (keptEntry, error) {
	seq, rest, _ := strings.Cut(text, " ")
	at, joined, _ := strings.Cut(rest, " ")
	parts, err := split(joined, 6)
	if err != nil {
		return keptEntry{}, err
	}
	d := decoder{values: []any{at}}
	e := keptEntry{seq: d.parse(seq)}
	e.Key = onlyonce.Key{Scope: parts[0], Value: parts[1]}
	e.Action, e.Actor, e.Reason = parts[2], parts[3], parts[4]
	e.Fence, e.At = d.parse(parts[5]), d.time()
	return e, d.err
}
