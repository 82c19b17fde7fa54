package routestore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
)

const (
	pageSize = 100 // where a filter names none
	// listReads is how many pages of its homes one List reads at most: where little
	// but markers is left, pages are shorter than asked for, or empty.
	listReads = 100
)

// List gives records home by home, in the order of the homes' names and within one of
// its own; a page may be shorter than asked for while Next says that there is more. It
// shows this process's homes. One that fails makes it fail: what it hides would be
// missed. A Scope that is not spread is looked for at its own homes only.
func (s *Store) List(ctx context.Context, filter onlyonce.ListFilter) (onlyonce.ListPage, error) {
	if !s.features.Operators {
		return onlyonce.ListPage{}, lacking("listing")
	}
	places := s.listed(filter.Scope)
	at, inner, err := cursor(places, filter.After)
	if err != nil {
		return onlyonce.ListPage{}, err
	}
	limit := cmp.Or(max(filter.Limit, 0), pageSize)
	var page onlyonce.ListPage
	for reads := 0; at < len(places); reads++ {
		if len(page.Records) == limit || reads == listReads {
			page.Next = places[at].Name + ":" + inner
			break
		}
		f := filter
		f.After, f.Limit = inner, limit-len(page.Records)
		got, err := s.listAt(ctx, places[at], f)
		if err != nil {
			return onlyonce.ListPage{}, places[at].at(err)
		}
		for _, rec := range got.Records {
			if _, is := markerOf(rec); !is {
				page.Records = append(page.Records, rec)
			}
		}
		if inner = got.Next; inner == "" {
			at++
		}
	}
	return page, nil
}

func (s *Store) listAt(ctx context.Context, p *place, f onlyonce.ListFilter) (onlyonce.ListPage, error) {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	return p.operators.List(ctx, f)
}

// listed is the homes where records of the scope can be; of all scopes, if it is empty.
func (s *Store) listed(scope string) []*place {
	if scope == "" || s.splits() {
		return s.local
	}
	r := s.route(onlyonce.Key{Scope: scope}, true)
	return slices.DeleteFunc(slices.Clone(s.local), func(p *place) bool { return p != r.home && p != r.old })
}

// cursor reads where a page begins: the home's name, a colon, the home's own cursor.
func cursor(places []*place, after string) (at int, inner string, err error) {
	if after == "" {
		return 0, "", nil
	}
	name, inner, ok := strings.Cut(after, ":")
	at = slices.IndexFunc(places, func(p *place) bool { return p.Name == name })
	if !ok || at < 0 {
		return 0, "", &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "list keys", Hint: "the cursor is not one this store gave out for this filter"}
	}
	return at, inner, nil
}

// Left gives records, at most limit, that stand at their old home while the map is
// being changed: their keys live there still. None: Previous may be taken out. It
// reads all that is there, and is for operators, not for requests. Like List it sees
// this process's homes, and fails when one of them does. A limit that is not positive
// is CodeConfig; so is asking a process that has no store for a home which keys leave.
func (s *Store) Left(ctx context.Context, limit int) ([]onlyonce.Record, error) {
	if !s.features.Operators {
		return nil, lacking("listing")
	}
	if err := s.seesAllLeft(limit); err != nil {
		return nil, err
	}
	var left []onlyonce.Record
	for _, p := range s.local {
		for after, more := "", s.cfg.Previous != nil; more; more = after != "" {
			page, err := s.listAt(ctx, p, onlyonce.ListFilter{After: after, Limit: 10 * pageSize})
			if err != nil {
				return nil, p.at(err)
			}
			for _, rec := range page.Records {
				if s.isLeft(p, rec) {
					left = append(left, rec)
				}
			}
			if len(left) >= limit {
				return left[:limit], nil
			}
			after = page.Next
		}
	}
	return left, nil
}

// seesAllLeft refuses what would be told that nothing is left although something may be.
func (s *Store) seesAllLeft(limit int) error {
	refused := &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "look for what is left at old homes"}
	if limit <= 0 {
		refused.Hint = fmt.Sprintf("the limit must be positive, got %d", limit)
		return refused
	}
	if s.cfg.Previous == nil {
		return nil
	}
	for m := range s.cfg.Previous.moves(&s.cfg.Map) {
		if p := s.byName[m.from]; p.Store == nil {
			refused.Hint = fmt.Sprintf("keys leave home %s, which has no store here: ask a process that has one", p.Name)
			return refused
		}
	}
	return nil
}

// isLeft tells whether a record stands at the old home of a key that has a new one.
func (s *Store) isLeft(p *place, rec onlyonce.Record) bool {
	_, is := markerOf(rec)
	return !is && s.cfg.Previous.home(rec.Key) == p.Name && s.cfg.Map.home(rec.Key) != p.Name
}

// AddAudit keeps an entry at the key's home.
func (s *Store) AddAudit(ctx context.Context, entry onlyonce.AuditEntry) error {
	if !s.features.Operators {
		return lacking("audit")
	}
	p, err := s.lives(ctx, entry.Key)
	if err != nil {
		return err
	}
	return p.at(p.operators.AddAudit(ctx, entry))
}

// Audit lists the entries of a key, oldest first, from all homes of this process: a
// key may have lived at several. It fails when one of them does.
func (s *Store) Audit(ctx context.Context, key onlyonce.Key) ([]onlyonce.AuditEntry, error) {
	if !s.features.Operators {
		return nil, lacking("audit")
	}
	found := make([][]onlyonce.AuditEntry, len(s.local))
	ctx, cancel := s.patient(ctx)
	defer cancel()
	err := s.everywhere(func(p *place) (err error) {
		found[slices.Index(s.local, p)], err = p.operators.Audit(ctx, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	entries := slices.Concat(found...)
	slices.SortStableFunc(entries, func(a, b onlyonce.AuditEntry) int { return a.At.Compare(b.At) })
	return entries, nil
}
