package oncehttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncehttp"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// lookUp asks for a key of acme's.
func (s *service) lookUp(value string) reply {
	s.t.Helper()
	return s.do(ask{method: "GET", path: "/idempotency-keys/" + url.PathEscape(value)})
}

// state is what a lookup says, without the times and the operation's reference,
// which are checked here.
func (r reply) state(t *testing.T, rec onlyonce.Record) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(r.body), &m); err != nil || r.status != 200 {
		t.Fatalf("%d %s: %v", r.status, r.body, err)
	}
	if r.header.Get("Content-Type") != "application/json" || r.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v", r.header)
	}
	if m["operation"] != rec.Key.Operation() {
		t.Errorf("operation %v, want %s", m["operation"], rec.Key.Operation())
	}
	for name, want := range map[string]time.Time{"created_at": rec.CreatedAt, "completed_at": rec.CompletedAt, "expires_at": rec.ExpiresAt} {
		text, given := m[name].(string)
		if given == want.IsZero() {
			t.Errorf("%s: %q, want %v", name, text, want)
		}
		if got, err := time.Parse(time.RFC3339Nano, text); given && (err != nil || !got.Equal(want)) {
			t.Errorf("%s: %q, want %v", name, text, want)
		}
		delete(m, name)
	}
	delete(m, "operation")
	return m
}

// X4: a caller learns where its key stands, in each state, what it works on, and
// where its answer lies; nothing of the request or the answer itself.
func TestLookup(t *testing.T) {
	t.Parallel()
	s := newService(t)
	entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.guarded(func(_ context.Context, in payment) (onlyonce.Answer, error) {
		switch in.Amount {
		case 1:
			close(entered)
			<-leave
		case 2:
			return onlyonce.Answer{Status: 202, Outcome: onlyonce.Unknown}, nil
		case 3:
			return onlyonce.Answer{Status: 429}, nil
		}
		a := oncehttp.JSON(201, "a secret of the answer")
		a.Header["Location"] = []string{"/payments/7"}
		return a, nil
	})
	s.mux.Handle("GET /idempotency-keys/{key}", s.guard.LookupHandler(nil))
	s.start(false)
	const name = "POST /orders/{order}/pay"
	for value, c := range map[string]struct {
		amount int
		wait   string
		want   map[string]any
	}{
		"completed": {9, "", map[string]any{"name": name, "state": "completed", "resource": "completed", "attempts": 1.0, "status": 201.0, "location": "/payments/7"}},
		"doubt":     {2, "5", map[string]any{"name": name, "state": "in_doubt", "resource": "doubt", "attempts": 1.0, "retry_after": 5.0}},
		"freed":     {3, "", map[string]any{"name": name, "state": "failed_retryable", "resource": "freed", "attempts": 1.0}},
		"running":   {1, "1", map[string]any{"name": name, "state": "in_progress", "resource": "running", "attempts": 1.0, "retry_after": 1.0}},
	} {
		request := ask{keys: key(value), path: "/orders/" + value + "/pay", body: pay(c.amount)}
		if c.amount == 1 {
			go func() {
				defer close(done)
				s.do(request)
			}()
			<-entered
		} else {
			s.do(request)
		}
		before := s.record("acme", value)
		got := s.lookUp(value)
		if diff := cmp.Diff(c.want, got.state(t, before)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", value, diff)
		}
		if got.header.Get("Retry-After") != c.wait {
			t.Errorf("%s: Retry-After is %q, want %q", value, got.header.Get("Retry-After"), c.wait)
		}
		if strings.Contains(got.body, "secret") || strings.Contains(got.body, "EUR") {
			t.Errorf("%s: %s", value, got.body)
		}
		if diff := cmp.Diff(before, s.record("acme", value)); diff != "" {
			t.Errorf("%s: a lookup changed the record (-before +after):\n%s", value, diff)
		}
	}
	s.do(ask{keys: key("freed"), path: "/orders/freed/pay", body: pay(3)})
	if m := s.lookUp("freed").state(t, s.record("acme", "freed")); m["attempts"] != 2.0 {
		t.Errorf("after a second attempt: %v", m)
	}
	close(leave)
	<-done
	s.ran(5)
}

// X4: after its retention a key is not there any more (T2).
func TestLookupOfAnExpiredKey(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	s.mux.Handle("GET /idempotency-keys/{key}", s.guard.LookupHandler(nil))
	s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	if m := s.lookUp("k1").state(t, s.record("acme", "k1")); m["location"] != "/charges/ch_1" || m["resource"] != nil {
		t.Errorf("%v", m)
	}
	s.ahead.Store(int64(onlyonce.DefaultRetention))
	s.lookUp("k1").problem(t, 404, "key_not_found")
}

// S1, X4: a caller sees the keys of its own account only; somebody else's are not
// there, and cannot be told from those that never were.
func TestLookupInTheOwnScope(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	s.mux.Handle("GET /idempotency-keys/{key}", s.guard.LookupHandler(nil))
	s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	foreign := s.do(ask{method: "GET", path: "/idempotency-keys/k1", as: "rival/1"})
	m := foreign.problem(t, 404, "key_not_found")
	if m["retryable"] != false || m["operation"] != (onlyonce.Key{Scope: "rival", Value: "k1"}).Operation() || strings.Contains(foreign.body, "acme") {
		t.Errorf("%s", foreign.body)
	}
	absent := s.do(ask{method: "GET", path: "/idempotency-keys/k2", as: "rival/1"}).problem(t, 404, "key_not_found")
	delete(m, "operation")
	delete(absent, "operation")
	if diff := cmp.Diff(absent, m); diff != "" {
		t.Errorf("a foreign key can be told from an absent one (-absent +foreign):\n%s", diff)
	}
	nobody := s.do(ask{method: "GET", path: "/idempotency-keys/k1", as: "-"})
	nobody.problem(t, 401, "unauthenticated")
	if nobody.header.Get("WWW-Authenticate") == "" {
		t.Error("no challenge")
	}
	s.do(ask{method: "GET", path: "/idempotency-keys/k1", as: "acme/rotated"}).expect(t, 200, "") // S3
}

// K3, X4: any key can be asked for, with what paths encode encoded; what is no key
// is told so.
func TestLookupOfOddKeys(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	lookUp := s.guard.LookupHandler(nil)
	s.mux.Handle("GET /idempotency-keys/{key}", lookUp)
	s.mux.Handle("GET /nameless", lookUp)
	for _, value := range []string{"a/b", "a b", "..", "100%", "a?b#c", "~!@$&'()*+,;=:", strings.Repeat("k", 255)} {
		quoted := `"` + value + `"`
		s.do(ask{keys: key(quoted)}).expect(t, 201, "executed")
		escaped := strings.ReplaceAll(url.PathEscape(value), ".", "%2E")
		got := s.do(ask{method: "GET", path: "/idempotency-keys/" + escaped})
		if m := got.state(t, s.record("acme", value)); m["state"] != "completed" {
			t.Errorf("%s: %v", value, m)
		}
	}
	for _, path := range []string{"/idempotency-keys/" + strings.Repeat("k", 256), "/idempotency-keys/%C3%A9", "/nameless"} {
		s.do(ask{method: "GET", path: path}).problem(t, 400, "idempotency_key_invalid")
	}
	if got := s.do(ask{method: "GET", path: "/idempotency-keys/"}); got.status != 404 {
		t.Errorf("no key at all: %d", got.status)
	}
	if got := s.do(ask{path: "/idempotency-keys/k1"}); got.status != 405 {
		t.Errorf("POST: %d", got.status)
	}
}

// S5, X4: a hook that sees caller and record may refuse: with its own words, or
// with 403 and none of its cause.
func TestLookupIsAuthorized(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	s.mux.Handle("GET /idempotency-keys/{key}", s.guard.LookupHandler(func(r *http.Request, rec onlyonce.Record) error {
		switch {
		case r.Header.Get("X-Role") == "support" && rec.Key.Value == "k1" && rec.Answer != nil:
			return nil
		case r.Header.Get("X-Role") == "guest":
			return &oncehttp.Problem{Status: 418, Code: "only_tea"}
		default:
			return errors.New("role clerk, secret reason")
		}
	}))
	s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	as := func(role string) reply {
		return s.do(ask{method: "GET", path: "/idempotency-keys/k1", header: http.Header{"X-Role": {role}}})
	}
	as("support").state(t, s.record("acme", "k1"))
	as("guest").problem(t, 418, "only_tea")
	got := as("clerk")
	if m := got.problem(t, 403, "replay_forbidden"); strings.Contains(got.body, "secret reason") || m["state"] != nil {
		t.Errorf("%s", got.body)
	}
	s.do(ask{method: "GET", path: "/idempotency-keys/k2", header: http.Header{"X-Role": {"clerk"}}}).problem(t, 404, "key_not_found")
}

// C11, X4: a store that cannot be read is a 503; HEAD says what GET does, without
// a body; what only the server may say is not believed of a request (K7).
func TestLookupOnTheWire(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, created)
	s.mux.Handle("GET /idempotency-keys/{key}", s.guard.LookupHandler(nil))
	s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	head := s.do(ask{method: "HEAD", path: "/idempotency-keys/k1"})
	if head.status != 200 || head.body != "" || head.header.Get("Content-Type") != "application/json" {
		t.Errorf("HEAD: %d %v %q", head.status, head.header, head.body)
	}
	if head = s.do(ask{method: "HEAD", path: "/idempotency-keys/k2"}); head.status != 404 || head.body != "" {
		t.Errorf("HEAD of an absent key: %d %q", head.status, head.body)
	}
	got := s.do(ask{method: "GET", path: "/idempotency-keys/k1", header: http.Header{"Idempotent-Replayed": {"true"}}})
	if got.status != 200 || got.header.Get("Idempotent-Replayed") != "" || got.header.Get("Idempotency-Status") != "" {
		t.Errorf("GET: %d %v", got.status, got.header)
	}
	s.store.fail(nil, nil, storefault.ErrDown)
	down := s.lookUp("k1")
	down.problem(t, 503, "idempotency_store_unavailable")
	if down.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}
