package onceclient_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// later replies that the server asks to wait.
func later(wait time.Duration) onceclient.Reply {
	r := lost()
	r.RetryAfter = wait
	return r
}

// L3: what the server asks for is the least, and jitter comes on top.
func TestServerSaysWhen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		s := &script{plan: func(_ context.Context, n int, _ onceclient.Entry) onceclient.Reply {
			at = append(at, time.Since(start))
			return []onceclient.Reply{later(10 * time.Second), later(-time.Second), later(20 * time.Second), done(200)}[n]
		}}
		_, err := newClient(t, onceclient.Config{Journal: memjournal.New(), Sender: s}).Do(t.Context(), charge("order-1", "somewhere"))
		wantKind(t, err, "answered")
		for i, between := range [][2]time.Duration{
			{10 * time.Second, 10250 * time.Millisecond}, {0, 500 * time.Millisecond}, {20 * time.Second, 21 * time.Second},
		} {
			if gap := at[i+1] - at[i]; gap <= between[0] || gap > between[1] {
				t.Errorf("pause %d is %v, want one of %v", i, gap, between)
			}
		}
	})
}

// L3: what would be in vain is not waited for, and cancelling ends a pause at once.
func TestNoWaitInVain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reply  onceclient.Reply
		change func(*onceclient.Config)
		cancel time.Duration
		kind   string
		takes  time.Duration
		cause  error
	}{
		"longer than the operation":    {reply: later(2 * time.Minute), kind: "unknown"},
		"longer than there are times":  {reply: later(math.MaxInt64), kind: "unknown"},
		"longer than the retention":    {reply: later(10 * time.Second), change: func(c *onceclient.Config) { c.Retention = 11 * time.Second }, kind: "unknown"},
		"longer, and nothing was sent": {reply: onceclient.Reply{Verdict: onceclient.Unsent, RetryAfter: time.Hour}, kind: "not sent"},
		"cancelled":                    {reply: later(time.Minute), cancel: 3 * time.Second, kind: "unknown", takes: 3 * time.Second, cause: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j, s, start := memjournal.New(), replies(tt.reply), time.Now()
				cfg := onceclient.Config{Journal: j, Sender: s}
				if tt.change != nil {
					tt.change(&cfg)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel > 0 {
					defer time.AfterFunc(tt.cancel, cancel).Stop()
				}
				_, err := newClient(t, cfg).Do(ctx, charge("order-1", "somewhere"))
				wantKind(t, err, tt.kind)
				s.want(t, 1)
				if took := time.Since(start); took != tt.takes {
					t.Errorf("it took %v, want %v", took, tt.takes)
				}
				if tt.cause != nil && !errors.Is(err, tt.cause) {
					t.Errorf("%v", err)
				}
				if e := stands(t, j, "order-1"); e.Note == "" {
					t.Error("the journal does not say why")
				}
			})
		})
	}
}

// An attempt has a time of its own, within that of the operation.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var took []time.Duration
		s := &script{plan: func(ctx context.Context, _ int, _ onceclient.Entry) onceclient.Reply {
			start := time.Now()
			<-ctx.Done()
			took = append(took, time.Since(start))
			return onceclient.Reply{Verdict: onceclient.Again, Err: context.Cause(ctx)}
		}}
		cfg := onceclient.Config{Journal: memjournal.New(), Sender: s, Timeout: 25 * time.Second, AttemptTimeout: 10 * time.Second, BackoffCap: 1}
		start := time.Now()
		_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
		wantKind(t, err, "unknown")
		if all := time.Since(start); all != 25*time.Second {
			t.Errorf("it took %v", all)
		}
		if len(took) != 3 || took[0] != 10*time.Second || took[1] != 10*time.Second || took[2] >= 6*time.Second {
			t.Errorf("the attempts took %v", took)
		}
		var timeout interface{ Timeout() bool }
		if !errors.As(err, &timeout) || !timeout.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// B94, B95, L4: nothing is sent when the server may have forgotten the key.
func TestRetention(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first onceclient.Reply
		kind  string
		state onceclient.State
	}{
		"unknown":  {lost(), "unknown", onceclient.Open},
		"not sent": {unsent(), "not sent", onceclient.NotSent},
		"refused":  {denied(401), "refused", onceclient.Refused},
		"answered": {done(200), "answered", onceclient.Answered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := memjournal.New()
				cfg := onceclient.Config{Journal: j, Sender: replies(tt.first), Attempts: 1}
				_, _ = newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
				s := replies(done(201))
				cfg.Sender = s
				c := newClient(t, cfg)
				time.Sleep(21*time.Hour + 36*time.Minute)
				_, err := c.Do(t.Context(), charge("order-1", "somewhere"))
				wantKind(t, err, tt.kind)
				s.want(t, 0)
				wantState(t, j, "order-1", tt.state)
				if err != nil && !errors.Is(err, &onlyonce.Error{Code: onceclient.CodeRetentionOver}) {
					t.Errorf("%v", err)
				}
				if err := c.Resume(t.Context(), func(_ onceclient.Outcome, err error) { wantKind(t, err, "unknown") }); err != nil {
					t.Error(err)
				}
				s.want(t, 0)
				// A server that remembers for longer.
				cfg.Retention = 48 * time.Hour
				_, err = newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
				wantKind(t, err, "answered")
			})
		})
	}
}

// L4: an entry from the future shows that a clock was set back: its age is not known, and
// beyond the margin nothing is sent.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	for back, sends := range map[time.Duration]int{time.Hour: 1, 3 * time.Hour: 0, 48 * time.Hour: 0} {
		j := memjournal.New()
		now := time.Now()
		cfg := quick(j)
		cfg.Sender, cfg.Attempts, cfg.Now = replies(lost()), 1, func() time.Time { return now }
		_, _ = newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
		now = now.Add(-back)
		s := replies(done(201))
		cfg.Sender = s
		_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
		s.want(t, sends)
		wantKind(t, err, map[int]string{0: "unknown", 1: "answered"}[sends])
		if sends == 0 && !errors.Is(err, &onlyonce.Error{Code: onceclient.CodeRetentionOver}) {
			t.Errorf("%v", err)
		}
	}
}

// The last attempt before the retention ends is cut short by it.
func TestRetentionEndsAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := &script{plan: func(ctx context.Context, _ int, _ onceclient.Entry) onceclient.Reply {
			<-ctx.Done()
			return lost()
		}}
		cfg := onceclient.Config{Journal: memjournal.New(), Sender: s, Retention: 10 * time.Second}
		_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
		wantKind(t, err, "unknown")
		if took := time.Since(start); took != 9*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// B103: the first attempt is still at work when its retries come; they ask now and
// then, and get its answer.
func TestInProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		last := start
		s := &script{plan: func(ctx context.Context, n int, _ onceclient.Entry) onceclient.Reply {
			if gap := time.Since(last); n > 1 && gap < time.Second {
				t.Errorf("it asked again after %v", gap)
			}
			defer func() { last = time.Now() }()
			if n == 0 {
				<-ctx.Done()
				return lost()
			}
			if time.Since(start) < 20*time.Second {
				return later(time.Second)
			}
			return done(201)
		}}
		cfg := onceclient.Config{Journal: memjournal.New(), Sender: s, AttemptTimeout: 5 * time.Second}
		_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
		for err != nil && time.Since(start) < 20*time.Second { // the dice were low: it is gone on with
			wantKind(t, err, "unknown")
			_, err = newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
		}
		wantKind(t, err, "answered")
	})
}

// outage is a server that is down for a while, and writes down when it is asked.
type outage struct {
	mu     sync.Mutex
	start  time.Time
	back   time.Duration // 0: never
	asked  []time.Duration
	served []time.Duration
}

func (o *outage) Send(ctx context.Context, _ onceclient.Entry) onceclient.Reply {
	// What an answer takes; the bubble of synctest has a clock of its own.
	took := time.NewTimer(time.Duration(1+rand.IntN(20)) * time.Millisecond)
	defer took.Stop()
	select {
	case <-took.C:
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	at := time.Since(o.start)
	o.asked = append(o.asked, at)
	if o.back == 0 || at < o.back {
		return lost()
	}
	o.served = append(o.served, at)
	return done(201)
}

// ask does n operations at a time, and counts how they end.
func (o *outage) ask(t *testing.T, n int, cfg onceclient.Config) map[string]int {
	t.Helper()
	o.start = time.Now()
	cfg.Journal, cfg.Sender = memjournal.New(), o
	c := newClient(t, cfg)
	ends := map[string]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			_, err := c.Do(t.Context(), charge("order-"+strconv.Itoa(i), "somewhere"))
			mu.Lock()
			defer mu.Unlock()
			ends[kindOf(err)]++
		})
	}
	all.Wait()
	return ends
}

// busiest is the largest number of times in any window of a length.
func busiest(times []time.Duration, window time.Duration) int {
	slices.Sort(times)
	most, from := 0, 0
	for to := range times {
		for times[to]-times[from] >= window {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

// L3: a server that is down sees at most 1.1 times what it would see anyway.
func TestDeadServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outage{}
		if ends := o.ask(t, 1000, onceclient.Config{Timeout: time.Minute}); ends["unknown"] != 1000 {
			t.Errorf("%v", ends)
		}
		t.Logf("%d requests in all, %d in the busiest 10 s", len(o.asked), busiest(o.asked, 10*time.Second))
		if most := busiest(o.asked, 10*time.Second); most > 1100 || most < 1050 {
			t.Errorf("%d requests in 10 s", most)
		}
		// When the first requests are long over, it is a trickle.
		if most := busiest(o.asked[1100:], 10*time.Second); most > 10 {
			t.Errorf("%d retries in later 10 s", most)
		}
	})
}

// L3: the server is back: all get their answers, soon, and spread in time.
func TestRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outage{back: 30 * time.Second}
		if ends := o.ask(t, 1000, onceclient.Config{}); ends["answered"] != 1000 {
			t.Errorf("%v", ends)
		}
		last := slices.Max(o.served)
		burst := busiest(o.served, 100*time.Millisecond)
		t.Logf("the last of %d was answered at %v; the busiest 100 ms had %d", len(o.served), last, burst)
		if len(o.served) != 1000 || last > 60*time.Second || burst > 100 {
			t.Errorf("%d were answered until %v, %d in 100 ms", len(o.served), last, burst)
		}
	})
}

// An operation that waits for its turn waits no longer than its time.
func TestBudgetIsNotWaitedForInVain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := &outage{}
		start := time.Now()
		ends := o.ask(t, 100, onceclient.Config{Timeout: 5 * time.Second, BackoffCap: time.Second})
		if took := time.Since(start); ends["unknown"] != 100 || len(o.asked) > 110 || took > 5*time.Second || took < 3*time.Second {
			t.Errorf("%v after %d requests and %v", ends, len(o.asked), took)
		}
	})
}

// B103: a server that marks nothing says 409 while the attempt before is at work, and the
// answer when that has ended. Without an attempt before, 409 is the answer.
func TestUnmarkedConflict(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first, no bool
		kind      string
		requests  int
	}{
		"at work":               {true, false, "answered", 4},
		"at work, and no retry": {true, true, "unknown", 2},
		"its own":               {false, false, "refused", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
				switch {
				case n == 0 && tt.first:
					drop(w)
				case n < 3:
					if tt.no {
						w.Header().Set("X-Should-Retry", "false")
					}
					w.WriteHeader(http.StatusConflict)
				}
			})
			out, err := newClient(t, quick(memjournal.New())).Do(t.Context(), charge("order-1", s.URL))
			wantKind(t, err, tt.kind)
			s.wantOneKey(t, out.Key, tt.requests)
		})
	}
}

// L3: operations to a server that is down use up no retries of those to another.
func TestBudgetIsOfAServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const dead, alive = "https://dead.example/charges", "https://alive.example/charges"
		var mu sync.Mutex
		asked := map[string]int{}
		s := &script{plan: func(_ context.Context, _ int, e onceclient.Entry) onceclient.Reply {
			mu.Lock()
			defer mu.Unlock()
			asked[e.Intent]++
			if strings.HasPrefix(e.Target, dead) || asked[e.Intent] < 2 {
				return lost()
			}
			return done(201)
		}}
		cfg := onceclient.Config{Journal: memjournal.New(), Sender: s}
		c := newClient(t, cfg)
		var all sync.WaitGroup
		for i := range 500 {
			all.Go(func() {
				_, err := c.Do(t.Context(), charge("dead-"+strconv.Itoa(i), dead))
				wantKind(t, err, "unknown")
			})
		}
		time.Sleep(11 * time.Second)
		start := time.Now()
		for i := range 20 {
			_, err := c.Do(t.Context(), charge("alive-"+strconv.Itoa(i), alive))
			wantKind(t, err, "answered")
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("20 operations took %v", took)
		}
		all.Wait()
	})
}

// L3: who does an open intent again and again makes retries, which are within the budget.
func TestDoneAgainIsARetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := replies(lost())
		cfg := onceclient.Config{Journal: memjournal.New(), Sender: s, Attempts: 1, Timeout: time.Second}
		c := newClient(t, cfg)
		for start := time.Now(); time.Since(start) < 9*time.Second; time.Sleep(10 * time.Millisecond) {
			_, err := c.Do(t.Context(), charge("order-1", "somewhere"))
			wantKind(t, err, "unknown")
		}
		s.want(t, 11)
	})
}
