package oncehttp_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// O1, O7, B49: what is refused before the claim leaves no trace.
func TestRefusedBeforeTheKey(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{MaxBody: 100, CheckSyntax: func(_ *http.Request, body []byte) error {
		switch {
		case bytes.Contains(body, []byte("negative")):
			return &oncehttp.Problem{Status: 400, Code: "amount_negative", Extra: map[string]any{"field": "/amount"}}
		case bytes.Contains(body, []byte("bad")):
			return errors.New("parse amount: secret detail")
		}
		return nil
	}}, created)
	large := `"` + strings.Repeat("x", 100) + `"`
	s.do(ask{keys: key("k1"), body: large}).expect(t, 413, "refused").problem(t, 413, "request_body_too_large")
	s.do(ask{keys: key("k1"), body: `"bad"`, as: "-"}).problem(t, 401, "unauthenticated")
	got := s.do(ask{keys: key("k1"), body: `"bad"`}).expect(t, 400, "refused")
	got.problem(t, 400, "invalid_request")
	if strings.Contains(got.body, "secret") || got.header.Get("Idempotency-Key") != "k1" {
		t.Errorf("%v %s", got.header, got.body)
	}
	m := s.do(ask{keys: key("k1"), body: `"negative"`}).problem(t, 400, "amount_negative")
	if m["field"] != "/amount" {
		t.Errorf("members: %v", m)
	}
	s.do(ask{keys: key("k1"), body: `"bad"`, as: "/1"}).problem(t, 401, "unauthenticated")
	// Size comes before the key, the key before the scope.
	s.do(ask{body: large}).problem(t, 413, "request_body_too_large")
	s.do(ask{keys: key("a,b"), as: "-"}).problem(t, 400, "idempotency_key_invalid")
	s.ran(0)
	s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	s.ran(1)
}

// O1: a late retry is answered from its record, not refused by a stricter
// deploy; and a wrong request under a used key is told so.
func TestStricterDeploy(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var strict atomic.Bool
	s.wrap("POST /charges", oncehttp.Route{CheckSyntax: func(*http.Request, []byte) error {
		if strict.Load() {
			return errors.New("no longer accepted")
		}
		return nil
	}}, created)
	first := s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	strict.Store(true)
	s.do(ask{keys: key("k1")}).replayOf(t, first)
	s.do(ask{keys: key("k1"), body: pay(5)}).problem(t, 422, "idempotency_key_reused")
	s.do(ask{keys: key("k2")}).problem(t, 400, "invalid_request")
	s.store.fail(nil, nil, errors.New("down"))
	s.do(ask{keys: key("k2")}).problem(t, 503, "idempotency_store_unavailable")
	s.ran(1)
}

// F8: the limit holds for bodies of unknown length, and after decoding.
func TestBodyLimit(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		s := newService(t, oncehttp.MaxBody(1000))
		s.wrap("POST /charges", oncehttp.Route{}, created)
		s.start(http2)
		s.do(ask{keys: key("k1"), body: strings.Repeat("x", 1001)}).problem(t, 413, "request_body_too_large")
		bomb := zip(strings.Repeat("x", 1001))
		s.do(ask{keys: key("k1"), body: bomb, header: http.Header{"Content-Encoding": {"gzip"}}}).problem(t, 413, "request_body_too_large")
		s.do(ask{keys: key("k1"), body: strings.Repeat("x", 1001), chunked: true}).problem(t, 413, "request_body_too_large")
		s.ran(0)
		s.do(ask{keys: key("k1"), body: strings.Repeat("x", 1000)}).expect(t, 201, "executed")
	}
}

// F5: a content encoding is undone for the fingerprint; the handler sees the
// body as it was sent.
func TestContentEncoding(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || int64(len(body)) != r.ContentLength {
			t.Errorf("read %d of %d: %v", len(body), r.ContentLength, err)
		}
		if zipped := r.Header.Get("Content-Encoding") == "gzip"; zipped != bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
			t.Errorf("Content-Encoding %q with body %q", r.Header.Get("Content-Encoding"), body)
		}
		created(w, r)
	})
	encoded := func(by string) http.Header { return http.Header{"Content-Encoding": {by}} }
	s.do(ask{keys: key("k1"), body: zip(pay(100)), header: encoded("gzip"), chunked: true}).expect(t, 201, "executed")
	s.do(ask{keys: key("k1"), body: `{"currency":"EUR", "amount":100.0}`}).expect(t, 201, "replayed")
	s.do(ask{keys: key("k1"), body: zip(pay(7)), header: encoded("gzip")}).problem(t, 422, "idempotency_key_reused")
	s.do(ask{keys: key("k2"), body: "not zipped", header: encoded("gzip")}).problem(t, 400, "invalid_request")
	s.do(ask{keys: key("k2"), body: "??", header: encoded("br")}).problem(t, 415, "unsupported_content_encoding")
	s.ran(1)
}

func zip(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(s))
	w.Close()
	return b.String()
}

// A middleware that has eaten the body must not make different requests equal.
func TestBodyReadOutside(t *testing.T) {
	t.Parallel()
	for name, eat := range map[string]func(r *http.Request){
		"form": func(r *http.Request) { r.ParseForm() },
		"read": func(r *http.Request) { io.ReadAll(r.Body) },
	} {
		s := newService(t)
		s.outer = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { eat(r); next.ServeHTTP(w, r) })
		}
		s.wrap("POST /charges", oncehttp.Route{}, created)
		form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
		got := s.do(ask{keys: key("k1"), body: "amount=100", header: form})
		if got.status != 500 && got.status != 400 {
			t.Errorf("%s: got %d %s", name, got.status, got.body)
		}
		if name == "form" {
			s.do(ask{keys: key("k1"), body: "amount=100", header: form, chunked: true}).problem(t, 500, "invalid_config")
		}
		s.ran(0)
	}
}

// A form reaches the handler whole.
func TestForm(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.FormValue("amount"))
	})
	form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	first := s.do(ask{keys: key("k1"), body: "amount=100&a=b+c", header: form}).expect(t, 200, "executed")
	if first.body != "100" {
		t.Errorf("the handler read %q", first.body)
	}
	s.do(ask{keys: key("k1"), body: "a=b%20c&amount=100", header: form}).replayOf(t, first)
	s.do(ask{keys: key("k1"), body: "amount=100&a=b+c", header: form, chunked: true}).replayOf(t, first)
	s.ran(1)
}
