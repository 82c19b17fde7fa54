package reconcile_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
)

func TestPhases(t *testing.T) {
	rows, _ := strconv.Atoi(os.Getenv("ROWS"))
	b := setup(t, apptest.SQLite(t))
	begun := time.Now()
	b.fill(t, rows)
	t.Logf("fill %v", time.Since(begun))
	cfg := b.config("")
	cfg.Report = &endless{rows: rows}
	last, at := reconcile.Phase(""), time.Now()
	cfg.Progress = func(p reconcile.Progress) {
		if p.Phase != last {
			t.Logf("%s ended after %v", last, time.Since(at))
			last, at = p.Phase, time.Now()
		}
	}
	b.run(t, cfg)
	t.Logf("%s ended after %v", last, time.Since(at))
}
