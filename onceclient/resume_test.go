package onceclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// L1, B100: the client dies at each point of its way; another goes on with the same key,
// bytes and target, and there is one effect at most. What was never sent is unknown to
// whoever comes after, which costs one request.
func TestKilled(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault  func(method string, n int)
		sender func(n int)
		// before is how many requests have left, entry whether there is one afterwards.
		before int
		entry  bool
		first  []onceclient.Reply
	}{
		"before the journal":      {fault: dies("begin", 0)},
		"behind the journal":      {fault: dies("begun", 0), entry: true},
		"before the lock":         {fault: dies("lock", 0), entry: true},
		"before the first byte":   {sender: func(int) { kill() }, before: 1, entry: true},
		"before the record":       {fault: dies("save", 0), before: 1, entry: true},
		"behind the record":       {fault: dies("saved", 0), before: 1, entry: true},
		"before the second":       {fault: dies("save", 0), before: 1, entry: true, first: []onceclient.Reply{lost()}},
		"behind the second":       {fault: dies("saved", 0), before: 1, entry: true, first: []onceclient.Reply{lost()}},
		"in the second":           {sender: func(n int) { killAt(n, 1) }, before: 2, entry: true, first: []onceclient.Reply{lost()}},
		"before it says not sent": {fault: dies("save", 11), before: 12, entry: true, first: []onceclient.Reply{unsent()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newFaulty(func(method string, n int) error {
				if tt.fault != nil {
					tt.fault(method, n)
				}
				return nil
			})
			first := replies(append(tt.first, done(201))[:max(len(tt.first), 1)]...)
			cfg := quick(j)
			cfg.Sender = &script{plan: func(ctx context.Context, n int, e onceclient.Entry) onceclient.Reply {
				r := first.Send(ctx, e)
				if tt.sender != nil {
					tt.sender(n)
				}
				return r
			}}
			survived := false
			inProcess(func() {
				_, _ = newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
				survived = true
			})
			if survived {
				t.Fatal("it was not killed")
			}
			first.want(t, tt.before)
			wantGoesOn(t, j.Journal, first.entries(), tt.entry)
		})
	}
}

func dies(method string, call int) func(string, int) {
	return func(m string, n int) {
		if m == method {
			killAt(n, call)
		}
	}
}

func killAt(n, call int) {
	if n == call {
		kill()
	}
}

// wantGoesOn resumes twice after a death.
func wantGoesOn(t *testing.T, j onceclient.Journal, before []onceclient.Entry, entry bool) {
	t.Helper()
	next := replies(beforeKey(404), done(201))
	cfg := quick(j)
	cfg.Sender = next
	c := newClient(t, cfg)
	var ends []string
	for range 3 {
		if err := c.Resume(t.Context(), func(_ onceclient.Outcome, err error) { ends = append(ends, kindOf(err)) }); err != nil {
			t.Error(err)
		}
	}
	// An entry that was found open may have been sent, so a 404 proves nothing; one that
	// was recorded before its process died is not asked for again.
	var want []string
	if entry {
		want = []string{"unknown", "answered"}
	}
	if len(ends) == 0 && entry && stands(t, j, "order-1").State == onceclient.Answered {
		want = nil
	}
	if diff := cmp.Diff(want, ends); diff != "" {
		t.Error(diff)
	}
	all := append(before, next.entries()...)
	for _, e := range all {
		if e.Key != all[0].Key || e.Target != "somewhere" || string(e.Body) != `{"amount":100}` || e.Header["Content-Type"][0] != "application/json" {
			t.Errorf("sent was %+v", e)
		}
	}
	out, err := c.Do(t.Context(), charge("order-1", "somewhere"))
	wantKind(t, err, map[bool]string{true: "answered", false: "refused"}[entry])
	if entry && !out.Recorded {
		t.Error("it was sent once more")
	}
}

// Resume goes through all that is open, oldest first, and leaves the rest alone.
func TestResume(t *testing.T) {
	t.Parallel()
	j := memjournal.New()
	cfg := quick(j)
	cfg.Attempts, cfg.Concurrency = 1, 1
	for i, r := range []onceclient.Reply{lost(), done(200), lost(), denied(402), unsent(), lost(), lost()} {
		cfg.Sender = replies(r)
		_, _ = newClient(t, cfg).Do(t.Context(), charge(fmt.Sprintf("order-%d", i), "somewhere"))
	}
	lock, _, err := j.Lock(t.Context(), "order-2")
	if err != nil {
		t.Fatal(err)
	}
	s := &script{plan: func(_ context.Context, _ int, e onceclient.Entry) onceclient.Reply {
		return map[string]onceclient.Reply{"order-0": done(201), "order-5": lost(), "order-6": denied(422), "order-2": done(202)}[e.Intent]
	}}
	cfg.Sender = s
	c := newClient(t, cfg)
	resume := func() (got []string) {
		if err := c.Resume(t.Context(), func(out onceclient.Outcome, err error) {
			got = append(got, out.Intent+" "+kindOf(err))
		}); err != nil {
			t.Error(err)
		}
		return got
	}
	if diff := cmp.Diff([]string{"order-0 answered", "order-5 unknown", "order-6 refused"}, resume()); diff != "" {
		t.Error(diff)
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"order-2 answered", "order-5 unknown"}, resume()); diff != "" {
		t.Error(diff)
	}
	if err := c.Resume(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// Several resume at a time, over more than a page, beside the operations' own callers:
// each operation is worked on by one at a time, and all are answered.
func TestResumeOfMany(t *testing.T) {
	t.Parallel()
	const operations = 1203
	j := memjournal.New()
	cfg := quick(j)
	cfg.Attempts = 1
	cfg.Sender = replies(lost())
	before := newClient(t, cfg)
	for i := range operations {
		_, _ = before.Do(t.Context(), charge(fmt.Sprintf("order-%d", i), "somewhere"))
	}
	var mu sync.Mutex
	at, most, total := map[string]int{}, 0, 0
	cfg.Concurrency = 3
	cfg.Sender = &script{plan: func(_ context.Context, _ int, e onceclient.Entry) onceclient.Reply {
		mu.Lock()
		at[e.Intent]++
		if at[e.Intent] > 1 {
			t.Errorf("%s is worked on twice at a time", e.Intent)
		}
		total++
		most = max(most, len(at))
		mu.Unlock()
		defer func() {
			mu.Lock()
			delete(at, e.Intent)
			mu.Unlock()
		}()
		return done(201)
	}}
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			inside := false
			if err := newClient(t, cfg).Resume(t.Context(), func(_ onceclient.Outcome, err error) {
				if inside || err != nil {
					t.Errorf("called by two at a time: %t; %v", inside, err)
				}
				inside = true
				defer func() { inside = false }()
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	open, err := j.Pending(t.Context(), "", 10)
	if err != nil || len(open) != 0 || total != operations || most > 9 {
		t.Errorf("open are %q, %v; %d were sent, at most %d at a time", open, err, total, most)
	}
}

// A resumed operation has no credentials but those of Authorize.
func TestResumeAuthorizes(t *testing.T) {
	t.Parallel()
	s := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 0 {
			drop(w)
		}
	})
	j := memjournal.New()
	cfg := quick(j)
	cfg.Attempts = 1
	r := charge("order-1", s.URL)
	r.Header.Set("Authorization", "first")
	_, err := newClient(t, cfg).Do(t.Context(), r)
	wantKind(t, err, "unknown")
	cfg.Authorize = func(_ context.Context, req *http.Request, _ bool) error {
		req.Header.Set("Authorization", fmt.Sprintf("second after %q", req.Header.Get("Authorization")))
		return nil
	}
	if err := newClient(t, cfg).Resume(t.Context(), func(_ onceclient.Outcome, err error) { wantKind(t, err, "answered") }); err != nil {
		t.Error(err)
	}
	s.wantOneKey(t, stands(t, j, "order-1").Key, 2)
	if got := s.got()[1].header.Get("Authorization"); got != `second after ""` {
		t.Errorf("it was sent with %q", got)
	}
}

// L3: resumed attempts are retries, so that a start beside a dead server adds little.
func TestResumeIsWithinTheBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := memjournal.New()
		cfg := quick(j)
		cfg.Sender, cfg.Attempts = replies(lost()), 1
		before := newClient(t, cfg)
		for i := range 100 {
			_, _ = before.Do(t.Context(), charge(fmt.Sprintf("order-%d", i), "somewhere"))
		}
		s := replies(lost())
		cfg = onceclient.Config{Journal: j, Sender: s, Concurrency: 100, Timeout: 8 * time.Second}
		kinds := map[string]int{}
		if err := newClient(t, cfg).Resume(t.Context(), func(_ onceclient.Outcome, err error) { kinds[kindOf(err)]++ }); err != nil {
			t.Error(err)
		}
		if n := len(s.entries()); n != 10 || kinds["unknown"] != 100 {
			t.Errorf("%d requests, and they ended as %v", n, kinds)
		}
	})
}

// Resume ends with its context, and says when the journal does not work.
func TestResumeEnds(t *testing.T) {
	t.Parallel()
	j := memjournal.New()
	cfg := quick(j)
	cfg.Attempts, cfg.Sender = 1, replies(lost())
	for i := range 5 {
		_, _ = newClient(t, cfg).Do(t.Context(), charge(fmt.Sprintf("order-%d", i), "somewhere"))
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cfg.Concurrency = 1
	s := &script{plan: func(context.Context, int, onceclient.Entry) onceclient.Reply {
		cancel(errors.New("shutting down"))
		return done(200)
	}}
	cfg.Sender = s
	var got []string
	err := newClient(t, cfg).Resume(ctx, func(out onceclient.Outcome, err error) { got = append(got, out.Intent+" "+kindOf(err)) })
	if err == nil || !strings.Contains(err.Error(), "shutting down") || cmp.Diff([]string{"order-0 answered"}, got) != "" {
		t.Errorf("%v, %q", err, got)
	}

	for _, method := range []string{"pending", "half", "lock"} {
		f := newFaulty(failing(method, 0))
		f.Journal = j
		cfg.Journal, cfg.Sender = f, replies(lost())
		calls := 0
		err := newClient(t, cfg).Resume(t.Context(), func(onceclient.Outcome, error) { calls++ })
		if !errors.Is(err, errDisk) || calls != map[string]int{"pending": 0, "half": 4, "lock": 3}[method] {
			t.Errorf("%s: %v after %d", method, err, calls)
		}
	}
}

// Only what ended long ago is forgotten.
func TestPrune(t *testing.T) {
	t.Parallel()
	j := newFaulty(failing("prune", 2))
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	cfg := quick(j)
	cfg.Attempts, cfg.Now = 1, func() time.Time { return now }
	do := func(intent string, r onceclient.Reply) {
		cfg.Sender = replies(r)
		_, _ = newClient(t, cfg).Do(t.Context(), charge(intent, "somewhere"))
	}
	for i := range 600 {
		do(fmt.Sprintf("order-%d", i), []onceclient.Reply{done(200), denied(402), unsent()}[i%3])
	}
	do("open", lost())
	now = now.Add(20 * 24 * time.Hour)
	do("new", done(200))
	now = now.Add(20 * 24 * time.Hour)
	c := newClient(t, cfg)
	if n, err := c.Prune(t.Context(), 30*24*time.Hour); n != 600 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, intent := range []string{"open", "new"} {
		stands(t, j, intent)
	}
	if _, err := c.Prune(t.Context(), 30*24*time.Hour); !errors.Is(err, errDisk) {
		t.Errorf("%v", err)
	}
	if _, err := c.Prune(t.Context(), time.Hour); !errors.Is(err, &onlyonce.Error{Code: onlyonce.CodeConfig}) {
		t.Errorf("%v", err)
	}
	if open, err := j.Pending(t.Context(), "", 10); err != nil || !slices.Equal(open, []string{"open"}) {
		t.Errorf("%q, %v", open, err)
	}
}
