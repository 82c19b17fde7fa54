package processor_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// TestFateOfAnswers checks what each status means for the money.
func TestFateOfAnswers(t *testing.T) {
	t.Parallel()
	const paid = `{"id":"pc_1","status":"succeeded"}`
	for name, tt := range map[string]struct {
		status int
		body   string
		fate   processor.Fate
	}{
		"bad request":                   {400, `{"code":"invalid_request"}`, processor.Refused},
		"unauthorized":                  {401, ``, processor.Refused},
		"forbidden":                     {403, ``, processor.Refused},
		"unprocessable":                 {422, ``, processor.Refused},
		"too many requests":             {429, ``, processor.Refused},
		"not found":                     {404, ``, processor.Unknown},
		"request timeout":               {408, ``, processor.Unknown},
		"conflict":                      {409, `{"code":"in_progress"}`, processor.Unknown},
		"internal error":                {500, ``, processor.Unknown},
		"bad gateway":                   {502, `<html>`, processor.Unknown},
		"unavailable":                   {503, ``, processor.Unknown},
		"gateway timeout":               {504, ``, processor.Unknown},
		"success that is no charge":     {200, paid, processor.Unknown},
		"created that is no JSON":       {201, `<html>`, processor.Unknown},
		"created without an id":         {201, `{"status":"succeeded"}`, processor.Unknown},
		"created and declined":          {201, `{"id":"pc_1","status":"declined"}`, processor.Unknown},
		"payment required by a proxy":   {402, `{"code":"pay_me"}`, processor.Unknown},
		"payment required yet charged":  {402, paid, processor.Unknown},
		"created with an endless body":  {201, strings.Repeat(" ", 16<<20) + paid, processor.Unknown},
		"a redirect, which is the end":  {307, ``, processor.Unknown},
		"a redirect that would be read": {303, ``, processor.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			t.Cleanup(server.Close)
			_, err := newClient(t, server.URL).Charge(t.Context(), "key-1", charge("tok_visa", "order-1").Encode())
			e, ok := errors.AsType[*processor.Error](err)
			if !ok || e.Status != tt.status || e.Fate() != tt.fate || processor.FateOf(err) != tt.fate {
				t.Errorf("Charge: %v; want status %d, %v", err, tt.status, tt.fate)
			}
			if got := requests.Load(); got != 1 {
				t.Errorf("%d requests were made, want 1", got)
			}
		})
	}
}

// TestFateWithoutAnswer checks what may be called not sent.
func TestFateWithoutAnswer(t *testing.T) {
	t.Parallel()
	body := charge("tok_visa", "order-1").Encode()
	dial := func(err error) http.RoundTripper {
		return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, err }}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		via  http.RoundTripper
		url  string
		key  string
		body []byte
		fate processor.Fate
	}{
		"refused":              {via: &http.Transport{}, url: unusedAddress(t), fate: processor.NotSent},
		"no such host":         {via: dial(&net.DNSError{Err: "no such host", IsNotFound: true}), fate: processor.NotSent},
		"ended before":         {ctx: ended, via: dial(nil), fate: processor.NotSent},
		"key with a newline":   {via: dial(nil), key: "a\nb", fate: processor.NotSent},
		"key too long":         {via: dial(nil), key: strings.Repeat("k", 256), fate: processor.NotSent},
		"no body":              {via: dial(nil), body: []byte{}, fate: processor.NotSent},
		"no URL":               {via: dial(nil), url: "http://[::1", fate: processor.NotSent},
		"transport tells not":  {via: roundTripperFunc(func(*http.Request) (*http.Response, error) { return nil, io.EOF }), fate: processor.Unknown},
		"connection then dead": {via: &http.Transport{DialContext: dialDead}, fate: processor.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.ctx == nil {
				tt.ctx = t.Context()
			}
			if tt.url == "" {
				tt.url = "http://processor.invalid"
			}
			if tt.body == nil {
				tt.body = body
			}
			client := processor.Client{BaseURL: tt.url, HTTP: &http.Client{Transport: tt.via}}
			_, err := client.Charge(tt.ctx, tt.key, tt.body)
			if err == nil || processor.FateOf(err) != tt.fate {
				t.Errorf("Charge: %v, want fate %v", err, tt.fate)
			}
		})
	}
	if got := processor.FateOf(errors.New("from elsewhere")); got != processor.Unknown {
		t.Errorf("fate of a foreign error = %v", got)
	}
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// dialDead returns a connection whose other end is gone.
func dialDead(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	return near, far.Close()
}

// unusedAddress returns a URL at which nobody listens.
func unusedAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return "http://" + listener.Addr().String()
}

// TestNothingIsSentTwice lets a kept connection die after a request has been
// read from it. net/http sends such a request again, because it bears an
// Idempotency-Key; that it does is the control, that this client does not is
// the proof.
func TestNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	body := charge("tok_visa", "order-1").Encode()
	viaClient := func(ctx context.Context, hc *http.Client, url string) error {
		c := processor.Client{BaseURL: url, HTTP: hc}
		_, err := c.Charge(ctx, "key-1", body)
		return err
	}
	viaNetHTTP := func(ctx context.Context, hc *http.Client, url string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Idempotency-Key", "key-1")
		response, err := hc.Do(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return errors.Join(err, response.Body.Close())
	}
	for name, tt := range map[string]struct {
		send     func(context.Context, *http.Client, string) error
		requests int32
		fails    bool
	}{
		"client":           {send: viaClient, requests: 2, fails: true},
		"control_net_http": {send: viaNetHTTP, requests: 3, fails: false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startDyingServer(t)
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			hc := &http.Client{Transport: transport}
			if err := tt.send(t.Context(), hc, server.url); err != nil {
				t.Fatalf("first request: %v", err)
			}
			err := tt.send(t.Context(), hc, server.url)
			if (err != nil) != tt.fails || (tt.fails && processor.FateOf(err) != processor.Unknown) {
				t.Errorf("second request: %v; want an error of unknown fate: %t", err, tt.fails)
			}
			if got := server.requests.Load(); got != tt.requests {
				t.Errorf("the server read %d requests, want %d", got, tt.requests)
			}
		})
	}
}

// dyingServer answers every request, except the second on a connection: that it
// reads, and hangs up.
type dyingServer struct {
	url      string
	requests atomic.Int32
}

func startDyingServer(t *testing.T) *dyingServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &dyingServer{url: "http://" + listener.Addr().String()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.serve(conn)
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return s
}

func (s *dyingServer) serve(conn net.Conn) {
	defer conn.Close()
	requests := bufio.NewReader(conn)
	for served := range 2 {
		r, err := http.ReadRequest(requests)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		s.requests.Add(1)
		if served == 1 {
			return
		}
		const paid = `{"id":"pc_1","status":"succeeded"}`
		fmt.Fprintf(conn, "HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s", len(paid), paid)
	}
}

// TestClientGivesUpOnSilence runs on a fake clock: the charge is made, the
// client waits as long as it should and not longer, and the second attempt is a
// replay.
func TestClientGivesUpOnSilence(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		config  processor.Config
		timeout time.Duration
		want    time.Duration
	}{
		"after_the_default":        {want: processor.DefaultTimeout},
		"after_its_timeout":        {timeout: time.Minute, want: time.Minute},
		"when_the_server_hangs_up": {config: processor.Config{Hang: 3 * time.Second}, want: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server, err := processor.NewServer(tt.config)
				if err != nil {
					t.Fatal(err)
				}
				client := servePipe(t, server)
				client.Timeout = tt.timeout
				start := time.Now()
				body := charge("tok_timeout", "order-1").Encode()
				got := outcomeOf(client.Charge(t.Context(), "key-1", body))
				if diff := cmp.Diff(outcome{Fate: "unknown"}, got); diff != "" || time.Since(start) != tt.want {
					t.Errorf("after %v, want %v (-want +got):\n%s", time.Since(start), tt.want, diff)
				}
				again, err := client.Charge(t.Context(), "key-1", body)
				if err != nil || !again.Replayed {
					t.Errorf("second attempt: %+v, %v; want a replay", again, err)
				}
			})
		})
	}
}

// TestCloseEndsTheSilence checks that a server can be stopped while a client
// hangs.
func TestCloseEndsTheSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, err := processor.NewServer(processor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		client := servePipe(t, server)
		failed := make(chan error)
		go func() {
			_, err := client.Charge(t.Context(), "key-1", charge("tok_timeout", "order-1").Encode())
			failed <- err
		}()
		synctest.Wait() // The client hangs.
		start := time.Now()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-failed; processor.FateOf(err) != processor.Unknown || time.Since(start) != 0 {
			t.Errorf("Charge: %v after %v; want an unknown fate at once", err, time.Since(start))
		}
	})
}

// servePipe serves handler on an in-memory network, which a fake clock can
// watch, until the test ends.
func servePipe(t *testing.T, handler http.Handler) *processor.Client {
	t.Helper()
	network := &pipeNetwork{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: handler}
	served := make(chan error)
	go func() { served <- server.Serve(network) }()
	transport := &http.Transport{DialContext: network.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
		<-served
	})
	return &processor.Client{BaseURL: "http://processor.invalid/", HTTP: &http.Client{Transport: transport}}
}

// pipeNetwork is a listener whose connections are pipes.
type pipeNetwork struct {
	conns chan net.Conn
	done  chan struct{}
}

func (n *pipeNetwork) Accept() (net.Conn, error) {
	select {
	case conn := <-n.conns:
		return conn, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

func (n *pipeNetwork) Close() error {
	close(n.done)
	return nil
}

func (n *pipeNetwork) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (n *pipeNetwork) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case n.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
