package oncecall_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncecall"
)

// sleeper is a client whose process can be paused for a day at a point on the way.
func sleeper(t *testing.T, base *http.Transport) (*http.Client, *switchClock) {
	t.Helper()
	t.Cleanup(base.CloseIdleConnections)
	clock := &switchClock{}
	tr := &oncecall.Transport{Base: base}
	tr.SetNow(clock.now)
	return oncecall.NewClient(tr), clock
}

// traced pauses at a hook, which is called behind the transport's own.
func traced(ctx context.Context, trace *httptrace.ClientTrace) context.Context {
	return httptrace.WithClientTrace(ctx, trace)
}

// D5: who slept through the send deadline sends nothing: not a byte arrives, in all
// shapes of requests, wherever it slept.
func TestSleeperSendsNothing(t *testing.T) {
	t.Parallel()
	dialer := new(net.Dialer)
	for where, tt := range map[string]struct {
		// pause arranges it.
		pause func(ctx context.Context, base *http.Transport, clock *switchClock) context.Context
		// proved: no connection was obtained, or it was not even looked for.
		proved bool
	}{
		"between_intent_and_request": {proved: true, pause: func(ctx context.Context, _ *http.Transport, clock *switchClock) context.Context {
			clock.sleep()
			return ctx
		}},
		"looking_for_a_connection": {pause: func(ctx context.Context, _ *http.Transport, clock *switchClock) context.Context {
			return traced(ctx, &httptrace.ClientTrace{GetConn: func(string) { clock.sleep() }})
		}},
		"dialling": {pause: func(ctx context.Context, base *http.Transport, clock *switchClock) context.Context {
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dialer.DialContext(ctx, network, addr)
				clock.sleep()
				return conn, err
			}
			return ctx
		}},
		"with_a_connection": {pause: func(ctx context.Context, _ *http.Transport, clock *switchClock) context.Context {
			return traced(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { clock.sleep() }})
		}},
		"writing_the_header": {pause: func(ctx context.Context, _ *http.Transport, clock *switchClock) context.Context {
			return traced(ctx, &httptrace.ClientTrace{WroteHeaderField: func(string, []string) { clock.sleep() }})
		}},
	} {
		for name, sh := range shapes() {
			t.Run(where+"/"+name, func(t *testing.T) {
				t.Parallel()
				w, s, base := startWire(t, nil), newShop(t), &http.Transport{}
				c, clock := sleeper(t, base)
				err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
					return ask(tt.pause(ctx, base, clock), c, sh.method, w.url, sh.body())
				})
				wantCode(t, err, oncecall.CodeTooLate)
				want := onlyonce.InDoubt
				if tt.proved {
					want = onlyonce.FailedRetryable
				}
				s.wantState(t, "k", want)
				if got := w.drained(c); got != "" {
					t.Errorf("%d bytes arrived: %.200q", len(got), got)
				}
			})
		}
	}
}

// D5: a kept connection is no way around it, and it is not kept any longer.
func TestSleeperWithKeptConnection(t *testing.T) {
	t.Parallel()
	w, elsewhere, s := startWire(t, nil), startWire(t, nil), newShop(t)
	c, clock := sleeper(t, &http.Transport{})
	post := func(ctx context.Context, _ onlyonce.Sending) error {
		ctx = traced(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			if info.Reused {
				clock.sleep()
			}
		}})
		return ask(ctx, c, "POST", w.url, pay())
	}
	if err := s.send(t, "k1", post); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.send(t, "k2", post), oncecall.CodeTooLate)
	w.want(t, 1)
	if got := strings.Count(w.drained(c), "POST"); got != 1 {
		t.Errorf("%d requests were begun", got)
	}
	err := ask(t.Context(), c, "POST", elsewhere.url, pay())
	if err != nil {
		t.Errorf("outside of Effect.Send there is no deadline: %v", err)
	}
}

// D5: who sleeps once the header has left never sends the whole of a request: what
// arrives is one that no server can act on.
func TestSleeperSendsNoWholeRequest(t *testing.T) {
	t.Parallel()
	for name, sh := range shapes() {
		if sh.body() == nil || sh.body() == http.NoBody {
			continue // with its header it is whole
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s := startWire(t, nil), newShop(t)
			c, clock := sleeper(t, &http.Transport{})
			err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
				ctx = traced(ctx, &httptrace.ClientTrace{WroteHeaders: clock.sleep})
				return ask(ctx, c, sh.method, w.url, sh.body())
			})
			wantCode(t, err, oncecall.CodeTooLate)
			s.wantState(t, "k", onlyonce.InDoubt)
			_, body, ok := strings.Cut(w.drained(c), "\r\n\r\n")
			if body != "" || !ok {
				t.Errorf("after a header (%t) %q arrived", ok, body)
			}
			w.want(t, 0)
		})
	}
}

// D5: of a header that is longer than what net/http holds back, the end is missing.
func TestSleeperWithLongHeader(t *testing.T) {
	t.Parallel()
	w, s := startWire(t, nil), newShop(t)
	c, clock := sleeper(t, &http.Transport{})
	header := http.Header{"X-Long": {strings.Repeat("x", 3*4096)}}
	err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
		ctx = traced(ctx, &httptrace.ClientTrace{WroteHeaderField: func(string, []string) { clock.sleep() }})
		return askWith(ctx, c, message{method: "POST", url: w.url, header: header})
	})
	wantCode(t, err, oncecall.CodeTooLate)
	if got := w.drained(c); strings.Contains(got, "\r\n\r\n") || len(got) < 4096 {
		t.Errorf("%d bytes arrived, with the end of the header or none: %.200q", len(got), got)
	}
}

// slowBody is a body that takes its time: what it has read is too late.
type slowBody struct {
	io.Reader
	sleep func()
}

func (b *slowBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p[:min(len(p), 4)])
	if err == io.EOF {
		b.sleep()
	}
	return n, err
}

// D5: the clock is looked at after the body is read, immediately before it is
// written: of a chunked body the end is missing.
func TestSleeperWhileReadingTheBody(t *testing.T) {
	t.Parallel()
	w, s := startWire(t, nil), newShop(t)
	c, clock := sleeper(t, &http.Transport{})
	err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
		return ask(ctx, c, "POST", w.url, &slowBody{pay(), clock.sleep})
	})
	wantCode(t, err, oncecall.CodeTooLate)
	if got := w.drained(c); strings.Contains(got, "\r\n0\r\n") || !strings.Contains(got, "ount") {
		t.Errorf("arrived: %q", got)
	}
	w.want(t, 0)
}

// tlsServer is an HTTP server with TLS.
func tlsServer(t *testing.T, http2 bool, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = http2
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// D5: with TLS, and over HTTP/2, whose connection is shared with other requests
// that must not suffer.
func TestSleeperOverTLS(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		http2 bool
		pause func(ctx context.Context, clock *switchClock) context.Context
		heads int32 // how many headers may arrive
	}{
		"HTTP/1.1, with a connection": {heads: 0, pause: func(ctx context.Context, clock *switchClock) context.Context {
			return traced(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { clock.sleep() }})
		}},
		"HTTP/2, looking for a connection": {http2: true, heads: 0, pause: func(ctx context.Context, clock *switchClock) context.Context {
			return traced(ctx, &httptrace.ClientTrace{GetConn: func(string) { clock.sleep() }})
		}},
		"HTTP/2, writing the header": {http2: true, heads: 1, pause: func(ctx context.Context, clock *switchClock) context.Context {
			return traced(ctx, &httptrace.ClientTrace{WroteHeaderField: func(string, []string) { clock.sleep() }})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var heads, bodies, others atomic.Int32
			holding, held := make(chan struct{}), make(chan struct{})
			server := tlsServer(t, tt.http2, func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/other" {
					close(held)
					<-holding
					others.Add(1)
					return
				}
				heads.Add(1)
				if _, err := io.ReadAll(r.Body); err == nil {
					bodies.Add(1)
				}
			})
			base := &http.Transport{ForceAttemptHTTP2: tt.http2, TLSClientConfig: server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()}
			base.TLSClientConfig.NextProtos = nil
			c, clock := sleeper(t, base)
			// Another request is under way on the connection.
			other := make(chan error, 1)
			go func() { other <- ask(t.Context(), c, "POST", server.URL+"/other", pay()) }()
			<-held
			err := newShop(t).send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
				return ask(tt.pause(ctx, clock), c, "POST", server.URL, pay())
			})
			wantCode(t, err, oncecall.CodeTooLate)
			close(holding)
			if err := <-other; err != nil {
				t.Errorf("the other request on the connection: %v", err)
			}
			c.CloseIdleConnections()
			server.Close()
			if heads.Load() > tt.heads || bodies.Load() != 0 || others.Load() != 1 {
				t.Errorf("%d headers, %d whole requests and %d others arrived", heads.Load(), bodies.Load(), others.Load())
			}
		})
	}
}

// stubborn is a connection that knows no deadlines.
type stubborn struct{ net.Conn }

func (s stubborn) SetWriteDeadline(time.Time) error { return io.ErrNoProgress }

// D5: where a connection cannot be told to refuse, it is closed.
func TestSleeperOnStubbornConnection(t *testing.T) {
	t.Parallel()
	w, s := startWire(t, nil), newShop(t)
	c, clock := sleeper(t, &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return stubborn{conn}, err
	}})
	err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
		ctx = traced(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { clock.sleep() }})
		return ask(ctx, c, "POST", w.url, nil)
	})
	wantCode(t, err, oncecall.CodeTooLate)
	if got := w.drained(c); got != "" {
		t.Errorf("arrived: %q", got)
	}
}

// D5: an unsuspecting Base, without hooks, is noticed by what it reads.
func TestSleeperOnUntracedBase(t *testing.T) {
	t.Parallel()
	s, clock := newShop(t), &switchClock{}
	tr := &oncecall.Transport{Base: roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		clock.sleep()
		_, err := io.ReadAll(r.Body)
		r.Body.Close()
		return nil, err
	})}
	tr.SetNow(clock.now)
	err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
		return ask(ctx, oncecall.NewClient(tr), "POST", "http://acme.invalid", pay())
	})
	wantCode(t, err, oncecall.CodeTooLate)
	s.wantState(t, "k", onlyonce.InDoubt)
}
