package portable_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// T3: more than one transaction holds is deleted, what is held with it goes, and
// nothing else does.
func TestSweepInChunks(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	clock := storetest.NewClock()
	s, pool := migrated(t, dsn, portable.Config{Now: clock.Now}), admin(t, dsn)
	req := request("behind a step")
	req.Resource, req.Abandon = "order", onlyonce.AbandonResume
	owner := want(t, s, req, onlyonce.Won).Record.Owner()
	if ok, err := s.BeginStep(t.Context(), owner, intent); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := s.Release(t.Context(), owner, "r"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	live := want(t, s, request("live"), onlyonce.Won).Record.Key
	// Copies of a completed key, since making as many takes long.
	complete(t, s, want(t, s, request("0"), onlyonce.Won).Record.Owner())
	exec(t, pool, `CREATE TABLE copies AS SELECT k.*, n FROM onlyonce_portable_keys k, generate_series(1, 249) n WHERE key = '0'`)
	exec(t, pool, `UPDATE copies SET key = n::text`)
	exec(t, pool, `ALTER TABLE copies DROP COLUMN n`)
	exec(t, pool, `INSERT INTO onlyonce_portable_keys SELECT * FROM copies`)
	clock.Advance(onlyonce.FreedStepRetention + time.Hour)
	req2 := onlyonce.SweepRequest{Limit: 240, Grace: 1000 * time.Hour * 24, StepRetention: 2000 * time.Hour}
	for i, want := range []onlyonce.SweepResult{{Deleted: 240, More: true}, {Deleted: 11, Steps: 1}, {}} {
		if got, err := s.Sweep(t.Context(), req2); err != nil || got != want {
			t.Errorf("sweep %d: %+v, %v; want %+v", i, got, err, want)
		}
	}
	for table, rows := range map[string]int{"keys": 1, "resources": 0, "steps": 0} {
		if n := one[int](t, pool, `SELECT count(*) FROM onlyonce_portable_`+table); n != rows {
			t.Errorf("%d rows in %s, want %d", n, table, rows)
		}
	}
	if _, found, err := s.Get(t.Context(), live); !found || err != nil {
		t.Errorf("the live key: %v, %v", found, err)
	}
}

// One sweeps at a time; one that has vanished keeps others away for a minute.
func TestOneSweeps(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	clock := storetest.NewClock()
	cfg := portable.Config{Now: clock.Now}
	s, other, pool := migrated(t, dsn, cfg), migrated(t, dsn, cfg), admin(t, dsn)
	for _, store := range []*portable.Store{s, other, s} {
		if r, err := store.Sweep(t.Context(), batch); err != nil || r.Busy {
			t.Fatalf("one after the other: %+v, %v", r, err)
		}
	}
	// As one leaves it that dies in its sweep.
	exec(t, pool, `UPDATE onlyonce_portable_sweepers SET owner = '\x01', until_us = $1`, clock.Now().Add(time.Minute).UnixMicro())
	clock.Advance(time.Minute - time.Microsecond)
	if r, err := s.Sweep(t.Context(), batch); err != nil || !r.Busy {
		t.Errorf("beside another: %+v, %v, want busy", r, err)
	}
	clock.Advance(time.Microsecond)
	if r, err := s.Sweep(t.Context(), batch); err != nil || r.Busy {
		t.Errorf("a minute later: %+v, %v", r, err)
	}
}

// Sweeps at once do each thing once between them.
func TestSweepsAtOnce(t *testing.T) {
	t.Parallel()
	for name, cfg := range levels() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := testserver.Postgres(t)
			clock := storetest.NewClock()
			cfg.Now = clock.Now
			s, pool := migrated(t, dsn, cfg), admin(t, dsn)
			for i := range 12 {
				owner := want(t, s, request(fmt.Sprint(i)), onlyonce.Won).Record.Owner()
				if i%2 == 0 {
					complete(t, s, owner)
				}
			}
			clock.Advance(48 * time.Hour)
			results := make([]onlyonce.SweepResult, 4)
			each(len(results), func(i int) {
				r, err := s.Sweep(t.Context(), batch)
				if err != nil {
					t.Error(err)
				}
				results[i] = r
			})
			var deleted, freed int
			for _, r := range results {
				deleted, freed = deleted+r.Deleted, freed+r.Freed
			}
			if deleted != 6 || freed != 6 {
				t.Errorf("deleted %d, freed %d, want 6 of each: %+v", deleted, freed, results)
			}
			if n := one[int](t, pool, `SELECT count(*) FROM onlyonce_portable_keys WHERE state = 3`); n != 6 {
				t.Errorf("%d freed keys", n)
			}
		})
	}
}
