package onlyonce_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// O5, B14: only NotApplied lets the handler run again. That the provider cannot
// be asked now (an error, a 429, a 401), or that the handler's own failures are
// harmless (ReleaseKey), says nothing of the run that crashed.
func TestRecoverThatCannotAskProvesNothing(t *testing.T) {
	t.Parallel()
	fails := func(context.Context, onlyonce.Record) (onlyonce.Answer, error) {
		return onlyonce.Answer{}, errors.New("the provider does not answer")
	}
	status := func(s int) func(context.Context, onlyonce.Record) (onlyonce.Answer, error) {
		return func(context.Context, onlyonce.Record) (onlyonce.Answer, error) { return answer(s, ""), nil }
	}
	for name, c := range map[string]struct {
		on5xx   onlyonce.On5xx
		recover func(context.Context, onlyonce.Record) (onlyonce.Answer, error)
	}{
		"error, with ReleaseKey": {onlyonce.ReleaseKey, fails},
		"503, with ReleaseKey":   {onlyonce.ReleaseKey, status(503)},
		"429":                    {onlyonce.Hold, status(429)},
		"401":                    {onlyonce.Hold, status(401)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, eff := newWorld(t, nil), &effect{}
				op := charge()
				op.On5xx, op.Recover = c.on5xx, c.recover
				w.crash(t, op, keyed("k", "x"), eff.handler)
				<-time.After(onlyonce.DefaultLease)
				_, _ = w.Wrap(t.Context(), op, keyed("k", "x"), eff.handler)
				eff.want(t, 1)
				w.wantState(t, "k", onlyonce.InDoubt)
			})
		})
	}
}
