package routestore

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
)

// lacking is what a caller gets that ignores Features.
func lacking(what string) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "use routestore", Hint: "the homes do not promise " + what + ": see Features"}
}

// BeginStep records at the home that knows the attempt that a send is about to happen.
func (s *Store) BeginStep(ctx context.Context, owner onlyonce.Owner, intent onlyonce.Intent) (bool, error) {
	if !s.features.Steps {
		return false, lacking("steps")
	}
	return s.write(ctx, owner.Key, func(ctx context.Context, p *place) (bool, error) { return p.steps.BeginStep(ctx, owner, intent) })
}

// EndStep records how a step ended at the home that knows the attempt.
func (s *Store) EndStep(ctx context.Context, owner onlyonce.Owner, end onlyonce.StepEnd) (bool, error) {
	if !s.features.Steps {
		return false, lacking("steps")
	}
	return s.write(ctx, owner.Key, func(ctx context.Context, p *place) (bool, error) { return p.steps.EndStep(ctx, owner, end) })
}

// Steps lists the steps of the key's present life, from the home that Where names.
func (s *Store) Steps(ctx context.Context, key onlyonce.Key) ([]onlyonce.StepRecord, error) {
	if !s.features.Steps {
		return nil, lacking("steps")
	}
	p, err := s.lives(ctx, key)
	if err != nil {
		return nil, err
	}
	steps, err := p.steps.Steps(ctx, key)
	return steps, p.at(err)
}
