package oncehttp_test

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/oncehttp"
)

func TestProblem(t *testing.T) {
	t.Parallel()
	p := &oncehttp.Problem{
		Status: 402, Type: "https://example.com/declined", Detail: "The bank said <no>.", Code: "card_declined",
		RetryWith: oncehttp.NewKey, RetryAfter: 1500 * time.Millisecond, Operation: "op_1",
		Extra: map[string]any{"reason": "limit", "error": "cannot be replaced", "infinite": math.Inf(1)},
	}
	const want = `{"type":"https://example.com/declined","title":"Payment Required","status":402,"detail":"The bank said <no>.",` +
		`"error":"card_declined","retryable":false,"retry_with":"new_key","operation":"op_1","infinite":"+Inf","reason":"limit"}`
	if got := string(p.Body()); got != want || !json.Valid(p.Body()) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	w := httptest.NewRecorder()
	p.Write(w)
	if w.Code != 402 || w.Body.String() != want || w.Header().Get("Retry-After") != "2" || w.Header().Get("X-Should-Retry") != "false" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if a := p.Answer(); a.Status != 402 || string(a.Body) != want || http.Header(a.Header).Get("Content-Type") != "application/problem+json" {
		t.Errorf("%+v", a)
	}
	if got := string((&oncehttp.Problem{Status: 404}).Body()); got != `{"type":"about:blank","title":"Not Found","status":404}` {
		t.Errorf("got %s", got)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	a := oncehttp.JSON(201, map[string]any{"b": "<&>", "a": 1})
	if string(a.Body) != `{"a":1,"b":"<&>"}` || a.Status != 201 || http.Header(a.Header).Get("Content-Type") != "application/json" {
		t.Errorf("%+v %s", a, a.Body)
	}
	if a := oncehttp.JSON(201, func() {}); a.Status != 500 {
		t.Errorf("what cannot be encoded gives %d", a.Status)
	}
}

// E: the members and headers of a refusal, and a type that resolves.
func TestRefusalsAreDocumented(t *testing.T) {
	t.Parallel()
	s := newService(t, oncehttp.DocsURL("/help/errors"), oncehttp.ShouldRetryHeaders("Stripe-Should-Retry"))
	s.wrap("POST /charges", oncehttp.Route{}, created)
	s.mux.Handle("GET /help/errors/", s.guard.DocsHandler())
	s.do(ask{keys: key("k1")})
	for _, got := range []reply{
		s.do(ask{}),
		s.do(ask{keys: key("a,b")}),
		s.do(ask{keys: key("k1"), body: pay(1)}),
		s.do(ask{keys: key("k1"), as: "-"}),
		s.do(ask{keys: key("k1"), body: strings.Repeat("x", 2<<20)}),
	} {
		var m struct {
			Type, Title, Detail, Error, Retry_with string
			Status                                 int
			Retryable                              *bool
		}
		if err := json.Unmarshal([]byte(got.body), &m); err != nil {
			t.Fatal(err)
		}
		if m.Title == "" || m.Detail == "" || m.Status != got.status || m.Retryable == nil || m.Retry_with == "" {
			t.Errorf("%s", got.body)
		}
		for _, name := range []string{"X-Should-Retry", "Stripe-Should-Retry"} {
			if got.header.Get(name) != "false" {
				t.Errorf("%s: %s is %q", m.Error, name, got.header.Get(name))
			}
		}
		if got.header.Get("Cache-Control") != "no-store" { // R2
			t.Errorf("%s may be cached", m.Error)
		}
		base, _ := url.Parse(s.server.URL + "/charges")
		typ, err := base.Parse(m.Type)
		if err != nil {
			t.Fatal(err)
		}
		page := s.do(ask{method: "GET", path: typ.Path})
		if page.status != 200 || !strings.Contains(page.body, m.Error) || !strings.HasPrefix(page.header.Get("Content-Type"), "text/html") {
			t.Errorf("%s is documented by %d %s", m.Type, page.status, page.body)
		}
	}
	index := s.do(ask{method: "GET", path: "/help/errors/"})
	if index.status != 200 || !strings.Contains(index.body, `href="idempotency_key_reused"`) {
		t.Errorf("index: %d %s", index.status, index.body)
	}
	if got := s.do(ask{method: "GET", path: "/help/errors/other"}); got.status != 404 {
		t.Errorf("an unknown problem: %d", got.status)
	}
}

// R5, K5: browsers.
func TestCORS(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("/charges", oncehttp.Route{}, created)
	s.outer = func(next http.Handler) http.Handler {
		return oncehttp.CORS(next, func(origin string) bool { return origin == "https://shop.example" }, "Authorization")
	}
	from := func(origin string) http.Header {
		return http.Header{"Origin": {origin}, "Access-Control-Request-Method": {"POST"}}
	}
	got := s.do(ask{method: "OPTIONS", header: from("https://shop.example")})
	if allowed := got.header.Get("Access-Control-Allow-Headers"); got.status != 204 || !strings.Contains(allowed, "Idempotency-Key") || !strings.Contains(allowed, "Authorization") {
		t.Errorf("preflight: %d %v", got.status, got.header)
	}
	for _, how := range []string{"executed", "replayed"} {
		got = s.do(ask{keys: key("k1"), header: from("https://shop.example")}).expect(t, 201, how)
		exposed := got.header.Get("Access-Control-Expose-Headers")
		for _, name := range []string{"Idempotency-Key", "Idempotent-Replayed", "Idempotency-Status", "Idempotency-Expires", "Retry-After"} {
			if !strings.Contains(exposed, name) {
				t.Errorf("%s: %s is not exposed: %s", how, name, exposed)
			}
		}
		if got.header.Get("Access-Control-Allow-Origin") != "https://shop.example" {
			t.Errorf("%s: %v", how, got.header)
		}
	}
	got = s.do(ask{method: "OPTIONS", keys: key("k2"), header: from("https://evil.example")}).expect(t, 201, "ignored")
	if got.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%v", got.header)
	}
}

// A request without a key streams through untouched where keys are optional.
func TestUnprotectedStreams(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sent := make(chan struct{})
	s.wrap("POST /charges", oncehttp.Route{Key: oncehttp.Optional}, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "first,")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		<-sent
		io.WriteString(w, "second")
	})
	s.start(false)
	res, err := s.server.Client().Post(s.server.URL+"/charges", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	first := make([]byte, 6)
	if _, err := io.ReadFull(res.Body, first); err != nil {
		t.Fatal(err)
	}
	close(sent)
	rest, err := io.ReadAll(res.Body)
	if err != nil || string(first)+string(rest) != "first,second" {
		t.Errorf("got %s%s, %v", first, rest, err)
	}
}
