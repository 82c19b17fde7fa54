package payments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/onlyonce-go/onlyonce"
)

// newRecoverer resumes operations that nobody retries, with the service's
// settings.
func (s *Service) newRecoverer() onlyonce.Recoverer {
	return onlyonce.Recoverer{
		Engine: s.engine.Engine, Resume: s.guard.Resumers(),
		Every: s.cfg.RecoverEvery, Grace: s.cfg.RecoverGrace, Attempts: s.cfg.RecoverAttempts,
		Recovered: s.recovered,
	}
}

// Recover gives one operation a turn now, through the same claim as its client's
// retry: it goes on behind what is recorded, and its answer is stored for the
// retry. It returns an *onlyonce.Error with CodeNotFound where nothing was kept of
// the key's request, CodeOutcomeUnknown while what became of a step cannot be
// found out, CodeInProgress while an attempt is under way.
func (s *Service) Recover(ctx context.Context, key onlyonce.Key) (onlyonce.Result, error) {
	res, err := s.recoverer.Key(ctx, key)
	if err != nil {
		return res, fmt.Errorf("recover: %w", err)
	}
	return res, nil
}

// CatchUp gives a turn to every operation that a crash has left, without the
// grace that clients have otherwise: call it before new work is taken (rule X1).
// It returns when the last has ended, or soon after ctx has; Run goes on with what
// is left then.
func (s *Service) CatchUp(ctx context.Context) error {
	sum, err := s.recoverer.Start(ctx)
	if sum != (onlyonce.RecoverySum{}) {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "caught up with abandoned operations",
			slog.Int("completed", sum.Completed), slog.Int("pending", sum.Pending), slog.Int("given_up", sum.GivenUp))
	}
	if err != nil {
		return fmt.Errorf("catch up: %w", err)
	}
	return nil
}

// recovered logs one turn.
func (s *Service) recovered(ctx context.Context, turn onlyonce.Recovery) {
	rec := turn.Due.Record
	level, text := slog.LevelInfo, "operation not recovered yet; it is tried again"
	switch {
	case turn.GivenUp:
		level, text = slog.LevelWarn, "operation given up: find out at the processor, by our reference, what became of it, then settle its key (onlyonce keys show, keys settle)"
	case turn.Err == nil && turn.Result.State == onlyonce.Completed:
		text = "operation recovered"
	case turn.Err == nil && turn.Result.State == onlyonce.FailedRetryable:
		text = "operation freed: it has had no effect, and its client may send it again"
	case unexpected(turn.Err):
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{
		slog.String("op", rec.Operation), slog.String("operation", rec.Key.Operation()), slog.Int("turn", turn.Due.Turn),
	}
	if turn.Result.State != "" {
		attrs = append(attrs, slog.String("state", string(turn.Result.State)), slog.Int("status", turn.Result.Answer.Status))
	}
	if turn.Err != nil {
		attrs = append(attrs, slog.String("error", turn.Err.Error()))
	}
	s.cfg.Logger.LogAttrs(ctx, level, text, attrs...)
}

// unexpected tells whether an error is more than an ordinary end of a turn.
func unexpected(err error) bool {
	return err != nil && !errors.Is(err, onlyonce.ErrOutcomeUnknown) && onlyonce.CodeOf(err) != onlyonce.CodeInProgress
}
