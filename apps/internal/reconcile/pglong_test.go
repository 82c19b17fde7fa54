package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments/db"

	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestPGLong(t *testing.T) {
	rows := 1_000_000
	b := setup(t, testserver.Postgres(t))
	b.exec(t, `INSERT INTO payments_charges
			(id, merchant, operation, amount, currency, source, description, metadata, status, processor_id, created_us)
		SELECT 'ch_' || lpad(i::text, 12, '0'), 'dev', 'op_' || lpad(i::text, 12, '0'), 100 + i % 1000, 'ARS', 'tok_visa', '', '{}', 'succeeded',
			'pc_' || lpad(i::text, 12, '0'), ? + i * 1000000::bigint FROM generate_series(1, ?) i WHERE i % 1000 <> 0`, noon.UnixMicro(), rows)
	t.Log("filled")
	cfg := b.config("")
	cfg.Report = &endless{rows: rows}
	last, at := reconcile.Phase(""), time.Now()
	cfg.Progress = func(p reconcile.Progress) {
		if p.Phase != last {
			t.Logf("%s ended after %v", last, time.Since(at))
			last, at = p.Phase, time.Now()
		}
	}
	stop := make(chan struct{})
	seen := map[string]int{}
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(500 * time.Millisecond):
			}
			_ = b.db.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
				return tx.Each(ctx, "SELECT left(regexp_replace(query, '\\s+', ' ', 'g'), 150) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() AND datname = current_database()", nil, func(row db.Row) error {
					var q string
					_ = row.Scan(&q)
					seen[q]++
					return nil
				})
			})
		}
	}()
	res := b.run(t, cfg)
	close(stop)
	for q, n := range seen {
		if n > 3 {
			t.Logf("%d %s", n, q)
		}
	}
	t.Logf("%s ended after %v %+v", last, time.Since(at), res)
	return
	cfg.Report = &endless{rows: rows}
	at = time.Now()
	res = b.run(t, cfg)
	t.Logf("again after %v %+v", time.Since(at), res)
}
