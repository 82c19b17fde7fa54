package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

const businessTable = `CREATE TABLE business (name VARBINARY(255) PRIMARY KEY)`

// writes is a handler that adds a name, once.
func writes(name string) onlyonce.TxFunc[*sql.Tx] {
	return func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
		a := created()
		_, err := tx.ExecContext(ctx, `INSERT INTO business (name) VALUES (?)`, name)
		return &a, err
	}
}

func must(held bool, err error) error {
	if err == nil && !held {
		return errors.New("not held")
	}
	return err
}

// C10: the server has done it and nobody hears of it. Repeating finds it.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	pool := admin(t, dsn)
	exec(t, pool, businessTable)
	ctx := t.Context()
	s, w := wired(t, dsn)
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
	claims := func(what, message string, req onlyonce.ClaimRequest) (owner onlyonce.Owner) {
		t.Helper()
		lost(what, message, func() error {
			c, err := s.Claim(ctx, req)
			owner = c.Record.Owner()
			return must(c.Verdict.Owns() && c.Record.Attempts <= 2, err)
		})
		return owner
	}
	owner := claims("claim", "INSERT INTO onlyonce_keys", request("k"))
	intent := onlyonce.Intent{Name: "s", Provider: "p", DerivedKey: "d", Reference: "r", Request: []byte("x"), SendWithin: time.Second}
	lost("begin step", "INSERT INTO onlyonce_steps", func() error { return must(s.BeginStep(ctx, owner, intent)) })
	lost("end step", "UPDATE onlyonce_steps", func() error {
		return must(s.EndStep(ctx, owner, onlyonce.StepEnd{Name: "s", State: onlyonce.StepDone}))
	})
	lost("step in a transaction", "COMMIT", func() error {
		result, held, err := s.StepTx(ctx, owner, onlyonce.TxStep{Name: "tx"}, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			_, err := writes("step")(ctx, tx)
			return []byte("result"), err
		})
		return must(held && string(result) == "result", err)
	})
	lost("renew", "SET lease_us", func() error { return must(s.Renew(ctx, owner, time.Minute)) })
	lost("park", "SET state = LAST_INSERT_ID(4)", func() error { return must(s.Park(ctx, onlyonce.ParkRequest{Owner: owner, Reason: "r"})) })
	lost("complete", "SET state = 2", func() error {
		settled, err := s.Complete(ctx, owner, created())
		return must(settled.Held, err)
	})
	extras := request("extras")
	extras.Resource, extras.Keep = "order/1", []byte("request")
	owner = claims("claim with a resource", "COMMIT", extras)
	lost("requeue", "UPDATE onlyonce_kept", func() error { return must(s.Requeue(ctx, owner.Key)) })
	lost("release", "COMMIT", func() error { return must(s.Release(ctx, owner, "r")) })
	owner = claims("takeover with a resource", "COMMIT", again(extras))
	lost("complete with a resource", "COMMIT", func() error {
		settled, err := s.Complete(ctx, owner, created())
		return must(settled.Held, err)
	})
	lost("setting", "INSERT INTO onlyonce_settings", func() error {
		v, err := s.AddSetting(ctx, "kind", "id", []byte("v"))
		return must(string(v) == "v", err)
	})
	req := request("atomic")
	lost("atomic", "COMMIT", func() error {
		_, settled, err := s.Atomic(ctx, req, writes("atomic"))
		if c, e := s.Claim(ctx, req); err == nil && (e != nil || c.Verdict != onlyonce.Replay) {
			return fmt.Errorf("claimed again: %v, %w", c.Verdict, e)
		}
		return must(settled.Held || err == nil, err)
	})
	owner = want(t, s, request("finish"), onlyonce.Won).Record.Owner()
	lost("finish", "COMMIT", func() error {
		settled, err := s.Finish(ctx, owner, writes("finish"))
		return must(settled.Held, err)
	})
	if n := one[int](t, pool, `SELECT COUNT(*) FROM business`); n != 3 {
		t.Errorf("%d business rows, want those of the step, of Atomic and of Finish", n)
	}
	if n := one[int](t, pool, `SELECT (SELECT COUNT(*) FROM onlyonce_holds) + (SELECT COUNT(*) FROM onlyonce_kept)`); n != 0 {
		t.Errorf("%d rows of settled keys are left in other tables", n)
	}
}

// A connection that is lost before anything is sent leaves nothing: the store takes
// another one.
func TestStaleConnections(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	pool := admin(t, dsn)
	s := open(t, dsn, mysqlstore.Config{MaxConns: 1})
	for i := range 5 {
		var id int64
		if err := s.DB().QueryRowContext(t.Context(), `SELECT CONNECTION_ID()`).Scan(&id); err != nil {
			t.Fatal(err)
		}
		exec(t, pool, fmt.Sprintf(`KILL CONNECTION %d`, id))
		req := request(fmt.Sprint(i))
		for {
			c, err := s.Claim(t.Context(), req)
			if errors.Is(err, onlyonce.ErrUncertain) { // it had seemed to be alive
				continue
			}
			if err != nil || c.Verdict != onlyonce.Won {
				t.Errorf("claim: %v, %v", c.Verdict, err)
			}
			break
		}
	}
}

// C11: what cannot be reached is told from what failed.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, err = mysqlstore.Open(t.Context(), "mysql://app@"+addr+"/db", mysqlstore.Config{})
	if !errors.Is(err, onlyonce.ErrUnreachable) {
		t.Errorf("nobody listens: %v", err)
	}
	m := testserver.NewMariaDB(t)
	s := open(t, m.Database(t), mysqlstore.Config{})
	owner := want(t, s, request("k"), onlyonce.Won).Record.Owner()
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Complete(t.Context(), owner, created()); err == nil {
		t.Error("completed on a dead server")
	}
	if _, err := s.Claim(t.Context(), request("other")); !errors.Is(err, onlyonce.ErrUnreachable) {
		t.Errorf("claim on a dead server: %v", err)
	}
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	complete(t, s, owner) // what was confirmed is there
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Claim(cancelled, request("late")); !errors.Is(err, context.Canceled) || onlyonce.CodeOf(err) != "" {
		t.Errorf("claim with a context that is over: %v", err)
	}
	if _, found, err := s.Get(t.Context(), request("late").Key); found || err != nil {
		t.Errorf("it left a record: %v, %v", found, err)
	}
}

// A context that ends while a write waits leaves it uncertain; repeated it is done.
func TestCancelledDuringStatement(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, pool := open(t, dsn, mysqlstore.Config{}), admin(t, dsn)
	owner := want(t, s, request("k"), onlyonce.Won).Record.Owner()
	free := hold(t, pool, owner.Key)
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 1)
	go func() {
		_, err := s.Complete(ctx, owner, created())
		errs <- err
	}()
	waiting(t, pool)
	cancel()
	if err := <-errs; !errors.Is(err, onlyonce.ErrUncertain) || !errors.Is(err, context.Canceled) {
		t.Errorf("complete: %v, want uncertain and cancelled", err)
	}
	free()
	complete(t, s, owner)
}

// C10: a session that is killed while it waits may have done it, as far as we know.
func TestKilledDuringStatement(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, pool := open(t, dsn, mysqlstore.Config{}), admin(t, dsn)
	owner := want(t, s, request("k"), onlyonce.Won).Record.Owner()
	free := hold(t, pool, owner.Key)
	errs := make(chan error, 1)
	go func() {
		_, err := s.Complete(t.Context(), owner, created())
		errs <- err
	}()
	exec(t, pool, fmt.Sprintf(`KILL CONNECTION %d`, waiting(t, pool)))
	if err := <-errs; !errors.Is(err, onlyonce.ErrUncertain) {
		t.Errorf("complete: %v, want uncertain", err)
	}
	free()
	complete(t, s, owner)
}

// A wait that times out is a conflict: nothing happened.
func TestLockTimeout(t *testing.T) {
	t.Parallel()
	dsn := testserver.MySQL(t)
	s, pool := open(t, dsn, mysqlstore.Config{LockTimeout: time.Second}), admin(t, dsn)
	req := request("k")
	req.Lease = time.Microsecond
	owner := want(t, s, req, onlyonce.Won).Record.Owner()
	free := hold(t, pool, owner.Key)
	defer free()
	if _, err := s.Complete(t.Context(), owner, created()); !errors.Is(err, onlyonce.ErrConflict) {
		t.Errorf("complete: %v, want a conflict", err)
	}
	if _, err := s.Release(t.Context(), owner, "r"); !errors.Is(err, onlyonce.ErrConflict) {
		t.Errorf("release: %v, want a conflict", err)
	}
	want(t, s, again(req), onlyonce.Busy) // losing is no fault of the store's
}

// hold locks a key's row until the function it gives is called.
func hold(t *testing.T, pool *sql.DB, key onlyonce.Key) (release func()) {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	d := key.Digest()
	if _, err := tx.ExecContext(t.Context(), `SELECT 1 FROM onlyonce_keys WHERE digest = ? FOR UPDATE`, d[:]); err != nil {
		t.Fatal(err)
	}
	return func() { _ = tx.Rollback() }
}

// waiting waits until a session of the pool's database waits for a lock, and gives
// its number.
func waiting(t *testing.T, pool *sql.DB) int64 {
	t.Helper()
	// A statement that has been at it for so long waits. The server's own list of
	// waiting transactions stands still while it is asked for often.
	query := `SELECT id FROM information_schema.processlist
		WHERE db = DATABASE() AND id <> CONNECTION_ID() AND command = 'Query' AND time_ms > 50 LIMIT 1`
	if !strings.Contains(one[string](t, pool, `SELECT VERSION()`), "MariaDB") {
		query = `SELECT t.processlist_id FROM performance_schema.data_lock_waits w
			JOIN performance_schema.threads t ON t.thread_id = w.requesting_thread_id
			WHERE t.processlist_db = DATABASE() LIMIT 1`
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		var id int64
		err := pool.QueryRowContext(t.Context(), query).Scan(&id)
		if err == nil {
			return id
		}
		if !errors.Is(err, sql.ErrNoRows) {
			t.Fatal(err)
		}
		<-tick.C
	}
	t.Fatal("no session waits for a lock")
	return 0
}

// The server dies under load (SIGKILL) and comes back: what was confirmed is there,
// what was not is there once or not at all, and the same token finds out (C3, C10).
func TestServerKilledUnderLoad(t *testing.T) {
	t.Parallel()
	m := testserver.NewMariaDB(t)
	dsn := m.Database(t)
	s := open(t, dsn, mysqlstore.Config{})
	pool := admin(t, dsn)
	exec(t, pool, businessTable)
	const workers, keys = 8, 400
	var mu sync.Mutex
	confirmed, unsure := map[string]bool{}, map[string]onlyonce.ClaimRequest{}
	killed := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := worker; i < keys; i += workers {
				req := request(fmt.Sprint(i))
				_, settled, err := s.Atomic(t.Context(), req, writes(req.Key.Value))
				mu.Lock()
				if err == nil && settled.Held {
					confirmed[req.Key.Value] = true
				} else {
					unsure[req.Key.Value] = req
				}
				n := len(confirmed)
				mu.Unlock()
				if n == keys/4 {
					once.Do(func() { close(killed) })
				}
			}
		})
	}
	<-killed
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
	if len(unsure) == 0 {
		t.Fatal("the server was killed when all was done")
	}
	for value := range confirmed {
		want(t, s, again(request(value)), onlyonce.Replay)
		if n := one[int](t, pool, `SELECT COUNT(*) FROM business WHERE name = ?`, value); n != 1 {
			t.Errorf("%s was confirmed and has %d business rows", value, n)
		}
	}
	for value, req := range unsure {
		c, settled, err := s.Atomic(t.Context(), req, writes(value))
		if err != nil || (!settled.Held && c.Verdict != onlyonce.Replay) {
			t.Errorf("%s, repeated: %v, %+v, %v", value, c.Verdict, settled, err)
		}
	}
	if n := one[int](t, pool, `SELECT COUNT(*) FROM business`); n != keys {
		t.Errorf("%d business rows for %d keys", n, keys)
	}
}
