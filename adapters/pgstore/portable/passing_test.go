package portable_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// stuck begins a transaction at keys, which its caller never ends.
func stuck(t *testing.T, pool *pgxpool.Pool, keys ...string) (end func()) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if tag, err := tx.Exec(t.Context(), `UPDATE onlyonce_portable_keys SET reason = 'x' WHERE key = $1`, key); err != nil || tag.RowsAffected() != 1 {
			t.Fatal(tag, err)
		}
	}
	return func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// impatient is every isolation level, where somebody in the way is waited for in vain.
func impatient(t *testing.T, test func(t *testing.T, s *portable.Store, pool *pgxpool.Pool, clock *storetest.Clock)) {
	t.Helper()
	for name, cfg := range levels() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, clock := testserver.Postgres(t), storetest.NewClock()
			cfg.LockTimeout, cfg.Now = 20*time.Millisecond, clock.Now
			test(t, migrated(t, dsn, cfg), admin(t, dsn), clock)
		})
	}
}

// X1: a transaction that never ends keeps its own key from its turn, and no other.
func TestDuePassesOverAStuckTransaction(t *testing.T) {
	t.Parallel()
	impatient(t, func(t *testing.T, s *portable.Store, pool *pgxpool.Pool, clock *storetest.Clock) {
		t.Helper()
		for _, value := range []string{"a", "b", "c"} {
			req := request(value)
			req.Keep = []byte(value)
			want(t, s, req, onlyonce.Won)
			clock.Advance(time.Second)
		}
		clock.Advance(time.Hour)
		end := stuck(t, pool, "a", "b")
		check := func(keys ...string) {
			t.Helper()
			due, err := s.Due(t.Context(), dueNow)
			if err != nil || len(due) != len(keys) {
				t.Fatalf("%d turns, %v; want %v", len(due), err, keys)
			}
			for i, d := range due {
				if d.Record.Key.Value != keys[i] || string(d.Keep) != keys[i] || d.Turn != 1 {
					t.Errorf("turn %d of %q with %q, want the first of %q", d.Turn, d.Record.Key.Value, d.Keep, keys[i])
				}
			}
		}
		check("c")
		check()
		end()
		check("a", "b")
	})
}

// T3: a transaction that never ends keeps its own rows from being swept, and no other,
// in this phase and in those behind it.
func TestSweepPassesOverAStuckTransaction(t *testing.T) {
	t.Parallel()
	impatient(t, func(t *testing.T, s *portable.Store, pool *pgxpool.Pool, clock *storetest.Clock) {
		t.Helper()
		for i := range 4 {
			complete(t, s, want(t, s, request(fmt.Sprint("expired", i)), onlyonce.Won).Record.Owner())
		}
		steps := request("dead steps")
		owner := want(t, s, steps, onlyonce.Won).Record.Owner()
		begin(t, s, owner, intent)
		complete(t, s, owner)
		clock.Advance(24 * time.Hour)
		for i := range 3 {
			want(t, s, request(fmt.Sprint("abandoned", i)), onlyonce.Won)
			clock.Advance(time.Second)
		}
		clock.Advance(time.Hour)
		end := stuck(t, pool, "expired0", "expired2", "abandoned0")
		check := func(want onlyonce.SweepResult) {
			t.Helper()
			if got, err := s.Sweep(t.Context(), batch); err != nil || got != want {
				t.Errorf("sweep: %+v, %v; want %+v", got, err, want)
			}
		}
		check(onlyonce.SweepResult{Deleted: 3, Freed: 2, Steps: 1})
		check(onlyonce.SweepResult{})
		end()
		check(onlyonce.SweepResult{Deleted: 2, Freed: 1})
	})
}

// copies makes as many copies of a key's row, since making as many takes long. Numbers
// are their keys, from 1.
func copies(t *testing.T, pool *pgxpool.Pool, key string, n int) {
	t.Helper()
	exec(t, pool, `CREATE TABLE copies AS SELECT k.*, n FROM onlyonce_portable_keys k, generate_series(1, $2::int) n WHERE key = $1`, pgx.QueryExecModeExec, key, n)
	exec(t, pool, `UPDATE copies SET key = n::text`)
	exec(t, pool, `ALTER TABLE copies DROP COLUMN n`)
	exec(t, pool, `INSERT INTO onlyonce_portable_keys SELECT * FROM copies`)
	exec(t, pool, `DROP TABLE copies`)
}

// T3: a batch of any size is read a thousand rows at a time, and says that there is more.
func TestSweepBatchIsBounded(t *testing.T) {
	t.Parallel()
	dsn, clock := testserver.Postgres(t), storetest.NewClock()
	s, pool := migrated(t, dsn, portable.Config{Now: clock.Now}), admin(t, dsn)
	complete(t, s, want(t, s, request("0"), onlyonce.Won).Record.Owner())
	copies(t, pool, "0", 1200)
	clock.Advance(48 * time.Hour)
	huge := onlyonce.SweepRequest{Limit: 1 << 40, StepRetention: time.Hour}
	for i, want := range []onlyonce.SweepResult{{Deleted: 1000, More: true}, {Deleted: 201}, {}} {
		if got, err := s.Sweep(t.Context(), huge); err != nil || got != want {
			t.Errorf("sweep %d: %+v, %v; want %+v", i, got, err, want)
		}
	}
}

// X1: keys that have yet to be watched, however many, keep none behind them from its
// turn for ever; what is longest due is looked at each time all the same. They are all
// due at one moment, or at moments of their own.
func TestDueGoesOn(t *testing.T) {
	t.Parallel()
	for name, spread := range map[string]int{"one moment": 0, "apart": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, clock := testserver.Postgres(t), storetest.NewClock()
			cfg := portable.Config{Now: clock.Now, Isolation: pgx.ReadCommitted}
			s, pool := migrated(t, dsn, cfg), admin(t, dsn)
			crashed := request("crashed")
			crashed.Lease, crashed.Keep = time.Hour, []byte("x")
			want(t, s, crashed, onlyonce.Won)
			copies(t, pool, "crashed", 250)
			exec(t, pool, `UPDATE onlyonce_portable_keys SET due_us = due_us + $1::bigint * key::bigint WHERE key <> 'crashed'`, spread)
			doubt := request("in doubt")
			doubt.Lease, doubt.Keep = 2*time.Hour, []byte("x")
			owner := want(t, s, doubt, onlyonce.Won).Record.Owner()
			if ok, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: owner, Reason: "r"}); !ok || err != nil {
				t.Fatal(ok, err)
			}
			clock.Advance(3 * time.Hour)
			fresh := migrated(t, dsn, cfg)
			look := func() []onlyonce.Due {
				due, err := fresh.Due(t.Context(), onlyonce.DueRequest{Limit: 10, Operations: []string{doubt.Operation, "another"}, Pause: time.Hour, MaxPause: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				return due
			}
			for i, n := range []int{0, 1, 0, 0} { // 110 and 110, then 110 and the rest, then anew
				due := look()
				if len(due) != n || (n == 1 && due[0].Record.Key != doubt.Key) {
					t.Errorf("look %d: %d turns, want %d", i, len(due), n)
				}
				clock.Advance(time.Second)
			}
			clock.Advance(crashed.Lease)
			if due := look(); len(due) != 10 || due[0].Record.State != onlyonce.InProgress {
				t.Errorf("a lease later: %d turns", len(due))
			}
		})
	}
}
