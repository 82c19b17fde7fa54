package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// writes is a handler with one statement.
func writes(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
	a := created()
	_, err := tx.Exec(ctx, `INSERT INTO charges (ref, amount) VALUES ($1, $2)`, "ch_3PqRs7Tu9VwX", 1999)
	return &a, err
}

// reservesCharge is a step's code with one statement.
func reservesCharge(ctx context.Context, tx pgx.Tx) ([]byte, error) {
	_, err := writes(ctx, tx)
	return []byte("ok"), err
}

// chargesTable is what the handlers of these tests write to.
const chargesTable = `CREATE TABLE charges (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ref text NOT NULL, amount bigint NOT NULL)`

// Round trips do not depend on the machine, so they are asserted as they are.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]pgstore.Config{"in_row": {}, "partitions": {Partition: daily()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			countRoundTrips(t, cfg)
		})
	}
}

func countRoundTrips(t *testing.T, cfg pgstore.Config) {
	t.Helper()
	dsn := testserver.Postgres(t)
	migrated(t, dsn, cfg)
	exec(t, admin(t, dsn), chargesTable)
	for _, isolation := range []string{"read committed", "serializable"} {
		url := with(t, dsn, "default_transaction_isolation", isolation)
		warm := migrated(t, url, pgstore.Config{}) // another process: its keys are not known to the store
		s, w := wired(t, url, pgstore.Config{})
		ctx := t.Context()
		n := 0
		key := func() onlyonce.ClaimRequest { n++; return request(fmt.Sprint(isolation, n)) }
		step := onlyonce.Intent{Name: "s", Provider: "p", DerivedKey: "d", Reference: "r", Request: []byte("x"), SendWithin: time.Second}
		resumable := func() onlyonce.Owner {
			return want(t, s, key(), onlyonce.Won).Record.Owner()
		}
		holding := func() onlyonce.ClaimRequest {
			req := key()
			req.Resource, req.Keep, req.Lease = req.Key.Value, []byte("request"), time.Hour
			return req
		}
		foreign := func() onlyonce.ClaimRequest {
			req := key()
			complete(t, warm, want(t, warm, req, onlyonce.Won).Record.Owner())
			return again(req)
		}
		tests := []struct {
			name string
			want int64
			// arrange gives what is measured.
			arrange func() func() error
		}{
			{"claim_of_a_fresh_key", 1, func() func() error {
				req := key()
				return func() error { want(t, s, req, onlyonce.Won); return nil }
			}},
			{"claim_of_a_resource", 1, func() func() error {
				req := holding()
				return func() error { want(t, s, req, onlyonce.Won); return nil }
			}},
			{"claim_of_a_resource_that_is_held", 2, func() func() error {
				req := holding()
				want(t, s, req, onlyonce.Won)
				rival := key()
				rival.Resource = req.Resource
				return func() error { want(t, s, rival, onlyonce.ResourceBusy); return nil }
			}},
			{"takeover_with_a_resource", 2, func() func() error {
				req := holding()
				_, err := s.Release(ctx, want(t, s, req, onlyonce.Won).Record.Owner(), "r")
				return func() error { want(t, s, again(req), onlyonce.Resumed); return err }
			}},
			{"complete_a_holder", 1, func() func() error {
				o := want(t, s, holding(), onlyonce.Won).Record.Owner()
				return func() error { complete(t, s, o); return nil }
			}},
			{"step_in_a_transaction_with_one_statement", 3, func() func() error {
				o := resumable()
				return func() error { _, _, err := s.StepTx(ctx, o, reserve, reservesCharge); return err }
			}},
			{"due_as_many_as_asked_for", 1, func() func() error {
				req := holding()
				req.Lease = time.Microsecond
				want(t, s, req, onlyonce.Won)
				return func() error {
					due, err := s.Due(ctx, onlyonce.DueRequest{Limit: 1, Pause: time.Hour, MaxPause: time.Hour})
					if len(due) != 1 {
						t.Errorf("%d due, want 1", len(due))
					}
					return err
				}
			}},
			{"due_none", 2, func() func() error {
				return func() error { _, err := s.Due(ctx, dueNow); return err }
			}},
			{"requeue", 1, func() func() error {
				o := want(t, s, holding(), onlyonce.Won).Record.Owner()
				return func() error { _, err := s.Requeue(ctx, o.Key); complete(t, warm, o); return err }
			}},
			{"replay_of_what_is_swept_row_by_row", 1, func() func() error {
				req := key()
				req.Retention = 10000 * time.Hour
				complete(t, s, want(t, s, req, onlyonce.Won).Record.Owner())
				return func() error { want(t, s, again(req), onlyonce.Replay); return nil }
			}},
			{"kept", 1, func() func() error {
				req := holding()
				want(t, s, req, onlyonce.Won)
				return func() error { _, _, err := s.Kept(ctx, req.Key); return err }
			}},
			{"replay_of_a_key_met_before", 1, func() func() error {
				req := key()
				complete(t, s, want(t, s, req, onlyonce.Won).Record.Owner())
				return func() error { want(t, s, again(req), onlyonce.Replay); return nil }
			}},
			{"replay_of_another_process", 2, func() func() error {
				req := foreign()
				return func() error { want(t, s, req, onlyonce.Replay); return nil }
			}},
			{"complete", 1, func() func() error {
				o := resumable()
				return func() error { complete(t, s, o); return nil }
			}},
			{"renew", 1, func() func() error {
				o := resumable()
				return func() error { _, err := s.Renew(ctx, o, time.Minute); return err }
			}},
			{"release", 1, func() func() error {
				o := resumable()
				return func() error { _, err := s.Release(ctx, o, "r"); return err }
			}},
			{"takeover_of_a_freed_key", 2, func() func() error {
				req := key()
				_, err := s.Release(ctx, want(t, s, req, onlyonce.Won).Record.Owner(), "r")
				return func() error { want(t, s, again(req), onlyonce.Resumed); return err }
			}},
			{"begin_step", 1, func() func() error {
				o := resumable()
				return func() error { _, err := s.BeginStep(ctx, o, step); return err }
			}},
			{"finish_with_one_statement", 3, func() func() error {
				o := resumable()
				return func() error { _, err := s.Finish(ctx, o, writes); return err }
			}},
			{"atomic_with_one_statement", 3, func() func() error {
				req := key()
				return func() error { _, _, err := s.Atomic(ctx, req, writes); return err }
			}},
			{"atomic_replay_of_another_process", 2, func() func() error {
				req := foreign()
				return func() error { _, _, err := s.Atomic(ctx, req, writes); return err }
			}},
		}
		for _, tt := range tests {
			for range 7 { // statements are prepared, and planned for good, by then
				if err := tt.arrange()(); err != nil {
					t.Fatalf("%s: %v", tt.name, err)
				}
			}
			measured := tt.arrange()
			before := w.trips.Load()
			if err := measured(); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if got := w.trips.Load() - before; got != tt.want {
				t.Errorf("%s, %s: %d round trips, want %d", tt.name, isolation, got, tt.want)
			}
		}
	}
}

// quiet is a server on which nobody else writes WAL.
func quiet(t *testing.T) string {
	t.Helper()
	return testserver.NewCluster(t, "autovacuum=off", "checkpoint_timeout=1h", "max_wal_size=4GB", "fsync=off").Database(t)
}

// walOf is how many bytes of WAL fn writes, the least of several runs: the
// server itself writes a few now and then.
func walOf(t *testing.T, pool *pgxpool.Pool, fn func()) int64 {
	t.Helper()
	least := int64(1) << 62
	for range 5 {
		before := one[string](t, pool, `SELECT pg_current_wal_insert_lsn()::text`)
		fn()
		least = min(least, one[int64](t, pool, `SELECT (pg_current_wal_insert_lsn() - $1::text::pg_lsn)::bigint`, before))
	}
	return least
}

// A replay, a busy duplicate and a mismatch write nothing; a claim with its
// completion little. Completions are heap-only updates.
func TestWrites(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg            pgstore.Config
		leased, atomic int64 // bytes a key, at most
	}{
		"in_row":     {leased: 820, atomic: 800},
		"partitions": {cfg: pgstore.Config{Partition: daily()}, leased: 1030, atomic: 1010},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			countWrites(t, c.cfg, c.leased, c.atomic)
		})
	}
}

func countWrites(t *testing.T, cfg pgstore.Config, mostLeased, mostAtomic int64) {
	t.Helper()
	dsn := quiet(t)
	pool := admin(t, dsn)
	exec(t, pool, chargesTable)
	s := migrated(t, dsn, cfg)
	done, held := request("done"), request("held")
	complete(t, s, want(t, s, done, onlyonce.Won).Record.Owner())
	want(t, s, held, onlyonce.Won)
	other := again(done)
	other.Fingerprint.Sum[0]++
	if n := walOf(t, pool, func() {
		for range 20 {
			want(t, s, again(done), onlyonce.Replay)
			want(t, s, again(held), onlyonce.Busy)
			want(t, s, other, onlyonce.Mismatch)
		}
	}); n != 0 {
		t.Errorf("60 refusals and replays wrote %d bytes of WAL, want none", n)
	}
	// By single statements: the first sight of a key by another process.
	const keys = 500
	n := 0
	leased := walOf(t, pool, func() {
		for range keys {
			n++
			complete(t, s, want(t, s, request(fmt.Sprint("k", n)), onlyonce.Won).Record.Owner())
		}
	})
	atomic := walOf(t, pool, func() {
		for range keys {
			n++
			if _, settled, err := s.Atomic(t.Context(), request(fmt.Sprint("k", n)), writes); err != nil || !settled.Held {
				t.Fatal(settled, err)
			}
		}
	})
	bare := walOf(t, pool, func() {
		for range keys {
			exec(t, pool, `INSERT INTO charges (ref, amount) VALUES ($1, $2)`, "ch_3PqRs7Tu9VwX", 1999)
		}
	})
	t.Logf("WAL a key: claim and completion %d bytes, atomic with its charge %d, the charge alone %d", leased/keys, atomic/keys, bare/keys)
	if leased/keys > mostLeased || atomic/keys > mostAtomic {
		t.Errorf("a key costs more WAL than it should: %d and %d bytes", leased/keys, atomic/keys)
	}
	for _, index := range []string{"onlyonce_keys_holds", "onlyonce_keys_due_of"} {
		if n := one[int64](t, pool, `SELECT pg_relation_size($1::text::regclass) / 8192`, index); n != 1 {
			t.Errorf("%s has %d pages: a key that holds and keeps nothing touched it", index, n)
		}
	}
	if share := hotShare(t, pool, s); share < 0.95 {
		t.Errorf("%.0f%% of completions were heap-only updates", share*100)
	}
	s = migrated(t, dsn, pgstore.Config{})
	full := walOf(t, pool, func() {
		for range keys {
			n++
			req := keeping(fmt.Sprint("k", n))
			req.Resource = fmt.Sprint("order/", n)
			complete(t, s, want(t, s, req, onlyonce.Won).Record.Owner())
		}
	})
	t.Logf("WAL a key that holds a resource and keeps a request: %d bytes", full/keys)
}

// hotShare closes the store, so that its sessions report, and tells which share
// of the updates touched no index.
func hotShare(t *testing.T, pool *pgxpool.Pool, s *pgstore.Store) float64 {
	t.Helper()
	s.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 200 {
		var all, hot int64
		err := pool.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'onlyonce_keys'`).Scan(&all, &hot)
		if err != nil {
			t.Fatal(err)
		}
		if all >= 2500 { // five runs of 500 leased completions; atomic ones update nothing
			t.Logf("%d of %d updates were heap-only", hot, all)
			return float64(hot) / float64(all)
		}
		<-tick.C
	}
	t.Fatal("the server's statistics never came")
	return 0
}
