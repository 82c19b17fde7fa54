package portable_test

import (
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/storetest"
)

// apart is two handles on one database whose clocks differ.
type apart struct {
	s, other    *portable.Store
	here, there *storetest.Clock
}

func clocksApart(t *testing.T, ahead time.Duration, cfg portable.Config) apart {
	t.Helper()
	dsn := testserver.Postgres(t)
	a := apart{here: storetest.NewClock(), there: storetest.NewClock()}
	if ahead > 0 {
		a.there.Advance(ahead)
	} else {
		a.here.Advance(-ahead)
	}
	cfg.Now = a.here.Now
	a.s = migrated(t, dsn, cfg)
	cfg.Now = a.there.Now
	a.other = migrated(t, dsn, cfg)
	return a
}

func (a apart) pass(d time.Duration) {
	a.here.Advance(d)
	a.there.Advance(d)
}

func begin(t *testing.T, s *portable.Store, owner onlyonce.Owner, in onlyonce.Intent) {
	t.Helper()
	if held, err := s.BeginStep(t.Context(), owner, in); !held || err != nil {
		t.Fatalf("begin step: held %v, %v", held, err)
	}
}

func oneStep(t *testing.T, s *portable.Store, key onlyonce.Key) onlyonce.StepRecord {
	t.Helper()
	steps, err := s.Steps(t.Context(), key)
	if err != nil || len(steps) != 1 {
		t.Fatalf("%d steps, %v", len(steps), err)
	}
	return steps[0]
}

func checkAge(t *testing.T, s *portable.Store, owner onlyonce.Owner, age, idle time.Duration) {
	t.Helper()
	if st := oneStep(t, s, owner.Key); st.Age != age || st.Idle != idle {
		t.Errorf("age %v, idle %v; want %v and %v", st.Age, st.Idle, age, idle)
	}
}

// D4: how long a send lies behind is told by the handle's own clock, since it has known
// of it; the first send is as old as clocks say, and by what they may differ older.
func TestAgesWhereClocksDiffer(t *testing.T) {
	t.Parallel()
	const skew = 3 * time.Minute
	for name, ahead := range map[string]time.Duration{"behind": -2 * time.Minute, "ahead": 2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := clocksApart(t, ahead, portable.Config{MaxClockSkew: skew})
			owner := want(t, a.s, request("k"), onlyonce.Won).Record.Owner()
			begin(t, a.s, owner, intent)
			a.pass(10 * time.Second)
			checkAge(t, a.s, owner, skew+10*time.Second, 10*time.Second)
			checkAge(t, a.other, owner, skew+ahead+10*time.Second, 0) // met for the first time
			a.pass(10 * time.Second)
			checkAge(t, a.other, owner, skew+ahead+20*time.Second, 10*time.Second)
			begin(t, a.s, owner, intent) // another send
			checkAge(t, a.s, owner, skew+20*time.Second, 0)
			checkAge(t, a.other, owner, skew+ahead+20*time.Second, 0)
			a.pass(time.Hour)
			checkAge(t, a.s, owner, skew+time.Hour+20*time.Second, time.Hour)
			checkAge(t, a.other, owner, skew+ahead+time.Hour+20*time.Second, time.Hour)
		})
	}
}

// D4: a step that has ended is told of by the clocks, and in its next epoch it is
// watched anew.
func TestNextEpochIsWatchedAnew(t *testing.T) {
	t.Parallel()
	a := clocksApart(t, time.Minute, portable.Config{MaxClockSkew: -1})
	owner := want(t, a.s, request("k"), onlyonce.Won).Record.Owner()
	begin(t, a.s, owner, intent)
	checkAge(t, a.other, owner, time.Minute, 0)
	a.pass(time.Hour)
	checkAge(t, a.other, owner, time.Hour+time.Minute, time.Hour)
	end := onlyonce.StepEnd{Name: intent.Name, State: onlyonce.StepNotApplied}
	for range 2 {
		if held, err := a.s.EndStep(t.Context(), owner, end); !held || err != nil {
			t.Fatal(held, err)
		}
	}
	checkAge(t, a.s, owner, time.Hour, time.Hour)
	checkAge(t, a.other, owner, time.Hour+time.Minute, time.Hour+time.Minute)
	for _, s := range []*portable.Store{a.s, a.other} {
		if n := portable.SendsWatched(s); n != 0 {
			t.Errorf("%d sends are watched of a step that has ended", n)
		}
	}
	next := intent
	next.Epoch++
	begin(t, a.s, owner, next)
	checkAge(t, a.s, owner, 0, 0)
	checkAge(t, a.other, owner, time.Minute, 0)
}

// D4: whatever the clocks say, a send is no younger than this handle has known of it,
// and never from the future. With one clock none of this counts.
func TestAgeIsNeverLessThanKnown(t *testing.T) {
	t.Parallel()
	a := clocksApart(t, -time.Hour, portable.Config{})
	owner := want(t, a.s, request("k"), onlyonce.Won).Record.Owner()
	begin(t, a.s, owner, intent)
	checkAge(t, a.other, owner, 0, 0)
	a.pass(time.Minute)
	checkAge(t, a.other, owner, time.Minute, time.Minute)

	one := clocksApart(t, time.Second, portable.Config{OneClock: true})
	owner = want(t, one.s, request("k"), onlyonce.Won).Record.Owner()
	begin(t, one.s, owner, intent)
	one.pass(time.Minute)
	checkAge(t, one.other, owner, time.Minute+time.Second, time.Minute+time.Second)
}

// D4: until when an earlier send may still leave is not shortened by a clock that is
// ahead.
func TestEarlierSendWhereClocksDiffer(t *testing.T) {
	t.Parallel()
	a := clocksApart(t, time.Hour, portable.Config{})
	owner := want(t, a.s, request("k"), onlyonce.Won).Record.Owner()
	long, short := intent, intent
	long.SendWithin, short.SendWithin = time.Minute, time.Second
	begin(t, a.s, owner, long)
	checkAge(t, a.other, owner, time.Hour+portable.DefaultMaxClockSkew, 0)
	a.pass(10 * time.Second)
	begin(t, a.other, owner, short)
	if st := oneStep(t, a.s, owner.Key); st.SendWithin != 50*time.Second {
		t.Errorf("something may leave for %v, want 50s", st.SendWithin)
	}
}

// C4: whoever finds its own claim late, because its reply was lost, is not told that
// it has a whole lease: others may have watched it since it was made.
func TestOwnClaimFoundLate(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	clock := storetest.NewClock()
	cfg := portable.Config{Now: clock.Now}
	lost, s, other := migrated(t, dsn, cfg), migrated(t, dsn, cfg), migrated(t, dsn, cfg)
	req := request("k")
	want(t, lost, req, onlyonce.Won)
	want(t, other, again(req), onlyonce.Busy)
	clock.Advance(req.Lease - time.Second)
	if c := want(t, s, req, onlyonce.Won); c.Remaining != time.Second {
		t.Errorf("%v left, want what is left of the claim's own lease", c.Remaining)
	}
	clock.Advance(time.Second)
	next := again(req)
	want(t, other, next, onlyonce.Resumed)
	clock.Advance(time.Second)
	if c := want(t, s, next, onlyonce.Resumed); c.Remaining != req.Lease-time.Second || c.From != onlyonce.InProgress {
		t.Errorf("a takeover that is found late: %v left, from %q", c.Remaining, c.From)
	}
}
