package onlyonce_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// EventContradiction is an alarm about effects. An attempt without one, whose
// release was done although its reply was lost, contradicts nobody who has
// taken the freed key meanwhile.
func TestLostReplyOfAReleaseIsNoAlarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		script := []storefault.Fault{{After: onlyonce.ErrUncertain}}
		down := storefault.Fault{Before: storefault.ErrDown, Hold: func(ctx context.Context) { <-ctx.Done() }}
		w := newWorld(t, faults{storefault.Release: append(script, down, down)})
		other := worldOn(t, w.mem, noFaults, onlyonce.Config{})
		res, err := w.Wrap(t.Context(), charge(), keyed("k", "x"), responds(429, "later"))
		wantResult(t, res, err, onlyonce.Executed, "later")
		res, err = other.Wrap(t.Context(), charge(), keyed("k", "x"), responds(201, "done"))
		wantResult(t, res, err, onlyonce.Executed, "done")
		<-time.After(time.Minute)
		if n := w.events.count(onlyonce.EventContradiction); n != 0 {
			t.Errorf("%d alarms", n)
		}
	})
}
