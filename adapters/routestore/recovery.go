package routestore

import (
	"context"
	"slices"

	"github.com/onlyonce-go/onlyonce"
)

// Due gives keys whose turn has come, of all homes that this process can reach; they
// are in order of waiting within each home, not over all. A home that fails is passed
// over while others give something, since turns that are given are spent; its error
// comes when nothing else is due. What stands at a home where its key lives no more, as
// when Previous has ceased to count, is not given: a recoverer would claim it, and run it
// anew, at the key's present home. It stays where it is; Left and List show it.
func (s *Store) Due(ctx context.Context, req onlyonce.DueRequest) ([]onlyonce.Due, error) {
	if !s.features.Recovery {
		return nil, lacking("recovery")
	}
	if req.Limit <= 0 {
		return nil, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "look for keys that are due", Hint: "DueRequest.Limit must be positive"}
	}
	var due []onlyonce.Due
	var errs []error
	for _, p := range s.inTurn() {
		rest := req
		if rest.Limit = req.Limit - len(due); rest.Limit == 0 {
			break
		}
		got, err := s.dueAt(ctx, p, rest)
		due, errs = append(due, got...), append(errs, p.at(err))
	}
	if len(due) > 0 {
		return due, nil
	}
	return nil, together(len(s.local), errs...)
}

func (s *Store) dueAt(ctx context.Context, p *place, req onlyonce.DueRequest) ([]onlyonce.Due, error) {
	ctx, cancel := s.patient(ctx)
	defer cancel()
	due, err := p.recovery.Due(ctx, req)
	return slices.DeleteFunc(due, func(d onlyonce.Due) bool {
		r := s.route(d.Record.Key, false)
		return p != r.home && p != r.old
	}), err
}

// Kept reads what was kept with the key's present life.
func (s *Store) Kept(ctx context.Context, key onlyonce.Key) ([]byte, bool, error) {
	if !s.features.Recovery {
		return nil, false, lacking("recovery")
	}
	p, err := s.locate(ctx, key)
	if err != nil {
		return nil, false, err
	}
	kept, found, err := p.recovery.Kept(ctx, key)
	return kept, found, p.at(err)
}

// Requeue makes the key's next turn the first again, and due at once.
func (s *Store) Requeue(ctx context.Context, key onlyonce.Key) (bool, error) {
	if !s.features.Recovery {
		return false, lacking("recovery")
	}
	p, err := s.locate(ctx, key)
	if err != nil {
		return false, err
	}
	found, err := p.recovery.Requeue(ctx, key)
	return found, p.at(err)
}
