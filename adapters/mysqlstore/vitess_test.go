package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// envVitess is the URL of a keyspace of two shards, as docs/VITESS.md makes it. All
// that is in our tables, and in the table business, is deleted.
const envVitess = "ONLYONCE_TEST_VITESS"

// TestVitess is the contract on two shards, and what only shards can get wrong.
func TestVitess(t *testing.T) { //nolint:tparallel // one test has the keyspace at a time
	t.Parallel()
	dsn := os.Getenv(envVitess)
	if dsn == "" {
		t.Skip("not asked for: set " + envVitess + " as docs/VITESS.md says")
	}
	v := newKeyspace(t, dsn)
	t.Run("contract", func(t *testing.T) { storetest.Run(t, v.backend()) })
	t.Run("transactions", func(t *testing.T) { storetest.RunTx(t, v.txBackend()) })
	t.Run("history", func(t *testing.T) { storetest.RunHistory(t, v.backend()) })
	t.Run("model", func(t *testing.T) {
		storetest.RunModel(t, storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
			t.Helper()
			v.empty()
			return storetest.Instance{Store: ready(t, v.db, mysqlstore.Config{Now: now})}
		}}, reference(t))
	})
	t.Run("one winner and one business row a key", v.checkStorm)
	t.Run("a transaction that reaches two shards leaves nothing", v.checkTwoShards)
	t.Run("a duplicate in another process is busy at once", v.checkBusyElsewhere)
	t.Run("what is refused", v.checkRefusals)
	t.Run("what is swept is on both shards", v.checkSweep)
	t.Run("two recoverers share the turns of both shards", v.checkTurns)
	t.Run("the shard's own clock", v.checkClock)
}

// keyspace is a database on two shards. One test has it at a time.
type keyspace struct {
	dsn string
	// db and other are the pools of the instances' stores; all reaches both shards
	// in one transaction.
	db, other, all *sql.DB
	// shards are pools that see one shard each.
	shards [2]*sql.DB

	mu sync.Mutex
	// holder is the test that has the keyspace.
	holder atomic.Pointer[testing.T]
	// keys are the digests of the keys that open transactions are about: a business
	// row must be on its key's shard.
	keys sync.Map
}

func newKeyspace(t *testing.T, dsn string) *keyspace {
	t.Helper()
	v := &keyspace{dsn: dsn, db: open(t, dsn, mysqlstore.Config{}).DB(), other: open(t, dsn, mysqlstore.Config{}).DB()}
	v.all = admin(t, dsn)
	v.all.SetMaxOpenConns(1)
	exec(t, v.all, `SET transaction_mode = 'MULTI'`)
	exec(t, v.all, `CREATE TABLE IF NOT EXISTS business (
		digest BINARY(16) NOT NULL, id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARBINARY(255) NOT NULL, KEY (digest))`)
	for i, name := range []string{"-80", "80-"} {
		v.shards[i] = admin(t, dsn+":"+name)
	}
	v.empty()
	return v
}

// empty deletes what a test has left on both shards.
func (v *keyspace) empty() {
	for _, table := range []string{"onlyonce_keys", "onlyonce_holds", "onlyonce_kept", "onlyonce_steps", "onlyonce_settings", "onlyonce_audit", "business"} {
		if _, err := v.all.ExecContext(context.Background(), `DELETE FROM `+table); err != nil {
			panic(err)
		}
	}
}

// take gives an empty keyspace until the test ends, or takes it again.
func (v *keyspace) take(t *testing.T) {
	t.Helper()
	if v.holder.Load() == t {
		v.empty()
		return
	}
	v.mu.Lock()
	v.holder.Store(t)
	t.Cleanup(func() {
		defer v.mu.Unlock()
		v.holder.Store(nil)
		v.empty()
	})
}

func (v *keyspace) backend() storetest.Backend {
	return storetest.Backend{Open: func(t *testing.T, now func() time.Time) storetest.Instance {
		t.Helper()
		v.take(t)
		cfg := mysqlstore.Config{Now: now}
		return storetest.Instance{Store: routed{ready(t, v.db, cfg), v}, Another: routed{ready(t, v.other, cfg), v}}
	}}
}

// routed is a store whose handlers can learn which key they are about, as business
// code knows its tenant.
type routed struct {
	*mysqlstore.Store
	v *keyspace
}

func (s routed) Atomic(ctx context.Context, req onlyonce.ClaimRequest, fn onlyonce.TxFunc[*sql.Tx]) (onlyonce.Claim, onlyonce.Settled, error) {
	return s.Store.Atomic(ctx, req, knowing(s.v, req.Key, fn))
}

func (s routed) Finish(ctx context.Context, owner onlyonce.Owner, fn onlyonce.TxFunc[*sql.Tx]) (onlyonce.Settled, error) {
	return s.Store.Finish(ctx, owner, knowing(s.v, owner.Key, fn))
}

func (s routed) StepTx(ctx context.Context, owner onlyonce.Owner, step onlyonce.TxStep, fn onlyonce.TxStepFunc[*sql.Tx]) ([]byte, bool, error) {
	return s.Store.StepTx(ctx, owner, step, knowing(s.v, owner.Key, fn))
}

// knowing notes the key of a transaction while fn runs.
func knowing[T any](v *keyspace, key onlyonce.Key, fn func(context.Context, *sql.Tx) (T, error)) func(context.Context, *sql.Tx) (T, error) {
	return func(ctx context.Context, tx *sql.Tx) (T, error) {
		v.keys.Store(tx, key.Digest())
		defer v.keys.Delete(tx)
		return fn(ctx, tx)
	}
}

func (v *keyspace) txBackend() storetest.TxBackend[*sql.Tx] {
	return storetest.TxBackend[*sql.Tx]{
		Open: v.backend().Open,
		Write: func(ctx context.Context, tx *sql.Tx, name string) error {
			d, _ := v.keys.Load(tx)
			return addRow(ctx, tx, d.(onlyonce.Digest), name)
		},
		Count: func(t *testing.T, _ storetest.Instance, name string) int {
			t.Helper()
			return one[int](t, v.db, `SELECT COUNT(*) FROM business WHERE name = ?`, name)
		},
		Do: func(ctx context.Context, _ storetest.Instance, fn func(*sql.Tx) error) error {
			var key []byte // the one that the suite is about
			if err := v.db.QueryRowContext(ctx, `SELECT digest FROM onlyonce_keys ORDER BY created_us DESC LIMIT 1`).Scan(&key); err != nil {
				return err
			}
			tx, err := v.db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback() // does nothing behind a commit
			v.keys.Store(tx, onlyonce.Digest(key))
			defer v.keys.Delete(tx)
			if err := fn(tx); err != nil {
				return err
			}
			return tx.Commit()
		},
	}
}

// addRow writes a business row on a key's shard.
func addRow(ctx context.Context, tx *sql.Tx, d onlyonce.Digest, name string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO business (digest, name) VALUES (?, ?)`, d[:], name)
	return err
}

// books is a handler that writes a business row on the shards of these keys.
func books(keys ...onlyonce.Key) onlyonce.TxFunc[*sql.Tx] {
	return func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
		for _, key := range keys {
			if err := addRow(ctx, tx, key.Digest(), key.Value); err != nil {
				return nil, err
			}
		}
		return answers(ctx, tx)
	}
}

// C1, O: of sixteen that run each of forty keys one wins, the others replay its answer,
// and there is one business row, on the shard of the key.
func (v *keyspace) checkStorm(t *testing.T) {
	v.take(t)
	const keys, clients = 40, 16
	stores := []*mysqlstore.Store{ready(t, v.db, mysqlstore.Config{}), ready(t, v.other, mysqlstore.Config{})}
	var won, replayed atomic.Int32
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			for i := range keys {
				req := request(fmt.Sprint(i))
				verdict, err := decided(t.Context(), stores[client%2], req)
				switch {
				case err != nil:
					t.Errorf("key %d: %v", i, err)
				case verdict == onlyonce.Replay:
					replayed.Add(1)
				default:
					won.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if won.Load() != keys || replayed.Load() != keys*(clients-1) {
		t.Errorf("%d won and %d replayed, want %d and %d", won.Load(), replayed.Load(), keys, keys*(clients-1))
	}
	rows := 0
	for i, shard := range v.shards {
		n, names := ledger(t, shard)
		beside := one[int](t, shard, `SELECT COUNT(*) FROM business b JOIN onlyonce_keys k ON k.digest = b.digest AND k.key_value = b.name WHERE k.state = 2`)
		t.Logf("shard %d has %d of the keys", i+1, names)
		if n == 0 || n != names || n != beside {
			t.Errorf("shard %d has %d business rows of %d names, %d of them beside their keys", i+1, n, names, beside)
		}
		rows += n
	}
	if rows != keys {
		t.Errorf("%d business rows, want %d", rows, keys)
	}
}

// decided runs a request until it has committed or meets the answer.
func decided(ctx context.Context, s *mysqlstore.Store, req onlyonce.ClaimRequest) (onlyonce.Verdict, error) {
	for range 10_000 {
		c, settled, err := s.Atomic(ctx, req, books(req.Key))
		switch {
		case errors.Is(err, onlyonce.ErrConflict):
		case err != nil || settled.Held || c.Verdict != onlyonce.Busy:
			return c.Verdict, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return 0, errors.New("never decided")
}

// O: a handler that reaches a second shard gets an error, and nothing is left of its
// transaction on either. So does one whose error the handler swallows.
func (v *keyspace) checkTwoShards(t *testing.T) {
	v.take(t)
	s := ready(t, v.db, mysqlstore.Config{})
	here, there := v.apart(t, s)
	for name, fn := range map[string]onlyonce.TxFunc[*sql.Tx]{
		"returned": books(here.Key, there.Key),
		"swallowed": func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
			_, err := books(here.Key, there.Key)(ctx, tx)
			t.Logf("the second shard: %v", err)
			return answers(ctx, tx)
		},
	} {
		c, settled, err := s.Atomic(t.Context(), again(here), fn)
		if err == nil || settled.Held {
			t.Errorf("%s: %v, %+v, %v", name, c.Verdict, settled, err)
		}
		t.Logf("%s: %v", name, err)
		for i, shard := range v.shards {
			rows, _ := ledger(t, shard)
			if keys := one[int](t, shard, `SELECT COUNT(*) FROM onlyonce_keys`); rows != 0 || keys != 0 {
				t.Errorf("%s: shard %d has %d business rows and %d keys", name, i+1, rows, keys)
			}
		}
	}
	if c, settled, err := s.Atomic(t.Context(), again(here), books(here.Key)); c.Verdict != onlyonce.Won || !settled.Held || err != nil {
		t.Errorf("on its own shard: %v, %+v, %v", c.Verdict, settled, err)
	}
}

// apart finds two requests whose keys are on two shards.
func (v *keyspace) apart(t *testing.T, s *mysqlstore.Store) (here, there onlyonce.ClaimRequest) {
	t.Helper()
	var on [2][]onlyonce.ClaimRequest
	for i := range 64 {
		req := request(fmt.Sprint("apart ", i))
		want(t, s, req, onlyonce.Won)
		d := req.Key.Digest()
		for i, shard := range v.shards {
			if one[int](t, shard, `SELECT COUNT(*) FROM onlyonce_keys WHERE digest = ?`, d[:]) == 1 {
				on[i] = append(on[i], req)
			}
		}
	}
	v.empty()
	if len(on[0]) == 0 || len(on[1]) == 0 || len(on[0])+len(on[1]) != 64 {
		t.Fatalf("%d and %d of 64 keys are on the shards", len(on[0]), len(on[1]))
	}
	return on[0][0], on[1][0]
}

// C2: another process hears from the key's lock that a transaction has the key, whether
// its row is new or taken over. If it waited for the row instead, its context would end.
func (v *keyspace) checkBusyElsewhere(t *testing.T) {
	v.take(t)
	s, other := ready(t, v.db, mysqlstore.Config{}), ready(t, v.other, mysqlstore.Config{})
	fresh, freed := request("fresh"), request("freed")
	owner := want(t, s, freed, onlyonce.Won).Record.Owner()
	if held, err := s.Release(t.Context(), owner, "r"); !held || err != nil {
		t.Fatalf("release: %v, %v", held, err)
	}
	for _, req := range []onlyonce.ClaimRequest{fresh, freed} {
		_, settled, err := s.Atomic(t.Context(), again(req), func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
			soon, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			for range 2 { // the second time it has met the key
				if c, err := other.Claim(soon, again(req)); err != nil || c.Verdict != onlyonce.Busy {
					t.Errorf("%s: %v, %v", req.Key.Value, c.Verdict, err)
				}
				if c, _, err := other.Atomic(soon, again(req), books(req.Key)); err != nil || c.Verdict != onlyonce.Busy {
					t.Errorf("%s, atomic: %v, %v", req.Key.Value, c.Verdict, err)
				}
			}
			return books(req.Key)(ctx, tx)
		})
		if err != nil || !settled.Held {
			t.Errorf("atomic: %+v, %v", settled, err)
		}
		want(t, other, again(req), onlyonce.Replay)
	}
}

// What cannot be kept on two shards is refused before anything is written.
func (v *keyspace) checkRefusals(t *testing.T) {
	v.take(t)
	s := ready(t, v.db, mysqlstore.Config{})
	if f := s.Features(); f.Name != "vitess" || f.Resources || !f.Transactions || !f.Steps || !f.Recovery {
		t.Errorf("features: %+v", f)
	}
	req := request("resource")
	req.Resource = "order_1"
	if _, err := s.Claim(t.Context(), req); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("claim with a resource: %v", err)
	}
	for _, mode := range []string{"MULTI", "TWOPC"} {
		_, err := mysqlstore.Open(t.Context(), with(t, v.dsn, "transaction_mode", "'"+mode+"'"), mysqlstore.Config{})
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "transaction_mode=SINGLE") {
			t.Errorf("transaction_mode=%s: %v", mode, err)
		}
	}
	if n := one[int](t, v.db, `SELECT COUNT(*) FROM onlyonce_keys`); n != 0 {
		t.Errorf("%d keys", n)
	}
}

// A sweeper's batch is on both shards.
func (v *keyspace) checkSweep(t *testing.T) {
	v.take(t)
	clock := storetest.NewClock()
	s := ready(t, v.db, mysqlstore.Config{Now: clock.Now})
	const keys = 20
	for i := range keys {
		want(t, s, request(fmt.Sprint("abandoned ", i)), onlyonce.Won)
		complete(t, s, want(t, s, request(fmt.Sprint("done ", i)), onlyonce.Won).Record.Owner())
	}
	clock.Advance(48 * time.Hour)
	res, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 100, Grace: time.Minute, StepRetention: time.Hour})
	if err != nil || res.Deleted != keys || res.Freed != keys {
		t.Errorf("sweep: %+v, %v", res, err)
	}
	for i, shard := range v.shards {
		if n := one[int](t, shard, `SELECT COUNT(*) FROM onlyonce_keys WHERE state = 3`); n == 0 || n == keys {
			t.Errorf("shard %d has %d of %d freed keys", i+1, n, keys)
		}
	}
}

// X1: two recoverers look for turns at once, over both shards, and each turn goes to one.
func (v *keyspace) checkTurns(t *testing.T) {
	v.take(t)
	clock := storetest.NewClock()
	stores := []*mysqlstore.Store{ready(t, v.db, mysqlstore.Config{Now: clock.Now}), ready(t, v.other, mysqlstore.Config{Now: clock.Now})}
	const keys = 20
	for i := range keys {
		req := request(fmt.Sprint("kept ", i))
		req.Keep = []byte(req.Key.Value)
		want(t, stores[0], req, onlyonce.Won)
	}
	clock.Advance(time.Hour)
	var mu sync.Mutex
	given := map[string]int{}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			due, err := stores[i%2].Due(t.Context(), onlyonce.DueRequest{Limit: keys, Grace: time.Minute, Pause: time.Minute, MaxPause: time.Hour})
			if err != nil {
				t.Errorf("due: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, d := range due {
				if given[string(d.Keep)]++; d.Turn != 1 || string(d.Keep) != d.Record.Key.Value {
					t.Errorf("turn %d of %s, which kept %q", d.Turn, d.Record.Key.Value, d.Keep)
				}
			}
		})
	}
	wg.Wait()
	for value, n := range given {
		if n != 1 {
			t.Errorf("%s was given %d times", value, n)
		}
	}
	if len(given) != keys {
		t.Errorf("%d of %d keys were given", len(given), keys)
	}
}

// Without a clock of the test's, times are made and judged by the key's own shard.
func (v *keyspace) checkClock(t *testing.T) {
	v.take(t)
	s := ready(t, v.db, mysqlstore.Config{})
	for i := range 8 {
		req := request(fmt.Sprint("clock ", i))
		req.Lease = time.Microsecond // over by the next statement
		first := want(t, s, req, onlyonce.Won).Record
		next := again(req)
		next.Lease = time.Minute
		second := want(t, s, next, onlyonce.Resumed).Record
		if second.Fence <= first.Fence || !second.CreatedAt.Equal(first.CreatedAt) {
			t.Errorf("taken over: %+v, from %+v", second, first)
		}
		want(t, s, again(req), onlyonce.Busy)
		step := onlyonce.Intent{Name: "charge", Provider: "stripe", DerivedKey: "d", Request: []byte("r")}
		if held, err := s.BeginStep(t.Context(), second.Owner(), step); !held || err != nil {
			t.Errorf("begin step: %v, %v", held, err)
		}
		if held, err := s.BeginStep(t.Context(), first.Owner(), step); held || err != nil {
			t.Errorf("step of an attempt that was taken over: %v, %v", held, err)
		}
		if steps, err := s.Steps(t.Context(), req.Key); err != nil || len(steps) != 1 || steps[0].Age < 0 || steps[0].Age > time.Hour {
			t.Errorf("steps: %+v, %v", steps, err)
		}
		complete(t, s, second.Owner())
		want(t, s, again(req), onlyonce.Replay)
	}
}
