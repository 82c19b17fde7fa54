package tests_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/adapters/redisstore"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/storetest"
)

const (
	// lead is how far one process's clock is ahead of the other's: by more than a
	// lease, and than an answer is kept.
	lead = 2 * time.Minute
	// minute is a lease and a retention that do not end while a test looks.
	minute = time.Minute
	// brief is a lease and a retention whose end a test waits for.
	brief = time.Second
	// exact is as far as clocks of one host, read in microseconds, may differ.
	exact = 10 * time.Millisecond
	// moment is more than passes by a process's clock beside what a test waits for.
	moment = time.Second
)

// opener opens a store as an application does, with connections of its own.
type opener func(t *testing.T) onlyonce.Store

// clocked is an application process with a clock of its own. It lives in a bubble,
// whose clock begins in the year 2000, stands still while somebody outside is waited
// for, a server too, and passes in no time while nobody is.
type clocked struct {
	t     *testing.T
	calls chan func(t *testing.T, s onlyonce.Store)
	ended chan struct{}
}

// newClocked starts a process whose clock is ahead, and ends it with the test.
func newClocked(t *testing.T, ahead time.Duration, open opener) *clocked {
	t.Helper()
	p := &clocked{t: t, calls: make(chan func(*testing.T, onlyonce.Store)), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		synctest.Test(t, func(t *testing.T) {
			<-time.After(ahead)
			s := open(t)
			for call := range p.calls {
				call(t, s)
			}
		})
	}()
	t.Cleanup(func() {
		close(p.calls)
		<-p.ended
	})
	return p
}

// do runs fn in the process.
func (p *clocked) do(fn func(t *testing.T, s onlyonce.Store)) {
	p.t.Helper()
	done := make(chan struct{})
	select {
	case p.calls <- func(t *testing.T, s onlyonce.Store) {
		defer close(done)
		fn(t, s)
	}:
		<-done
	case <-p.ended:
		p.t.Fatal("the process has failed")
	}
}

// pass lets time pass by the clocks of all of them.
func pass(d time.Duration, all ...*clocked) {
	for _, p := range all {
		p.do(func(*testing.T, onlyonce.Store) { <-time.After(d) })
	}
}

// now is the time by the process's clock.
func (p *clocked) now() (now time.Time) {
	p.do(func(*testing.T, onlyonce.Store) { now = time.Now() })
	return now
}

// claim asks for the key of a request by a new attempt.
func (p *clocked) claim(req onlyonce.ClaimRequest) (c onlyonce.Claim) {
	req.Attempt = onlyonce.NewToken()
	p.do(func(t *testing.T, s onlyonce.Store) {
		t.Helper()
		var err error
		if c, err = s.Claim(t.Context(), req); err != nil {
			t.Fatalf("claim: %v", err)
		}
	})
	return c
}

// want claims, checks the verdict, and that at most so much is left.
func (p *clocked) want(req onlyonce.ClaimRequest, verdict onlyonce.Verdict, most time.Duration) onlyonce.Claim {
	p.t.Helper()
	c := p.claim(req)
	if c.Verdict != verdict || c.Remaining <= 0 || c.Remaining > most {
		p.t.Fatalf("claim: %v, %v left; want %v, at most %v", c.Verdict, c.Remaining, verdict, most)
	}
	return c
}

func (p *clocked) renew(o onlyonce.Owner, want bool) {
	p.t.Helper()
	p.do(func(t *testing.T, s onlyonce.Store) {
		t.Helper()
		if held, err := s.Renew(t.Context(), o, minute); held != want || err != nil {
			t.Errorf("renew: %v, %v", held, err)
		}
	})
}

func (p *clocked) complete(o onlyonce.Owner, want bool) (settled onlyonce.Settled) {
	p.t.Helper()
	p.do(func(t *testing.T, s onlyonce.Store) {
		t.Helper()
		var err error
		if settled, err = s.Complete(t.Context(), o, onlyonce.Answer{Status: 201}); settled.Held != want || err != nil {
			t.Errorf("complete: %+v, %v", settled, err)
		}
	})
	return settled
}

// findsNothing: neither a sweeper nor a caretaker finds a lease or a retention over.
func (p *clocked) findsNothing(o onlyonce.Owner) {
	p.t.Helper()
	p.do(func(t *testing.T, s onlyonce.Store) {
		t.Helper()
		if parked, err := s.Park(t.Context(), onlyonce.ParkRequest{Owner: o, Reason: "over", LeaseOver: true}); parked || err != nil {
			t.Errorf("park: %v, %v", parked, err)
		}
		if r, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10, StepRetention: minute}); err != nil || r.Deleted+r.Freed+r.Parked+r.Steps != 0 {
			t.Errorf("sweep: %+v, %v", r, err)
		}
		if r, ok := onlyonce.RecoveryOf(s); ok {
			if due, err := r.Due(t.Context(), onlyonce.DueRequest{Limit: 10, Pause: minute, MaxPause: minute}); len(due) != 0 || err != nil {
				t.Errorf("due: %+v, %v", due, err)
			}
		}
	})
}

// pairs are the two processes, one ahead of the other, each in turn as the owner.
func pairs(t *testing.T, open opener) map[string][2]*clocked {
	t.Helper()
	slow, fast := newClocked(t, 0, open), newClocked(t, lead, open)
	return map[string][2]*clocked{"ahead of the owner": {slow, fast}, "behind the owner": {fast, slow}}
}

// during is a claim whose lease and retention are that long.
func during(value string, d time.Duration) onlyonce.ClaimRequest {
	req := routedRequest("acct", value)
	req.Lease, req.Retention, req.Abandon = d, d, onlyonce.AbandonRerun
	return req
}

// oneClock are the stores whose server has the one clock.
func oneClock() map[string]func(t *testing.T) opener {
	return map[string]func(t *testing.T) opener{
		"postgres": func(t *testing.T) opener { return openPostgres(testserver.Postgres(t)) },
		"portable": func(t *testing.T) opener {
			return openPortable(testserver.Postgres(t), portable.Config{OneClock: true})
		},
		"mysql": func(t *testing.T) opener { return openMySQL(testserver.MySQL(t)) },
		"redis": func(t *testing.T) opener { return openRedis(testserver.Redis(t)) },
		"cache, postgres": func(t *testing.T) opener {
			open := openPostgres(testserver.Postgres(t))
			return func(t *testing.T) onlyonce.Store {
				return cached(t, open(t).(*pgstore.Store), cachestore.Config{ReadBack: true})
			}
		},
		"two databases": func(t *testing.T) opener {
			return openRouted(spreadNames(t), openPostgres(testserver.Postgres(t)), openPostgres(testserver.Postgres(t)))
		},
	}
}

func openPostgres(dsn string) opener {
	return func(t *testing.T) onlyonce.Store {
		s, err := pgstore.Open(t.Context(), dsn, pgstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
}

func openPortable(dsn string, cfg portable.Config) opener {
	return func(t *testing.T) onlyonce.Store {
		s, err := portable.Open(t.Context(), dsn, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
}

func openMySQL(dsn string) opener {
	return func(t *testing.T) onlyonce.Store {
		s, err := mysqlstore.Open(t.Context(), dsn, mysqlstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
}

func openRedis(url string) opener {
	return func(t *testing.T) onlyonce.Store {
		s, err := redisstore.Open(t.Context(), url, redisstore.Config{Prefix: "clocks:"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
}

func openRouted(names [2]string, first, second opener) opener {
	return func(t *testing.T) onlyonce.Store {
		s, err := routestore.NewTx[pgx.Tx](routestore.Config{
			Homes: []routestore.Home{{Name: names[0], Store: first(t)}, {Name: names[1], Store: second(t)}},
			Map:   routestore.Map{Version: 1, Homes: names[:], By: routestore.ByKey},
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func openDynamo(endpoint, table string) opener {
	return func(t *testing.T) onlyonce.Store {
		// A connection that is open is read from, so that no time would pass.
		return dynamoStore(t, dynamoClient(t, endpoint, true), dynamostore.Config{Table: table})
	}
}

// B20, C4: where the server has the one clock, processes whose clocks are two minutes
// apart, and years from the server's, agree on every lease and every answer: none is
// over early for one that is ahead, nor late for one that is behind.
func TestClocksOfProcesses(t *testing.T) {
	t.Parallel()
	for name, kind := range oneClock() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := pairs(t, kind(t))
			for name, p := range all {
				checkLasts(t, name, p[0], p[1])
			}
			for name, p := range all {
				checkEnds(t, name+", to its end", p[0], p[1])
			}
		})
	}
}

// checkLasts: what one process holds or has stored, the other finds held and stored.
func checkLasts(t *testing.T, value string, owner, other *clocked) {
	t.Helper()
	req := during(value, minute)
	o := owner.want(req, onlyonce.Won, minute).Record.Owner()
	other.want(req, onlyonce.Busy, minute)
	other.findsNothing(o)
	owner.do(func(t *testing.T, s onlyonce.Store) {
		steps, _ := onlyonce.StepsOf(s)
		if held, err := steps.BeginStep(t.Context(), o, onlyonce.Intent{Name: "s", Provider: "acme", DerivedKey: "d", Request: []byte("{}")}); !held || err != nil {
			t.Errorf("begin step: %v, %v", held, err)
		}
	})
	other.do(func(t *testing.T, s onlyonce.Store) {
		steps, _ := onlyonce.StepsOf(s)
		got, err := steps.Steps(t.Context(), o.Key)
		if err != nil || len(got) != 1 || got[0].Age < 0 || got[0].Idle < 0 {
			t.Fatalf("steps: %+v, %v", got, err)
		}
	})
	owner.renew(o, true)
	other.want(req, onlyonce.Busy, minute)
	owner.complete(o, true)
	// A cache counts by the process's clock, which stands still for as long as it
	// waits for the database.
	other.want(req, onlyonce.Replay, minute+lead/2)
	owner.want(req, onlyonce.Replay, minute+lead/2)
	other.findsNothing(o)
}

// checkEnds: by the clock of this test, which is the server's, a lease and an answer
// end when they are over, whichever process looks.
func checkEnds(t *testing.T, value string, owner, other *clocked) {
	t.Helper()
	req := during(value, brief)
	var first onlyonce.Claim
	made := interval(func() { first = owner.claim(req) })
	next := made.end(t, []*clocked{other, owner}, req, onlyonce.Busy)
	if next.Verdict != onlyonce.Resumed || next.Record.Fence <= first.Record.Fence {
		t.Fatalf("%v, fence %d after %d", next.Verdict, next.Record.Fence, first.Record.Fence)
	}
	owner.renew(first.Record.Owner(), false)
	owner.complete(first.Record.Owner(), false)
	made = interval(func() { other.complete(next.Record.Owner(), true) })
	last := made.end(t, []*clocked{owner, other}, req, onlyonce.Replay)
	if last.Verdict != onlyonce.Won || last.Record.Fence <= next.Record.Fence {
		t.Fatalf("%v, fence %d after %d", last.Verdict, last.Record.Fence, next.Record.Fence)
	}
}

// span is when something happened: in between.
type span struct{ from, to time.Time }

func interval(fn func()) span {
	from := time.Now()
	fn()
	return span{from, time.Now()}
}

// end claims by the processes in turn until the answer is another than that of what
// lasts, briefly from the span on, and sees that this is neither early nor late.
func (s span) end(t *testing.T, by []*clocked, req onlyonce.ClaimRequest, lasts onlyonce.Verdict) onlyonce.Claim {
	t.Helper()
	for i := 0; ; i++ {
		var c onlyonce.Claim
		asked := interval(func() { c = by[i%len(by)].claim(req) })
		switch {
		case c.Verdict != lasts && asked.to.Before(s.from.Add(brief-exact)):
			t.Errorf("%v was cut short: %v %v after the beginning", lasts, c.Verdict, asked.to.Sub(s.from))
		case c.Verdict == lasts && asked.from.After(s.to.Add(brief+exact)):
			t.Fatalf("%v goes on %v after the beginning", lasts, asked.from.Sub(s.to))
		}
		if c.Verdict != lasts {
			return c
		}
		pause(t.Context(), exact)
	}
}

// watching are the stores whose handles judge leases by having watched them.
func watching() map[string]func(t *testing.T) opener {
	return map[string]func(t *testing.T) opener{
		"portable": func(t *testing.T) opener { return openPortable(testserver.Postgres(t), portable.Config{}) },
		"dynamodb": func(t *testing.T) opener { return openDynamo(testserver.Dynalite(t), newTable()) },
	}
}

// B20, C4: where leases are watched, a process that is two minutes ahead, by whose
// clock any lease is over, takes nothing over before it has seen the same renewal for a
// whole lease; one that is behind waits no longer than that.
func TestClocksOfWatchers(t *testing.T) {
	t.Parallel()
	for name, kind := range watching() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for name, p := range pairs(t, kind(t)) {
				checkWatches(t, name, p[0], p[1])
			}
		})
	}
}

func checkWatches(t *testing.T, value string, owner, other *clocked) {
	t.Helper()
	req := during(value, minute)
	req.Retention = 24 * time.Hour
	first := owner.claim(req)
	for range 2 { // renewed in time, again and again
		other.want(req, onlyonce.Busy, minute)
		other.findsNothing(first.Record.Owner())
		pass(minute-moment, owner, other)
		other.want(req, onlyonce.Busy, moment)
		owner.renew(first.Record.Owner(), true)
		pass(moment, owner, other)
	}
	other.want(req, onlyonce.Busy, minute)
	pass(minute, owner, other)
	next := other.want(req, onlyonce.Resumed, minute)
	if next.Record.Fence <= first.Record.Fence {
		t.Errorf("fence %d after %d", next.Record.Fence, first.Record.Fence)
	}
	owner.renew(first.Record.Owner(), false)
	owner.complete(first.Record.Owner(), false)
	other.complete(next.Record.Owner(), true)
	owner.want(req, onlyonce.Replay, req.Retention+lead+moment)
	other.want(req, onlyonce.Replay, req.Retention+lead+moment)
}

// B20: without any clock but the processes' own, how long an answer is kept differs by
// as much as their clocks do, and by no more. Fences rise, also from one that is
// ahead to one that is behind, and behind what was swept.
func TestClocksDecideRetention(t *testing.T) {
	t.Parallel()
	for name, p := range pairs(t, openDynamo(testserver.Dynalite(t), newTable())) {
		req := during(name, time.Hour)
		owner, other := p[0], p[1]
		o := owner.claim(req).Record.Owner()
		ends := owner.complete(o, true).ExpiresAt
		skew := other.now().Sub(owner.now())
		left := req.Retention - skew
		if (skew.Abs()-lead).Abs() > moment || ends.Sub(owner.now().Add(req.Retention)).Abs() > moment {
			t.Fatalf("clocks are %v apart, the answer is kept until %v by one that shows %v", skew, ends, owner.now())
		}
		if c := other.want(req, onlyonce.Replay, left); c.Remaining < left-moment {
			t.Errorf("%s: %v is left, want %v", name, c.Remaining, left)
		}
		pass(left-moment, owner, other)
		other.want(req, onlyonce.Replay, moment)
		pass(moment, owner, other)
		next := other.want(req, onlyonce.Won, req.Lease)
		if next.Record.Fence <= o.Fence {
			t.Errorf("%s: fence %d after %d", name, next.Record.Fence, o.Fence)
		}
		other.complete(next.Record.Owner(), true)
		checkSweptFence(t, req, next.Record.Fence, owner, other)
	}
}

// checkSweptFence: a new life behind one that has expired and was swept has a higher fence.
func checkSweptFence(t *testing.T, req onlyonce.ClaimRequest, fence int64, owner, other *clocked) {
	t.Helper()
	const long = 3 * time.Hour // past all that expired items are given
	pass(long, owner, other)
	deleted := 0
	other.do(func(t *testing.T, s onlyonce.Store) {
		for range 20 { // a part of the table at a time
			r, err := s.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 100, StepRetention: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			deleted += r.Deleted
		}
	})
	c := owner.want(req, onlyonce.Won, req.Lease)
	if deleted == 0 || c.Record.Fence <= fence {
		t.Errorf("%d swept; fence %d after %d", deleted, c.Record.Fence, fence)
	}
	owner.complete(c.Record.Owner(), true)
}

// B20: processes on one SQLite file have one clock, their host's, containers too, so
// that there is nothing to compare; a file shared by hosts is not supported. Were
// somebody to do that all the same, with clocks two minutes apart, leases and answers
// would end early or late, but fences still hold: of two attempts one completes.
func TestClocksOfTwoHostsOnOneFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	open := func(ahead time.Duration) onlyonce.Store {
		clock := storetest.NewClock()
		clock.Advance(ahead)
		s, err := sqlitestore.Open(t.Context(), path, sqlitestore.Config{Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	slow, fast := open(0), open(lead)
	claim := func(s onlyonce.Store, want onlyonce.Verdict) onlyonce.Record {
		req := during("k", minute)
		c, err := s.Claim(t.Context(), req)
		if err != nil || c.Verdict != want {
			t.Fatalf("%v, %v; want %v", c.Verdict, err, want)
		}
		return c.Record
	}
	first := claim(slow, onlyonce.Won)
	second := claim(fast, onlyonce.Resumed) // early
	if second.Fence <= first.Fence {
		t.Errorf("fence %d after %d", second.Fence, first.Fence)
	}
	for _, o := range []struct {
		s    onlyonce.Store
		by   onlyonce.Owner
		held bool
	}{{slow, first.Owner(), false}, {fast, second.Owner(), true}, {slow, first.Owner(), false}} {
		if settled, err := o.s.Complete(t.Context(), o.by, onlyonce.Answer{Status: 201}); settled.Held != o.held || err != nil {
			t.Errorf("complete: %+v, %v; want %v", settled, err, o.held)
		}
	}
	claim(slow, onlyonce.Replay)
}
