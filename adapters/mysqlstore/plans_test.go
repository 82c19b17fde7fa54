package mysqlstore_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// fill makes completed keys, each with a step, and of every hundredth one that is in
// progress and kept.
func fill(t *testing.T, db *sql.DB) {
	t.Helper()
	exec(t, db, `INSERT INTO onlyonce_keys (digest, scope, key_value, operation, fp_form, fp_secret, fp_policy, fp_sum, fp_parts,
			state, fence, origin, attempt, attempts, abandon, resumed_from, reason, retention_us, created_us, lease_us, lease_end_us, renewal,
			completed_us, expires_us, sweep_us, holds, kept, status, header, body)
		SELECT UNHEX(MD5(seq)), 'acct', seq, 'POST /charges', 1, 's', 'p', UNHEX(REPEAT('00', 32)), '',
			IF(seq % 100 = 0, 1, 2), seq, seq, UNHEX(MD5(seq)), 1, 0, 0, '', 1000, seq, 10, seq + 10, 0,
			IF(seq % 100 = 0, NULL, seq), IF(seq % 100 = 0, NULL, seq + 4000000000000000), IF(seq % 100 = 0, seq + 10, seq + 4000000000000000),
			0, seq % 100 = 0, IF(seq % 100 = 0, NULL, 200), IF(seq % 100 = 0, NULL, ''), IF(seq % 100 = 0, NULL, 'body')
		FROM seq_1_to_20000`)
	exec(t, db, `INSERT INTO onlyonce_steps SELECT digest, origin, 's', 0, 0, 'p', 0, 'd', 'r', 1, 2, 1, origin, origin, 4000000000000000, 'x', 'y' FROM onlyonce_keys`)
	exec(t, db, `INSERT INTO onlyonce_kept SELECT digest, 0, lease_end_us, 4000000000000000, 'request' FROM onlyonce_keys WHERE kept`)
	exec(t, db, `INSERT INTO onlyonce_holds SELECT digest, digest FROM onlyonce_keys LIMIT 1000`)
	exec(t, db, `ANALYZE TABLE onlyonce_keys, onlyonce_steps, onlyonce_kept, onlyonce_holds`)
}

// Every statement of a request, and every look of a sweeper or recoverer, goes by an
// index and touches few rows, however many there are.
func TestPlans(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	open(t, dsn, mysqlstore.Config{})
	db := admin(t, dsn)
	if !strings.Contains(one[string](t, db, `SELECT VERSION()`), "MariaDB") {
		t.Skip("the data is made, and plans are read, in MariaDB's manner")
	}
	fill(t, db)
	for name, query := range mysqlstore.SQL() {
		if strings.HasPrefix(name, "list") { // walks on until a page is full
			query = strings.ReplaceAll(query, "k.digest > ?", "k.digest > UNHEX('ffc0')")
		}
		query = strings.ReplaceAll(query, "LIMIT ?", "LIMIT 5")
		for line := range explained(t, db, strings.ReplaceAll(query, "?", "'1'")) {
			if line.kind == "ALL" || line.kind == "index" || line.rows > 2000 {
				t.Errorf("%s reads %d rows of %s (%s by %q)", name, line.rows, line.table, line.kind, line.key)
			}
		}
	}
}

// access is how one table is read.
type access struct {
	table, kind, key string
	rows             int64
}

// explained gives the lines of a plan that read a table.
func explained(t *testing.T, db *sql.DB, query string) map[access]bool {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `EXPLAIN `+query)
	if err != nil {
		t.Fatalf("explain %s: %v", query, err)
	}
	defer rows.Close()
	lines := map[access]bool{}
	for rows.Next() {
		var table, kind, key, rest sql.NullString
		var n sql.NullInt64
		if err := rows.Scan(&rest, &rest, &table, &kind, &rest, &key, &rest, &rest, &n, &rest); err != nil {
			t.Fatal(err)
		}
		if table.Valid {
			lines[access{table.String, kind.String, key.String, n.Int64}] = true
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// What a store costs in messages to the server.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s, w := wired(t, testserver.MySQL(t))
	costs := func(what string, want int64, fn func() error) {
		t.Helper()
		before := w.trips.Load()
		if err := fn(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := w.trips.Load() - before; got != want {
			t.Errorf("%s: %d messages, want %d", what, got, want)
		}
	}
	ctx, req := t.Context(), request("k")
	c, err := s.Claim(ctx, req) // the connection is made
	if err != nil {
		t.Fatal(err)
	}
	fresh := request("fresh")
	costs("claim", 1, func() error { c, err = s.Claim(ctx, fresh); return err })
	costs("loser", 1, func() error { _, err := s.Claim(ctx, again(fresh)); return err })
	costs("renew", 1, func() error { return must(s.Renew(ctx, c.Record.Owner(), fresh.Lease)) })
	costs("complete", 1, func() error {
		settled, err := s.Complete(ctx, c.Record.Owner(), created())
		return must(settled.Held, err)
	})
	costs("replay", 1, func() error { _, err := s.Claim(ctx, again(fresh)); return err })
	costs("atomic", 8, func() error {
		_, settled, err := s.Atomic(ctx, request("atomic"), answers)
		return must(settled.Held, err)
	})
	costs("atomic replay", 1, func() error { _, _, err := s.Atomic(ctx, request("atomic"), answers); return err })
	named := request("named")
	named.Resource, named.Keep = "r", []byte("request")
	costs("claim of a resource", 6, func() error { c, err = s.Claim(ctx, named); return err })
	costs("loser of a resource", 1, func() error {
		other := request("other")
		other.Resource = "r"
		_, err := s.Claim(ctx, other)
		return err
	})
	costs("release", 7, func() error { return must(s.Release(ctx, c.Record.Owner(), "r")) })
	costs("takeover of a resource", 6, func() error { c, err = s.Claim(ctx, again(named)); return err })
	costs("completion of a resource", 8, func() error {
		settled, err := s.Complete(ctx, c.Record.Owner(), created())
		return must(settled.Held, err)
	})
	stranger := ready(t, s.DB(), mysqlstore.Config{})
	costs("loser that has not met the key", 2, func() error { _, err := stranger.Claim(ctx, again(fresh)); return err })
}
