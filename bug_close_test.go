package onlyonce_test

import (
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// C8: Close may meet operations that are under way, as a shutdown whose drain
// took too long does. Run with the race detector.
func TestBugCloseMeetsRunningOperations(t *testing.T) {
	t.Parallel()
	for i := range 300 {
		w := newWorldWith(t, storefault.Script(faults{storefault.Complete: {{Before: storefault.ErrDown}, {Before: storefault.ErrDown}}}), onlyonce.Config{SettleTimeout: time.Microsecond})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = w.Wrap(t.Context(), charge(), keyed("k", "x"), responds(201, "x")) })
		for begun := time.Now(); time.Since(begun) < time.Duration(i)*time.Microsecond; {
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}
