package payments

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// housekeepingEvery is between two rounds of housekeeping.
const housekeepingEvery = time.Minute

// Run keeps house until ctx ends: it deletes what has expired, decides abandoned
// attempts that nobody retries, and gives back what is held for operations that
// came to nothing. Any number of processes may run it on one database. The
// caller owns the goroutine.
func (s *Service) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { s.Sweeper().Run(ctx) })
	running.Go(func() { s.freeHolds(ctx) })
	running.Wait()
}

// Sweeper is the housekeeping of the keys, with the service's settings.
func (s *Service) Sweeper() onlyonce.Sweeper {
	return onlyonce.Sweeper{
		Store: s.cfg.DB.Keys(),
		Every: housekeepingEvery,
		Swept: func(r onlyonce.SweepResult, err error) {
			if err != nil {
				s.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "sweep failed", slog.String("error", err.Error())) //nolint:forbidigo,contextcheck // a callback without a context
				return
			}
			s.cfg.Logger.LogAttrs(context.Background(), slog.LevelInfo, "keys swept", //nolint:forbidigo,contextcheck // a callback without a context
				slog.Int("deleted", r.Deleted), slog.Int("freed", r.Freed), slog.Int("parked", r.Parked), slog.Int("steps", r.Steps))
		},
	}
}

func (s *Service) freeHolds(ctx context.Context) {
	tick := time.NewTicker(housekeepingEvery)
	defer tick.Stop()
	for {
		for _, merchant := range s.cfg.Merchants.names() {
			if _, err := s.freeStale(ctx, merchant); err != nil && ctx.Err() == nil {
				s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "holds not looked through", slog.String("error", err.Error()))
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
