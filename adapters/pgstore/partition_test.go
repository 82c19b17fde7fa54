package pgstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// partitioned makes tables with partitions and a store on them.
func partitioned(t *testing.T) (*pgstore.Store, *pgxpool.Pool) {
	t.Helper()
	dsn := testserver.Postgres(t)
	return migrated(t, dsn, pgstore.Config{Partition: daily()}), admin(t, dsn)
}

// slotOf is the partition that a key's answer or request is in; -1: none.
func slotOf(t *testing.T, pool *pgxpool.Pool, column string, key onlyonce.Key) int {
	t.Helper()
	d := key.Digest()
	return one[int](t, pool, `SELECT coalesce(max(`+column+`), -1) FROM onlyonce_keys WHERE digest = $1`, d[:])
}

// everyKey puts keys into every state a table without partitions can have and
// gives what a claim of each must be told; kept are the requests that are kept.
func everyKey(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) (claims map[string]onlyonce.Verdict, kept []string) {
	t.Helper()
	owners := map[string]onlyonce.Owner{}
	for _, name := range []string{"live", "doubt", "behind", "done", "empty", "none", "expired", "freed"} {
		req := keeping(name)
		req.Abandon, req.Resource = onlyonce.AbandonResume, name
		owners[name] = want(t, s, req, onlyonce.Won).Record.Owner()
	}
	if _, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: owners["doubt"], Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.BeginStep(t.Context(), owners["behind"], onlyonce.Intent{Name: "s", Provider: "p", SendWithin: time.Second}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"behind", "freed"} {
		if held, err := s.Release(t.Context(), owners[name], "r"); err != nil || !held {
			t.Fatal(held, err)
		}
	}
	for name, answer := range map[string]onlyonce.Answer{
		"done": created(), "expired": created(), "empty": {Status: 204, Body: []byte{}}, "none": {Status: 200, NotRetained: true},
	} {
		if settled, err := s.Complete(t.Context(), owners[name], answer); err != nil || !settled.Held {
			t.Fatal(settled, err)
		}
	}
	exec(t, pool, `UPDATE onlyonce_keys SET expires_at = now() - interval '1 hour' WHERE key = 'expired'`)
	return map[string]onlyonce.Verdict{
		"live": onlyonce.Busy, "doubt": onlyonce.Doubtful, "behind": onlyonce.Resumed, "done": onlyonce.Replay, "empty": onlyonce.Replay,
		"none": onlyonce.Replay, "expired": onlyonce.Won, "freed": onlyonce.Resumed,
	}, []string{"live", "doubt", "behind"}
}

// same checks that every key is what it was.
func same(t *testing.T, s *pgstore.Store, claims map[string]onlyonce.Verdict, kept []string) {
	t.Helper()
	for _, name := range kept {
		if got, found, err := s.Kept(t.Context(), request(name).Key); err != nil || !found || string(got) != "request of "+name {
			t.Errorf("%s: kept %q, %v, %v", name, got, found, err)
		}
	}
	for name, verdict := range claims {
		req := again(request(name))
		req.Abandon, req.Resource = onlyonce.AbandonResume, name
		c := want(t, s, req, verdict)
		if verdict != onlyonce.Replay {
			continue
		}
		a := c.Record.Answer
		switch {
		case name == "done" && string(a.Body) != string(created().Body):
			t.Errorf("done: body %q", a.Body)
		case name == "empty" && (a.Status != 204 || a.Body == nil || len(a.Body) != 0 || a.NotRetained):
			t.Errorf("empty: %+v", a)
		case name == "none" && !a.NotRetained:
			t.Errorf("not retained: %+v", a)
		}
	}
}

// T3: tables that are in use are switched over, and back. Every stored answer is
// replayed, every request kept, in both directions, and a store that was open all the
// while goes on.
func TestSwitchOverAndBack(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	before, idle := migrated(t, dsn, pgstore.Config{}), migrated(t, dsn, pgstore.Config{})
	claims, kept := everyKey(t, before, pool)
	rows := one[int](t, pool, `SELECT count(*) FROM onlyonce_keys`)
	file := one[int64](t, pool, `SELECT pg_relation_filenode('onlyonce_keys')::bigint`)

	migrated(t, dsn, pgstore.Config{Partition: daily()})
	if now := one[int64](t, pool, `SELECT pg_relation_filenode('onlyonce_keys')::bigint`); now != file {
		t.Error("the table was rewritten")
	}
	if _, _, err := idle.Atomic(t.Context(), request("atomic"), answers); onlyonce.CodeOf(err) != onlyonce.CodeStoreUnavailable {
		t.Errorf("a store's first transaction behind it: %v, want it refused", err)
	}
	if _, settled, err := idle.Atomic(t.Context(), request("atomic"), answers); err != nil || !settled.Held {
		t.Errorf("repeated: %+v, %v", settled, err)
	}
	fresh := request("fresh")
	complete(t, before, want(t, before, fresh, onlyonce.Won).Record.Owner())
	if slot := slotOf(t, pool, "answer_slot", fresh.Key); slot < 1 {
		t.Errorf("a store that was open completed into partition %d", slot)
	}
	if n := one[int](t, pool, `SELECT count(*) FROM onlyonce_keys`); n != rows+2 {
		t.Errorf("%d keys, want %d", n, rows+2)
	}
	same(t, open(t, dsn, pgstore.Config{}), claims, kept)

	// Back. What has happened since stays: expired and freed keys have owners now.
	_, off, err := daily().Scripts()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(off, "BEGIN;\nLOCK TABLE") || !strings.HasSuffix(off, "\nCOMMIT;\n") {
		t.Errorf("a script that is run statement by statement would tear keys apart:\n%s", off)
	}
	exec(t, pool, off)
	claims["expired"], claims["freed"], claims["behind"] = onlyonce.Busy, onlyonce.Busy, onlyonce.Busy
	same(t, before, claims, kept)
	want(t, before, again(fresh), onlyonce.Replay)
	if left := relations(t, pool); strings.Contains(left, "answers") || strings.Contains(left, "partitions") {
		t.Errorf("switching back left %s", left)
	}
	// And once more, with a table that has seen both.
	s := migrated(t, dsn, pgstore.Config{Partition: daily()})
	same(t, s, claims, kept)
	want(t, s, again(fresh), onlyonce.Replay)
}

// A program that knows nothing of partitions is refused: it would replay answers
// without their bodies.
func TestOldProgramsAreRefused(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	old := migrated(t, dsn, pgstore.Config{})
	statements := pgstore.SQLOf(old) // in the form of tables without partitions
	pool := admin(t, dsn)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	migrated(t, dsn, pgstore.Config{Partition: daily()})
	for _, name := range []string{"insertKept", "readKey", "readBoth", "takeKey", "completeKey", "finishKey", "insertAnswer", "releaseKey", "giveTurns", "kept", "listKeys", "listDoubt", "decideAbandoned"} {
		_, err := conn.Conn().Prepare(t.Context(), name, statements[name])
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "42703" {
			t.Errorf("%s: %v, want it refused for want of a column", name, err)
		}
	}
}

// C10, T3: a table of version 1 is brought to partitions at one go; two migrators at
// once do it once, and a third that asks for others is refused.
func TestPartitionsFromVersionOne(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	migration(t, pool, "0001_init.up.sql")
	done, freed := versionOne(t, pool, request("done"), asDone), versionOne(t, pool, request("freed"), asFreed)
	doubt := versionOne(t, pool, request("doubt"), asDoubt)
	var wg sync.WaitGroup
	for range 4 {
		s := open(t, dsn, pgstore.Config{Partition: daily()})
		wg.Go(func() {
			if err := s.Migrate(t.Context()); err != nil {
				t.Errorf("migrate: %v", err)
			}
		})
	}
	wg.Wait()
	s := open(t, dsn, pgstore.Config{})
	want(t, s, done, onlyonce.Replay)
	want(t, s, doubt, onlyonce.Doubtful)
	complete(t, s, want(t, s, freed, onlyonce.Resumed).Record.Owner())
	want(t, s, again(freed), onlyonce.Replay)

	for _, other := range []pgstore.Partition{{Every: time.Hour, Ahead: 2}, {Every: 24 * time.Hour, Ahead: 3}} {
		err := open(t, dsn, pgstore.Config{Partition: other}).Migrate(t.Context())
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "24h") {
			t.Errorf("migrate with %+v: %v", other, err)
		}
	}
	if err := migrated(t, dsn, pgstore.Config{Partition: daily()}).Migrate(t.Context()); err != nil {
		t.Errorf("migrate with nothing to do: %v", err)
	}
}

// All that there is goes down and comes up again.
func TestPartitionsDownUp(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	s := migrated(t, dsn, pgstore.Config{Partition: daily()})
	first := relations(t, pool)
	complete(t, s, want(t, s, keeping("k"), onlyonce.Won).Record.Owner())
	on, off, err := daily().Scripts()
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, off)
	apply(t, pool, "down")
	if left := relations(t, pool); left != "" {
		t.Errorf("down left %s", left)
	}
	apply(t, pool, "up")
	exec(t, pool, on) // as people with their own tool do
	if now := relations(t, pool); now != first {
		t.Errorf("up again made %s, want %s", now, first)
	}
	complete(t, s, want(t, s, request("k"), onlyonce.Won).Record.Owner())
	want(t, s, again(request("k")), onlyonce.Replay)
}

// Claims go on while tables that somebody reads wait to be switched over.
func TestSwitchOverWaitsForNobodyLong(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	reader, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback(t.Context())
	if _, err := reader.Exec(t.Context(), `SELECT count(*) FROM onlyonce_keys`); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- open(t, dsn, pgstore.Config{Partition: daily()}).Migrate(t.Context()) }()
	waiting(t, pool, "%ALTER TABLE onlyonce_keys%")
	for i := range 20 { // more than the waiting of one try lets through at once
		complete(t, s, want(t, s, request(fmt.Sprint(i)), onlyonce.Won).Record.Owner())
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatalf("migrate: %v", err)
	}
	for i := range 20 {
		want(t, s, again(request(fmt.Sprint(i))), onlyonce.Replay)
	}
}

func TestPartitionConfig(t *testing.T) {
	t.Parallel()
	for _, p := range []pgstore.Partition{{Every: time.Second}, {Every: 1000 * 24 * time.Hour}, {Every: time.Hour + 1}, {Every: time.Hour, Ahead: 101}, {Ahead: 1}, {Every: time.Hour, Ahead: -1}} {
		if err := (pgstore.Config{Partition: p}).Validate(); err == nil || !strings.Contains(err.Error(), "Partition.") {
			t.Errorf("%+v: %v", p, err)
		}
		if _, _, err := p.Scripts(); err == nil {
			t.Errorf("scripts of %+v", p)
		}
	}
	if _, _, err := (pgstore.Partition{}).Scripts(); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("scripts of no partitions: %v", err)
	}
	if p := (pgstore.Config{Partition: pgstore.Partition{Every: time.Hour}}).WithDefaults().Partition; p.Ahead != 7 {
		t.Errorf("default: %+v", p)
	}
	s := migrated(t, testserver.Postgres(t), pgstore.Config{})
	if _, err := s.MaintainPartitions(t.Context()); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("maintain tables without partitions: %v", err)
	}
}

// R2: an answer that is not where the key's row says is an error: it is neither
// replayed without a body, nor is the operation run again.
func TestAnswerThatIsGone(t *testing.T) {
	t.Parallel()
	s, pool := partitioned(t)
	done, held := request("done"), keeping("held")
	complete(t, s, want(t, s, done, onlyonce.Won).Record.Owner())
	held.Lease = time.Microsecond
	want(t, s, held, onlyonce.Won)
	exec(t, pool, `DELETE FROM onlyonce_answers`)
	exec(t, pool, `DELETE FROM onlyonce_requests`)
	if c, err := s.Claim(t.Context(), again(done)); err == nil {
		t.Errorf("claim: %v, want an error", c.Verdict)
	}
	if _, found, err := s.Get(t.Context(), done.Key); err == nil || found {
		t.Errorf("get: %v, %v, want an error", found, err)
	}
	if kept, found, err := s.Kept(t.Context(), held.Key); err == nil || found {
		t.Errorf("kept: %q, want an error", kept)
	}
	if due, err := s.Due(t.Context(), dueNow); err == nil {
		t.Errorf("due: %+v, want an error", due)
	}
	// Once it has expired the answer is not missed.
	exec(t, pool, `UPDATE onlyonce_keys SET expires_at = now() WHERE key = 'done'`)
	want(t, s, again(done), onlyonce.Won)
}

// A crash of the server loses neither a claim's request nor an answer.
func TestPartitionsSurviveCrash(t *testing.T) {
	t.Parallel()
	c := testserver.NewCluster(t)
	dsn := c.Database(t)
	s := migrated(t, dsn, pgstore.Config{Partition: daily()})
	complete(t, s, want(t, s, request("done"), onlyonce.Won).Record.Owner())
	want(t, s, keeping("held"), onlyonce.Won)
	if err := c.Restart(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dsn, pgstore.Config{})
	want(t, s, again(request("done")), onlyonce.Replay)
	if kept, found, err := s.Kept(t.Context(), request("held").Key); err != nil || !found || string(kept) != "request of held" {
		t.Errorf("kept %q, %v, %v", kept, found, err)
	}
}
