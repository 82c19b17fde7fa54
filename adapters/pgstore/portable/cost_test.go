package portable_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// What the documentation says of round trips is so. Unprepared statements take one
// each; a prepared one takes another the first time.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s, w := wired(t, with(t, testserver.Postgres(t), "default_query_exec_mode", "exec"), portable.Config{OneClock: true})
	ctx := t.Context()
	trips := func(what string, most int64, fn func() error) {
		t.Helper()
		before := w.trips.Load()
		if err := fn(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if n := w.trips.Load() - before; n != most {
			t.Errorf("%s takes %d round trips, want %d", what, n, most)
		}
	}
	var owner onlyonce.Owner
	claims := func(req onlyonce.ClaimRequest) func() error {
		return func() error {
			c, err := s.Claim(ctx, req)
			owner = c.Record.Owner()
			return err
		}
	}
	held := func(_ bool, err error) error { return err }
	req := request("k")
	trips("a fresh key", 4, claims(req))
	trips("a busy one", 3, claims(again(req)))
	trips("renewing", 4, func() error { return held(s.Renew(ctx, owner, time.Minute)) })
	trips("completing", 4, func() error { _, err := s.Complete(ctx, owner, created()); return err })
	trips("a replay", 3, claims(again(req)))
	trips("reading", 1, func() error { _, _, err := s.Get(ctx, req.Key); return err })

	held1 := request("steps")
	held1.Resource, held1.Keep = "order/1", []byte("kept")
	trips("a fresh key with a resource", 5, claims(held1))
	trips("beginning a step", 6, func() error { return held(s.BeginStep(ctx, owner, intent)) })
	trips("ending it", 6, func() error {
		return held(s.EndStep(ctx, owner, onlyonce.StepEnd{Name: "s", State: onlyonce.StepDone}))
	})
	trips("reading steps", 2, func() error { _, err := s.Steps(ctx, held1.Key); return err })
	trips("a step of its own", 7, func() error {
		_, _, err := s.StepTx(ctx, owner, reserve, func(context.Context, pgx.Tx) ([]byte, error) { return nil, nil })
		return err
	})
	trips("requeuing", 5, func() error { return held(s.Requeue(ctx, held1.Key)) })
	trips("finishing", 6, func() error { _, err := s.Finish(ctx, owner, answers); return err })
	trips("a transaction", 5, func() error { _, _, err := s.Atomic(ctx, request("atomic"), answers); return err })

	trips("one more", 4, claims(request("freed")))
	trips("releasing", 4, func() error { return held(s.Release(ctx, owner, "r")) })
	trips("another", 4, claims(request("parked")))
	trips("parking", 4, func() error { return held(s.Park(ctx, onlyonce.ParkRequest{Owner: owner})) })
	trips("looking for turns", 2, func() error { _, err := s.Due(ctx, dueNow); return err })
	trips("listing", 2, func() error { _, err := s.List(ctx, onlyonce.ListFilter{}); return err })
	trips("an audit entry", 4, func() error { return s.AddAudit(ctx, onlyonce.AuditEntry{Key: req.Key}) })
	trips("a new setting", 4, func() error { _, err := s.AddSetting(ctx, "k", "i", nil); return err })
	trips("a known one", 1, func() error { _, _, err := s.Setting(ctx, "k", "i"); return err })
}

// fill makes many completed rows and steps.
const fill = `
INSERT INTO onlyonce_portable_keys (scope, key, operation, fp_form, fp_secret, fp_policy, fp_sum, fp_parts, state, fence, origin, attempt,
	attempts, abandon, resumed_from, reason, status, header, body, retention_us, lease_us, renewal, created_us, lease_end_us, completed_us,
	expires_us, resource, holds, keep, turn, turn_us, due_us, steps, version)
SELECT 'acct_' || n % 100, 'key ' || n, 'POST /charges', 1, 's', 'p', '\x00', decode(repeat('00', 96), 'hex'), 2, n, n, '\x00',
	1, 1, 0, '', 201, '\x', decode(repeat('00', 90), 'hex'), 1, 1, 0, n, n, n, 1000000 + n, '', false, NULL, 0, n, NULL, 1, 1
FROM generate_series(1, 30000) n;
UPDATE onlyonce_portable_keys SET state = 4, status = NULL, header = NULL, expires_us = NULL, body = NULL, keep = '\x00', due_us = turn_us WHERE fence % 500 = 0;
UPDATE onlyonce_portable_keys SET state = 1 WHERE fence % 1000 = 0;
INSERT INTO onlyonce_portable_steps (scope, key, origin, name, occurrence, ordinal, provider, epoch, derived_key, reference, request,
	send_within_us, state, result, sends, begun_us, sent_us, changed_us)
SELECT scope, key, origin, 'charge', 0, 0, 'acme', 0, 'd', 'r', '\x00', 1, 2, '\x00', 1, origin, origin, origin FROM onlyonce_portable_keys;
INSERT INTO onlyonce_portable_resources SELECT scope, 'order ' || key, key FROM onlyonce_portable_keys`

// No statement reads a whole table: keys and steps by primary key, sweeps, recoverers
// and lists in the order of an index.
func TestPlans(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, portable.Config{}), admin(t, dsn)
	exec(t, pool, fill)
	exec(t, pool, `ANALYZE onlyonce_portable_keys, onlyonce_portable_steps, onlyonce_portable_resources`)
	guard := []any{"acct_1", "key 1", int64(1), []byte{0}, int64(2), int64(1)}
	args := map[string][]any{
		"selectKey": guard[:2], "selectHolder": {"acct_1", "order 1"}, "selectSteps": guard[:3],
		"completeKey":   append(guard[:6:6], int64(200), []byte{}, []byte{}, int64(1), int64(1)),
		"changeKey":     append(guard[:6:6], int64(1), int64(2), []byte{}, int64(1), int64(1), int64(0), "", int64(1), int64(1), int64(0), int64(1), nil, "", false, int64(0), int64(0), nil, int64(0)),
		"selectExpired": {int64(1000100), int64(100)}, "selectAbandoned": {int64(1000), int64(100)}, "selectDeadSteps": {int64(100), int64(100)},
		"selectDue": {int64(1000), int64(100), int64(500), "acct_1", "k"}, "selectDueOf": {int64(1000), int64(100), int64(0), "", "", "POST /charges"},
		"listKeys": {"acct_5", "k", "", int64(1), int64(100)}, "listState": {"acct_5", "k", "", int64(1), int64(100), int64(4)},
	}
	for name, sql := range portable.Statements(s) {
		plan := explain(t, pool, sql, args[name])
		if strings.Contains(plan, "Seq Scan") {
			t.Errorf("%s reads a whole table:\n%s", name, plan)
		}
	}
}

func explain(t *testing.T, pool *pgxpool.Pool, sql string, args []any) string {
	t.Helper()
	rows, err := pool.Query(t.Context(), "EXPLAIN "+sql, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(lines, "\n")
}
