package onceclient_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// overBoth runs a test over HTTP/1.1 and HTTP/2.
func overBoth(t *testing.T, fn func(n int, w http.ResponseWriter, r *http.Request), test func(t *testing.T, s *server, cfg onceclient.Config)) {
	t.Helper()
	t.Run("HTTP/1.1", func(t *testing.T) {
		t.Parallel()
		test(t, serve(t, fn), quick(memjournal.New()))
	})
	t.Run("HTTP/2", func(t *testing.T) {
		t.Parallel()
		s := newServer(t, func(n int, w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor != 2 {
				t.Errorf("it is %s", r.Proto)
			}
			fn(n, w, r)
		})
		cfg := quick(memjournal.New())
		cfg.Base = s.overHTTP2(t)
		test(t, s, cfg)
	})
}

// A server that loses every third answer after the effect: one effect an operation, and
// each is answered.
func TestLossyServer(t *testing.T) {
	t.Parallel()
	const operations = 60
	var mu sync.Mutex
	effects := map[string]int{}
	overBoth(t, func(n int, w http.ResponseWriter, r *http.Request) {
		key := r.Proto + r.Header.Get("Idempotency-Key")
		mu.Lock()
		first := effects[key] == 0
		if first {
			effects[key]++ // a server that honours keys
		}
		mu.Unlock()
		if n%3 == 0 {
			drop(w)
			return
		}
		w.Header().Set("Idempotent-Replayed", fmt.Sprint(!first))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "charged %s", key)
	}, func(t *testing.T, s *server, cfg onceclient.Config) {
		t.Helper()
		c := newClient(t, cfg)
		var all sync.WaitGroup
		keys := make([]string, operations)
		var replayed atomic.Int32
		for i := range operations {
			all.Go(func() {
				out, err := c.Do(t.Context(), charge(fmt.Sprintf("order-%d", i), s.URL))
				if err != nil {
					t.Error(err)
					return
				}
				keys[i] = out.Key
				if !strings.HasSuffix(string(out.Answer.Body), out.Key) {
					t.Errorf("operation %s has the answer %q", out.Key, out.Answer.Body)
				}
				if out.Replayed {
					replayed.Add(1)
				}
			})
		}
		all.Wait()
		seen := map[string]bool{}
		for _, key := range keys {
			seen[key] = true
		}
		if len(seen) != operations || replayed.Load() == 0 {
			t.Errorf("%d operations, %d replays", len(seen), replayed.Load())
		}
		for _, a := range s.got() {
			if !seen[a.header.Get("Idempotency-Key")] {
				t.Errorf("somebody's key is %q", a.header.Get("Idempotency-Key"))
			}
		}
	})
}

// B97: one client, many at a time, each with failures on its way: on the wire each key
// is with its own body. B101: once.
func TestKeysAreNotSwapped(t *testing.T) {
	t.Parallel()
	overBoth(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		switch n % 4 {
		case 0:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 1:
			drop(w)
		default:
			w.WriteHeader(http.StatusOK)
		}
	}, func(t *testing.T, s *server, cfg onceclient.Config) {
		t.Helper()
		operations := 300
		if cfg.Base == nil {
			operations = 1000
			cfg.Base = &http.Transport{MaxConnsPerHost: 16}
		}
		cfg.Attempts = 50
		c := newClient(t, cfg)
		var all sync.WaitGroup
		for i := range operations {
			all.Go(func() {
				r := charge(fmt.Sprintf("order-%d", i), s.URL)
				r.Key, r.Body = fmt.Sprintf("key-%d", i), fmt.Appendf(nil, "of key-%d", i)
				if out, err := c.Do(t.Context(), r); err != nil || out.Key != r.Key {
					t.Errorf("%+v, %v", out, err)
				}
			})
		}
		all.Wait()
		retried := len(s.got()) - operations
		for _, a := range s.got() {
			if keys := a.header["Idempotency-Key"]; len(keys) != 1 || a.body != "of "+keys[0] {
				t.Errorf("%q is sent with %q", a.body, keys)
			}
		}
		if retried < operations/4 {
			t.Errorf("there were %d retries only", retried)
		}
	})
}

// D3: what proves that nothing was sent is that no connection was obtained.
func TestNotSent(t *testing.T) {
	t.Parallel()
	dial := func(err error) *http.Transport {
		return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if err == nil {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, err
		}}
	}
	for name, tt := range map[string]struct {
		base http.RoundTripper
		url  string
		kind string
	}{
		"refused":     {dial(errors.New("connection refused")), "http://acme.invalid", "not sent"},
		"unreachable": {dial(nil), "http://acme.invalid", "not sent"},
		"no name":     {dial(&net.DNSError{IsNotFound: true}), "https://acme.invalid", "not sent"},
		"Base says nothing": {roundTripperFunc(func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: errLost}
		}), "http://acme.invalid", "unknown"},
		"dead connection": {&http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			return near, far.Close()
		}}, "http://acme.invalid", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := memjournal.New()
			cfg := quick(j)
			cfg.Base, cfg.Attempts = tt.base, 2
			if name == "unreachable" {
				cfg.AttemptTimeout = 20 * time.Millisecond
			}
			_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", tt.url))
			wantKind(t, err, tt.kind)
			if onlyonce.IsNotApplied(err) != (tt.kind == "not sent") {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("untrusted", func(t *testing.T) {
		t.Parallel()
		s := newServer(t, func(int, http.ResponseWriter, *http.Request) {})
		s.StartTLS()
		cfg := quick(memjournal.New())
		cfg.Attempts = 1
		_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", s.URL))
		wantKind(t, err, "not sent")
		s.wantOneKey(t, "none", 0)
	})
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// G1: net/http sends a request with a key once more when a kept connection dies. Here
// it is an attempt of the client's own, and journaled.
func TestNoSendingBehindTheJournal(t *testing.T) {
	t.Parallel()
	for name, body := range map[string][]byte{"with": []byte("x"), "without": nil} {
		t.Run(name+" a body", func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
				if n == 1 {
					drop(w)
				}
			})
			cfg := quick(memjournal.New())
			cfg.Attempts = 1
			c := newClient(t, cfg)
			r := charge("order-1", s.URL)
			r.Body = body
			_, err := c.Do(t.Context(), r)
			wantKind(t, err, "answered")
			r.Intent = "order-2"
			out, err := c.Do(t.Context(), r)
			wantKind(t, err, "unknown")
			if out.Attempts != 1 || len(s.got()) != 2 {
				t.Errorf("%d attempts were counted, and %d requests arrived", out.Attempts, len(s.got()))
			}
		})
	}
}

// HTTP/2: a server that says GOAWAY with every answer, as one that is shut down. Each
// request is counted.
func TestGoAway(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") })
	cfg := quick(memjournal.New())
	cfg.Base = s.overHTTP2(t)
	// All streams of a connection fail together, so pauses have to part them.
	cfg.Attempts, cfg.BackoffBase, cfg.BackoffCap = 200, time.Millisecond, 50*time.Millisecond
	c := newClient(t, cfg)
	var attempts atomic.Int32
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			r := charge(fmt.Sprintf("order-%d", i), s.URL)
			if i%2 == 0 {
				r.Body = nil
			}
			out, err := c.Do(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			attempts.Add(int32(out.Attempts))
		})
	}
	all.Wait()
	if n := len(s.got()); n > int(attempts.Load()) {
		t.Errorf("%d requests arrived of %d attempts", n, attempts.Load())
	}
}

// A round tripper beneath that repeats by itself is stopped.
func TestRepeatingBase(t *testing.T) {
	t.Parallel()
	s := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { drop(w) })
	inner := &http.Transport{}
	t.Cleanup(inner.CloseIdleConnections)
	cfg := quick(memjournal.New())
	cfg.Attempts = 1
	cfg.Base = roundTripperFunc(func(r *http.Request) (res *http.Response, err error) {
		for range 3 {
			if res, err = inner.RoundTrip(r); err == nil {
				return res, nil
			}
		}
		return nil, err
	})
	_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", s.URL))
	wantKind(t, err, "unknown")
	if !errors.Is(err, &onlyonce.Error{Code: onceclient.CodeSentBefore}) {
		t.Errorf("%v", err)
	}
	if n := len(s.got()); n != 1 {
		t.Errorf("%d requests arrived", n)
	}
}

// A body that breaks off is asked for again, whatever the status was.
func TestBodyBreaksOff(t *testing.T) {
	t.Parallel()
	for _, status := range []int{201, 402, 500} {
		overBoth(t, func(n int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			w.WriteHeader(status)
			if n == 0 {
				io.WriteString(w, "01234")
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			io.WriteString(w, "0123456789")
		}, func(t *testing.T, s *server, cfg onceclient.Config) {
			t.Helper()
			cfg.Attempts = 2
			out, err := newClient(t, cfg).Do(t.Context(), charge("order-1", s.URL))
			wantKind(t, err, map[int]string{201: "answered", 402: "refused", 500: "unknown"}[status])
			s.wantOneKey(t, out.Key, 2)
			if string(out.Answer.Body) != "0123456789" {
				t.Errorf("the answer is %q", out.Answer.Body)
			}
		})
	}
}

// An answer that is too long is not called no answer, and is had when the limit is
// raised.
func TestAnswerTooLong(t *testing.T) {
	t.Parallel()
	s := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, strings.Repeat("x", 1001))
	})
	j := memjournal.New()
	cfg := quick(j)
	cfg.MaxAnswer = 1000
	out, err := newClient(t, cfg).Do(t.Context(), charge("order-1", s.URL))
	wantKind(t, err, "unknown")
	if !errors.Is(err, &onlyonce.Error{Code: onceclient.CodeAnswerTooLong}) || out.Answer == nil || out.Answer.Status != 201 || out.Answer.Body != nil {
		t.Errorf("%v, %+v", err, out)
	}
	cfg.MaxAnswer = 1001
	out, err = newClient(t, cfg).Do(t.Context(), charge("order-1", s.URL))
	wantKind(t, err, "answered")
	if len(out.Answer.Body) != 1001 {
		t.Errorf("it has %d bytes", len(out.Answer.Body))
	}
	s.wantOneKey(t, out.Key, 2)
}

// Credentials are sent and not kept; what Authorize does to more than the header is not.
func TestCredentials(t *testing.T) {
	t.Parallel()
	s := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "s3cret"})
		if n%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	j := memjournal.New()
	cfg := quick(j)
	cfg.Credentials = []string{"x-acme-secret"}
	r := charge("order-1", strings.Replace(s.URL, "http://", "http://user:s3cret@", 1))
	cfg.Credentials = append(cfg.Credentials, "X-Acme-Pin")
	names := append(onceclient.Credentials(), "X-Acme-Secret", "X-Acme-Pin", "X-Vendor-Token", "X-Session-Id", "Signature", "X-Partner-Key")
	for _, name := range names[1:] {
		r.Header.Set(name, "s3cret")
	}
	r.Header.Set("X-Account", "7")
	out, err := newClient(t, cfg).Do(t.Context(), r)
	wantKind(t, err, "answered")
	s.wantOneKey(t, out.Key, 2)
	for _, a := range s.got() {
		for _, name := range names[1:] {
			if a.header.Get(name) != "s3cret" {
				t.Errorf("%s is %q", name, a.header.Get(name))
			}
		}
		if a.header.Get("Authorization") == "" || a.header.Get("X-Account") != "7" {
			t.Errorf("%v", a.header)
		}
	}
	if text := fmt.Sprintf("%+v %+v", stands(t, j, "order-1"), stands(t, j, "order-1").Answer); strings.Contains(text, "s3cret") {
		t.Errorf("the journal has a secret: %s", text)
	}
	if out.Answer.Header.Get("Set-Cookie") == "" {
		t.Error("the answer has lost its cookie")
	}
}

// Authorize is asked for each attempt, and once more after a 401.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		statuses []int
		asked    []bool // again?
		kind     string
	}{
		"valid":           {[]int{200}, []bool{false}, "answered"},
		"old":             {[]int{401, 200}, []bool{false, true}, "answered"},
		"wrong":           {[]int{401, 401}, []bool{false, true}, "refused"},
		"old, then lost":  {[]int{401, 503, 200}, []bool{false, true, false}, "answered"},
		"lost, then old":  {[]int{503, 401, 200}, []bool{false, false, true}, "answered"},
		"lost, and wrong": {[]int{503, 401, 401}, []bool{false, false, true}, "unknown"},
		"forbidden":       {[]int{403}, []bool{false}, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tt.statuses[n]) })
			cfg := quick(memjournal.New())
			var asked []bool
			cfg.Authorize = func(_ context.Context, req *http.Request, again bool) error {
				asked = append(asked, again)
				body, err := io.ReadAll(req.Body) // as whoever signs it
				req.Header.Set("Authorization", fmt.Sprintf("token %d of %d bytes", len(asked), len(body)))
				req.Header["idempotency-key"] = []string{"another"}
				req.Header.Set("Idempotency-Key", "another")
				req.Body, req.Method, req.URL.Path = http.NoBody, http.MethodDelete, "/elsewhere"
				return err
			}
			out, err := newClient(t, cfg).Do(t.Context(), charge("order-1", s.URL+"/charges"))
			wantKind(t, err, tt.kind)
			s.wantOneKey(t, out.Key, len(tt.statuses))
			if diff := cmp.Diff(tt.asked, asked); diff != "" {
				t.Error(diff)
			}
			for i, a := range s.got() {
				if a.header.Get("Authorization") != fmt.Sprintf("token %d of 14 bytes", i+1) || a.path != "/charges" || a.method != http.MethodPost {
					t.Errorf("request %d: %+v", i, a)
				}
			}
		})
	}
}

// Without credentials nothing is sent, and it is tried again.
func TestAuthorizeFails(t *testing.T) {
	t.Parallel()
	s := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	for name, tt := range map[string]struct {
		fails func(n int, again bool) error
		set   string
		kind  string
		sent  int
	}{
		"always":    {fails: func(int, bool) error { return errLost }, kind: "not sent"},
		"at first":  {fails: func(n int, _ bool) error { return map[int]error{1: errLost}[n] }, kind: "refused", sent: 2},
		"again":     {fails: func(_ int, again bool) error { return map[bool]error{true: errLost}[again] }, kind: "refused", sent: 1},
		"sets junk": {fails: func(int, bool) error { return nil }, set: "a\nb", kind: "not sent"},
	} {
		before := len(s.got())
		cfg := quick(memjournal.New())
		n := 0
		cfg.Authorize = func(_ context.Context, req *http.Request, again bool) error {
			n++
			req.Header.Set("Authorization", tt.set)
			return tt.fails(n, again)
		}
		_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", s.URL))
		wantKind(t, err, tt.kind)
		if got := len(s.got()) - before; got != tt.sent {
			t.Errorf("%s: %d requests arrived, want %d", name, got, tt.sent)
		}
		if name == "again" && !errors.Is(err, errLost) {
			t.Errorf("%v does not say why", err)
		}
	}
}

// A header may name another host, and another header may carry the key.
func TestHostAndKeyHeader(t *testing.T) {
	t.Parallel()
	s := serve(t, func(int, http.ResponseWriter, *http.Request) {})
	cfg := quick(memjournal.New())
	cfg.KeyHeader = "paypal-request-id"
	r := charge("order-1", s.URL)
	r.Header.Set("Host", "acme.example")
	r.Header["PAYPAL-REQUEST-ID"] = []string{`"quoted; key"`}
	out, err := newClient(t, cfg).Do(t.Context(), r)
	wantKind(t, err, "answered")
	a := s.got()[0]
	if a.host != "acme.example" || a.header.Get("Paypal-Request-Id") != `"quoted; key"` || out.Key != `"quoted; key"` || a.header.Get("Idempotency-Key") != "" {
		t.Errorf("%+v", a)
	}
}

// L1: what is recorded is what was answered, also where a transport has undone gzip, or the
// caller wants to do that; gzip that breaks off is no answer.
func TestGzip(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte("paid")); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	for accept, want := range map[string]string{"": "paid", "gzip": packed.String()} {
		s := serve(t, func(n int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed.Bytes()[:packed.Len()-10+10*min(n+len(accept), 1)])
		})
		j := memjournal.New()
		c := newClient(t, quick(j))
		r := charge("order-1", s.URL)
		if accept != "" {
			r.Header.Set("Accept-Encoding", accept)
		}
		for n := range 2 {
			out, err := c.Do(t.Context(), r)
			if err != nil || string(out.Answer.Body) != want || out.Recorded != (n == 1) || out.Answer.Header.Get("Content-Encoding") != accept {
				t.Errorf("%q: %q, %v, %v", accept, out.Answer.Body, out.Answer.Header, err)
			}
		}
		if requests := len(s.got()); requests != 2-len(accept)/4 {
			t.Errorf("%q: %d requests", accept, requests)
		}
	}
}

// A server that answers before it has read the body, or asks for it by 100 Continue, or
// does not, gets each attempt once.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answers []string
		kind    string
	}{
		"early refusal":      {[]string{"HTTP/1.1 413 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"}, "refused"},
		"expectation failed": {[]string{"HTTP/1.1 417 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"}, "refused"},
		"asks and hangs up":  {[]string{"HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 413 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"}, "unknown"},
		"busy, then done":    {[]string{"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\npaid"}, "answered"},
		"hangs up, done":     {[]string{"", "HTTP/1.0 200 OK\r\n\r\npaid"}, "answered"},
	} {
		for _, expect := range []string{"", "100-continue"} {
			t.Run(name+" "+expect, func(t *testing.T) {
				t.Parallel()
				address, asked := connect(t, func(n int) string { return tt.answers[min(n, len(tt.answers)-1)] })
				r := charge("order-1", "http://"+address)
				r.Body = make([]byte, 1<<20)
				if expect != "" {
					r.Header.Set("Expect", expect)
				}
				out, err := newClient(t, quick(memjournal.New())).Do(t.Context(), r)
				if expect != "" || kindOf(err) != "unknown" { // the reset may come before the answer
					wantKind(t, err, tt.kind)
				}
				if out.Attempts != asked() {
					t.Errorf("%d requests for %d attempts", asked(), out.Attempts)
				}
			})
		}
	}
}
