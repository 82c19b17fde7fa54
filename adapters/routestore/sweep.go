package routestore

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
)

// sweepPatience is how many times longer a batch may take than a read.
const sweepPatience = 12

// Sweep does one batch of housekeeping over all homes that this process can reach,
// beginning with another one each time. A home that fails is passed over while others
// have something to do; its error comes when they have not. Markers that have outlived
// their use are counted among what is freed and deleted.
func (s *Store) Sweep(ctx context.Context, req onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	sum, busy := onlyonce.SweepResult{}, 0
	var errs []error
	for _, p := range s.inTurn() {
		rest := req
		rest.Limit = req.Limit - max(sum.Deleted, sum.Freed+sum.Parked, sum.Steps)
		if rest.Limit <= 0 && req.Limit > 0 {
			sum.More = true
			break
		}
		got, err := s.sweepAt(ctx, p, rest)
		if err != nil {
			errs = append(errs, p.at(err))
			continue
		}
		if got.Busy {
			busy++
		}
		sum.Deleted, sum.Freed, sum.Parked, sum.Steps = sum.Deleted+got.Deleted, sum.Freed+got.Freed, sum.Parked+got.Parked, sum.Steps+got.Steps
		sum.More = sum.More || got.More
	}
	if did := sum.Deleted+sum.Freed+sum.Parked+sum.Steps > 0; sum.More || (did && len(errs) > 0) {
		sum.More = true
		return sum, nil
	}
	sum.Busy = busy == len(s.local)
	return sum, together(len(s.local), errs...)
}

func (s *Store) sweepAt(ctx context.Context, p *place, req onlyonce.SweepRequest) (onlyonce.SweepResult, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepPatience*s.cfg.Patience)
	defer cancel()
	return p.Store.Sweep(ctx, req)
}
