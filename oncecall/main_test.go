package oncecall_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/oncecall"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// text is a request that is just a text.
type text string

func (t text) Version() int                            { return 1 }
func (t text) Form(int, []byte) (onlyonce.Form, error) { return t, nil }
func (t text) Sum() [32]byte                           { return sha256.Sum256([]byte(t)) }
func (t text) Parts() []onlyonce.Part                  { return nil }

func (t text) Differs([]string, func(int, [32]byte) bool) []string { return nil }

func keyOf(value string) onlyonce.Key { return onlyonce.Key{Scope: "acct", Value: value} }

func request(key string) onlyonce.Request {
	return onlyonce.Request{Key: keyOf(key), Canonical: text("x")}
}

// shop is an engine whose handlers call a provider.
type shop struct {
	*onlyonce.TxEngine[*memstore.Tx]
	mem *memstore.Store
}

func newShop(t *testing.T) *shop {
	t.Helper()
	mem, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := onlyonce.NewTx(mem, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return &shop{engine, mem}
}

func charge() onlyonce.Op { return onlyonce.Op{Name: "POST /charges"} }

type sendFunc func(ctx context.Context, s onlyonce.Sending) error

// send runs an operation of one step, and returns what onlyonce.Call said.
func (s *shop) send(t *testing.T, key string, fn sendFunc) error {
	t.Helper()
	var said error
	_, err := s.Steps(t.Context(), charge(), request(key), func(ctx context.Context) (onlyonce.Answer, error) {
		said = call(ctx, "charge", fn)
		if said != nil {
			return onlyonce.Answer{}, said
		}
		return onlyonce.Answer{Status: http.StatusCreated}, nil
	})
	if said == nil && err != nil {
		t.Fatalf("operation %s: %v", key, err)
	}
	return said
}

func call(ctx context.Context, step string, fn sendFunc) error {
	_, err := onlyonce.Call(ctx, onlyonce.Effect{
		Name: step, Provider: "acme", Request: []byte(`{"amount":100}`),
		Send: func(ctx context.Context, s onlyonce.Sending) ([]byte, error) { return []byte("{}"), fn(ctx, s) },
	})
	return err
}

func (s *shop) wantState(t *testing.T, key string, want onlyonce.State) {
	t.Helper()
	rec, found, err := s.mem.Get(t.Context(), keyOf(key))
	if err != nil || !found || rec.State != want {
		t.Errorf("key %s: %q, %t, %v; want %q", key, rec.State, found, err, want)
	}
}

func wantCode(t *testing.T, err error, want onlyonce.Code) {
	t.Helper()
	if !errors.Is(err, &onlyonce.Error{Code: want}) {
		t.Errorf("got %v, want %s", err, want)
	}
	if e, ok := errors.AsType[*onlyonce.Error](err); ok && e.Hint == "" {
		t.Errorf("%v does not say what to do next", err)
	}
}

// ask makes a request and reads the answer.
func ask(ctx context.Context, c *http.Client, method, url string, body io.Reader) error {
	return askWith(ctx, c, message{method: method, url: url, body: body})
}

type message struct {
	method, url string
	header      http.Header
	body        io.Reader
}

func askWith(ctx context.Context, c *http.Client, m message) error {
	req, err := http.NewRequestWithContext(ctx, m.method, m.url, m.body)
	if err != nil {
		return err
	}
	maps.Copy(req.Header, m.header)
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	return nil
}

func pay() io.Reader { return strings.NewReader(`{"amount":100}`) }

// client is a client over a Transport of its own, with connections of its own.
func client(t *testing.T) (*http.Client, *oncecall.Transport) {
	t.Helper()
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	transport := &oncecall.Transport{Base: base}
	return oncecall.NewClient(transport), transport
}

// reaction is what a wire does with a request that it has read.
type reaction int

const (
	answer   reaction = iota
	hangUp            // closes the connection
	reset             // resets it
	silent            // waits until the client has gone
	redirect          // 307 to the same place
)

// wire is a provider on a TCP socket that writes down every byte it gets.
type wire struct {
	url    string
	ln     net.Listener
	behave func(n int) reaction
	served sync.WaitGroup

	mu       sync.Mutex
	bytes    bytes.Buffer
	requests []*http.Request // those that arrived whole
}

// startWire starts one; behave is asked for each request, counted from 0; nil
// answers all.
func startWire(t *testing.T, behave func(n int) reaction) *wire {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{url: "http://" + ln.Addr().String(), ln: ln, behave: behave}
	if behave == nil {
		w.behave = func(int) reaction { return answer }
	}
	w.served.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			w.served.Go(func() { w.serve(conn) })
		}
	})
	t.Cleanup(w.stop)
	return w
}

// stop waits until every connection has ended; the clients close theirs.
func (w *wire) stop() {
	w.ln.Close()
	w.served.Wait()
}

func (w *wire) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(io.TeeReader(conn, w))
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		switch w.behave(w.got(req)) {
		case answer:
			text := "{}"
			if req.Method == http.MethodHead {
				text = ""
			}
			fmt.Fprintf(conn, "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n%s", text)
		case redirect:
			fmt.Fprintf(conn, "HTTP/1.1 307 Temporary Redirect\r\nLocation: %s/again\r\nContent-Length: 0\r\n\r\n", w.url)
		case hangUp:
			return
		case reset:
			_ = conn.(*net.TCPConn).SetLinger(0)
			return
		case silent:
			_, _ = r.Peek(1)
			return
		}
	}
}

func (w *wire) got(req *http.Request) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, req)
	return len(w.requests) - 1
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes.Write(p)
}

// arrived is every request that arrived whole.
func (w *wire) arrived() []*http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*http.Request{}, w.requests...)
}

// drained is every byte that arrived, once all connections are closed.
func (w *wire) drained(c *http.Client) string {
	c.CloseIdleConnections()
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes.String()
}

func (w *wire) want(t *testing.T, requests int) {
	t.Helper()
	if got := len(w.arrived()); got != requests {
		t.Errorf("%d requests arrived, want %d", got, requests)
	}
}

// nowhere is a URL at which nobody listens.
func nowhere(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return "http://" + ln.Addr().String()
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// switchClock is the process's clock until it is switched a day ahead, as for
// whoever was paused for a day.
type switchClock struct {
	mu    sync.Mutex
	slept bool
}

func (c *switchClock) sleep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slept = true
}

func (c *switchClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slept {
		return time.Now().Add(24 * time.Hour)
	}
	return time.Now()
}
