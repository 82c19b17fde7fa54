package pgstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// fill makes many completed rows without telling the planner.
const fill = `
INSERT INTO onlyonce_keys (origin, retention, created_at, fp_form, abandon, digest, scope, key, operation,
	fp_secret, fp_policy, fp_sum, fp_parts, attempts, fence, lease_end, attempt, state, status, completed_at, expires_at, header, body)
SELECT n, 1000000, now(), 1, 0, decode(md5('k' || n), 'hex'), 'acct_' || n % 100, 'key ' || n, 'POST /charges',
	's1', 'p', decode(repeat('00', 32), 'hex'), decode(repeat('00', 96), 'hex'), 1, n, now(), decode(repeat('00', 16), 'hex'),
	2, 201, now(), now() + interval '1 day', 'Content-Type: application/json', decode(repeat('00', 90), 'hex')
FROM generate_series(1, 30000) n`

// fillBeside is fill for tables with partitions.
const fillBeside = `
WITH k AS (
	INSERT INTO onlyonce_keys (origin, retention, created_at, fp_form, abandon, digest, scope, key, operation,
		fp_secret, fp_policy, fp_sum, fp_parts, attempts, fence, lease_end, attempt, state, status, completed_at, expires_at, answer_slot)
	SELECT n, 1000000, now(), 1, 0, decode(md5('k' || n), 'hex'), 'acct_' || n % 100, 'key ' || n, 'POST /charges',
		's1', 'p', decode(repeat('00', 32), 'hex'), decode(repeat('00', 96), 'hex'), 1, n, now(), decode(repeat('00', 16), 'hex'),
		2, 201, now(), now() + interval '1 day' + n * interval '1 ms', n % 5
	FROM generate_series(1, 30000) n
	RETURNING *),
r AS (INSERT INTO onlyonce_requests (slot, claim, of_key, request) SELECT answer_slot, fence, digest, decode(repeat('00', 90), 'hex') FROM k)
INSERT INTO onlyonce_answers (slot, until, of_key, answer_header, answer_body)
SELECT answer_slot, expires_at, digest, 'Content-Type: application/json', decode(repeat('00', 90), 'hex') FROM k`

const fillSteps = `
INSERT INTO onlyonce_steps (origin, occurrence, position, digest, name, provider, reference, send_within, epoch,
	derived_key, request, sends, begun_at, sent_at, ended_at, state, result)
SELECT n, 0, 0, decode(md5('k' || n), 'hex'), 'charge', 'acme', 'ref', 1, 0, 'key', 'request', 1, now(), now(), now(), 2, 'result'
FROM generate_series(1, 30000) n`

// plan explains a prepared statement as the server has cached it.
func plan(t *testing.T, conn *pgxpool.Conn, name string) string {
	t.Helper()
	var n int
	if err := conn.QueryRow(t.Context(), `SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = $1`, name).Scan(&n); err != nil {
		t.Fatal(err)
	}
	nulls := strings.TrimSuffix(strings.Repeat("NULL, ", n), ", ")
	rows, err := conn.Query(t.Context(), fmt.Sprintf(`EXPLAIN EXECUTE %s(%s)`, pgx.Identifier{name}.Sanitize(), nulls), pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// A plan that was made and cached on an empty table, even one just vacuumed,
// must still be good when the table has grown and nobody has analysed it.
func TestPlansSurviveGrowth(t *testing.T) {
	t.Parallel()
	for _, start := range []string{"fresh", "vacuumed", "fresh partitions", "vacuumed partitions"} {
		t.Run(start, func(t *testing.T) {
			t.Parallel()
			dsn := testserver.Postgres(t)
			pool := admin(t, dsn)
			cfg, tables, fill := pgstore.Config{}, []string{"keys", "steps"}, fill
			if strings.Contains(start, "partitions") {
				cfg.Partition, fill = daily(), fillBeside
				for n := range 5 {
					tables = append(tables, fmt.Sprint("answers_", n), fmt.Sprint("requests_", n))
				}
			}
			s := migrated(t, dsn, cfg)
			for _, table := range tables {
				if strings.HasPrefix(start, "vacuumed") {
					exec(t, pool, `VACUUM ANALYZE onlyonce_`+table)
				}
				// What stays cached must not be dropped by an autovacuum of this test's.
				exec(t, pool, `ALTER TABLE onlyonce_`+table+` SET (autovacuum_enabled = false)`)
			}
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			if _, err := conn.Exec(t.Context(), `SET plan_cache_mode = force_generic_plan`); err != nil {
				t.Fatal(err)
			}
			prepared := map[string]string{}
			for name, sql := range pgstore.SQLOf(s) {
				if plannedEachTime(name) {
					continue
				}
				if _, err := conn.Conn().Prepare(t.Context(), name, sql); err != nil {
					t.Fatalf("prepare %s: %v", name, err)
				}
				prepared[name] = plan(t, conn, name)
			}
			exec(t, pool, fill)
			exec(t, pool, fillSteps)
			for name, before := range prepared {
				after := plan(t, conn, name)
				if strings.Contains(strings.ReplaceAll(after, "Seq Scan on onlyonce_partitions ", ""), "Seq Scan") {
					t.Errorf("%s reads a whole table after growth:\n%s\nbefore:\n%s", name, after, before)
				}
				if !strings.HasPrefix(name, "insert") && !strings.Contains(after, "_pkey") {
					t.Errorf("%s does not use the primary key:\n%s", name, after)
				}
			}
			for name, sql := range pgstore.SQLOf(s) {
				if strings.HasPrefix(name, "list") || strings.HasPrefix(name, "move") || !plannedEachTime(name) {
					continue
				}
				if _, err := conn.Conn().Prepare(t.Context(), name, sql); err != nil {
					t.Fatalf("prepare %s: %v", name, err)
				}
				p := plan(t, conn, name)
				if strings.Contains(p, "Seq Scan") || (name != "decideAbandoned" && !strings.Contains(p, "Tid Range Scan")) {
					t.Errorf("%s must look at its pages only:\n%s", name, p)
				}
			}
		})
	}
}

// plannedEachTime tells which statements are not prepared.
func plannedEachTime(name string) bool {
	return strings.HasPrefix(name, "list") || strings.HasPrefix(name, "move") || strings.HasPrefix(name, "deleteExpired") || strings.HasSuffix(name, "Abandoned")
}

// literal puts arguments, each with its type, in the place of parameters.
func literal(sql, args string) string {
	for i, arg := range strings.Split(args, ", ") {
		value, kind, _ := strings.Cut(arg, "::")
		sql = strings.ReplaceAll(sql, fmt.Sprintf("$%d::%s", i+1, kind), value+"::"+kind)
	}
	return sql
}

// explain gives the plan that an EXPLAIN prints.
func explain(t *testing.T, pool *pgxpool.Pool, sql string) string {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// Listing is planned for its filter.
func TestPlansOfLists(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s := migrated(t, dsn, pgstore.Config{})
	pool := admin(t, dsn)
	exec(t, pool, fill)
	exec(t, pool, `UPDATE onlyonce_keys SET state = 4, doubt = true, status = NULL, completed_at = NULL, expires_at = NULL, header = NULL, body = NULL
		WHERE origin % 1000 = 0`)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			exec(t, pool, `ANALYZE onlyonce_keys`)
		}
		for name, tt := range map[string]struct {
			args  string
			index string
		}{
			"listKeys":  {`'\x80'::bytea, 0::smallint, ''::text, 101::bigint, NULL::timestamptz`, "onlyonce_keys_pkey"},
			"listDoubt": {`'\x80'::bytea, ''::text, 101::bigint, NULL::timestamptz`, "onlyonce_keys_doubt"},
		} {
			if p := explain(t, pool, "EXPLAIN "+literal(pgstore.SQLOf(s)[name], tt.args)); !strings.Contains(p, tt.index) {
				t.Errorf("%s (analysed %v) does not use %s:\n%s", name, analyzed, tt.index, p)
			}
		}
	}
}
