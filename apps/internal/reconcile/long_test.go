package reconcile_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
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
			e.line = fmt.Appendf(e.line, "charge,pc_%08x,oo_%028x,,%d,ARS,%s\n", hash(e.next), e.next, 100+e.next%1000, noon.Add(time.Duration(e.next)*time.Second).Format(time.RFC3339))
		default:
			return 0, io.EOF
		}
		e.next++
	}
	n := copy(p, e.line)
	e.line = e.line[:copy(e.line, e.line[n:])]
	return n, nil
}

// hash scatters ids, as a provider's are.
func hash(n int) uint32 { return uint32(n) * 2654435761 }

// fill writes the books of that report, without its every thousandth row.
func (b *bundle) fill(t *testing.T, rows int) {
	t.Helper()
	for from := 0; from < rows; from += 2000 {
		if err := b.db.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
			for n := from + 1; n <= min(from+2000, rows); n++ {
				if n%1000 == 0 {
					continue
				}
				id := fmt.Sprintf("pc_%08x", hash(n))
				_, err := tx.Exec(ctx, `INSERT INTO payments_charges
					(id, merchant, operation, amount, currency, source, description, metadata, status, processor_id, created_us)
					VALUES (?, 'dev', ?, ?, 'ARS', 'tok_visa', '', '{}', 'succeeded', ?, ?)`,
					"ch_"+id, "op_"+id, 100+n%1000, id, noon.Add(time.Duration(n)*time.Second).UnixMicro())
				if err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// A long report takes no more memory than a short one: what lives on the heap while
// it is read and compared stays below a bound that a million rows in memory would
// break many times. The million is read with ONLYONCE_SOAK set.
func TestLongReport(t *testing.T) { // X2
	rows := 100_000
	switch {
	case os.Getenv("ONLYONCE_SOAK") != "":
		rows = 1_000_000
	case testing.Short() || race:
		rows = 20_000
	}
	if n, err := strconv.Atoi(os.Getenv("ONLYONCE_TEST_ROWS")); err == nil {
		rows = n
	}
	b := setup(t, apptest.SQLite(t))
	b.fill(t, rows)
	var live, calls uint64
	cfg := b.config("")
	cfg.Report = &endless{rows: rows}
	cfg.Progress = func(reconcile.Progress) {
		if calls++; calls%4 != 0 && rows > 100_000 && calls%40 != 0 {
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
