package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
)

// footprint is what one key takes in a store.
type footprint struct {
	kind   string
	source string // where the figures are from
	keys   int64  // that were measured; 0: none
	table  float64
	index  float64
}

// Where figures are from.
const (
	fromUs     = "typical"
	fromTables = "live tables"
	fromSample = "sample"
)

// liveKeys is how many keys a table needs to tell what one of them takes.
const liveKeys = 1000

// live reads the store's own tables. With too few keys the typical figures of its
// kind stand.
func (e *estimate) live(ctx context.Context, s *keystore.Store) error {
	size, err := s.Size(ctx)
	if onlyonce.CodeOf(err) == onlyonce.CodeConfig {
		e.prints = nil
		e.notes = append(e.notes, "a store of the kind "+s.Kind+" cannot tell how large it is, and we have no typical figures for it")
		return nil
	}
	if err != nil {
		return err
	}
	if size.Keys < liveKeys {
		var same []footprint
		for _, p := range e.prints {
			if p.kind == s.Kind {
				same = append(same, p)
			}
		}
		e.prints = same
		e.notes = append(e.notes, fmt.Sprintf("the store has %d keys, too few to tell what one takes%s", size.Keys, instead(s.Kind, len(same) > 0)))
		return nil
	}
	e.prints = []footprint{{
		kind: s.Kind, source: fromTables, keys: size.Keys,
		table: float64(size.Table) / float64(size.Keys), index: float64(size.Index) / float64(size.Keys),
	}}
	e.notes = append(e.notes, "the figures are of the answers that are in the store, with all its free room, whatever --row says")
	return nil
}

// sample writes keys into a store of their own, and measures what the last ones of
// them have added: the first ones find pages that are there already.
func (c *estimateCmd) sample(ctx context.Context, std Streams) (print footprint, err error) {
	if err := keystore.Sampled(c.Store); err != nil {
		return footprint{}, err
	}
	fmt.Fprintf(std.Err, "onlyonce: writing %d keys of %s to a place of their own beside the store, which is removed afterwards\n", c.Keys+c.Keys/2, c.Row)
	defer func() {
		if ctx.Err() != nil && err != nil { // whatever it was that the signal broke off
			err = errors.New("stopped by a signal")
		}
	}()
	s, err := keystore.Scratch(ctx, c.Store)
	if err != nil {
		return footprint{}, err
	}
	defer func() {
		if closed := s.Close(); closed != nil {
			fmt.Fprintf(std.Err, "onlyonce: the sample could not be removed: %v\n", closed)
			err = errors.Join(err, closed)
		}
	}()
	w := newKeyWriter(s, int(c.Row))
	p := newProgress(std.Err)
	defer p.end()
	var before, after keystore.Size
	for _, part := range []struct {
		keys int
		size *keystore.Size
	}{{c.Keys / 2, &before}, {c.Keys, &after}} {
		if err := w.write(ctx, part.keys, &p, c.Keys+c.Keys/2); err != nil {
			return footprint{}, err
		}
		if *part.size, err = s.Size(ctx); err != nil {
			return footprint{}, err
		}
	}
	n := after.Keys - before.Keys
	if n <= 0 {
		return footprint{}, errors.New("the sample is not there any more")
	}
	return footprint{
		kind: s.Kind, source: fromSample, keys: n,
		table: float64(after.Table-before.Table) / float64(n), index: float64(after.Index-before.Index) / float64(n),
	}, nil
}

// instead says what to do about too few keys.
func instead(kind string, figures bool) string {
	switch {
	case figures && kind == "mysql": // of which no sample can be taken
		return ": the typical figures stand"
	case figures:
		return ": --sample writes some, measures and removes them"
	}
	return ", and we have no typical figures for a store of the kind " + kind
}
