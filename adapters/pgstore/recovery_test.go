package pgstore_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// dueNow asks for what is due without grace.
var dueNow = onlyonce.DueRequest{Limit: 100, Pause: time.Hour, MaxPause: 6 * time.Hour}

// keeping is a claim whose request is kept.
func keeping(value string) onlyonce.ClaimRequest {
	req := request(value)
	req.Keep = []byte("request of " + value)
	return req
}

// X1: three recoverers at once, in two processes, are given each key once, and pass
// over the one whose row somebody has locked, without waiting for it.
func TestRecoverersAtOnce(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, other := migrated(t, dsn, pgstore.Config{}), migrated(t, dsn, pgstore.Config{})
	pool := admin(t, dsn)
	const keys = 20
	expected := map[string]int{}
	for i := range keys {
		req := keeping(fmt.Sprint(i))
		req.Lease = time.Microsecond
		want(t, s, req, onlyonce.Won)
		expected[req.Key.Value] = 1
	}
	free := hold(t, pool, request("7").Key)
	defer free()
	delete(expected, "7")
	var mu sync.Mutex
	got := map[string]int{}
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for _, store := range []*pgstore.Store{s, other, other} {
		wg.Go(func() {
			<-gate
			for range keys {
				few := dueNow
				few.Limit = 3
				due, err := store.Due(t.Context(), few)
				if err != nil {
					t.Errorf("due: %v", err)
				}
				mu.Lock()
				for _, d := range due {
					got[d.Record.Key.Value] += d.Turn
				}
				mu.Unlock()
			}
		})
	}
	close(gate)
	wg.Wait()
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
	free()
	if due, err := s.Due(t.Context(), dueNow); err != nil || len(due) != 1 || due[0].Record.Key.Value != "7" || string(due[0].Keep) != "request of 7" {
		t.Errorf("due: %+v, %v; want the key that was locked", due, err)
	}
}

// What Due takes out of the way comes back when its attempt ends, as if nothing
// had been done to it, however that is.
func TestPutOffChangesNoTurn(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := migrated(t, dsn, pgstore.Config{Now: func() time.Time { return now }})
	step := onlyonce.Intent{Name: "s", Provider: "p", SendWithin: time.Second}
	for name, end := range map[string]func(o onlyonce.Owner) (bool, error){
		"parked": func(o onlyonce.Owner) (bool, error) {
			return s.Park(t.Context(), onlyonce.ParkRequest{Owner: o, Reason: "r"})
		},
		"freed behind a step": func(o onlyonce.Owner) (bool, error) { return s.Release(t.Context(), o, "r") },
		"a shorter lease":     func(o onlyonce.Owner) (bool, error) { return s.Renew(t.Context(), o, time.Microsecond) },
		"swept": func(onlyonce.Owner) (bool, error) {
			now = now.Add(9 * time.Hour)
			r, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10, StepRetention: time.Hour})
			return r.Parked == 1, err
		},
	} {
		req := keeping(name)
		req.Abandon = onlyonce.AbandonResume
		owner := want(t, s, req, onlyonce.Won).Record.Owner()
		if held, err := s.BeginStep(t.Context(), owner, step); err != nil || !held {
			t.Fatalf("begin step: %v, %v", held, err)
		}
		if held, err := s.Renew(t.Context(), owner, 10*time.Hour); err != nil || !held {
			t.Fatalf("renew: %v, %v", held, err)
		}
		now = now.Add(time.Hour)
		if due, err := s.Due(t.Context(), dueNow); err != nil || len(due) != 0 {
			t.Errorf("%s: %+v of a live attempt is due, %v", name, due, err)
		}
		if off := one[time.Duration](t, pool, `SELECT due_at - turn_at FROM onlyonce_keys WHERE key = $1`, name); off != 10*time.Hour-req.Lease {
			t.Errorf("%s: put off by %v", name, off)
		}
		if held, err := end(owner); err != nil || !held {
			t.Fatalf("%s: %v, %v", name, held, err)
		}
		graced := dueNow
		if name == "a shorter lease" {
			now = now.Add(time.Microsecond)
		} else { // since the turn came, not since the attempt ended
			graced.Grace = 30 * time.Minute
		}
		due, err := s.Due(t.Context(), graced)
		if err != nil || len(due) != 1 || due[0].Record.Key != req.Key || due[0].Turn != 1 {
			t.Errorf("%s: due %+v, %v", name, due, err)
		}
		exec(t, pool, `DELETE FROM onlyonce_keys`)
	}
}

// live makes n live attempts whose first lease is long over.
const live = `
UPDATE onlyonce_keys SET state = 1, status = NULL, completed_at = NULL, expires_at = NULL, header = NULL, body = NULL,
	lease_end = now() + interval '1 hour', keep = 'x',
	turn_at = now() - origin * interval '1 millisecond', due_at = now() - origin * interval '1 millisecond'
WHERE origin <= %d`

// However many live attempts stand before it, what is due is found: one call looks
// at a bounded number of rows, and not again at the same ones.
func TestDueBehindManyLiveAttempts(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	exec(t, pool, fill)
	exec(t, pool, fmt.Sprintf(live, 15000))
	req := keeping("due")
	req.Lease = time.Microsecond
	want(t, s, req, onlyonce.Won)
	const window, inTheWay = 1000 + 100, `SELECT count(*) FROM onlyonce_keys WHERE due_at < now()`
	for call := range 3 {
		before := one[int](t, pool, inTheWay)
		due, err := s.Due(t.Context(), dueNow)
		if err != nil {
			t.Fatal(err)
		}
		after := one[int](t, pool, inTheWay)
		if looked := before - after; looked > 10*window+1 {
			t.Errorf("call %d put %d rows off", call, looked)
		}
		if found := len(due) == 1 && due[0].Record.Key == req.Key; found != (call == 1) {
			t.Errorf("call %d: %d due, %d left", call, len(due), after)
		}
	}
	// Those that are put off come when their lease is over.
	exec(t, pool, `UPDATE onlyonce_keys SET lease_end = now(), due_at = now() WHERE origin <= 100`)
	if due, err := s.Due(t.Context(), dueNow); err != nil || len(due) != 100 {
		t.Errorf("%d due, %v, want 100", len(due), err)
	}
}

// Looking for what is due reads its index, in order, and of the table a few
// windows at most, versions of rows that are gone included.
func TestPlansOfDue(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	exec(t, pool, fill)
	exec(t, pool, fillSteps)
	exec(t, pool, fmt.Sprintf(live, 15000))
	exec(t, pool, `UPDATE onlyonce_keys SET lease_end = now() - interval '1 minute' WHERE origin % 1000 = 0 AND state = 1`)
	args := `NULL::timestamptz, 'store'::text, 0::bigint, 1100::bigint, NULL::text[], 100::bigint, 1000000::float8, 10000000::float8`
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			exec(t, pool, `ANALYZE onlyonce_keys, onlyonce_steps`)
		}
		for _, name := range []string{"giveTurns", "putOff"} {
			p := explain(t, pool, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "+literal(pgstore.SQLOf(s)[name], args))
			for _, index := range []string{" Index Scan (using|on) onlyonce_keys_due", "onlyonce_keys_pkey"} {
				if !regexp.MustCompile(index).MatchString(p) {
					t.Errorf("%s (analysed %v) does not use %s:\n%s", name, analyzed, index, p)
				}
			}
			for _, m := range regexp.MustCompile(`rows=(\d+)|Filter: (\d+)|Seq Scan`).FindAllStringSubmatch(p, -1) {
				if n, _ := strconv.Atoi(m[1] + m[2]); m[0] == "Seq Scan" || n > 3*1100 {
					t.Errorf("%s (analysed %v): %s is more than a few windows:\n%s", name, analyzed, m[0], p)
				}
			}
		}
	}
}

// D6: the next life of a key has nothing of the last one, neither its request nor
// its resource, nor the turns it was given.
func TestNextLifeKeepsItsOwn(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	for _, next := range []onlyonce.ClaimRequest{request("bare"), keeping("kept")} {
		first := keeping(next.Key.Value)
		first.Resource, first.Abandon = "r", onlyonce.AbandonResume
		owner := want(t, s, first, onlyonce.Won).Record.Owner()
		if held, err := s.BeginStep(t.Context(), owner, onlyonce.Intent{Name: "s", Provider: "p", SendWithin: time.Second}); err != nil || !held {
			t.Fatalf("begin step: %v, %v", held, err)
		}
		if held, err := s.Release(t.Context(), owner, "r"); err != nil || !held {
			t.Fatalf("release: %v, %v", held, err)
		}
		exec(t, pool, `UPDATE onlyonce_keys SET turn = 5, expires_at = now() - interval '1 hour'`)
		if kept, found, err := s.Kept(t.Context(), first.Key); found || err != nil {
			t.Errorf("of an expired life %q is kept, %v", kept, err)
		}
		if found, err := s.Requeue(t.Context(), first.Key); found || err != nil {
			t.Errorf("an expired life was requeued: %v", err)
		}
		next.Lease = time.Microsecond
		if rec := want(t, s, next, onlyonce.Won).Record; rec.Resource != "" || rec.Holds {
			t.Errorf("%s: resource %q, holds %v", next.Key.Value, rec.Resource, rec.Holds)
		}
		kept, found, err := s.Kept(t.Context(), next.Key)
		if found != (next.Keep != nil) || err != nil || string(kept) != string(next.Keep) {
			t.Errorf("%s: kept %q, %v, %v", next.Key.Value, kept, found, err)
		}
		due, err := s.Due(t.Context(), dueNow)
		if len(due) == 1 != (next.Keep != nil) || err != nil || (len(due) == 1 && due[0].Turn != 1) {
			t.Errorf("%s: due %+v, %v", next.Key.Value, due, err)
		}
		exec(t, pool, `DELETE FROM onlyonce_keys`)
	}
}

// The pause behind a turn stands within a life, also where the key was freed and
// nothing was kept for a while.
func TestPauseOutlivesRelease(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := migrated(t, dsn, pgstore.Config{Now: func() time.Time { return now }})
	req := keeping("k")
	want(t, s, req, onlyonce.Won)
	due := func(turn int) {
		t.Helper()
		given, err := s.Due(t.Context(), dueNow)
		if err != nil || len(given) != min(turn, 1) || (turn > 0 && given[0].Turn != turn) {
			t.Errorf("due: %+v, %v; want turn %d", given, err, turn)
		}
	}
	now = now.Add(req.Lease)
	due(1)
	if held, err := s.Release(t.Context(), want(t, s, again(req), onlyonce.Resumed).Record.Owner(), "r"); err != nil || !held {
		t.Fatalf("release: %v, %v", held, err)
	}
	bare := again(req)
	bare.Keep = nil
	owner := want(t, s, bare, onlyonce.Resumed).Record.Owner()
	if held, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: owner, Reason: "r"}); err != nil || !held {
		t.Fatalf("park: %v, %v", held, err)
	}
	now = now.Add(dueNow.Pause - time.Microsecond)
	due(0)
	resolve := again(req)
	resolve.Resolve, resolve.Lease = true, time.Microsecond
	want(t, s, resolve, onlyonce.Resumed)
	now = now.Add(time.Microsecond)
	due(2)
}

// D6: what is kept may be big, and comes whole out of every change of its row.
func TestBigRequestIsKeptWhole(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	req := keeping("k")
	req.Keep = make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{}).Read(req.Keep) // nothing to compress
	req.Abandon, req.Lease = onlyonce.AbandonResume, time.Microsecond
	whole := func(what string, kept []byte, err error) {
		t.Helper()
		if err != nil || !bytes.Equal(kept, req.Keep) {
			t.Errorf("%s: %d bytes, %v", what, len(kept), err)
		}
	}
	want(t, s, req, onlyonce.Won)
	due, err := s.Due(t.Context(), dueNow)
	if len(due) != 1 {
		t.Fatalf("due: %+v, %v", due, err)
	}
	whole("due", due[0].Keep, err)
	owner := want(t, s, again(req), onlyonce.Resumed).Record.Owner()
	if held, err := s.BeginStep(t.Context(), owner, onlyonce.Intent{Name: "s", Provider: "p", SendWithin: time.Second}); err != nil || !held {
		t.Fatalf("begin step: %v, %v", held, err)
	}
	if held, err := s.Release(t.Context(), owner, "r"); err != nil || !held {
		t.Fatalf("release: %v, %v", held, err)
	}
	kept, _, err := s.Kept(t.Context(), req.Key)
	whole("freed", kept, err)
	complete(t, s, want(t, s, again(req), onlyonce.Resumed).Record.Owner())
	if n := one[int](t, pool, `SELECT count(keep) FROM onlyonce_keys`); n != 0 {
		t.Errorf("%d requests are kept of completed keys", n)
	}
}

// A turn's pause grows and is bounded, also where powers of two would overflow.
func TestPausesGrow(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := migrated(t, dsn, pgstore.Config{Now: func() time.Time { return now }})
	req := keeping("k")
	owner := want(t, s, req, onlyonce.Won).Record.Owner()
	if held, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: owner, Reason: "r"}); err != nil || !held {
		t.Fatalf("park: %v, %v", held, err)
	}
	ask := onlyonce.DueRequest{Limit: 1, Pause: 7 * time.Microsecond, MaxPause: 200 * 365 * 24 * time.Hour}
	for _, turn := range []int{1, 2, 3, 30, 50, 51, 62, 63, 64, 1000, 1 << 30} {
		exec(t, pool, `UPDATE onlyonce_keys SET turn = nullif($1, 0), turn_at = $2, due_at = $2`, turn-1, now)
		due, err := s.Due(t.Context(), ask)
		if err != nil || len(due) != 1 || due[0].Turn != turn {
			t.Fatalf("turn %d: %+v, %v", turn, due, err)
		}
		next := one[time.Time](t, pool, `SELECT due_at FROM onlyonce_keys`)
		if got, want := next.Sub(now), ask.Until(turn); got != want {
			t.Errorf("behind turn %d: a pause of %v, want %v", turn, got, want)
		}
	}
	if _, err := s.Due(t.Context(), onlyonce.DueRequest{}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("due without a limit: %v", err)
	}
}
