package oncehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// The whole story, on both protocols. K4 C2 F6 O2 O7 R1 R2 R3, B47, B63, B122
func TestSession(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		s := newService(t)
		entered, leave := make(chan struct{}), make(chan struct{})
		s.wrap("POST /charges", oncehttp.Route{}, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			switch {
			case strings.Contains(string(body), "666"):
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusPaymentRequired)
				fmt.Fprint(w, `{"declined":true}`)
				return
			case strings.Contains(string(body), "777"):
				close(entered)
				<-leave
			}
			created(w, r)
		})
		s.start(http2)

		s.do(ask{}).problem(t, 400, "idempotency_key_required")

		first := s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
		expires, err := strconv.ParseInt(strings.TrimPrefix(first.header.Get("Idempotency-Expires"), "@"), 10, 64)
		if left := time.Until(time.Unix(expires, 0)); err != nil || left < 23*time.Hour || left > 25*time.Hour {
			t.Errorf("Idempotency-Expires is %q", first.header.Get("Idempotency-Expires"))
		}
		again := s.do(ask{keys: key("k1")})
		again.replayOf(t, first)
		if again.header.Get("Cache-Control") != "no-store" {
			t.Errorf("a replay may be cached: %v", again.header) // R2
		}

		got := s.do(ask{keys: key("k1"), body: pay(200)}).expect(t, 422, "refused")
		m := got.problem(t, 422, "idempotency_key_reused")
		if fmt.Sprint(m["differs"]) != "[/amount]" || m["retry_with"] != "new_key" || strings.Contains(got.body, "200") {
			t.Errorf("mismatch: %s", got.body)
		}

		var wg sync.WaitGroup
		wg.Go(func() { s.do(ask{keys: key("k2"), body: pay(777)}).expect(t, 201, "executed") })
		<-entered
		got = s.do(ask{keys: key("k2"), body: pay(777)}).expect(t, 409, "refused")
		m = got.problem(t, 409, "request_in_progress")
		wait, err := strconv.Atoi(got.header.Get("Retry-After"))
		if err != nil || wait < 2 || wait > 30 || got.header.Get("X-Should-Retry") != "true" {
			t.Errorf("Retry-After %q, X-Should-Retry %q", got.header.Get("Retry-After"), got.header.Get("X-Should-Retry"))
		}
		if m["retryable"] != true || m["retry_with"] != "same_key" || !strings.HasPrefix(fmt.Sprint(m["operation"]), "op_") {
			t.Errorf("conflict: %s", got.body)
		}
		close(leave)
		wg.Wait()

		declined := s.do(ask{keys: key("k3"), body: pay(666)}).expect(t, 402, "executed")
		s.do(ask{keys: key("k3"), body: pay(666)}).replayOf(t, declined)
		s.ran(3)
	}
}

// C1, B121: the losers of a race never get a 500, and the handler runs once.
func TestRace(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	s.start(false)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			got := s.do(ask{keys: key("k1")})
			if got.status != 201 && got.status != 409 {
				t.Errorf("got %d %s", got.status, got.body)
			}
		})
	}
	wg.Wait()
	s.ran(1)
}

// S1, S2, S3, B26, B27, B28, B29: whose key it is.
func TestScope(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	first := s.do(ask{keys: key("k1"), as: "acme/1"}).expect(t, 201, "executed")
	s.do(ask{keys: key("k1"), as: "acme/2"}).replayOf(t, first) // a rotated credential
	s.do(ask{keys: key("k1"), as: "other/1"}).expect(t, 201, "executed")
	s.ran(2)
	for _, credential := range []string{"-", "/1"} {
		got := s.do(ask{keys: key("k1"), as: credential}).expect(t, 401, "refused")
		got.problem(t, 401, "unauthenticated")
		if got.header.Get("WWW-Authenticate") != "Bearer" || strings.Contains(got.body, "no credential") {
			t.Errorf("%v %s", got.header, got.body)
		}
	}
	s.ran(2)
	if _, err := oncehttp.New(s.engine.Engine, nil); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("a guard without a scope: %v", err) // S2
	}
}

// S2: a ScopeFunc may say what is wrong.
func TestScopeErrors(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var fail error
	g, err := oncehttp.New(s.engine.Engine, func(*http.Request) (string, error) { return "", fail })
	if err != nil {
		t.Fatal(err)
	}
	h, err := g.Wrap(oncehttp.Route{}, http.HandlerFunc(created))
	if err != nil {
		t.Fatal(err)
	}
	s.mux.Handle("POST /charges", h)
	fail = &oncehttp.Problem{Status: 403, Code: "suspended"}
	s.do(ask{keys: key("k1")}).problem(t, 403, "suspended")
	fail = &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable}
	s.do(ask{keys: key("k1")}).problem(t, 503, "idempotency_store_unavailable")
}

// S4, F1, B25, B37: one key is one operation on one path.
func TestOtherOperation(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /orders", oncehttp.Route{}, created)
	s.wrap("POST /orders/{id}/cancel", oncehttp.Route{}, created)
	s.do(ask{path: "/orders", keys: key("k1")}).expect(t, 201, "executed")
	m := s.do(ask{path: "/orders/7/cancel", keys: key("k1")}).problem(t, 422, "idempotency_key_reused")
	if got := fmt.Sprint(m["differs"]); !strings.Contains(got, "path") || !strings.Contains(got, "operation") {
		t.Errorf("differs is %s", got)
	}
	s.do(ask{path: "/orders/1/cancel", keys: key("k2")}).expect(t, 201, "executed")
	m = s.do(ask{path: "/orders/2/cancel", keys: key("k2")}).problem(t, 422, "idempotency_key_reused")
	if got := fmt.Sprint(m["differs"]); got != "[path]" {
		t.Errorf("differs is %s", got)
	}
	m = s.do(ask{path: "/orders/1/cancel?force=1", keys: key("k2")}).problem(t, 422, "idempotency_key_reused")
	if got := fmt.Sprint(m["differs"]); got != "[query:force]" {
		t.Errorf("differs is %s", got)
	}
	s.ran(2)
}

// A middleware around a whole mux: names come from the method, the path counts.
func TestWholeMux(t *testing.T) {
	t.Parallel()
	s := newService(t)
	inner := http.NewServeMux()
	inner.HandleFunc("POST /a/{id}", created)
	inner.HandleFunc("GET /a/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	h, err := s.guard.Wrap(oncehttp.Route{}, inner)
	if err != nil {
		t.Fatal(err)
	}
	s.outer = func(http.Handler) http.Handler { return h }
	s.do(ask{path: "/a/1", keys: key("k1")}).expect(t, 201, "executed")
	s.do(ask{path: "/a/1", keys: key("k1")}).expect(t, 201, "replayed")
	s.do(ask{path: "/a/2", keys: key("k1")}).problem(t, 422, "idempotency_key_reused")
	s.do(ask{method: "GET", path: "/a/1"}).expect(t, 204, "")
	s.do(ask{path: "/b", keys: key("k2")}).expect(t, 404, "executed")
}

// F6: a JSON text that is sent as a form is one field whose name is the text. It is
// neither shown nor kept in clear.
func TestMismatchOfJSONSentAsForm(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	s.do(ask{keys: key("k1"), header: form, body: `{"card":"4242424242424242"}`}).expect(t, 201, "executed")
	got := s.do(ask{keys: key("k1"), header: form, body: `{"card":"4000056655665556"}`})
	if m := got.problem(t, 422, "idempotency_key_reused"); fmt.Sprint(m["differs"]) != "[body]" || strings.Contains(got.body, "card") {
		t.Errorf("mismatch: %s", got.body)
	}
	if parts := s.record("acme", "k1").Fingerprint.Parts; strings.Contains(string(parts), "4242") {
		t.Errorf("kept in clear: %q", parts)
	}
}

// S5, F6: who may see the stored answer and what differs.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	s := newService(t)
	asked := 0
	s.wrap("POST /charges", oncehttp.Route{Authorize: func(r *http.Request, rec onlyonce.Record) error {
		asked++
		if rec.Key.Scope != "acme" || rec.Operation != "POST /charges" || rec.Answer == nil {
			t.Errorf("the record is %+v", rec)
		}
		switch {
		case strings.HasSuffix(r.Header.Get("Authorization"), "/clerk"):
			return errors.New("clerks may not")
		case strings.HasSuffix(r.Header.Get("Authorization"), "/guest"):
			return &oncehttp.Problem{Status: 404, Code: "not_found"}
		}
		return nil
	}}, created)
	s.do(ask{keys: key("k1"), as: "acme/clerk"}).expect(t, 201, "executed")
	if asked != 0 {
		t.Error("asked for a first answer")
	}
	got := s.do(ask{keys: key("k1"), as: "acme/clerk"})
	got.problem(t, 403, "replay_forbidden")
	if strings.Contains(got.body, "ch_1") || strings.Contains(got.body, "clerks") || got.header.Get("Location") != "" {
		t.Errorf("something was shown: %v %s", got.header, got.body)
	}
	s.do(ask{keys: key("k1"), as: "acme/guest"}).problem(t, 404, "not_found")
	m := s.do(ask{keys: key("k1"), as: "acme/clerk", body: pay(5)}).problem(t, 422, "idempotency_key_reused")
	if fmt.Sprint(m["differs"]) != "[]" {
		t.Errorf("differs is %v", m["differs"])
	}
	m = s.do(ask{keys: key("k1"), as: "acme/owner", body: pay(5)}).problem(t, 422, "idempotency_key_reused")
	if fmt.Sprint(m["differs"]) != "[/amount]" {
		t.Errorf("differs is %v", m["differs"])
	}
	s.do(ask{keys: key("k1"), as: "acme/owner"}).expect(t, 201, "replayed")
	s.ran(1)
}

// S5: the hook is asked about the run whose answer would be shown, also when the
// key has begun another life since, or is gone.
func TestAuthorizeSeesTheRunBehindTheReplay(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var asked []onlyonce.Record
	s.wrap("POST /charges", oncehttp.Route{Authorize: func(_ *http.Request, rec onlyonce.Record) error {
		asked = append(asked, rec)
		return nil
	}}, created)
	s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	rec := s.record("acme", "k1")
	for name, seen := range map[string]func(onlyonce.Record) (onlyonce.Record, bool){
		"a later life":    func(r onlyonce.Record) (onlyonce.Record, bool) { r.Fence++; r.Answer = nil; return r, true },
		"another attempt": func(r onlyonce.Record) (onlyonce.Record, bool) { r.Attempt[0]++; r.Answer = nil; return r, true },
		"gone":            func(r onlyonce.Record) (onlyonce.Record, bool) { return onlyonce.Record{}, false },
	} {
		asked = nil
		s.store.show(seen)
		s.do(ask{keys: key("k1")}).expect(t, 201, "replayed")
		if len(asked) != 1 || asked[0].Fence != rec.Fence || asked[0].Attempt != rec.Attempt || asked[0].Answer == nil || asked[0].Key != rec.Key {
			t.Errorf("%s: asked about %+v", name, asked)
		}
	}
	// In what a request differs from a record that is gone is nobody's to see.
	asked = nil
	s.store.show(func(onlyonce.Record) (onlyonce.Record, bool) { return onlyonce.Record{}, false })
	if m := s.do(ask{keys: key("k1"), body: pay(5)}).problem(t, 422, "idempotency_key_reused"); fmt.Sprint(m["differs"]) != "[]" || asked != nil {
		t.Errorf("differs is %v, asked about %v", m["differs"], asked)
	}
}

// E, R2: a stored refusal says the same about retries every time it is sent: it
// is final, whatever its handler says.
func TestStoredRefusalIsFinal(t *testing.T) {
	t.Parallel()
	s := newService(t, oncehttp.ShouldRetryHeaders("Stripe-Should-Retry"))
	p := &oncehttp.Problem{Status: 402, Code: "card_declined", RetryWith: oncehttp.NewKey, RetryAfter: time.Minute}
	s.wrap("POST /plain", oncehttp.Route{}, func(w http.ResponseWriter, _ *http.Request) { p.Write(w) })
	s.wrap("POST /bare", oncehttp.Route{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) })
	s.wrap("POST /wrong", oncehttp.Route{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Should-Retry", "true")
		w.WriteHeader(409)
	})
	s.steps("POST /steps", func(context.Context, charge) (onlyonce.Answer, error) { return p.Answer(), nil })
	for _, path := range []string{"/plain", "/bare", "/wrong", "/steps"} {
		first := s.do(ask{path: path, keys: key(path[1:])})
		again := s.do(ask{path: path, keys: key(path[1:])})
		again.replayOf(t, first)
		for _, got := range []reply{first, again} {
			for _, name := range []string{"X-Should-Retry", "Stripe-Should-Retry"} {
				if got.header.Get(name) != "false" {
					t.Errorf("%s: %s is %q", path, name, got.header.Get(name))
				}
			}
		}
	}
	// What is not stored says what it says, and a success says nothing.
	s.wrap("POST /busy", oncehttp.Route{}, func(w http.ResponseWriter, r *http.Request) {
		onlyonce.Declare(r.Context(), onlyonce.NotApplied)
		(&oncehttp.Problem{Status: 409, RetryWith: oncehttp.SameKey}).Write(w)
	})
	s.wrap("POST /charges", oncehttp.Route{}, created)
	if got := s.do(ask{path: "/busy", keys: key("busy")}); got.header.Get("X-Should-Retry") != "true" {
		t.Errorf("X-Should-Retry is %q", got.header.Get("X-Should-Retry"))
	}
	if got := s.do(ask{keys: key("k1")}); got.header.Get("X-Should-Retry") != "" {
		t.Errorf("X-Should-Retry is %q", got.header.Get("X-Should-Retry"))
	}
}

// F6: what differs is named only so often to one scope.
func TestMismatchLimit(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	for _, as := range []string{"acme/1", "other/1"} {
		s.do(ask{as: as, keys: key("k1")}).expect(t, 201, "executed")
		named := 0
		for amount := range 99 {
			m := s.do(ask{as: as, keys: key("k1"), body: pay(amount)}).problem(t, 422, "idempotency_key_reused")
			if fmt.Sprint(m["differs"]) == "[/amount]" {
				named++
			} else if fmt.Sprint(m["differs"]) != "[]" {
				t.Errorf("differs is %v", m["differs"])
			}
		}
		if named == 0 || named > 60 { // a window may end in between
			t.Errorf("what differs was named %d times", named)
		}
	}
}

// F4, F1: the route's policy, and its headers.
func TestPolicy(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{Policy: canon.Policy{Ignore: []string{"/seen"}, Headers: []string{"Api-Version"}}}, created)
	v1 := http.Header{"Api-Version": {"1"}}
	s.do(ask{keys: key("k1"), header: v1, body: `{"a":1,"seen":1}`}).expect(t, 201, "executed")
	s.do(ask{keys: key("k1"), header: v1, body: `{"seen":2, "a":1.0}`}).expect(t, 201, "replayed")
	m := s.do(ask{keys: key("k1"), body: `{"a":1}`}).problem(t, 422, "idempotency_key_reused")
	if fmt.Sprint(m["differs"]) != "[header:Api-Version]" {
		t.Errorf("differs is %v", m["differs"])
	}
}

// O2, O3, O5, B48, B50, B53: what a wrapped handler's end leaves behind.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		route         oncehttp.Route
		handler       http.HandlerFunc
		first         int
		firstProblem  string // "": the handler's own answer
		second        string // Idempotency-Status, or the problem's code
		secondStatus  int
		runs          int64
		stackInTheLog bool
	}{
		{name: "400 is stored", handler: status(400), first: 400, second: "replayed", secondStatus: 400, runs: 1},
		{name: "404 is stored", handler: status(404), first: 404, second: "replayed", secondStatus: 404, runs: 1},
		{name: "303 is stored", handler: status(303), first: 303, second: "replayed", secondStatus: 303, runs: 1},
		{name: "401 frees", handler: status(401), first: 401, second: "executed", secondStatus: 401, runs: 2},
		{name: "403 frees", handler: status(403), first: 403, second: "executed", secondStatus: 403, runs: 2},
		{name: "425 frees", handler: status(425), first: 425, second: "executed", secondStatus: 425, runs: 2},
		{name: "429 frees", handler: status(429), first: 429, second: "executed", secondStatus: 429, runs: 2},
		{name: "500 holds", handler: status(500), first: 500, second: "outcome_unknown", secondStatus: 409, runs: 1},
		{name: "408 holds", handler: status(408), first: 409, firstProblem: "outcome_unknown", second: "outcome_unknown", secondStatus: 409, runs: 1},
		{name: "503 frees where declared", route: releasing(), handler: status(503), first: 503, second: "executed", secondStatus: 503, runs: 2},
		{
			name: "503 declared not applied frees", first: 503, second: "executed", secondStatus: 503, runs: 2,
			handler: func(w http.ResponseWriter, r *http.Request) {
				onlyonce.Declare(r.Context(), onlyonce.NotApplied)
				w.WriteHeader(503)
			},
		},
		{
			name: "500 declared final is stored", first: 500, second: "replayed", secondStatus: 500, runs: 1,
			handler: func(w http.ResponseWriter, r *http.Request) {
				onlyonce.Declare(r.Context(), onlyonce.Final)
				w.WriteHeader(500)
			},
		},
		{
			name: "panic holds", first: 409, firstProblem: "outcome_unknown", second: "outcome_unknown", secondStatus: 409, runs: 1, stackInTheLog: true,
			handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); panic("after the charge") },
		},
		{
			name: "panic frees where declared", route: releasing(), first: 500, firstProblem: "handler_failed", second: "handler_failed", secondStatus: 500, runs: 2, stackInTheLog: true,
			handler: func(http.ResponseWriter, *http.Request) { panic("after the charge") },
		},
		{
			name: "Goexit holds", first: 409, firstProblem: "outcome_unknown", second: "outcome_unknown", secondStatus: 409, runs: 1,
			handler: func(http.ResponseWriter, *http.Request) { runtime.Goexit() },
		},
		{
			name: "upgrade holds", first: 409, firstProblem: "outcome_unknown", second: "outcome_unknown", secondStatus: 409, runs: 1,
			handler: status(101),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.wrap("POST /charges", tt.route, tt.handler)
			s.start(false)
			s.server.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			got := s.do(ask{keys: key("k1")}).expect(t, tt.first, "executed")
			if tt.firstProblem != "" {
				got.problem(t, tt.first, tt.firstProblem)
			}
			got = s.do(ask{keys: key("k1")})
			if strings.Contains(tt.second, "_") {
				got.problem(t, tt.secondStatus, tt.second)
			} else {
				got.expect(t, tt.secondStatus, tt.second)
			}
			s.ran(tt.runs)
			if strings.Contains(got.body, "after the charge") {
				t.Errorf("the cause is shown: %s", got.body) // E
			}
			if logged := strings.Contains(s.log.String(), "after the charge") && strings.Contains(s.log.String(), "wrap_test.go"); logged != tt.stackInTheLog {
				t.Errorf("stack in the log: %v\n%s", logged, s.log)
			}
		})
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func releasing() oncehttp.Route {
	return oncehttp.Route{Op: onlyonce.Op{On5xx: onlyonce.ReleaseKey}}
}

// O10, B68: http.ErrAbortHandler keeps its meaning, and the key is settled.
func TestAbort(t *testing.T) {
	t.Parallel()
	s := newService(t)
	abort := true
	s.wrap("POST /charges", releasing(), func(w http.ResponseWriter, r *http.Request) {
		created(w, r)
		if abort {
			abort = false
			panic(http.ErrAbortHandler)
		}
	})
	if _, err := s.try(ask{keys: key("k1")}); err == nil {
		t.Error("an aborted handler was answered")
	}
	s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	s.ran(2)
	if strings.Contains(s.log.String(), "abort") {
		t.Errorf("an abort is no failure to log:\n%s", s.log)
	}
}

// O6, B52: an answer that cannot be stored is not sent, and is not lost.
func TestCompletionFails(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	s.store.fail(nil, errors.New("disk full"), nil)
	got := s.do(ask{keys: key("k1")})
	m := got.problem(t, 503, "idempotency_store_unavailable")
	if m["retry_with"] != "same_key" || got.header.Get("Retry-After") == "" || strings.Contains(got.body, "ch_1") || strings.Contains(got.body, "disk") {
		t.Errorf("%v %s", got.header, got.body)
	}
	if !strings.Contains(s.log.String(), "disk full") {
		t.Errorf("the cause is not logged:\n%s", s.log)
	}
	s.do(ask{keys: key("k1")}).problem(t, 409, "request_in_progress")
	s.store.heal()
	if err := s.engine.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if rec := s.record("acme", "k1"); rec.State != onlyonce.Completed || string(rec.Answer.Body) != `{"id":"ch_1"}` {
		t.Errorf("what Close waited for: %+v", rec)
	}
	s.ran(1)
}

// C11, B88: the store is down.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	s := newService(t, oncehttp.StoreRetryAfter(7*time.Second))
	s.wrap("POST /charges", oncehttp.Route{}, created)
	s.wrap("POST /notes", oncehttp.Route{Op: onlyonce.Op{FailOpen: true}}, created)
	s.store.fail(onlyonce.ErrUnreachable, nil, nil)
	got := s.do(ask{keys: key("k1")}).expect(t, 503, "refused")
	got.problem(t, 503, "idempotency_store_unavailable")
	if got.header.Get("Retry-After") != "7" {
		t.Errorf("Retry-After is %q", got.header.Get("Retry-After"))
	}
	s.ran(0)
	got = s.do(ask{path: "/notes", keys: key("k1")}).expect(t, 201, "unprotected")
	if got.body != `{"id":"ch_1"}` || got.header.Get("Location") == "" || got.header.Get("Idempotency-Expires") != "" {
		t.Errorf("%v %s", got.header, got.body)
	}
	s.ran(1)
}

// R4, B124: the log names the attempt whose answer is replayed.
func TestReplayLog(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var attempt string
	s.wrap("POST /charges", oncehttp.Route{}, func(w http.ResponseWriter, r *http.Request) {
		attempt = onlyonce.AttemptFrom(r.Context()).Owner().Attempt.String()
	})
	s.do(ask{keys: key("secret-key")}).expect(t, 200, "executed")
	s.do(ask{keys: key("secret-key")}).expect(t, 200, "replayed")
	if log := s.log.String(); !strings.Contains(log, "attempt="+attempt) || strings.Contains(log, "secret-key") {
		t.Errorf("attempt %s is not in the log, or the key is:\n%s", attempt, log)
	}
}

// A Recover function's answer is sent as it is.
func TestRecover(t *testing.T) {
	t.Parallel()
	s := newService(t)
	route := oncehttp.Route{Op: onlyonce.Op{Recover: func(_ context.Context, rec onlyonce.Record) (onlyonce.Answer, error) {
		if rec.State != onlyonce.InProgress {
			t.Errorf("state is %s", rec.State)
		}
		a := oncehttp.JSON(201, map[string]string{"id": "found"})
		a.Outcome = onlyonce.Final
		return a, nil
	}}}
	s.wrap("POST /charges", route, status(500))
	s.do(ask{keys: key("k1")}).expect(t, 500, "executed")
	got := s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	if got.body != `{"id":"found"}` {
		t.Errorf("body is %s", got.body)
	}
	s.do(ask{keys: key("k1")}).replayOf(t, got)
	s.ran(1)
}

// Protecting an operation twice is a mistake that shows.
func TestNested(t *testing.T) {
	t.Parallel()
	s := newService(t)
	inner, err := s.guard.Wrap(oncehttp.Route{}, http.HandlerFunc(created))
	if err != nil {
		t.Fatal(err)
	}
	s.wrap("POST /charges", releasing(), inner.ServeHTTP)
	got := s.do(ask{keys: key("k1")})
	m := got.problem(t, 500, "invalid_config")
	if strings.Contains(fmt.Sprint(m["detail"]), "route") {
		t.Errorf("the fault is shown: %s", got.body) // E
	}
	if !strings.Contains(s.log.String(), "inside another protected handler") {
		t.Errorf("the log says:\n%s", s.log)
	}
}
