package portable

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
)

// slack is how many more keys Due looks at than it is asked for: keys in progress
// that have yet to be watched stand in the index like any other.
const slack = 100

// dueKey is a key whose turn seems to have come, and its place in the index.
type dueKey struct {
	at  int64
	key onlyonce.Key
}

// turns is where Due goes on behind keys that it cannot decide about yet, by operation,
// "" being all of them. It is this handle's: what it has yet to watch is, too.
type turns struct {
	mu   sync.Mutex
	last map[string]dueKey
}

// behind is where to go on, behind keys that have just been looked at. Among those of
// one moment the engine's order counts, which is not known here.
func (t *turns) behind(operation string, seen dueKey) dueKey {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.last[operation]; ok && last.at >= seen.at {
		return last
	}
	return seen
}

// set notes where to go on; nil: from the beginning.
func (t *turns) set(operation string, last *dueKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case last == nil:
		delete(t.last, operation)
	case t.last == nil:
		t.last = map[string]dueKey{operation: *last}
	default:
		t.last[operation] = *last
	}
}

// giving is a Due on its way.
type giving struct {
	s     *Store
	req   onlyonce.DueRequest
	past  int64
	given []onlyonce.Due
	// full are the operations of which there may be more behind what was looked at.
	full map[string]dueKey
}

// operations are those to ask for.
func (g *giving) operations() []string {
	if g.req.Operations == nil {
		return []string{""}
	}
	return g.req.Operations
}

// longestDue gives turns of the keys longest due.
func (g *giving) longestDue(ctx context.Context) error {
	g.full = map[string]dueKey{}
	var found []dueKey
	for _, operation := range g.operations() {
		some, err := g.page(ctx, operation, dueKey{})
		if err != nil {
			return err
		}
		if len(some) == g.pageSize() {
			g.full[operation] = some[len(some)-1]
		} else {
			g.s.turns.set(operation, nil)
		}
		found = append(found, some...)
	}
	slices.SortStableFunc(found, func(a, b dueKey) int { return cmp.Compare(a.at, b.at) })
	return g.give(ctx, found)
}

// goOn gives turns of keys behind those that were looked at before.
func (g *giving) goOn(ctx context.Context) error {
	for _, operation := range g.operations() {
		seen, full := g.full[operation]
		if !full || len(g.given) == g.req.Limit {
			continue
		}
		some, err := g.page(ctx, operation, g.s.turns.behind(operation, seen))
		if err == nil {
			err = g.give(ctx, some)
		}
		switch {
		case err != nil:
			return err
		case len(g.given) == g.req.Limit: // there may be more of them
		case len(some) == g.pageSize():
			g.s.turns.set(operation, &some[len(some)-1])
		default:
			g.s.turns.set(operation, nil)
		}
	}
	return nil
}

// give gives turns until there are enough.
func (g *giving) give(ctx context.Context, found []dueKey) error {
	for _, f := range found {
		if len(g.given) == g.req.Limit {
			return nil
		}
		d, err := g.s.giveTurn(ctx, f.key, g.req)
		if err != nil {
			return err
		}
		if d != nil {
			g.given = append(g.given, *d)
		}
	}
	return nil
}

func (g *giving) pageSize() int { return min(g.req.Limit, maxBatch) + slack }

// page reads keys of an operation whose turn has come, from behind a place.
func (g *giving) page(ctx context.Context, operation string, behind dueKey) (found []dueKey, err error) {
	sql, args := selectDue, []any{g.past, int64(g.pageSize()), behind.at, behind.key.Scope, behind.key.Value}
	if g.req.Operations != nil {
		sql, args = selectDueOf, append(args, operation)
	}
	_, err = g.s.read(ctx, opDue, question{sql: sql, args: args, first: func() { found = nil }, row: func(rows pgx.Rows) error {
		var d dueKey
		err := rows.Scan(&d.key.Scope, &d.key.Value, &d.at)
		found = append(found, d)
		return err
	}})
	return found, err
}
