package pgstore_test

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// migration applies one file.
func migration(t *testing.T, pool *pgxpool.Pool, file string) {
	t.Helper()
	sql, err := fs.ReadFile(pgstore.Migrations(), file)
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, string(sql))
}

// versionOne inserts a row as version 1 did; set changes it. Statements are
// written out, so that they stay as they were.
func versionOne(t *testing.T, pool *pgxpool.Pool, req onlyonce.ClaimRequest, set string) onlyonce.ClaimRequest {
	t.Helper()
	d := req.Key.Digest()
	exec(t, pool, `INSERT INTO onlyonce_keys (digest, retention, fp_form, abandon, scope, key, operation,
		fp_secret, fp_policy, fp_sum, fp_parts, attempt, attempts, origin, fence, created_at, lease_end)
	VALUES ($1, 86400000000, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 1, 1000, 1000, now(), now() + interval '1 hour')`,
		d[:], req.Fingerprint.Version.Form, int16(req.Abandon), req.Key.Scope, req.Key.Value, req.Operation,
		req.Fingerprint.Version.Secret, req.Fingerprint.Version.Policy, req.Fingerprint.Sum[:], req.Fingerprint.Parts, req.Attempt[:])
	if set != "" {
		exec(t, pool, `UPDATE onlyonce_keys SET `+set+` WHERE digest = $1`, d[:])
	}
	return again(req)
}

const (
	asDone  = `state = 2, status = 200, header = '', body = 'b', completed_at = now(), expires_at = now() + interval '1 day'`
	asFreed = `state = 3, reason = 'r', expires_at = now() + interval '1 day'`
	asDoubt = `state = 4, doubt = true, reason = 'r'`
)

// A table of version 1, with a key in every state, is brought to version 2 without
// being rewritten; every key is what it was, and can do what is new.
func TestUpgradeFromVersionOne(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	migration(t, pool, "0001_init.up.sql")
	hold, steps := request("hold"), request("behind")
	hold.Abandon, steps.Abandon = onlyonce.AbandonHold, onlyonce.AbandonResume
	live := versionOne(t, pool, request("live"), "")
	over := versionOne(t, pool, request("over"), "lease_end = now() - interval '1 hour'")
	hold = versionOne(t, pool, hold, "lease_end = now() - interval '1 hour'")
	done := versionOne(t, pool, request("done"), asDone)
	freed := versionOne(t, pool, request("freed"), asFreed)
	doubt := versionOne(t, pool, request("doubt"), asDoubt)
	expired := versionOne(t, pool, request("expired"), strings.ReplaceAll(asDone, "+", "-"))
	steps = versionOne(t, pool, steps, asFreed)
	exec(t, pool, `INSERT INTO onlyonce_steps (digest, origin, name, occurrence, position, provider, epoch, derived_key, reference,
			request, send_within, state, sends, begun_at, sent_at, ended_at, result)
		SELECT digest, origin, 's', 0, 0, 'p', 0, 'd', 'r', '', 1, 2, 1, now(), now(), now(), 'result' FROM onlyonce_keys WHERE key = 'behind'`)
	file := one[int64](t, pool, `SELECT pg_relation_filenode('onlyonce_keys')::bigint`)

	if _, err := open(t, dsn, pgstore.Config{}).Claim(t.Context(), request("early")); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
		t.Errorf("claim before the tables are upgraded: %v", err)
	}
	s := migrated(t, dsn, pgstore.Config{})
	if now := one[int64](t, pool, `SELECT pg_relation_filenode('onlyonce_keys')::bigint`); now != file {
		t.Error("the table was rewritten")
	}
	if due, err := s.Due(t.Context(), dueNow); err != nil || len(due) != 0 {
		t.Errorf("due of a table that keeps nothing: %+v, %v", due, err)
	}
	for _, c := range []struct {
		req  onlyonce.ClaimRequest
		want onlyonce.Verdict
	}{
		{live, onlyonce.Busy},
		{over, onlyonce.Resumed},
		{hold, onlyonce.Abandoned},
		{done, onlyonce.Replay},
		{freed, onlyonce.Resumed},
		{doubt, onlyonce.Doubtful},
		{expired, onlyonce.Won},
		{steps, onlyonce.Resumed},
	} {
		req := c.req
		req.Resource, req.Keep = "order of "+req.Key.Value, []byte("request")
		claim := want(t, s, req, c.want)
		if !claim.Verdict.Owns() {
			if claim.Record.Resource != "" || claim.Record.Holds {
				t.Errorf("%s: resource %q", req.Key.Value, claim.Record.Resource)
			}
			continue
		}
		rival := request("rival of " + req.Key.Value)
		rival.Resource = req.Resource
		want(t, s, rival, onlyonce.ResourceBusy)
		if kept, found, err := s.Kept(t.Context(), req.Key); err != nil || !found || string(kept) != "request" {
			t.Errorf("%s: kept %q, %v, %v", req.Key.Value, kept, found, err)
		}
		complete(t, s, claim.Record.Owner())
	}
}

// The second migration alone goes down, with keys that hold and keep, and up again;
// what it knew is lost, the keys are not.
func TestSecondMigrationDownUp(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	s := migrated(t, dsn, pgstore.Config{})
	first := relations(t, pool)
	done, held := request("done"), naming("r", "held")
	held.Keep = []byte("request")
	complete(t, s, want(t, s, done, onlyonce.Won).Record.Owner())
	owner := want(t, s, held, onlyonce.Won).Record.Owner()
	migration(t, pool, "0003_due_by_operation.down.sql")
	migration(t, pool, "0002_resource_recovery.down.sql")
	if n := one[int](t, pool, `SELECT count(*) FROM pg_constraint WHERE conname IN ('onlyonce_keys_resource', 'onlyonce_keys_turn')`); n != 0 {
		t.Errorf("down left %d constraints", n)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := relations(t, pool); now != first {
		t.Errorf("up again made %s, want %s", now, first)
	}
	s = migrated(t, dsn, pgstore.Config{})
	want(t, s, again(done), onlyonce.Replay)
	want(t, s, again(held), onlyonce.Busy)
	want(t, s, naming("r", "other"), onlyonce.Won)
	complete(t, s, owner)
}

// Whoever cannot have the table locked makes the columns and the indexes before; an
// index that has failed on the way is not taken for one.
func TestUpgradeIsPreparedByHand(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	migration(t, pool, "0001_init.up.sql")
	req := versionOne(t, pool, request("k"), asDone)
	exec(t, pool, `ALTER TABLE onlyonce_keys ADD COLUMN resource text COLLATE "C", ADD COLUMN holds bytea, ADD COLUMN keep bytea,
		ADD COLUMN turn integer, ADD COLUMN turn_at timestamptz, ADD COLUMN due_at timestamptz`)
	unique := `CREATE UNIQUE INDEX CONCURRENTLY onlyonce_keys_holds ON onlyonce_keys (holds) WHERE holds IS NOT NULL`
	exec(t, pool, `CREATE INDEX CONCURRENTLY onlyonce_keys_due ON onlyonce_keys (due_at) WHERE due_at IS NOT NULL`)
	exec(t, pool, `CREATE INDEX CONCURRENTLY onlyonce_keys_due_of ON onlyonce_keys (operation, due_at) WHERE due_at IS NOT NULL`)
	other := versionOne(t, pool, request("other"), "")
	exec(t, pool, `UPDATE onlyonce_keys SET holds = ''`)
	if _, err := pool.Exec(t.Context(), unique); err == nil {
		t.Fatal("an index of what is not unique was made")
	}
	exec(t, pool, `UPDATE onlyonce_keys SET holds = NULL`)
	s := open(t, dsn, pgstore.Config{})
	if err := s.Migrate(t.Context()); err == nil {
		t.Error("migrated with an index that is not valid")
	}
	exec(t, pool, `DROP INDEX CONCURRENTLY onlyonce_keys_holds`)
	exec(t, pool, unique)
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	want(t, s, req, onlyonce.Replay)
	want(t, s, other, onlyonce.Busy)
	due := keeping("due")
	due.Resource, due.Lease = "r", time.Microsecond
	want(t, s, due, onlyonce.Won)
	want(t, s, naming("r", "rival"), onlyonce.ResourceBusy)
	if got, err := s.Due(t.Context(), dueNow); err != nil || len(got) != 1 {
		t.Errorf("due: %+v, %v", got, err)
	}
}
