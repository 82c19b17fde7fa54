package routestore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Claim claims the key at its home. Where the key is moving, it is moved first, and
// the claim goes to where its record is or is to be. A process whose map is out of
// date, and one that cannot reach the key's home, get ErrMisdirected.
func (s *Store) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	return s.claim(ctx, req, func(g goal) (onlyonce.Claim, error) {
		claim, err := g.Store.Claim(ctx, req)
		return claim, g.failed(err)
	})
}

// claimRounds bounds how often a claim is begun again because the key was moving.
const claimRounds = 3

// goal is where a key is to be claimed.
type goal struct {
	*place
	// life is the origin of the record that was seen there, at the key's old home: no
	// other life of the key may begin there. 0 at its present home, -1 if not known.
	life int64
	// met: one of the key's homes has answered.
	met bool
}

// begun tells whether a claim has begun a life that must not be.
func (g goal) begun(claim onlyonce.Claim) bool {
	return g.life != 0 && claim.Verdict == onlyonce.Won && claim.Record.Origin != g.life
}

// failed is a claim's error.
func (g goal) failed(err error) error {
	if g.met {
		err = known(err)
	}
	return g.at(err)
}

// claim finds the key's home and has it claimed there.
func (s *Store) claim(ctx context.Context, req onlyonce.ClaimRequest, at func(goal) (onlyonce.Claim, error)) (onlyonce.Claim, error) {
	if err := vet(req); err != nil {
		return onlyonce.Claim{}, err
	}
	if req.Resource != "" && !s.features.Resources {
		return onlyonce.Claim{}, &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "claim key",
			Hint: "resources are not promised: the homes keep none, or the map spreads the keys of a scope; spread by scope",
		}
	}
	r := s.route(req.Key, false)
	for range claimRounds {
		g, refused, err := s.claimWhere(ctx, r, req)
		if err != nil || refused.Verdict != 0 {
			return refused, err
		}
		claim, err := at(g)
		if err != nil {
			return claim, err
		}
		if g.begun(claim) {
			if err := s.giveBack(ctx, g.place, claim.Record); err != nil {
				return onlyonce.Claim{}, err
			}
			continue
		}
		again, err := s.weigh(ctx, r, g.place, &claim)
		if err != nil || !again {
			return claim, err
		}
	}
	return onlyonce.Claim{}, moving(req.Key)
}

// claimWhere says where the key is to be claimed; or that its old home has refused.
func (s *Store) claimWhere(ctx context.Context, r route, req onlyonce.ClaimRequest) (goal, onlyonce.Claim, error) {
	none := onlyonce.Claim{}
	if r.old == nil {
		if r.home.Store == nil {
			return goal{}, none, r.home.elsewhere(req.Key)
		}
		return goal{place: r.home}, none, nil
	}
	if r.old.Store == nil {
		return goal{}, none, r.old.elsewhere(req.Key)
	}
	there, claim, err := s.move(ctx, r, req.Key, "")
	switch {
	case err != nil:
		return goal{}, none, s.unmoved(ctx, r, req.Key, err)
	case there == stays:
		return goal{place: r.old, life: cmp.Or(claim.Record.Origin, -1), met: true}, none, nil
	case there == underWay:
		return goal{}, claim, nil
	case r.home.Store == nil:
		return goal{}, none, r.home.elsewhere(req.Key)
	case req.Resource == "":
		return goal{place: r.home, met: true}, none, nil
	}
	there, claim, err = s.move(ctx, r, resourceKey(req.Key.Scope, req.Resource), req.Resource)
	if err != nil || there == moved {
		return goal{place: r.home, met: true}, none, known(err)
	}
	if claim.Verdict != onlyonce.ResourceBusy {
		claim = busyElsewhere(req.Key.Scope, req.Resource)
	}
	return goal{}, claim, nil
}

// unmoved is the error of a key's old home. Where that cannot be reached, the key may
// have moved before, so that its store counts as out of reach only if its new home is.
func (s *Store) unmoved(ctx context.Context, r route, key onlyonce.Key, err error) error {
	if !errors.Is(err, onlyonce.ErrUnreachable) || r.home.Store == nil {
		return known(err)
	}
	_, _, there := s.read(ctx, r.home, key)
	return together(2, err, there)
}

// weigh looks whether a claim at p was refused because of a marker. True: the key has
// moved meanwhile, claim again. Else the claim stands, or the error does.
func (s *Store) weigh(ctx context.Context, r route, p *place, claim *onlyonce.Claim) (again bool, err error) {
	if claim.Verdict != onlyonce.Mismatch && claim.Verdict != onlyonce.ResourceBusy {
		return false, nil
	}
	rec, ofKey := claim.Record, claim.Verdict == onlyonce.Mismatch
	there, is := markerOf(rec)
	if !is {
		return false, nil
	}
	*claim = onlyonce.Claim{}
	switch mine := s.cfg.Map.Version; {
	case there.version > mine:
		return false, s.outOfDate(rec.Key, there)
	case p == r.old && ofKey:
		return true, nil
	case p == r.old && there.version == mine:
		*claim = busyElsewhere(rec.Key.Scope, rec.Resource) // the key has stayed here, and its resource has not
		return false, nil
	case there.version == mine, s.contradicts(r, p, there):
		return false, s.outOfDate(rec.Key, there)
	default:
		return false, s.takeBack(ctx, p, rec)
	}
}

// contradicts tells whether a marker was set by the previous map at the very place
// that is the key's home by it.
func (s *Store) contradicts(r route, p *place, there marker) bool {
	return s.counts() && there.version == s.cfg.Previous.Version && (r.old == nil || p == r.old)
}

// busyElsewhere says that a resource is held, by nobody who can be named.
func busyElsewhere(scope, resource string) onlyonce.Claim {
	return onlyonce.Claim{
		Verdict: onlyonce.ResourceBusy, Remaining: 30 * time.Second, // an ordinary lease
		Record: onlyonce.Record{Key: resourceKey(scope, resource), Resource: resource, State: onlyonce.InProgress},
	}
}
