package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// waiting waits until a session waits for a lock in a statement like this, and
// gives its process.
func waiting(t *testing.T, pool *pgxpool.Pool, like string) int {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 2000 {
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

// hold locks a key's row until the function it gives is called.
func hold(t *testing.T, pool *pgxpool.Pool, key onlyonce.Key) (release func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := key.Digest()
	if _, err := tx.Exec(t.Context(), `SELECT FROM onlyonce_keys WHERE digest = $1 FOR UPDATE`, d[:]); err != nil {
		t.Fatal(err)
	}
	return func() { _ = tx.Rollback(t.Context()) }
}

// C10: a session that is killed in the middle of a write may have done it. The
// same write, repeated, finds out.
func TestKilledDuringStatement(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	owner := want(t, s, request("k"), onlyonce.Won).Record.Owner()
	free := hold(t, pool, owner.Key)
	defer free()
	errs := make(chan error, 1)
	go func() {
		_, err := s.Complete(t.Context(), owner, created())
		errs <- err
	}()
	exec(t, pool, `SELECT pg_terminate_backend($1)`, waiting(t, pool, "%UPDATE%onlyonce_keys%"))
	if err := <-errs; !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("complete: %v, want uncertain", err)
	}
	free()
	complete(t, s, owner)
}

// A context that ends while a write is under way leaves it uncertain as well.
func TestCancelledDuringStatement(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
	owner := want(t, s, request("k"), onlyonce.Won).Record.Owner()
	free := hold(t, pool, owner.Key)
	defer free()
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() {
		_, err := s.Complete(ctx, owner, created())
		errs <- err
	}()
	waiting(t, pool, "%UPDATE%onlyonce_keys%")
	cancel()
	if err := <-errs; !errors.Is(err, onlyonce.ErrUncertain) || !errors.Is(err, context.Canceled) {
		t.Errorf("complete: %v, want uncertain and cancelled", err)
	}
	if _, err := s.Complete(ctx, owner, created()); err == nil || errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("complete with a context that is over: %v, want an error that nothing happened", err)
	}
	free()
	complete(t, s, owner)
}

// slowCommit makes the COMMIT of whoever writes to business wait for a lock.
const slowCommit = `
CREATE TABLE business (name text);
CREATE FUNCTION wait_in_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER wait_in_commit AFTER INSERT ON business DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION wait_in_commit()`

// C10: killed during COMMIT: uncertain, and the same token decides.
func TestKilledDuringCommit(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
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
		a := created()
		_, err := tx.Exec(ctx, `INSERT INTO business VALUES ('k')`)
		return &a, err
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
	// The dying session may still hold the key's lock.
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

// C10: the server has done it and nobody hears of it. Repeating finds it.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	pool := admin(t, dsn)
	exec(t, pool, chargesTable)
	ctx := t.Context()
	// Unprepared statements carry their text, which the wire looks for.
	s, w := wired(t, with(t, dsn, "default_query_exec_mode", "exec"), pgstore.Config{})
	lost := func(what, message string, fn func() error) {
		t.Helper()
		w.loseReplyTo(message)
		if err := fn(); !errors.Is(err, onlyonce.ErrUncertain) {
			t.Errorf("%s: %v, want uncertain", what, err)
		}
		if err := fn(); err != nil {
			t.Errorf("%s, repeated: %v", what, err)
		}
	}
	must := func(held bool, err error) error {
		if err == nil && !held {
			return errors.New("not held")
		}
		return err
	}
	req := request("k")
	var owner onlyonce.Owner
	lost("claim", "INSERT INTO onlyonce_keys", func() error {
		c, err := s.Claim(ctx, req)
		owner = c.Record.Owner()
		return must(c.Verdict == onlyonce.Won && c.Record.Attempts == 1, err)
	})
	intent := onlyonce.Intent{Name: "s", Provider: "p", DerivedKey: "d", Reference: "r", Request: []byte("x"), SendWithin: time.Second}
	lost("begin step", "INSERT INTO onlyonce_steps", func() error { return must(s.BeginStep(ctx, owner, intent)) })
	lost("end step", "UPDATE onlyonce_steps", func() error {
		return must(s.EndStep(ctx, owner, onlyonce.StepEnd{Name: "s", State: onlyonce.StepDone}))
	})
	lost("step in a transaction", "\x00commit\x00", func() error {
		result, held, err := s.StepTx(ctx, owner, onlyonce.TxStep{Name: "tx"}, func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, err := writes(ctx, tx)
			return []byte("result"), err
		})
		return must(held && string(result) == "result", err)
	})
	lost("renew", "SET lease_end", func() error { return must(s.Renew(ctx, owner, time.Minute)) })
	lost("park", "SET state = 4", func() error { return must(s.Park(ctx, onlyonce.ParkRequest{Owner: owner, Reason: "r"})) })
	lost("complete", "SET state = 2", func() error {
		settled, err := s.Complete(ctx, owner, created())
		return must(settled.Held && !settled.ExpiresAt.IsZero(), err)
	})
	freed := want(t, s, request("freed"), onlyonce.Won).Record.Owner()
	lost("release", "SET state = 3", func() error { return must(s.Release(ctx, freed, "r")) })
	finish := want(t, s, request("finish"), onlyonce.Won).Record.Owner()
	lost("finish", "\x00commit\x00", func() error {
		settled, err := s.Finish(ctx, finish, writes)
		return must(settled.Held, err)
	})
	once := request("atomic")
	lost("atomic", "\x00commit\x00", func() error {
		c, _, err := s.Atomic(ctx, once, writes)
		return must(c.Verdict.Owns() || (c.Verdict == onlyonce.Replay && c.Record.Attempt == once.Attempt), err)
	})
	keep, rival := keeping("keep"), naming("r", "rival")
	keep.Resource = "r"
	lost("claim that keeps and holds", "INSERT INTO onlyonce_keys", func() error {
		c, err := s.Claim(ctx, keep)
		return must(c.Verdict == onlyonce.Won && c.Record.Holds, err)
	})
	lost("requeue", "SET turn = NULL", func() error { return must(s.Requeue(ctx, keep.Key)) })
	exec(t, pool, `UPDATE onlyonce_keys SET state = 3, expires_at = now() - interval '1 hour' WHERE key = 'keep'`)
	lost("let go of resource", "SET holds = NULL", func() error {
		c, err := s.Claim(ctx, rival)
		return must(c.Verdict == onlyonce.Won, err)
	})
	lost("setting", "INSERT INTO onlyonce_settings", func() error { _, err := s.AddSetting(ctx, "k", "i", []byte("v")); return err })
	if n := one[int](t, pool, `SELECT count(*) FROM charges`); n != 3 {
		t.Errorf("%d charges, want one of a step, one of finish and one of atomic", n)
	}
}

// A turn whose reply is lost is lost; the key comes again after its pause.
func TestLostTurn(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, w := wired(t, with(t, dsn, "default_query_exec_mode", "exec"), pgstore.Config{})
	req := keeping("k")
	req.Lease = time.Microsecond
	want(t, s, req, onlyonce.Won)
	w.loseReplyTo("SET turn = coalesce")
	if due, err := s.Due(t.Context(), dueNow); !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("due: %+v, %v, want uncertain", due, err)
	}
	if due, err := s.Due(t.Context(), dueNow); err != nil || len(due) != 0 {
		t.Errorf("due again: %+v, %v, want nothing yet", due, err)
	}
	exec(t, admin(t, dsn), `UPDATE onlyonce_keys SET turn_at = turn_at - interval '1 hour', due_at = due_at - interval '1 hour'`)
	if due, err := s.Due(t.Context(), dueNow); err != nil || len(due) != 1 || due[0].Turn != 2 {
		t.Errorf("due after the pause: %+v, %v", due, err)
	}
}

// A transaction that dies before its COMMIT was sent has left nothing, and is
// not uncertain: the handler's error comes back as it is.
func TestKilledInsideTransaction(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s, pool := migrated(t, dsn, pgstore.Config{}), admin(t, dsn)
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
	pool := admin(t, "postgres://nobody@127.0.0.1:1/none?connect_timeout=5")
	s, err := pgstore.New(pool, pgstore.Config{})
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
		"step":     func(ctx context.Context) error { _, _, err := s.StepTx(ctx, owner, reserve, reserves("k")); return err },
		"due":      func(ctx context.Context) error { _, err := s.Due(ctx, dueNow); return err },
		"kept":     func(ctx context.Context) error { _, _, err := s.Kept(ctx, owner.Key); return err },
		"requeue":  func(ctx context.Context) error { _, err := s.Requeue(ctx, owner.Key); return err },
		"sweep":    func(ctx context.Context) error { _, err := s.Sweep(ctx, batch); return err },
		"migrate":  s.Migrate,
	} {
		if err := fn(t.Context()); !errors.Is(err, onlyonce.ErrUnreachable) {
			t.Errorf("%s without a server: %v, want unreachable", name, err)
		}
		if err := fn(over); !errors.Is(err, context.Canceled) || onlyonce.CodeOf(err) != "" {
			t.Errorf("%s with a context that is over: %v, want a plain error", name, err)
		}
	}
	if _, err := pgstore.Open(t.Context(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=5", pgstore.Config{}); !errors.Is(err, onlyonce.ErrUnreachable) {
		t.Errorf("open without a server: %v, want unreachable", err)
	}

	busy := open(t, with(t, testserver.Postgres(t), "pool_max_conns", "1"), pgstore.Config{})
	conn, err := pgstore.PoolOf(busy).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := busy.Claim(ctx, request("k")); !errors.Is(err, context.DeadlineExceeded) || onlyonce.CodeOf(err) != "" {
		t.Errorf("claim without a free connection: %v, want a plain error", err)
	}
}

// Conflicts come back as such, from the handler's own statements too.
func TestConflicts(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	s := migrated(t, dsn, pgstore.Config{LockTimeout: 50 * time.Millisecond})
	pool := admin(t, dsn)
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
	if _, _, err := s.Atomic(t.Context(), request("lock timeout"), waits); !errors.Is(err, onlyonce.ErrConflict) {
		t.Errorf("lock timeout: %v, want a conflict", err)
	}
	swallowed := func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
		_, _ = waits(ctx, tx)
		return answers(ctx, tx)
	}
	if _, settled, err := s.Atomic(t.Context(), request("swallowed"), swallowed); !errors.Is(err, onlyonce.ErrConflict) || settled.Held {
		t.Errorf("an error that the handler swallowed: %+v, %v; want a conflict", settled, err)
	}
}
