package routestore

import (
	"context"
	"errors"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// write has a write of an attempt done where the attempt's record is. The new home
// is asked first and then the old one: a home that does not know fence and token
// changes nothing and says so, and no two homes know the same ones, since tokens are
// random. A home that cannot be asked does not keep the other from answering.
func write[T any](s *Store, key onlyonce.Key, held func(T) bool, fn func(*place) (T, error)) (T, error) {
	var none T
	r := s.route(key, true)
	places := []*place{r.home, r.old}
	asked, errs := 0, []error(nil)
	for _, p := range places {
		if p == nil || p.Store == nil {
			continue
		}
		asked++
		got, err := fn(p)
		if err != nil {
			errs = append(errs, p.at(err))
			continue
		}
		if held(got) {
			return got, nil
		}
	}
	if asked == 0 {
		return none, r.home.elsewhere(key)
	}
	return none, errors.Join(errs...)
}

func yes(held bool) bool { return held }

// Renew extends the lease of the attempt, at the home that knows it.
func (s *Store) Renew(ctx context.Context, owner onlyonce.Owner, lease time.Duration) (bool, error) {
	return write(s, owner.Key, yes, func(p *place) (bool, error) { return p.Store.Renew(ctx, owner, lease) })
}

// Complete stores the answer at the home that knows the attempt.
func (s *Store) Complete(ctx context.Context, owner onlyonce.Owner, answer onlyonce.Answer) (onlyonce.Settled, error) {
	held := func(settled onlyonce.Settled) bool { return settled.Held }
	return write(s, owner.Key, held, func(p *place) (onlyonce.Settled, error) { return p.Store.Complete(ctx, owner, answer) })
}

// Release frees the key at the home that knows the attempt.
func (s *Store) Release(ctx context.Context, owner onlyonce.Owner, reason string) (bool, error) {
	return write(s, owner.Key, yes, func(p *place) (bool, error) { return p.Store.Release(ctx, owner, reason) })
}

// Park puts the key in doubt at the home that knows the attempt.
func (s *Store) Park(ctx context.Context, park onlyonce.ParkRequest) (bool, error) {
	return write(s, park.Owner.Key, yes, func(p *place) (bool, error) { return p.Store.Park(ctx, park) })
}
