package pgstore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// wall is a clock that tests move while stores read it.
type wall struct{ us atomic.Int64 }

func (w *wall) now() time.Time       { return time.UnixMicro(w.us.Load()).UTC() }
func (w *wall) set(at time.Time)     { w.us.Store(at.UnixMicro()) }
func (w *wall) add(by time.Duration) { w.us.Add(by.Microseconds()) }

// day is midnight of the n-th day.
func day(n int) time.Time { return time.Date(2026, 3, 1+n, 0, 0, 0, 0, time.UTC) }

// maintained calls MaintainPartitions and checks how many it emptied and moved.
func maintained(t *testing.T, s *pgstore.Store, emptied, moved int) {
	t.Helper()
	m, err := s.MaintainPartitions(t.Context())
	if want := (pgstore.Maintenance{Emptied: emptied, Moved: moved}); err != nil || m != want {
		t.Errorf("maintain: %+v, %v, want %+v", m, err, want)
	}
}

// T2, T3: a claim before midnight and its duplicate behind it meet the same key,
// whatever the microsecond; and a key that expires at midnight is new exactly then.
func TestMidnight(t *testing.T) {
	t.Parallel()
	w, dsn := &wall{}, testserver.Postgres(t)
	w.set(day(0).Add(time.Hour))
	s, pool := migrated(t, dsn, pgstore.Config{Partition: daily(), Now: w.now}), admin(t, dsn)
	other := migrated(t, dsn, pgstore.Config{Now: w.now})
	const us = time.Microsecond
	for _, claimed := range []time.Duration{-us, 0, us} {
		for _, done := range []time.Duration{-us, 0, us} {
			if done < claimed {
				continue
			}
			req := keeping(fmt.Sprintf("%d %d", claimed, done))
			w.set(day(1).Add(claimed))
			owner := want(t, s, req, onlyonce.Won).Record.Owner()
			w.set(day(1).Add(done))
			want(t, other, again(req), onlyonce.Busy)
			complete(t, s, owner)
			if slot, expected := slotOf(t, pool, "answer_slot", req.Key), 3; done < 0 {
				if slot != expected-1 {
					t.Errorf("%v: partition %d, want %d", req.Key.Value, slot, expected-1)
				}
			} else if slot != expected {
				t.Errorf("%v: partition %d, want %d", req.Key.Value, slot, expected)
			}
			expires := day(2).Add(done)
			for _, at := range []time.Time{day(1).Add(us), day(1).Add(12 * time.Hour), expires.Add(-us)} {
				w.set(at)
				want(t, other, again(req), onlyonce.Replay)
			}
			w.set(expires)
			next := want(t, other, again(req), onlyonce.Won).Record.Owner()
			want(t, s, again(req), onlyonce.Busy)
			complete(t, other, next)
			want(t, s, again(req), onlyonce.Replay)
			if n := one[int](t, pool, `SELECT count(*) FROM onlyonce_keys WHERE key = $1`, req.Key.Value); n != 1 {
				t.Errorf("%d rows of one key", n)
			}
		}
	}
}

// An attempt whose lease crosses midnight is taken over with its request.
func TestTakeoverBehindMidnight(t *testing.T) {
	t.Parallel()
	w, dsn := &wall{}, testserver.Postgres(t)
	w.set(day(1).Add(-time.Second))
	s := migrated(t, dsn, pgstore.Config{Partition: daily(), Now: w.now})
	req := keeping("k")
	old := want(t, s, req, onlyonce.Won).Record.Owner()
	w.add(req.Lease)
	owner := want(t, s, again(req), onlyonce.Resumed).Record.Owner()
	for range 6 { // days on which nobody is done
		w.add(24 * time.Hour)
		if _, err := s.MaintainPartitions(t.Context()); err != nil {
			t.Fatal(err)
		}
		if kept, found, err := s.Kept(t.Context(), req.Key); err != nil || !found || string(kept) != "request of k" {
			t.Fatalf("kept %q, %v, %v", kept, found, err)
		}
	}
	if settled, err := s.Complete(t.Context(), old, created()); err != nil || settled.Held {
		t.Errorf("the owner before: %+v, %v", settled, err)
	}
	complete(t, s, owner)
	want(t, s, again(req), onlyonce.Replay)
}

// doomed is a store at midnight between the first day and the second whose first
// partition goes, with everything in it that must not: what is kept of operations
// that are under way, in doubt and freed behind a step, and an answer that somebody
// has given a longer life by hand.
type doomed struct {
	*wall
	s    *pgstore.Store
	pool *pgxpool.Pool
	dsn  string
}

const doomedSlot = 2

func newDoomed(t *testing.T, dsn string) *doomed {
	t.Helper()
	d := &doomed{wall: &wall{}, dsn: dsn, pool: admin(t, dsn)}
	d.set(day(0).Add(12 * time.Hour))
	d.s = migrated(t, dsn, pgstore.Config{Partition: daily(), Now: d.now})
	everyKey(t, d.s, d.pool)
	complete(t, d.s, want(t, d.s, request("planted"), onlyonce.Won).Record.Owner())
	exec(t, d.pool, `UPDATE onlyonce_keys SET expires_at = expires_at + interval '1 year' WHERE key = 'planted'`)
	exec(t, d.pool, `UPDATE onlyonce_answers SET until = until + interval '1 year'
		WHERE of_key = (SELECT digest FROM onlyonce_keys WHERE key = 'planted')`)
	year := request("year")
	year.Retention = 365 * 24 * time.Hour
	complete(t, d.s, want(t, d.s, year, onlyonce.Won).Record.Owner())
	for name, where := range map[string]int{"planted": doomedSlot, "done": doomedSlot, "year": 0} {
		if slot := slotOf(t, d.pool, "answer_slot", request(name).Key); slot != where {
			t.Fatalf("the answer of %s is in partition %d", name, slot)
		}
	}
	if slot := slotOf(t, d.pool, "keep_slot", request("doubt").Key); slot != doomedSlot {
		t.Fatalf("the request is in partition %d", slot)
	}
	d.set(day(2))
	return d
}

// whole checks that nothing of it is lost.
func (d *doomed) whole(t *testing.T) {
	t.Helper()
	claims := map[string]onlyonce.Verdict{"doubt": onlyonce.Doubtful, "planted": onlyonce.Replay, "year": onlyonce.Replay}
	same(t, d.s, claims, []string{"live", "doubt", "behind"})
	due, err := d.s.Due(t.Context(), onlyonce.DueRequest{Limit: 100, Pause: time.Microsecond, MaxPause: time.Microsecond})
	d.add(time.Second) // their next turns
	if err != nil || len(due) != 3 {
		t.Errorf("due: %d, %v, want 3", len(due), err)
	}
	for _, k := range due {
		if string(k.Keep) != "request of "+k.Record.Key.Value {
			t.Errorf("%s came with %q", k.Record.Key.Value, k.Keep)
		}
	}
}

func (d *doomed) rows(t *testing.T) int {
	t.Helper()
	return one[int](t, d.pool, fmt.Sprintf(`SELECT (SELECT count(*) FROM onlyonce_answers_%[1]d) + (SELECT count(*) FROM onlyonce_requests_%[1]d)`, doomedSlot))
}

// T3: what is live or in doubt leaves a partition before it goes.
func TestNothingLiveGoes(t *testing.T) {
	t.Parallel()
	d := newDoomed(t, testserver.Postgres(t))
	d.set(day(2).Add(-time.Microsecond))
	maintained(t, d.s, 1, 0) // the one before; this period is not over
	same(t, d.s, map[string]onlyonce.Verdict{"planted": onlyonce.Replay}, nil)
	if d.rows(t) == 0 {
		t.Error("a partition went before its time")
	}
	d.set(day(2))
	maintained(t, d.s, 1, 4)
	if n := d.rows(t); n != 0 {
		t.Errorf("%d rows left", n)
	}
	maintained(t, d.s, 0, 0)
	d.whole(t)
	// The partition is in use again, for the day that comes next.
	late := request("late")
	late.Retention = 3*24*time.Hour + time.Hour
	complete(t, d.s, want(t, d.s, late, onlyonce.Won).Record.Owner())
	if slot := slotOf(t, d.pool, "answer_slot", late.Key); slot != doomedSlot {
		t.Errorf("partition %d, want %d again", slot, doomedSlot)
	}
	// What lies in no partition's period goes with the sweeper, row by row: the requests
	// of keys that are done, the answers that have expired, nothing else.
	complete(t, d.s, want(t, d.s, resolving("doubt"), onlyonce.Resumed).Record.Owner())
	for _, step := range []struct {
		day, answers, requests int
	}{
		{4, 2, 1}, // left: the two of a year, and the request of what was freed behind a step
		{400, 0, 0},
	} {
		d.set(day(step.day))
		for range 3 {
			if _, err := d.s.Sweep(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
		answers, requests := one[int](t, d.pool, `SELECT count(*) FROM onlyonce_answers_0`), one[int](t, d.pool, `SELECT count(*) FROM onlyonce_requests_0`)
		if answers != step.answers || requests != step.requests {
			t.Errorf("day %d: %d answers and %d requests left, want %d and %d", step.day, answers, requests, step.answers, step.requests)
		}
	}
}

func resolving(name string) onlyonce.ClaimRequest {
	req := again(request(name))
	req.Abandon, req.Resolve, req.Resource = onlyonce.AbandonResume, true, name
	return req
}

// insisting maintains again and again until the function it gives is called, which
// gives the last error.
func (d *doomed) insisting(t *testing.T) (stop func() error) {
	t.Helper()
	s := open(t, d.dsn, pgstore.Config{Now: d.now})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for {
			_, err := s.MaintainPartitions(ctx)
			if ctx.Err() != nil {
				err = nil
			}
			if err != nil || ctx.Err() != nil {
				done <- err
				return
			}
		}
	}()
	return func() error { cancel(); return <-done }
}

// gateOf makes who empties a partition wait when it is emptied and not yet
// committed.
const gateOf = `
CREATE FUNCTION wait_in_turn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NEW; END $$;
CREATE TRIGGER wait_in_turn BEFORE UPDATE ON onlyonce_partitions FOR EACH ROW EXECUTE FUNCTION wait_in_turn()`

// T3: a session that is killed, or a server that crashes, between moving and
// emptying, or when it has emptied and not committed, loses nothing, and the next one
// goes on.
func TestKilledWhileEmptying(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]struct {
		gate, like string
	}{
		"before": {`LOCK TABLE onlyonce_answers_2 IN ACCESS SHARE MODE`, "LOCK TABLE%answers_2%"},
		"behind": {`SELECT pg_advisory_xact_lock(7)`, "%UPDATE%onlyonce_partitions%"},
	} {
		for _, crash := range []bool{false, true} {
			t.Run(fmt.Sprint(name, crash), func(t *testing.T) {
				t.Parallel()
				c := testserver.NewCluster(t)
				d := newDoomed(t, c.Database(t))
				exec(t, d.pool, gateOf)
				gate, err := d.pool.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer gate.Rollback(context.WithoutCancel(t.Context()))
				if _, err := gate.Exec(t.Context(), at.gate); err != nil {
					t.Fatal(err)
				}
				stop := d.insisting(t)
				pid := waiting(t, d.pool, at.like)
				if crash {
					if err := c.Restart(); err != nil {
						t.Fatal(err)
					}
				} else {
					exec(t, d.pool, `SELECT pg_terminate_backend($1)`, pid)
				}
				if err := stop(); err == nil && crash {
					t.Error("maintaining outlived the server")
				}
				d.pool.Reset()
				d.s = open(t, d.dsn, pgstore.Config{Now: d.now})
				_ = gate.Rollback(t.Context()) // it may be gone with the server
				if n := d.rows(t); n == 0 {
					t.Error("the partition is empty: nobody was killed in time")
				}
				d.whole(t)
				m, err := d.s.MaintainPartitions(t.Context())
				if err != nil || m.Emptied == 0 || m.Late != 0 || d.rows(t) != 0 {
					t.Errorf("maintain again: %+v, %v, %d rows left", m, err, d.rows(t))
				}
				d.whole(t)
			})
		}
	}
}

// A claim that has chosen its partition, and is held up while that is emptied and
// given to another day, keeps its request; so does one that has written it and not
// yet committed: who empties waits, gives up, and finds it.
func TestClaimHeldUpOverMidnight(t *testing.T) {
	t.Parallel()
	d := newDoomed(t, testserver.Postgres(t))
	late := open(t, d.dsn, pgstore.Config{Now: func() time.Time { return day(1).Add(-time.Hour) }})
	req := keeping("held up")
	gate, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Rollback(context.WithoutCancel(t.Context()))
	digest := req.Key.Digest()
	if _, err := gate.Exec(t.Context(), `INSERT INTO onlyonce_keys (origin, retention, created_at, fp_form, abandon, digest, scope, key, operation,
			fp_secret, fp_policy, fp_sum, fp_parts, attempts, fence, lease_end, attempt)
		SELECT origin, retention, created_at, fp_form, abandon, $1, scope, 'held up', operation, fp_secret, fp_policy, fp_sum, fp_parts, 1, origin, lease_end, attempt
		FROM onlyonce_keys WHERE key = 'planted'`, digest[:]); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := late.Claim(t.Context(), req)
		done <- err
	}()
	waiting(t, d.pool, "%INSERT INTO onlyonce_keys%")
	if m, err := d.s.MaintainPartitions(t.Context()); err != nil || m.Emptied != 2 {
		t.Fatalf("maintain: %+v, %v", m, err)
	}
	if err := gate.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if slot := slotOf(t, d.pool, "keep_slot", req.Key); slot != doomedSlot {
		t.Fatalf("the request is in partition %d", slot)
	}
	check := func() {
		t.Helper()
		if kept, found, err := d.s.Kept(t.Context(), req.Key); err != nil || !found || string(kept) != "request of held up" {
			t.Fatalf("kept %q, %v, %v", kept, found, err)
		}
	}
	check()
	d.set(day(6)) // the later period is over as well
	maintained(t, d.s, 4, 1)
	check()
}

// Who reads a partition all the time is not disturbed, and makes nobody wait: its
// turn comes later.
func TestReaderOfAPartition(t *testing.T) {
	t.Parallel()
	d := newDoomed(t, testserver.Postgres(t))
	reader, err := d.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Rollback(context.WithoutCancel(t.Context()))
	if _, err := reader.Exec(t.Context(), `SELECT FROM onlyonce_answers`); err != nil {
		t.Fatal(err)
	}
	if m, err := d.s.MaintainPartitions(t.Context()); err != nil || m.Late != 2 || m.Emptied != 0 || m.Moved != 4 {
		t.Errorf("maintain: %+v, %v, want both late", m, err)
	}
	d.whole(t)
	stop := d.insisting(t)
	waiting(t, d.pool, "LOCK TABLE%")
	for i := range 10 {
		req := request(fmt.Sprint("beside ", i))
		complete(t, d.s, want(t, d.s, req, onlyonce.Won).Record.Owner())
		want(t, d.s, again(req), onlyonce.Replay)
	}
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Errorf("maintain: %v", err)
	}
	if m, err := d.s.MaintainPartitions(t.Context()); err != nil || m.Late != 0 || d.rows(t) != 0 {
		t.Errorf("maintain: %+v, %v, %d rows left", m, err, d.rows(t))
	}
}

// C1, T3: while days go by, partitions are emptied by several at once and claims,
// completions and replays go on, every answer is replayed until it expires, and no
// key runs twice in one life.
func TestPartitionsUnderLoad(t *testing.T) {
	t.Parallel()
	w, dsn := &wall{}, testserver.Postgres(t)
	w.set(day(0))
	stores := []*pgstore.Store{migrated(t, dsn, pgstore.Config{Partition: daily(), Now: w.now}), migrated(t, dsn, pgstore.Config{Now: w.now})}
	const days, writers = 8, 4
	over := make(chan struct{})
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
				}
				if err := liveOnce(t.Context(), stores[i%2], stores[(i+1)%2], w, fmt.Sprint(n, ".", i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range days * 12 {
		w.add(2 * time.Hour)
		var both sync.WaitGroup
		for _, s := range stores {
			both.Go(func() {
				if _, err := s.MaintainPartitions(t.Context()); err != nil {
					t.Errorf("maintain: %v", err)
				}
			})
		}
		both.Wait()
	}
	close(over)
	wg.Wait()
	pool := admin(t, dsn)
	lost := one[int](t, pool, `SELECT count(*) FROM onlyonce_keys LEFT JOIN onlyonce_answers ON slot = answer_slot AND until = expires_at AND of_key = digest
		WHERE state = 2 AND expires_at > $1 AND of_key IS NULL`, w.now())
	if lost != 0 {
		t.Errorf("%d answers are lost", lost)
	}
	t.Logf("%d keys", one[int](t, pool, `SELECT count(*) FROM onlyonce_keys`))
}

// liveOnce runs one key: claimed and completed here, replayed there for as long as
// its answer stands.
func liveOnce(ctx context.Context, here, there *pgstore.Store, w *wall, name string) error {
	req := keeping(name)
	req.Lease = 1000 * time.Hour
	claim, err := here.Claim(ctx, req)
	if err != nil || claim.Verdict != onlyonce.Won {
		return fmt.Errorf("claim %s: %v, %w", name, claim.Verdict, err)
	}
	kept, found, err := there.Kept(ctx, req.Key)
	if err != nil || !found || string(kept) != "request of "+name {
		return fmt.Errorf("kept of %s: %q, %w", name, kept, err)
	}
	answer := onlyonce.Answer{Status: 200, Body: []byte("answer of " + name)}
	settled, err := here.Complete(ctx, claim.Record.Owner(), answer)
	if err != nil || !settled.Held {
		return fmt.Errorf("complete %s: %+v, %w", name, settled, err)
	}
	got, err := there.Claim(ctx, again(req))
	switch {
	case err != nil && !w.now().Before(settled.ExpiresAt):
		return nil // the clock was read before it expired, and the answer looked for behind that, as the server's own clock cannot do
	case err != nil:
		return fmt.Errorf("replay %s: %w", name, err)
	case got.Verdict == onlyonce.Replay && string(got.Record.Answer.Body) == string(answer.Body):
		return nil
	case got.Verdict == onlyonce.Won && !w.now().Before(settled.ExpiresAt):
		return nil
	}
	return fmt.Errorf("replay %s: %v, expires %v, now %v", name, got.Verdict, settled.ExpiresAt, w.now())
}

// A program with rights on data only works with partitions that nobody looks after:
// its answers go where they are swept row by row. Who has the rights looks after them.
func TestPartitionsWithRightsOnDataOnly(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool, w := admin(t, dsn), &wall{}
	w.set(day(0))
	role := leastPrivilege(t, pool, dsn)
	migrated(t, dsn, pgstore.Config{Now: w.now})
	grant(t, pool, "")
	owner := migrated(t, dsn, pgstore.Config{Partition: daily(), Now: w.now}) // whose right is inherited from the keys' table
	s := migrated(t, role, pgstore.Config{Now: w.now})
	first := keeping("first")
	complete(t, s, want(t, s, first, onlyonce.Won).Record.Owner())
	if slot := slotOf(t, pool, "answer_slot", first.Key); slot < 1 {
		t.Errorf("partition %d", slot)
	}
	w.set(day(30))
	done := keeping("done")
	complete(t, s, want(t, s, done, onlyonce.Won).Record.Owner())
	want(t, s, again(done), onlyonce.Replay)
	if slot := slotOf(t, pool, "answer_slot", done.Key); slot != 0 {
		t.Errorf("partition %d, want 0", slot)
	}
	if _, err := s.MaintainPartitions(t.Context()); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("maintain without the right: %v", err)
	}
	w.set(day(31))
	r, err := s.Sweep(t.Context(), batch)
	if err != nil || r.Deleted != 2 {
		t.Errorf("sweep: %+v, %v, want 2 deleted", r, err)
	}
	if n := one[int](t, pool, `SELECT count(*) FROM onlyonce_answers_0`) + one[int](t, pool, `SELECT count(*) FROM onlyonce_requests_0`); n != 0 {
		t.Errorf("%d rows were not swept", n)
	}
	maintained(t, owner, 4, 0)
	next := request("next")
	complete(t, s, want(t, s, next, onlyonce.Won).Record.Owner())
	if slot := slotOf(t, pool, "answer_slot", next.Key); slot < 1 {
		t.Errorf("partition %d", slot)
	}
	// Granted, the sweeper does it.
	w.set(day(40))
	for n := range 5 {
		exec(t, pool, fmt.Sprintf(`GRANT TRUNCATE ON onlyonce_answers_%[1]d, onlyonce_requests_%[1]d TO %[2]s`, n, roleOf(pool)))
	}
	if _, err := s.Sweep(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	if n := one[int](t, pool, `SELECT count(*) FROM onlyonce_partitions WHERE upto <= $1`, w.now()); n != 0 {
		t.Errorf("%d partitions are over", n)
	}
}
