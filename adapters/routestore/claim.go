package routestore

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Claim claims the key at its home. Where the key is moving, it is moved first, and
// the claim goes to where its record is or is to be. A process whose map is out of
// date, and one that cannot reach the key's home, get ErrMisdirected.
func (s *Store) Claim(ctx context.Context, req onlyonce.ClaimRequest) (onlyonce.Claim, error) {
	return s.claim(ctx, req, func(p *place) (onlyonce.Claim, error) {
		claim, err := p.Store.Claim(ctx, req)
		return claim, p.at(err)
	})
}

// claimRounds bounds how often a claim is begun again because the key was moving.
const claimRounds = 3

// claim finds the key's home and has it claimed there.
func (s *Store) claim(ctx context.Context, req onlyonce.ClaimRequest, at func(*place) (onlyonce.Claim, error)) (onlyonce.Claim, error) {
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
		p, refused, err := s.claimWhere(ctx, r, req)
		if err != nil || refused.Verdict != 0 {
			return refused, err
		}
		claim, err := at(p)
		if err != nil {
			if p == r.old {
				err = known(err)
			}
			return claim, err
		}
		again, err := s.weigh(ctx, r, p, &claim)
		if err != nil || !again {
			return claim, err
		}
	}
	return onlyonce.Claim{}, moving(req.Key)
}

// claimWhere says where the key is to be claimed; or that its old home has refused.
func (s *Store) claimWhere(ctx context.Context, r route, req onlyonce.ClaimRequest) (*place, onlyonce.Claim, error) {
	none := onlyonce.Claim{}
	if r.old == nil {
		if r.home.Store == nil {
			return nil, none, r.home.elsewhere(req.Key)
		}
		return r.home, none, nil
	}
	if r.old.Store == nil {
		return nil, none, r.old.elsewhere(req.Key)
	}
	there, claim, err := s.move(ctx, r, req.Key, "")
	switch {
	case err != nil:
		return nil, none, err
	case there == stays:
		return r.old, none, nil
	case there == underWay:
		return nil, claim, nil
	case r.home.Store == nil:
		return nil, none, r.home.elsewhere(req.Key)
	case req.Resource == "":
		return r.home, none, nil
	}
	there, claim, err = s.move(ctx, r, resourceKey(req.Key.Scope, req.Resource), req.Resource)
	if err != nil || there == moved {
		return r.home, none, err
	}
	if claim.Verdict != onlyonce.ResourceBusy {
		claim = busyElsewhere(req.Key.Scope, req.Resource)
	}
	return nil, claim, nil
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
