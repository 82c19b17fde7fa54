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

// Run keeps house until ctx ends: it resumes operations that nobody retries,
// deletes what has expired, decides abandoned attempts, and cancels checkouts
// that nobody goes on with. Any number of processes may run it on one database.
// The caller owns the goroutine.
func (s *Service) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { s.sweeper(ctx).Run(ctx) })
	running.Go(func() {
		s.recoverer.Run(ctx, func(err error) { s.warn(ctx, "look for abandoned operations failed", err) })
	})
	running.Go(func() { s.endOverdue(ctx) })
	running.Wait()
}

// sweeper is the housekeeping of the keys, with the service's settings.
func (s *Service) sweeper(ctx context.Context) onlyonce.Sweeper {
	return onlyonce.Sweeper{
		Store: s.cfg.DB.Keys(),
		Every: housekeepingEvery,
		Swept: func(r onlyonce.SweepResult, err error) {
			if err != nil {
				s.warn(ctx, "sweep failed", err)
				return
			}
			s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "keys swept",
				slog.Int("deleted", r.Deleted), slog.Int("freed", r.Freed), slog.Int("parked", r.Parked), slog.Int("steps", r.Steps))
		},
	}
}

// warn logs what went wrong behind the requests.
func (s *Service) warn(ctx context.Context, what string, err error, attrs ...slog.Attr) {
	s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, what, append(attrs, slog.String("error", err.Error()))...)
}
