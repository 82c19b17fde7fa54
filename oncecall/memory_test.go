package oncecall_test

import (
	"runtime"
	"testing"

	"github.com/onlyonce-go/onlyonce/oncecall"
)

// forgotten waits until nothing is known any more of attempts that have ended.
func forgotten(t *testing.T, tr *oncecall.Transport) {
	t.Helper()
	for tr.Remembered() > 0 {
		runtime.GC() // also yields to what it has cleaned up
		if t.Context().Err() != nil {
			t.Fatalf("%d sends are still remembered", tr.Remembered())
		}
	}
}
