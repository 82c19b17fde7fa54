package oncehttp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// O10, R2, B61, B62, B65, B67: status, body bytes and content type of a replay
// are those of the first answer, which are those of net/http.
func TestAnswersReplayAsTheyWere(t *testing.T) {
	t.Parallel()
	handlers := map[string]http.HandlerFunc{
		"201 JSON":           created,
		"implicit 200":       func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "plain") },
		"nothing at all":     func(http.ResponseWriter, *http.Request) {},
		"202 without a body": status(202),
		"204":                status(204),
		"204 with a body": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(204)
			if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Errorf("a body of a 204: %v", err)
			}
		},
		"304":          status(304),
		"guessed HTML": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html><p>hi") },
		"binary":       func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte{0x00, 0xff, 0xfe, 0x80}) },
		"invalid UTF-8 as text": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Write([]byte("a\xff"))
		},
		"every byte": everyByte,
		"no content type wanted": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			io.WriteString(w, "<html>")
		},
		"status twice": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(202)
			w.WriteHeader(500)
			io.WriteString(w, "x")
		},
		"header after status": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(200)
			w.Header().Set("Location", "/late")
			io.WriteString(w, "x")
		},
		"write, then status": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "x"); w.WriteHeader(500) },
		"wrong length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "3")
			io.WriteString(w, "abc")
		},
		"reader": func(w http.ResponseWriter, _ *http.Request) {
			io.Copy(w, struct{ io.Reader }{strings.NewReader(strings.Repeat("copied ", 10_000))})
		},
	}
	for name, h := range handlers {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " http2=", http2), func(t *testing.T) {
				t.Parallel()
				s := newService(t)
				s.mux.HandleFunc("POST /plain", h)
				s.wrap("POST /charges", oncehttp.Route{}, h)
				s.start(http2)
				plain := s.do(ask{path: "/plain"})
				first := s.do(ask{keys: key("k1")})
				first.expect(t, plain.status, "executed")
				s.do(ask{keys: key("k1")}).replayOf(t, first)
				s.ran(1)
				for _, name := range []string{"Content-Type", "Location"} {
					if !slices.Equal(plain.header[name], first.header[name]) {
						t.Errorf("%s: net/http answers %q, we %q", name, plain.header[name], first.header[name])
					}
				}
				if plain.body != first.body {
					t.Errorf("net/http answers %q, we %q", plain.body, first.body)
				}
			})
		}
	}
}

func everyByte(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-protobuf")
	for i := range 256 {
		w.Write([]byte{byte(i)})
	}
}

// O8, B59: what is stored of the header, and what the first caller gets.
func TestHeaders(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprint("http2=", http2), func(t *testing.T) {
			t.Parallel()
			testHeaders(t, http2)
		})
	}
}

func testHeaders(t *testing.T, http2 bool) {
	t.Helper()
	s := newService(t)
	n := 0
	s.outer = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n++
			w.Header().Set("X-Request-ID", fmt.Sprint(n))
			w.Header().Set("Content-Language", "xx")
			w.Header().Set("Last-Modified", "never")
			w.Header().Set("X-Unwanted", "1")
			next.ServeHTTP(w, r)
		})
	}
	once := map[string]string{
		"Set-Cookie": "sid=A", "Www-Authenticate": "Basic", "X-Ratelimit-Remaining": "3", "Server-Timing": "db;dur=5",
		"Access-Control-Allow-Origin": "*", "Traceparent": "00-1", "X-Other": "o", "Cache-Control": "private",
	}
	kept := map[string]string{
		"Content-Type": "text/plain", "Content-Language": "de", "Location": "/1", "Content-Location": "/1",
		"Etag": `"v1"`, "Link": "</2>; rel=next", "X-Charge": "ch_1",
	}
	s.wrap("POST /charges", oncehttp.Route{KeepHeaders: []string{"x-charge"}}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Del("Last-Modified")
		w.Header().Del("X-Unwanted")
		w.Header().Set(http.TrailerPrefix+"X-Late", "1")
		for _, h := range []map[string]string{once, kept} {
			for name, value := range h {
				w.Header().Set(name, value)
			}
		}
		io.WriteString(w, "done")
		w.Header().Set("X-Sum", "1")
	})
	s.start(http2)
	first := s.do(ask{keys: key("k1")}).expect(t, 200, "executed")
	again := s.do(ask{keys: key("k1")})
	again.replayOf(t, first)
	rec := s.record("acme", "k1")
	if len(rec.Answer.Header) != len(kept) {
		t.Errorf("stored are %v", rec.Answer.Header)
	}
	if first.header.Get("Last-Modified")+again.header.Get("Last-Modified")+first.header.Get("X-Unwanted") != "" {
		t.Errorf("what the handler deleted is sent: %v %v", first.header, again.header)
	}
	for name, value := range once {
		if got := first.header.Get(name); got != value {
			t.Errorf("first answer's %s is %q", name, got)
		}
		if got := again.header.Get(name); got != "" && name != "Cache-Control" {
			t.Errorf("%s is replayed: %q", name, got)
		}
	}
	for name, value := range kept {
		if a, b := first.header[name], again.header[name]; !slices.Equal(a, []string{value}) || !slices.Equal(b, a) {
			t.Errorf("%s: first %q, replay %q, want %q", name, a, b, value)
		}
	}
	if first.header.Get("X-Request-ID") != "1" || again.header.Get("X-Request-ID") != "2" {
		t.Errorf("X-Request-Id: first %q, replay %q", first.header.Get("X-Request-ID"), again.header.Get("X-Request-ID"))
	}
	for _, r := range []reply{first, again} {
		if r.header.Get("Trailer") != "" || len(r.trailer) > 0 || len(r.header["Date"]) != 1 {
			t.Errorf("Trailer %q %v, Date %q", r.header["Trailer"], r.trailer, r.header["Date"])
		}
	}
	for _, name := range []string{"Set-Cookie", "date", "Access-Control-Allow-Origin", "Content-Encoding", "Connection"} {
		if _, err := s.guard.Wrap(oncehttp.Route{KeepHeaders: []string{name}}, s.mux); err == nil {
			t.Errorf("%s may be kept", name)
		}
	}
}

// O8: a handler's own compression is undone before storing.
func TestAnswerEncoding(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Encoding", "gzip")
		io.WriteString(w, zip("content"))
	})
	s.wrap("POST /brotli", oncehttp.Route{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		io.WriteString(w, "??")
	})
	plain := http.Header{"Accept-Encoding": {"identity"}}
	first := s.do(ask{keys: key("k1"), header: plain}).expect(t, 200, "executed")
	if first.body != "content" || first.header.Get("Content-Encoding") != "" {
		t.Errorf("%v %q", first.header, first.body)
	}
	s.do(ask{keys: key("k1"), header: plain}).replayOf(t, first)
	// What cannot be undone goes to the first caller only.
	first = s.do(ask{path: "/brotli", keys: key("k2"), header: plain}).expect(t, 200, "executed")
	if first.body != "??" || first.header.Get("Content-Encoding") != "br" {
		t.Errorf("%v %q", first.header, first.body)
	}
	s.do(ask{path: "/brotli", keys: key("k2"), header: plain}).expect(t, 200, "replayed").problem(t, 200, "answer_not_retained")
}

// O9, B57: an answer over the cap completes the key without its body.
func TestLargeAnswer(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{MaxAnswer: 1000, MaxSpool: 10_000}, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Location", "/charges/1")
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(201)
		for range len(body) {
			if _, err := io.WriteString(w, strings.Repeat("x", 100)); err != nil {
				return
			}
		}
	})
	fits, large, huge := strings.Repeat("b", 10), strings.Repeat("b", 11), strings.Repeat("b", 101)
	first := s.do(ask{keys: key("k1"), body: fits}).expect(t, 201, "executed")
	s.do(ask{keys: key("k1"), body: fits}).replayOf(t, first)

	first = s.do(ask{keys: key("k2"), body: large}).expect(t, 201, "executed")
	if len(first.body) != 1100 || first.header.Get("Content-Type") != "text/plain" {
		t.Errorf("the first caller got %d bytes", len(first.body))
	}
	again := s.do(ask{keys: key("k2"), body: large}).expect(t, 201, "replayed")
	m := again.problem(t, 201, "answer_not_retained")
	if again.header.Get("Location") != "/charges/1" || m["retryable"] != false || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%v %s", again.header, again.body)
	}

	first = s.do(ask{keys: key("k3"), body: huge}).expect(t, 201, "executed")
	first.problem(t, 201, "answer_not_retained")
	again = s.do(ask{keys: key("k3"), body: huge}).expect(t, 201, "replayed")
	if again.body != first.body || first.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("%s\n%s", first.body, again.body)
	}
	s.ran(3)
}

// O10, B68: informational answers pass through and are not the answer.
func TestInformational(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		s := newService(t)
		hinted := make(chan struct{})
		s.wrap("POST /charges", oncehttp.Route{}, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</style.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			<-hinted // it is sent at once, not with the answer
			w.Header().Del("Link")
			created(w, r)
		})
		s.start(http2)
		var codes []int
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			codes = append(codes, code)
			if h.Get("Link") == "" {
				t.Errorf("the hint has no Link: %v", h)
			}
			close(hinted)
			return nil
		}}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "POST", s.server.URL+"/charges", strings.NewReader(pay(100)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "k1")
		req.Header.Set("Authorization", "Bearer acme/1")
		req.Header.Set("Content-Type", "application/json")
		res, err := s.server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != 201 || res.Header.Get("Link") != "" || fmt.Sprint(codes) != "[103]" {
			t.Errorf("http2=%v: %d %v after %v", http2, res.StatusCode, res.Header, codes)
		}
		s.do(ask{keys: key("k1")}).expect(t, 201, "replayed")
		s.ran(1)
	}
}

// O10, B10, B68: the response controller works, and nothing leaves unstored.
func TestResponseController(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, func(w http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(w)
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			t.Errorf("SetReadDeadline: %v", err)
		}
		if err := c.SetWriteDeadline(time.Time{}); err != nil {
			t.Errorf("SetWriteDeadline: %v", err)
		}
		if err := c.EnableFullDuplex(); err != nil {
			t.Errorf("EnableFullDuplex: %v", err)
		}
		if _, _, err := c.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack: %v", err)
		}
		if _, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
			t.Error("the writer behind can be reached")
		}
		w.WriteHeader(202)
		io.WriteString(w, "unstored")
		w.(http.Flusher).Flush()
		if err := c.Flush(); err != nil {
			t.Errorf("Flush: %v", err)
		}
		panic("before the answer is stored")
	})
	got := s.do(ask{keys: key("k1")})
	got.problem(t, 409, "outcome_unknown")
	if strings.Contains(got.body, "unstored") {
		t.Errorf("something leaked: %s", got.body)
	}
}

// O10, B68: a goroutine that writes after the handler has returned does no harm.
func TestLateWrites(t *testing.T) {
	t.Parallel()
	s := newService(t)
	answered, done := make(chan struct{}), make(chan error, 1)
	s.wrap("POST /charges", oncehttp.Route{}, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "answer")
		running := make(chan struct{})
		go func() {
			close(running)
			for range 100 { // races with the end of the handler
				w.Write(nil)
				http.NewResponseController(w).Flush()
			}
			<-answered
			w.Header().Set("Location", "/late")
			w.WriteHeader(500)
			w.WriteHeader(103)
			_, err := io.WriteString(w, "late")
			if http.NewResponseController(w).SetWriteDeadline(time.Time{}) == nil {
				err = nil
			}
			done <- err
		}()
		<-running
	})
	first := s.do(ask{keys: key("k1")}).expect(t, 200, "executed")
	close(answered)
	if err := <-done; err == nil {
		t.Error("a late write was taken")
	}
	again := s.do(ask{keys: key("k1")})
	again.replayOf(t, first)
	if again.body != "answer" {
		t.Errorf("body is %q", again.body)
	}
}

// O10: the header of a hint does not stay with what is answered instead, and
// nothing of a handler that panicked is sent afterwards.
func TestPanicAfterHint(t *testing.T) {
	t.Parallel()
	s := newService(t)
	answered, done := make(chan struct{}), make(chan error, 1)
	s.wrap("POST /charges", oncehttp.Route{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Hint", "1")
		w.WriteHeader(103)
		go func() {
			<-answered
			w.WriteHeader(103)
			_, err := io.WriteString(w, "late")
			done <- err
		}()
		panic("after the hint")
	})
	got := s.do(ask{keys: key("k1")})
	got.problem(t, 409, "outcome_unknown")
	if got.header.Get("X-Hint") != "" {
		t.Errorf("%v", got.header)
	}
	close(answered)
	if err := <-done; err == nil {
		t.Error("a late write was taken")
	}
}

// An upgrade cannot be stored; the log says so.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, status(101))
	s.do(ask{keys: key("k1")}).problem(t, 409, "outcome_unknown")
	if !strings.Contains(s.log.String(), "switch protocols") {
		t.Errorf("the log says:\n%s", s.log)
	}
}

// As in net/http, a status that is none is a panic.
func TestInvalidStatus(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.wrap("POST /charges", oncehttp.Route{}, status(99))
	s.do(ask{keys: key("k1")}).problem(t, 409, "outcome_unknown")
	if !strings.Contains(s.log.String(), "invalid WriteHeader code 99") {
		t.Errorf("the log says:\n%s", s.log)
	}
}

// The handler sees the request as it was sent, and the values of its context.
func TestRequest(t *testing.T) {
	t.Parallel()
	type name struct{}
	s := newService(t)
	s.outer = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r.WithContext(contextWith(r, name{}, "value")))
		})
	}
	s.wrap("POST /charges/{id}", oncehttp.Route{}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		got := []any{r.PathValue("id"), r.Pattern, string(body), r.ContentLength, r.Context().Value(name{}), r.URL.RawQuery, err}
		want := []any{"7", "POST /charges/{id}", pay(100), int64(len(pay(100))), "value", "q=1", error(nil)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
	s.do(ask{path: "/charges/7?q=1", keys: key("k1")}).expect(t, 200, "executed")
}
