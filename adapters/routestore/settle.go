package routestore

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// write has a write of an attempt done where the attempt's record is. The new home
// is asked first and then the old one: a home that does not know fence and token
// changes nothing and says so, and no two homes know the same ones, since tokens are
// random. A home that cannot be asked, or hangs, does not keep the other from
// answering.
func (s *Store) write(ctx context.Context, key onlyonce.Key, fn func(context.Context, *place) (bool, error)) (bool, error) {
	r := s.route(key, true)
	homes := r.homes()
	var errs []error
	asked := false
	for i, p := range homes {
		if p.Store == nil {
			continue
		}
		asked = true
		held, err := s.ask(ctx, i+1 < len(homes), func(ctx context.Context) (bool, error) { return fn(ctx, p) })
		if held && err == nil {
			return true, nil
		}
		errs = append(errs, p.at(err))
	}
	if !asked {
		return false, r.home.elsewhere(key)
	}
	return false, together(len(homes), errs...)
}

// ask asks one home. Where another can be asked behind it, it may take half of the
// time that is left, and no more than a home's patience.
func (s *Store) ask(ctx context.Context, another bool, fn func(context.Context) (bool, error)) (bool, error) {
	if another {
		part := s.cfg.Patience
		if end, ok := ctx.Deadline(); ok {
			part = min(part, time.Until(end)/2)
		}
		limited, cancel := context.WithTimeout(ctx, part)
		defer cancel()
		ctx = limited
	}
	return fn(ctx)
}

// Renew extends the lease of the attempt, at the home that knows it.
func (s *Store) Renew(ctx context.Context, owner onlyonce.Owner, lease time.Duration) (bool, error) {
	return s.write(ctx, owner.Key, func(ctx context.Context, p *place) (bool, error) { return p.Store.Renew(ctx, owner, lease) })
}

// Complete stores the answer at the home that knows the attempt.
func (s *Store) Complete(ctx context.Context, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	var settled onlyonce.Settled
	_, err := s.write(ctx, owner.Key, func(ctx context.Context, p *place) (_ bool, err error) {
		settled, err = p.Store.Complete(ctx, owner, answer)
		return settled.Held, err
	})
	if err != nil {
		return onlyonce.Settled{}, err
	}
	return settled, nil
}

// Release frees the key at the home that knows the attempt.
func (s *Store) Release(ctx context.Context, owner onlyonce.Owner, reason string) (bool, error) {
	return s.write(ctx, owner.Key, func(ctx context.Context, p *place) (bool, error) { return p.Store.Release(ctx, owner, reason) })
}

// Park puts the key in doubt at the home that knows the attempt.
func (s *Store) Park(ctx context.Context, park onlyonce.ParkRequest) (bool, error) {
	return s.write(ctx, park.Owner.Key, func(ctx context.Context, p *place) (bool, error) { return p.Store.Park(ctx, park) })
}
