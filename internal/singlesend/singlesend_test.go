package singlesend_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce/internal/singlesend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errReconnected = errors.New("reconnected")
	errReread      = errors.New("reread")
	errLate        = errors.New("late")
)

func effect() singlesend.Rules {
	return singlesend.Rules{
		Effect:      true,
		Reconnected: func() error { return errReconnected },
		Reread:      func() error { return errReread },
	}
}

func request(t *testing.T, url, body string) *http.Request {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "k")
	return req
}

// sendOnce makes a round trip, and says how it failed.
func sendOnce(base http.RoundTripper, req *http.Request, rules singlesend.Rules) (*singlesend.Guard, error) {
	out, guard := singlesend.Prepare(req, rules)
	res, err := base.RoundTrip(out)
	if err != nil {
		return guard, guard.Explain(err)
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return guard, err
}

// counting is a server that hangs up on the requests whose number, counted from 1, is
// among those.
func counting(t *testing.T, hangUp ...int32) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	var n atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		now := n.Add(1)
		for _, h := range hangUp {
			if now == h {
				panic(http.ErrAbortHandler)
			}
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	return s, &n
}

// G1: net/http repeats a request with a key when a kept connection dies, as the control
// shows; what was prepared it does not, with a body and without.
func TestKeptConnectionDies(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"x", ""} {
		s, n := counting(t, 2, 4)
		s.Start()
		base := &http.Transport{}
		t.Cleanup(base.CloseIdleConnections)
		if _, err := sendOnce(base, request(t, s.URL, body), effect()); err != nil {
			t.Error(err)
		}
		guard, err := sendOnce(base, request(t, s.URL, body), effect())
		if err == nil || guard.Unconnected() || n.Load() != 2 {
			t.Errorf("%v after %d requests", err, n.Load())
		}
		// The control.
		for range 2 {
			res, err := base.RoundTrip(request(t, s.URL, body))
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
		}
		if n.Load() != 5 {
			t.Errorf("%d requests for two", n.Load()-2)
		}
	}
}

// A round tripper beneath that repeats is stopped; one that has the body twice is told.
func TestRepeatingTransport(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]error{"x": errReread, "": errReconnected} {
		s, n := counting(t, 1)
		s.Start()
		inner := &http.Transport{}
		t.Cleanup(inner.CloseIdleConnections)
		var first error
		base := roundTripperFunc(func(r *http.Request) (*http.Response, error) {
			_, first = inner.RoundTrip(r)
			return inner.RoundTrip(r)
		})
		guard, err := sendOnce(base, request(t, s.URL, body), effect())
		if !errors.Is(err, errReconnected) && !errors.Is(err, want) || first == nil || guard.Unconnected() || n.Load() != 1 {
			t.Errorf("with %q: %v after %v and %d requests", body, err, first, n.Load())
		}
	}
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// D3: only that no connection was obtained proves anything.
func TestUnconnected(t *testing.T) {
	t.Parallel()
	dial := func(fn func() (net.Conn, error)) http.RoundTripper {
		return &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return fn() }}
	}
	for name, tt := range map[string]struct {
		base http.RoundTripper
		want bool
	}{
		"refused": {dial(func() (net.Conn, error) { return nil, io.EOF }), true},
		"dead": {dial(func() (net.Conn, error) {
			near, far := net.Pipe()
			return near, far.Close()
		}), false},
		"says nothing": {roundTripperFunc(func(*http.Request) (*http.Response, error) { return nil, io.EOF }), false},
	} {
		guard, err := sendOnce(tt.base, request(t, "http://acme.invalid", "x"), effect())
		if err == nil || guard.Unconnected() != tt.want {
			t.Errorf("%s: %v; proved: %t", name, err, !tt.want)
		}
	}
}

// D5: when its time is over, a request does not leave, over HTTP/1.1 and HTTP/2, and the
// context ends if the rules say so.
func TestLate(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		s, n := counting(t)
		base := &http.Transport{}
		if h2 {
			s.EnableHTTP2 = true
			s.StartTLS()
			base = s.Client().Transport.(*http.Transport)
		} else {
			s.Start()
		}
		t.Cleanup(base.CloseIdleConnections)
		for _, cancel := range []bool{true, false} {
			rules := effect()
			rules.Late, rules.Cancel = func() error { return errLate }, cancel
			guard, err := sendOnce(base, request(t, s.URL, strings.Repeat("x", 10)), rules)
			if !errors.Is(err, errLate) || guard.Unconnected() || n.Load() != 0 {
				t.Errorf("HTTP/2 %t: %v after %d requests", h2, err, n.Load())
			}
		}
		rules := effect()
		rules.Late = func() error { return nil }
		if _, err := sendOnce(base, request(t, s.URL, "x"), rules); err != nil || n.Load() != 1 {
			t.Errorf("HTTP/2 %t: %v after %d requests", h2, err, n.Load())
		}
	}
}

// What has no effect may be repeated, and its body is as it was.
func TestWithoutEffect(t *testing.T) {
	t.Parallel()
	req := request(t, "http://acme.invalid", "x")
	out, guard := singlesend.Prepare(req, singlesend.Rules{})
	if out.Body != req.Body || out.GetBody == nil || guard.Unconnected() {
		t.Error("the body was changed")
	}
	if err := guard.Explain(io.EOF); err != io.EOF { //nolint:errorlint // the very same
		t.Errorf("%v", err)
	}
	out, _ = singlesend.Prepare(req, effect())
	if out.GetBody != nil || req.GetBody == nil {
		t.Error("it can be had twice, or the other was changed")
	}
}

// A body ends for good when it is closed, and is closed once.
func TestBody(t *testing.T) {
	t.Parallel()
	source := &closing{Reader: strings.NewReader("abc")}
	req := request(t, "http://acme.invalid", "")
	req.Body = source
	out, _ := singlesend.Prepare(req, effect())
	text, err := io.ReadAll(out.Body)
	if string(text) != "abc" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	for range 2 {
		_ = out.Body.Close()
	}
	if _, err := out.Body.Read(make([]byte, 1)); !errors.Is(err, errReread) || source.closed != 1 {
		t.Errorf("%v, closed %d times", err, source.closed)
	}
	req.Body = nil
	out, _ = singlesend.Prepare(req, effect())
	if text, err := io.ReadAll(out.Body); len(text) != 0 || err != nil || out.Body.Close() != nil {
		t.Errorf("%q, %v", text, err)
	}
}

type closing struct {
	io.Reader
	closed int
}

func (c *closing) Close() error { c.closed++; return nil }
