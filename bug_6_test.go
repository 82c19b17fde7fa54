package onlyonce_test

import (
	"context"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

// O5: what a handler declares counts for Finish too: an answer that would not
// be stored rolls the last transaction back.
func TestFinishHeedsDeclare(t *testing.T) {
	t.Parallel()
	w, l := newWorld(t, nil), &ledger{}
	_, _ = w.Steps(t.Context(), charge(), keyed("k", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		return w.Finish(ctx, func(ctx context.Context, tx tx) (onlyonce.Answer, error) {
			onlyonce.Declare(ctx, onlyonce.NotApplied)
			return l.insert(201)(ctx, tx)
		})
	})
	l.want(t, 0)
	w.wantState(t, "k", onlyonce.FailedRetryable)
}
