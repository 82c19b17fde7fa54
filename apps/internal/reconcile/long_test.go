package reconcile_test

import (
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
)

// endless is a report that is made as it is read.
type endless struct {
	rows, next int
	line       []byte
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.line) == 0 {
		switch {
		case e.next == 0:
			e.line = append(e.line, header...)
		case e.next <= e.rows:
			e.line = fmt.Appendf(e.line, "charge,pc_%012d,oo_%028x,,%d,ARS,%s\n", e.next, e.next, 100+e.next%1000, noon.Add(time.Duration(e.next)*time.Second).Format(time.RFC3339))
		default:
			return 0, io.EOF
		}
		e.next++
	}
	n := copy(p, e.line)
	e.line = e.line[:copy(e.line, e.line[n:])]
	return n, nil
}

// fill writes the books of that report, without its every thousandth row.
func (b *bundle) fill(t *testing.T, rows int) {
	t.Helper()
	b.exec(t, `INSERT INTO payments_charges
			(id, merchant, operation, amount, currency, source, description, metadata, status, processor_id, created_us)
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		SELECT printf('ch_%012d', i), 'dev', printf('op_%012d', i), 100 + i % 1000, 'ARS', 'tok_visa', '', '{}', 'succeeded',
			printf('pc_%012d', i), ? + i * 1000000 FROM n WHERE i % 1000 <> 0`, rows, noon.UnixMicro())
}

// A long report takes no more memory than a short one: what lives on the heap while
// it is read and compared stays below a bound that a million rows in memory would
// break many times.
func TestLongReport(t *testing.T) { // X2; alone: others would be measured too
	rows := 1_000_000
	if testing.Short() || race {
		rows = 20_000
	}
	b := setup(t, apptest.SQLite(t))
	b.fill(t, rows)
	var live, calls uint64
	cfg := b.config("")
	cfg.Report = &endless{rows: rows}
	cfg.Progress = func(reconcile.Progress) {
		if calls++; calls%uint64(rows/5000) != 0 {
			return
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		live = max(live, m.HeapAlloc)
	}
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	res := b.run(t, cfg)
	t.Logf("%d rows in %v; %d KiB lived on the heap before, at most %d KiB meanwhile", rows, time.Since(begun).Round(time.Millisecond), before.HeapAlloc>>10, live>>10)
	const bound = 8 << 20
	if live > before.HeapAlloc+bound {
		t.Errorf("%d bytes live on the heap, %d before: more than %d are the report's", live, before.HeapAlloc, bound)
	}
	if res.Rows != int64(rows) || res.Matched["charge"] != int64(rows-rows/1000) || res.Breaks[reconcile.MissingHere] != int64(rows/1000) || len(res.Breaks) != 1 {
		t.Errorf("%+v", res)
	}
}
