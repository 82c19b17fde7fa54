package portable_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// C4, B20: what a node's clock says of a lease counts for nothing: a handle whose clock
// is days ahead takes nothing over, parks nothing and sweeps nothing that it has not
// watched.
func TestClocksOfNodes(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	at := func(off time.Duration) *portable.Store {
		return migrated(t, dsn, portable.Config{Now: func() time.Time { return time.Now().Add(off) }})
	}
	s, ahead := at(0), at(48*time.Hour)
	req := request("k")
	owner := want(t, s, req, onlyonce.Won).Record.Owner()
	if c := want(t, ahead, again(req), onlyonce.Busy); c.Remaining <= 0 || c.Remaining > req.Lease {
		t.Errorf("%v left of a lease of %v", c.Remaining, req.Lease)
	}
	if parked, err := ahead.Park(t.Context(), onlyonce.ParkRequest{Owner: owner, LeaseOver: true}); parked || err != nil {
		t.Errorf("park: %v, %v", parked, err)
	}
	for range 2 {
		if r, err := ahead.Sweep(t.Context(), batch); err != nil || r.Freed+r.Parked != 0 {
			t.Errorf("sweep: %+v, %v", r, err)
		}
	}
	if due, err := ahead.Due(t.Context(), dueNow); err != nil || len(due) != 0 {
		t.Errorf("due: %+v, %v", due, err)
	}
	complete(t, s, owner)
}

// The clock of the process is not the clock of a single server: leases, ages and
// retention are made and judged by the server's. In a bubble a process's clock begins
// in the year 2000.
func TestClockOfTheServer(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	truth := migrated(t, dsn, portable.Config{OneClock: true})
	pool := admin(t, dsn)
	for name, oneClock := range map[string]bool{"one clock": true, "nodes' clocks": false} {
		req := request(name)
		synctest.Test(t, func(t *testing.T) {
			s, err := portable.Open(t.Context(), dsn, portable.Config{OneClock: oneClock})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			want(t, s, req, onlyonce.Won)
		})
		want(t, truth, again(req), onlyonce.Busy)
		rec, _, err := truth.Get(t.Context(), req.Key)
		if err != nil {
			t.Fatal(err)
		}
		now := one[time.Time](t, pool, `SELECT clock_timestamp()`)
		if age := now.Sub(rec.CreatedAt); age < 0 || age > time.Hour {
			t.Errorf("%s: a claim just made is %v old by the server's clock", name, age)
		}
	}
}

// With real clocks: a lease of a moment is taken over, by the clock as soon as it is
// over, by watching not before it was watched.
func TestTakeoverInRealTime(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	for name, cfg := range map[string]portable.Config{"one clock": {OneClock: true}, "watching": {}} {
		s, other := migrated(t, dsn, cfg), migrated(t, dsn, cfg)
		req := request(name)
		req.Lease = 200 * time.Millisecond
		want(t, s, req, onlyonce.Won)
		var first time.Time
		insist(t, func() (bool, error) {
			c, err := other.Claim(t.Context(), again(req))
			if first.IsZero() {
				first = time.Now()
				if c.Verdict == onlyonce.Resumed && !cfg.OneClock {
					t.Errorf("%s: taken over at the first look", name)
				}
			}
			return c.Verdict == onlyonce.Resumed, err
		})
		if watched := time.Since(first); !cfg.OneClock && watched < req.Lease {
			t.Errorf("%s: taken over after %v of %v", name, watched, req.Lease)
		}
	}
}
