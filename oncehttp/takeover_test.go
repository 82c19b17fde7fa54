package oncehttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// C6, B16: an attempt whose key was taken over is not answered with its own
// answer, but with that of the key.
func TestTakeover(t *testing.T) {
	t.Parallel()
	s := newService(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	route := oncehttp.Route{Op: onlyonce.Op{AfterCrash: onlyonce.Rerun}}
	s.wrap("POST /charges", route, func(w http.ResponseWriter, _ *http.Request) {
		run := s.runs.Load()
		if run == 1 {
			close(entered)
			<-leave
		}
		w.Header().Set("X-Run", fmt.Sprint(run))
		fmt.Fprintf(w, "run %d", run)
	})
	s.start(false)
	slow := make(chan reply)
	go func() { slow <- s.do(ask{keys: key("k1")}) }()
	<-entered
	s.ahead.Store(int64(time.Hour))
	fast := s.do(ask{keys: key("k1")}).expect(t, 200, "executed")
	close(leave)
	got := <-slow
	got.replayOf(t, fast)
	if got.body != "run 2" || got.header.Get("X-Run") != "" {
		t.Errorf("the slow caller got %q %v", got.body, got.header)
	}
	s.ran(2)
}

// B10, B11, B51: a crashed attempt is told apart from one that runs.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	s := newService(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	s.wrap("POST /charges", oncehttp.Route{}, func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-leave
	})
	s.start(false)
	slow := make(chan reply)
	go func() { slow <- s.do(ask{keys: key("k1")}) }()
	<-entered
	s.do(ask{keys: key("k1")}).problem(t, 409, "request_in_progress")
	s.ahead.Store(int64(time.Hour))
	got := s.do(ask{keys: key("k1")})
	got.problem(t, 409, "outcome_unknown")
	if got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.do(ask{keys: key("k1"), body: pay(1)}).problem(t, 422, "idempotency_key_reused") // F6
	close(leave)
	(<-slow).expect(t, 200, "executed") // the doubted attempt's own completion
	s.do(ask{keys: key("k1")}).expect(t, 200, "replayed")
	s.ran(1)
}

// T1, T2, T4: after its retention a key is new.
func TestRetention(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{Op: onlyonce.Op{Retention: time.Hour}}, created)
	s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	s.ahead.Store(int64(59 * time.Minute))
	s.do(ask{keys: key("k1")}).expect(t, 201, "replayed")
	s.ahead.Store(int64(61 * time.Minute))
	s.do(ask{keys: key("k1"), body: pay(2)}).expect(t, 201, "executed")
	s.ran(2)
}

// F7: after a deploy that changes the policy, a retry is judged by the policy
// its record was written under.
func TestPolicyChanges(t *testing.T) {
	t.Parallel()
	s := newService(t)
	op := onlyonce.Op{Name: "POST /charges"}
	deploys := map[string]http.Handler{}
	for name, policy := range map[string]canon.Policy{"old": {Ignore: []string{"/seen"}}, "new": {}} {
		h, err := s.guard.Wrap(oncehttp.Route{Op: op, Policy: policy}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.runs.Add(1)
			created(w, r)
		}))
		if err != nil {
			t.Fatal(err)
		}
		deploys[name] = h
	}
	s.mux.HandleFunc("POST /charges", func(w http.ResponseWriter, r *http.Request) {
		deploys[r.Header.Get("X-Deploy")].ServeHTTP(w, r)
	})
	by := func(deploy string) http.Header { return http.Header{"X-Deploy": {deploy}} }
	s.do(ask{keys: key("k1"), header: by("old"), body: `{"a":1,"seen":1}`}).expect(t, 201, "executed")
	s.do(ask{keys: key("k1"), header: by("new"), body: `{"a":1,"seen":2}`}).expect(t, 201, "replayed")
	s.do(ask{keys: key("k1"), header: by("new"), body: `{"a":2,"seen":2}`}).problem(t, 422, "idempotency_key_reused")
	s.do(ask{keys: key("k2"), header: by("new"), body: `{"a":1,"seen":1}`}).expect(t, 201, "executed")
	s.do(ask{keys: key("k2"), header: by("old"), body: `{"a":1,"seen":2}`}).problem(t, 422, "idempotency_key_reused")
	s.ran(2)
}

// C8: a cancelled HTTP/2 stream aborts nothing either.
func TestStreamCancelled(t *testing.T) {
	t.Parallel()
	s := newService(t)
	entered, done := make(chan struct{}), make(chan struct{})
	type outside struct{}
	s.outer = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(contextWith(r, outside{}, r.Context())))
		})
	}
	s.wrap("POST /charges", oncehttp.Route{}, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Value(outside{}).(context.Context).Done()
		if err := r.Context().Err(); err != nil {
			t.Errorf("the handler's context ended with the stream: %v", err)
		}
		io.WriteString(w, "done")
		close(done)
	})
	s.start(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-entered; cancel() }()
	req, err := http.NewRequestWithContext(ctx, "POST", s.server.URL+"/charges", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "k1")
	req.Header.Set("Authorization", "Bearer acme/1")
	if res, err := s.server.Client().Do(req); err == nil {
		res.Body.Close()
		t.Error("the request was not cancelled")
	}
	<-done
	for { // until the answer is stored
		req := req.Clone(t.Context())
		res, err := s.server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 409 {
			if res.StatusCode != 200 || res.Header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("got %d %v", res.StatusCode, res.Header)
			}
			break
		}
	}
	s.ran(1)
}
