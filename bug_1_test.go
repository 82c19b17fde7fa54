package onlyonce_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// C8: Close may meet operations that are under way, as a shutdown whose drain
// took too long does. It is the race detector that finds fault with it.
func TestCloseMeetsRunningOperations(t *testing.T) {
	t.Parallel()
	for i := range 100 {
		once := storefault.Fault{Before: storefault.ErrDown, Hold: func(ctx context.Context) { <-ctx.Done() }}
		w := newWorldWith(t, storefault.Script(faults{storefault.Complete: {once}}), onlyonce.Config{SettleTimeout: 2 * time.Millisecond})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = w.Wrap(t.Context(), charge(), keyed("k", "x"), responds(201, "x")) })
		for begun := time.Now(); time.Since(begun) < 2*time.Millisecond+time.Duration(i)*10*time.Microsecond; {
			continue // busy, so that nothing orders Close behind the operation
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		wg.Wait()
	}
}
