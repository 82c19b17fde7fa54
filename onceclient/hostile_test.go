package onceclient_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// rawServer answers the n-th request, counted from 0, with bytes of HTTP/1.1 as they are,
// and leaves the connection open. Empty: it hangs up.
func rawServer(t *testing.T, answer func(n int) string) (address string) {
	t.Helper()
	return serve(t, func(n int, w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if text := answer(n); text != "" {
			_, _ = io.WriteString(conn, text)
			_, _ = conn.Read(make([]byte, 1)) // until the client hangs up
		}
	}).URL
}

// L2: an answer that is none, of a server that keeps the connection open: the attempt is
// made again, and nothing waits for a body that belongs to another protocol.
func TestNoAnswers(t *testing.T) {
	t.Parallel()
	const good = "HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\npaid"
	for name, bad := range map[string]string{
		"another protocol":     "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h3\r\n\r\n",
		"status 000":           "HTTP/1.1 000 Nothing\r\nContent-Length: 4\r\n\r\nlost",
		"status 099":           "HTTP/1.1 099 Nothing\r\nContent-Length: 0\r\n\r\n",
		"two lengths":          "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nlost",
		"a length of nonsense": "HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nlost",
		"no HTTP":              "SSH-2.0-OpenSSH_9.9\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := rawServer(t, func(n int) string { return []string{bad, good}[min(n, 1)] })
			out, err := newClient(t, quick(memjournal.New())).Do(t.Context(), charge("order-1", address))
			wantKind(t, err, "answered")
			if out.Answer == nil || out.Answer.Status != 201 || string(out.Answer.Body) != "paid" || out.Attempts != 2 {
				t.Errorf("%+v, %+v", out, out.Answer)
			}
		})
	}
}

// L2: what informs comes before the answer, however much of it, and is none.
func TestInforms(t *testing.T) {
	t.Parallel()
	hints := strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 5)
	address := rawServer(t, func(n int) string {
		if n == 0 {
			return hints + "HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\nbroken" // and no more
		}
		return "HTTP/1.1 100 Continue\r\n\r\n" + hints + "HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\npaid"
	})
	cfg := quick(memjournal.New())
	cfg.AttemptTimeout = 200 * time.Millisecond
	out, err := newClient(t, cfg).Do(t.Context(), charge("order-1", address))
	wantKind(t, err, "answered")
	if out.Answer == nil || string(out.Answer.Body) != "paid" {
		t.Errorf("%+v", out.Answer)
	}
}

// L1: the largest limits there are bound nothing: body and answer are whole.
func TestLargestLimits(t *testing.T) {
	t.Parallel()
	s := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "paid") })
	cfg := quick(memjournal.New())
	cfg.MaxAnswer, cfg.MaxRequest = math.MaxInt64, math.MaxInt64
	c := newClient(t, cfg)
	out, err := c.Do(t.Context(), charge("order-1", s.URL))
	if err != nil || string(out.Answer.Body) != "paid" {
		t.Errorf("%+v, %v", out.Answer, err)
	}
	status, body, err := send(t.Context(), &http.Client{Transport: c.Transport()}, "POST", s.URL, nil)
	if err != nil || status != 200 || body != "paid" {
		t.Errorf("%d %q, %v", status, body, err)
	}
	for i, a := range s.got() {
		if len(a.body) != 14 {
			t.Errorf("request %d had the body %q", i, a.body)
		}
	}
}

// B97: the caller's buffers are the caller's again while an attempt of before may still
// be read: nothing of the next operation goes out under this one's key.
func TestRequestIsCopied(t *testing.T) {
	t.Parallel()
	body, values := []byte(`{"amount":100}`), []string{"acme"}
	r := charge("order-1", "somewhere")
	r.Body, r.Header["X-Tenant"] = body, values
	s := &script{plan: func(_ context.Context, n int, e onceclient.Entry) onceclient.Reply {
		if string(e.Body) != `{"amount":100}` || e.Header["X-Tenant"][0] != "acme" || e.Header["X-Secret"] != nil {
			t.Errorf("attempt %d: %q, %v", n, e.Body, e.Header)
		}
		copy(body, `{"amount":999}`)
		values[0] = "other"
		// A sender may do with the header as it likes.
		e.Header["X-Tenant"][0] = "third"
		e.Header["X-Secret"] = []string{"s"}
		return []onceclient.Reply{lost(), done(201)}[min(n, 1)]
	}}
	j := memjournal.New()
	cfg := quick(j)
	cfg.Sender = s
	_, err := newClient(t, cfg).Do(t.Context(), r)
	wantKind(t, err, "answered")
	if e := stands(t, j, "order-1"); string(e.Body) != `{"amount":100}` || e.Header["X-Tenant"][0] != "acme" {
		t.Errorf("%q, %v", e.Body, e.Header)
	}
	e, err := newClient(t, quick(j)).Entry(charge("order-2", "http://acme.invalid"))
	if err != nil {
		t.Fatal(err)
	}
	r2 := charge("order-2", "http://acme.invalid")
	e2, err := newClient(t, quick(j)).Entry(r2)
	copy(r2.Body, "xxxx")
	if err != nil || !bytes.Equal(e.Body, e2.Body) {
		t.Errorf("%q, %v", e2.Body, err)
	}
}

// connect is a proxy that does what CONNECT asks for, up to a point.
func connect(t *testing.T, answer func(n int) string) (address string, asked func() int) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	count := make(chan int, 1)
	count <- 0
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n := <-count
			count <- n + 1
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.WriteString(conn, answer(n))
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-over })
	return l.Addr().String(), func() int { n := <-count; count <- n; return n }
}

// D3: what fails between a proxy and the server, before there is a connection to it, has
// sent nothing; a proxy that takes the request itself may have sent it.
func TestProxies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer, scheme, kind string
	}{
		"no tunnel":             {"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "https", "not sent"},
		"wants a login":         {"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "https", "not sent"},
		"hangs up":              {"", "https", "not sent"},
		"a tunnel without TLS":  {"HTTP/1.1 200 OK\r\n\r\n", "https", "not sent"},
		"a tunnel to nonsense":  {"HTTP/1.1 200 OK\r\n\r\nhello\r\n", "https", "not sent"},
		"plain, no gateway":     {"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "http", "unknown"},
		"plain, hangs up":       {"", "http", "unknown"},
		"plain, wants a login":  {"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "http", "refused"},
		"plain, no connections": {"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "http", "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, asked := connect(t, func(int) string { return tt.answer })
			base := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return &url.URL{Scheme: "http", Host: address}, nil }}
			j := memjournal.New()
			cfg := quick(j)
			cfg.Base, cfg.Attempts = base, 2
			t.Cleanup(base.CloseIdleConnections)
			_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", tt.scheme+"://acme.invalid/charges"))
			wantKind(t, err, tt.kind)
			if want := map[string]int{"refused": 1}[tt.kind]; asked() != max(want, 2-want) {
				t.Errorf("the proxy was asked %d times: %v", asked(), err)
			}
		})
	}
}

// D3: a transport that falls back to another one, which says nothing of connections, may
// have sent what the first did not.
func TestFallbackProvesNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, func(_ int, w http.ResponseWriter, _ *http.Request) { drop(w) })
	dead := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errLost }}
	other := &http.Transport{}
	t.Cleanup(other.CloseIdleConnections)
	cfg := quick(memjournal.New())
	cfg.Attempts = 2
	cfg.Base = tripper(func(r *http.Request) (*http.Response, error) {
		body := r.Body
		first := r.Clone(r.Context())
		first.Body = io.NopCloser(strings.NewReader(""))
		if res, err := dead.RoundTrip(first); err == nil {
			return res, nil
		}
		// Its context is another one, so that it says nothing.
		second, err := http.NewRequestWithContext(t.Context(), r.Method, r.URL.String(), body)
		if err != nil {
			return nil, err
		}
		second.Header = r.Header
		return other.RoundTrip(second)
	})
	_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", s.URL))
	wantKind(t, err, "unknown")
	if len(s.got()) != 2 {
		t.Errorf("%d arrived", len(s.got()))
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// L4: an entry that is none that can be sent as it was before is not sent at all.
func TestUnsoundEntries(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*onceclient.Entry){
		"no key":          func(e *onceclient.Entry) { e.Key = "" },
		"another's":       func(e *onceclient.Entry) { e.Intent = "order-2" },
		"a state to come": func(e *onceclient.Entry) { e.State = "abandoned" },
		"no state":        func(e *onceclient.Entry) { e.State = "" },
		"no time":         func(e *onceclient.Entry) { e.CreatedAt = time.Time{} },
		"no attempts":     func(e *onceclient.Entry) { e.Attempts = -1 },
		"no answer":       func(e *onceclient.Entry) { e.State, e.Answer = onceclient.Answered, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, at := range []string{"begin", "lock"} {
				j := &odd{Journal: memjournal.New(), at: at, change: change}
				s := replies(unsent())
				cfg := quick(j)
				cfg.Sender = s
				c := newClient(t, cfg)
				if at == "begin" { // of an earlier one
					e, err := c.Entry(charge("order-1", "somewhere"))
					if err != nil {
						t.Fatal(err)
					}
					if _, _, err := j.Journal.Begin(t.Context(), e); err != nil {
						t.Fatal(err)
					}
				}
				_, err := c.Do(t.Context(), charge("order-1", "somewhere"))
				want := map[string]string{"begin": string(onceclient.CodeJournal), "lock": "unknown"}[at]
				wantKind(t, err, want)
				if !errors.Is(err, &onlyonce.Error{Code: onceclient.CodeJournal}) {
					t.Errorf("%v", err)
				}
				s.want(t, 0)
				if at == "lock" {
					if err := c.Resume(t.Context(), func(_ onceclient.Outcome, err error) { t.Errorf("it was gone on with: %v", err) }); err == nil {
						t.Error("nobody is told")
					}
					s.want(t, 0)
				}
				wantState(t, j.Journal, "order-1", onceclient.Open)
			}
		})
	}
}

// odd is a journal that another program has written in.
type odd struct {
	*memjournal.Journal
	at     string
	change func(*onceclient.Entry)
}

func (o *odd) Begin(ctx context.Context, e onceclient.Entry) (onceclient.Entry, bool, error) {
	e, made, err := o.Journal.Begin(ctx, e)
	if o.at == "begin" {
		o.change(&e)
	}
	return e, made, err
}

func (o *odd) Lock(ctx context.Context, intent string) (onceclient.Lock, onceclient.Entry, error) {
	l, e, err := o.Journal.Lock(ctx, intent)
	if o.at == "lock" {
		o.change(&e)
	}
	return l, e, err
}

// A panic in what the caller has given ends the call, not the lock, and nobody is told
// that the operation ended well. What may have left is open.
func TestPanics(t *testing.T) {
	t.Parallel()
	s := serve(t, func(int, http.ResponseWriter, *http.Request) {})
	for _, at := range []string{"sender", "authorize", "sending", "waiting"} {
		j := memjournal.New()
		cfg := quick(j)
		var told []onceclient.EventKind
		boom := func(where string) {
			if at == where {
				panic("boom")
			}
		}
		cfg.Observe = func(_ context.Context, e onceclient.Event) {
			told = append(told, e.Kind)
			boom(string(e.Kind))
		}
		switch at {
		case "sender", "waiting":
			cfg.Sender = &script{plan: func(context.Context, int, onceclient.Entry) onceclient.Reply { boom("sender"); return lost() }}
		default:
			cfg.Authorize = func(context.Context, *http.Request, bool) error { boom("authorize"); return nil }
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", at)
				}
			}()
			_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", s.URL))
			t.Errorf("%s: %v", at, err)
		}()
		wantState(t, j, "order-1", onceclient.Open) // and it is not locked
		for _, kind := range told {
			if kind == onceclient.EventEnded {
				t.Errorf("%s: it is told to have ended", at)
			}
		}
	}
}
