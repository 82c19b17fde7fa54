package portable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

var (
	intent  = onlyonce.Intent{Name: "s", Provider: "acme", DerivedKey: "d", Reference: "r", Request: []byte("x"), SendWithin: time.Second}
	reserve = onlyonce.TxStep{Name: "reserve"}
	dueNow  = onlyonce.DueRequest{Limit: 10, Pause: time.Minute, MaxPause: time.Hour}
	batch   = onlyonce.SweepRequest{Limit: 1000, Grace: time.Minute, StepRetention: time.Hour}
)

// charges is a handler that writes a business row.
func charges(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
	_, err := tx.Exec(ctx, `INSERT INTO charges VALUES ('one')`)
	if err != nil {
		return nil, err
	}
	return answers(ctx, tx)
}

func reserves(ctx context.Context, tx pgx.Tx) ([]byte, error) {
	_, err := charges(ctx, tx)
	return []byte("result"), err
}

// writes are all writes of a store but the sweep, by name. Each is called twice with the
// same arguments, and says whether it then stands.
func writes(t *testing.T, s *portable.Store) map[string]func() error {
	t.Helper()
	ctx := t.Context()
	own := func(value string) onlyonce.Owner {
		req := request(value)
		req.Resource, req.Keep, req.Abandon = "order/"+value, []byte("kept"), onlyonce.AbandonResume
		return want(t, s, req, onlyonce.Won).Record.Owner()
	}
	held := func(held bool, err error) error {
		if err == nil && !held {
			return errors.New("not held")
		}
		return err
	}
	claim, atomic := request("claim"), request("atomic")
	claim.Resource, claim.Keep = "order/1", []byte("kept")
	renew, park, release, full, finish := own("renew"), own("park"), own("release"), own("complete"), own("finish")
	begin, end, inTx, requeue := own("begin"), own("end"), own("step"), own("requeue")
	if ok, err := s.BeginStep(ctx, end, intent); !ok || err != nil {
		t.Fatalf("begin step: %v, %v", ok, err)
	}
	return map[string]func() error{
		"claim": func() error {
			c, err := s.Claim(ctx, claim)
			return held(c.Verdict == onlyonce.Won && c.Record.Holds && c.Record.Attempts == 1, err)
		},
		"renew":    func() error { return held(s.Renew(ctx, renew, time.Minute)) },
		"park":     func() error { return held(s.Park(ctx, onlyonce.ParkRequest{Owner: park, Reason: "r"})) },
		"release":  func() error { return held(s.Release(ctx, release, "r")) },
		"begin":    func() error { return held(s.BeginStep(ctx, begin, intent)) },
		"requeue":  func() error { return held(s.Requeue(ctx, requeue.Key)) },
		"audit":    func() error { return s.AddAudit(ctx, onlyonce.AuditEntry{Key: claim.Key, Action: "a"}) },
		"complete": func() error { settled, err := s.Complete(ctx, full, created()); return held(settled.Held, err) },
		"end": func() error {
			return held(s.EndStep(ctx, end, onlyonce.StepEnd{Name: "s", State: onlyonce.StepDone}))
		},
		"setting": func() error {
			v, err := s.AddSetting(ctx, "kind", "id", []byte("v"))
			return held(string(v) == "v", err)
		},
		"finish": func() error {
			settled, err := s.Finish(ctx, finish, charges)
			return held(settled.Held && !settled.ExpiresAt.IsZero(), err)
		},
		"step": func() error {
			result, ok, err := s.StepTx(ctx, inTx, reserve, reserves)
			return held(ok && string(result) == "result", err)
		},
		"atomic": func() error {
			c, _, err := s.Atomic(ctx, atomic, charges)
			return held(c.Verdict.Owns() || (c.Verdict == onlyonce.Replay && c.Record.Attempt == atomic.Attempt), err)
		},
	}
}

// C10: the server has committed and nobody hears of it: uncertain, and the same call
// finds it. Broken before the COMMIT was sent it has not happened: no word of doubt.
func TestLostCommits(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]portable.Config{"serializable": {}, "read_committed": {Isolation: pgx.ReadCommitted, OneClock: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testserver.Postgres(t)
			pool := admin(t, dsn)
			exec(t, pool, `CREATE TABLE charges (name text)`)
			s, w := wired(t, dsn, cfg)
			for name, write := range writes(t, s) {
				w.lose.Store(true)
				if err := write(); !errors.Is(err, onlyonce.ErrUncertain) {
					t.Errorf("%s: %v, want uncertain", name, err)
				}
				if err := write(); err != nil {
					t.Errorf("%s, repeated: %v", name, err)
				}
			}
			if n := one[int](t, pool, `SELECT count(*) FROM charges`); n != 3 {
				t.Errorf("%d charges, want one of a step, one of finish and one of atomic", n)
			}
		})
	}
}

func TestBrokenBeforeCommit(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	exec(t, pool, `CREATE TABLE charges (name text)`)
	s, w := wired(t, dsn, portable.Config{})
	all := writes(t, s)
	before := one[string](t, pool, tables)
	for name, write := range all {
		w.kill.Store(true)
		if err := write(); err == nil || errors.Is(err, onlyonce.ErrConflict) {
			t.Errorf("%s: %v, want an error", name, err)
		}
	}
	if after := one[string](t, pool, tables); after != before {
		t.Errorf("something was committed:\nbefore %s\nafter  %s", before, after)
	}
	for name, write := range all {
		if err := write(); err != nil {
			t.Errorf("%s, repeated: %v", name, err)
		}
	}
}

// tables is what there is.
const tables = `SELECT concat_ws(' ',
	(SELECT string_agg(k::text, ',' ORDER BY key) FROM onlyonce_portable_keys k),
	(SELECT string_agg(s::text, ',' ORDER BY key) FROM onlyonce_portable_steps s),
	(SELECT string_agg(r::text, ',' ORDER BY key) FROM onlyonce_portable_resources r),
	(SELECT count(*) FROM onlyonce_portable_settings), (SELECT count(*) FROM onlyonce_portable_audit), (SELECT count(*) FROM charges))`

// A turn whose reply is lost is lost; the key comes again after its pause.
func TestLostTurn(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, w := wired(t, dsn, portable.Config{OneClock: true})
	req := request("k")
	req.Keep, req.Lease = []byte("kept"), time.Microsecond
	want(t, s, req, onlyonce.Won)
	w.lose.Store(true)
	if due, err := s.Due(t.Context(), dueNow); !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("due: %+v, %v, want uncertain", due, err)
	}
	if due, err := s.Due(t.Context(), dueNow); err != nil || len(due) != 0 {
		t.Errorf("due again: %+v, %v, want nothing yet", due, err)
	}
	exec(t, admin(t, dsn), `UPDATE onlyonce_portable_keys SET turn_us = turn_us - 3600000000, due_us = due_us - 3600000000`)
	if due, err := s.Due(t.Context(), dueNow); err != nil || len(due) != 1 || due[0].Turn != 2 {
		t.Errorf("due after the pause: %+v, %v", due, err)
	}
}

// slowCommit makes the COMMIT of whoever writes to business wait for a lock.
const slowCommit = `
CREATE TABLE business (name text);
CREATE FUNCTION wait_in_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER wait_in_commit AFTER INSERT ON business DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION wait_in_commit()`

// waiting waits until a session waits for a lock in a statement like this, and gives
// its process.
func waiting(t *testing.T, pool *pgxpool.Pool, like string) int {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 4000 {
		var pid int
		err := pool.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ILIKE $1`, like).Scan(&pid)
		if err == nil {
			return pid
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		<-tick.C
	}
	t.Fatal("no session waits for a lock")
	return 0
}

// C10: killed by the server in the middle of COMMIT: uncertain, and the same token
// decides.
func TestKilledDuringCommit(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, portable.Config{LockTimeout: 20 * time.Second}), admin(t, dsn)
	exec(t, pool, slowCommit)
	gate, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Release()
	if _, err := gate.Exec(t.Context(), `SELECT pg_advisory_lock(7)`); err != nil {
		t.Fatal(err)
	}
	req := request("k")
	body := func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
		if _, err := tx.Exec(ctx, `INSERT INTO business VALUES ('k')`); err != nil {
			return nil, err
		}
		return answers(ctx, tx)
	}
	errs := make(chan error, 1)
	go func() {
		_, settled, err := s.Atomic(t.Context(), req, body)
		if settled.Held {
			err = errors.New("it is held")
		}
		errs <- err
	}()
	exec(t, pool, `SELECT pg_terminate_backend($1)`, waiting(t, pool, "commit"))
	if err := <-errs; !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("atomic: %v, want uncertain", err)
	}
	if _, err := gate.Exec(t.Context(), `SELECT pg_advisory_unlock(7)`); err != nil {
		t.Fatal(err)
	}
	claim, settled, err := s.Atomic(t.Context(), req, body)
	if err != nil || claim.Verdict != onlyonce.Won || !settled.Held {
		t.Errorf("repeated: %v, %+v, %v", claim.Verdict, settled, err)
	}
	if n := one[int](t, pool, `SELECT count(*) FROM business`); n != 1 {
		t.Errorf("%d business rows, want 1", n)
	}
}

// A transaction that dies before its COMMIT was sent has left nothing, and is not
// uncertain: the handler's error comes back as it is.
func TestKilledInsideTransaction(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, portable.Config{}), admin(t, dsn)
	req := request("k")
	_, _, err := s.Atomic(t.Context(), req, func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
		var pid int
		if err := tx.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
			return nil, err
		}
		exec(t, pool, `SELECT pg_terminate_backend($1)`, pid)
		_, err := tx.Exec(ctx, `SELECT 1`)
		return nil, err
	})
	if err == nil || errors.Is(err, onlyonce.ErrUncertain) || errors.Is(err, onlyonce.ErrConflict) {
		t.Errorf("atomic: %v, want the handler's own error", err)
	}
	if _, found, err := s.Get(t.Context(), req.Key); found || err != nil {
		t.Errorf("get: %v, %v", found, err)
	}
}

// C11: what never reached a server did not happen.
func TestNothingWasSent(t *testing.T) {
	t.Parallel()
	const nowhere = "postgres://nobody@127.0.0.1:1/none?connect_timeout=5"
	s, err := portable.New(admin(t, nowhere), portable.Config{})
	if err != nil {
		t.Fatal(err)
	}
	over, end := context.WithCancel(t.Context())
	end()
	owner := onlyonce.Owner{Key: request("k").Key}
	for name, fn := range map[string]func(ctx context.Context) error{
		"claim":    func(ctx context.Context) error { _, err := s.Claim(ctx, request("k")); return err },
		"complete": func(ctx context.Context) error { _, err := s.Complete(ctx, owner, created()); return err },
		"get":      func(ctx context.Context) error { _, _, err := s.Get(ctx, owner.Key); return err },
		"steps":    func(ctx context.Context) error { _, err := s.Steps(ctx, owner.Key); return err },
		"atomic":   func(ctx context.Context) error { _, _, err := s.Atomic(ctx, request("k"), answers); return err },
		"finish":   func(ctx context.Context) error { _, err := s.Finish(ctx, owner, answers); return err },
		"step":     func(ctx context.Context) error { _, _, err := s.StepTx(ctx, owner, reserve, reserves); return err },
		"due":      func(ctx context.Context) error { _, err := s.Due(ctx, dueNow); return err },
		"kept":     func(ctx context.Context) error { _, _, err := s.Kept(ctx, owner.Key); return err },
		"requeue":  func(ctx context.Context) error { _, err := s.Requeue(ctx, owner.Key); return err },
		"sweep":    func(ctx context.Context) error { _, err := s.Sweep(ctx, batch); return err },
		"list":     func(ctx context.Context) error { _, err := s.List(ctx, onlyonce.ListFilter{}); return err },
		"migrate":  s.Migrate,
	} {
		if err := fn(t.Context()); !errors.Is(err, onlyonce.ErrUnreachable) {
			t.Errorf("%s without a server: %v, want unreachable", name, err)
		}
		if err := fn(over); !errors.Is(err, context.Canceled) || onlyonce.CodeOf(err) != "" {
			t.Errorf("%s with a context that is over: %v, want a plain error", name, err)
		}
	}
	if _, err := portable.Open(t.Context(), nowhere, portable.Config{}); !errors.Is(err, onlyonce.ErrUnreachable) {
		t.Errorf("open without a server: %v, want unreachable", err)
	}
}

// B03, C2: a claim that another transaction is in the way of waits for the lock timeout
// and no longer: what is committed decides, else the key is busy.
func TestLockTimeout(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	short := portable.Config{LockTimeout: 20 * time.Millisecond, OneClock: true}
	s, other := migrated(t, dsn, short), migrated(t, dsn, short)
	freed := request("freed")
	if _, err := s.Release(t.Context(), want(t, s, freed, onlyonce.Won).Record.Owner(), "r"); err != nil {
		t.Fatal(err)
	}
	for _, req := range []onlyonce.ClaimRequest{request("fresh"), freed} {
		_, settled, err := s.Atomic(t.Context(), again(req), func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
			want(t, other, again(req), onlyonce.Busy)
			c, _, err := other.Atomic(ctx, again(req), answers)
			if err != nil || c.Verdict != onlyonce.Busy {
				t.Errorf("%s: %v, %v, want busy", req.Key.Value, c.Verdict, err)
			}
			want(t, s, again(req), onlyonce.Busy) // in this process without waiting
			return answers(ctx, tx)
		})
		if err != nil || !settled.Held {
			t.Fatalf("%s: %+v, %v", req.Key.Value, settled, err)
		}
		want(t, other, again(req), onlyonce.Replay)
	}
}

// A write that is not a claim is repeated when it has waited for too long, and is a
// conflict when that does not help.
func TestLockTimeoutOfOwner(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, portable.Config{LockTimeout: time.Millisecond}), admin(t, dsn)
	owner := want(t, s, request("k"), onlyonce.Won).Record.Owner()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SELECT FROM onlyonce_portable_keys FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Renew(t.Context(), owner, time.Minute); !errors.Is(err, onlyonce.ErrConflict) {
		t.Errorf("renew beside a lock: %v, want a conflict", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	complete(t, s, owner)
}

// Conflicts come back as such, from the handler's own statements too, also when it
// swallows them.
func TestHandlersConflicts(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, portable.Config{LockTimeout: 50 * time.Millisecond}), admin(t, dsn)
	exec(t, pool, `CREATE TABLE business (id int PRIMARY KEY, n int)`)
	exec(t, pool, `INSERT INTO business VALUES (1, 0)`)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `UPDATE business SET n = 1`); err != nil {
		t.Fatal(err)
	}
	waits := func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
		_, err := tx.Exec(ctx, `UPDATE business SET n = n + 1`)
		return nil, fmt.Errorf("count: %w", err)
	}
	swallows := func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
		_, _ = waits(ctx, tx)
		return answers(ctx, tx)
	}
	for name, handler := range map[string]onlyonce.TxFunc[pgx.Tx]{"returned": waits, "swallowed": swallows} {
		if _, settled, err := s.Atomic(t.Context(), request(name), handler); !errors.Is(err, onlyonce.ErrConflict) || settled.Held {
			t.Errorf("%s: %+v, %v; want a conflict", name, settled, err)
		}
		want(t, s, request(name), onlyonce.Won) // nothing was left
	}
}

// A handler that ends the transaction by itself is told off.
func TestHandlerThatCommits(t *testing.T) {
	t.Parallel()
	s := migrated(t, testserver.Postgres(t), portable.Config{})
	_, settled, err := s.Atomic(t.Context(), request("k"), func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
		if tx.Commit(ctx) == nil || tx.Rollback(ctx) == nil {
			t.Error("the handler ended its transaction")
		}
		if _, err := tx.Exec(ctx, `COMMIT`); err != nil {
			return nil, err
		}
		return answers(ctx, tx)
	})
	if onlyonce.CodeOf(err) != onlyonce.CodeTxEnded || settled.Held {
		t.Errorf("atomic: %+v, %v", settled, err)
	}
}
