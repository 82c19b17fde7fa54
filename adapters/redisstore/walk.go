package redisstore

import (
	"context"
	"slices"
)

// scanCount is how many keys a server looks at in one step of a walk.
const scanCount = 500

// position is a place in the walk over all keys of all masters: a cursor of one of
// them, by address. The zero value is the beginning.
type position struct {
	address string
	cursor  string
}

// page is what a server found in one step of a walk.
type page struct {
	master master
	names  []string
	at     position
}

// walk gives the names of all records, page by page from a position on, until fn
// returns false or there are no more. What is there all the time is found; some
// of it twice. While a cluster moves slots between its masters, keys that move may
// be missed. A master that is gone since the position was taken has the walk
// begin again.
func (s *Store) walk(ctx context.Context, from position, fn func(page) (bool, error)) error {
	all, err := s.masters(ctx)
	if err != nil {
		return err
	}
	first := slices.IndexFunc(all, func(m master) bool { return m.address == from.address })
	if first < 0 {
		first, from = 0, position{}
	}
	cursor := from.cursor
	for _, m := range all[first:] {
		for {
			p := page{master: m, at: position{m.address, cursor}}
			if p.names, cursor, err = s.scan(ctx, m, cursor); err != nil {
				return err
			}
			if more, err := fn(p); err != nil || !more {
				return err
			}
			if cursor == "0" {
				break
			}
		}
	}
	return nil
}

// scan is one step of a walk over one master.
func (s *Store) scan(ctx context.Context, m master, cursor string) (names []string, next string, err error) {
	if cursor == "" {
		cursor = "0"
	}
	const op = "walk over the keys"
	v, err := ask(ctx, m.client, op, "scan", cursor, "match", s.recordPrefix()+"*", "count", scanCount)
	if err != nil {
		return nil, "", err
	}
	d := decode(v)
	next = d.text()
	found := decode(d.next())
	for range len(found.values) {
		names = append(names, found.text())
	}
	if d.err != nil || found.err != nil {
		return nil, "", unreadable(op, d.err, found.err)
	}
	return names, next, nil
}
