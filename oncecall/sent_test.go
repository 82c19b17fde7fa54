package oncecall_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncecall"
)

// dial is a client whose connections are made by fn.
func dial(t *testing.T, fn func(ctx context.Context) (net.Conn, error)) *http.Client {
	t.Helper()
	base := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return fn(ctx) }}
	t.Cleanup(base.CloseIdleConnections)
	return oncecall.NewClient(&oncecall.Transport{Base: base})
}

// end is whom a request goes to, by which client, and when its sender gives up.
type end struct {
	client *http.Client
	url    string
	giveUp <-chan struct{}
}

// over is a client whose round trips are made by fn.
func over(fn roundTripperFunc) end {
	return end{client: oncecall.NewClient(&oncecall.Transport{Base: fn}), url: "http://acme.invalid"}
}

// wired is a wire that reacts, whose client gives up when the request is there.
func wired(t *testing.T, r reaction) end {
	t.Helper()
	arrived := make(chan struct{})
	w := startWire(t, func(int) reaction { close(arrived); return r })
	c, _ := client(t)
	e := end{client: c, url: w.url}
	if r == silent {
		e.giveUp = arrived
	}
	return e
}

// dialled is a client whose connections are made by fn.
func dialled(t *testing.T, fn func(ctx context.Context) (net.Conn, error)) end {
	t.Helper()
	return end{client: dial(t, fn), url: "http://acme.invalid"}
}

// D3: without a connection nothing was sent: the step has not happened and the key
// is free. With one, nothing is known, whatever went wrong.
func TestNotSent(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	for name, tt := range map[string]struct {
		to     func(*testing.T) end
		proved bool
	}{
		"connection refused": {proved: true, to: func(t *testing.T) end {
			t.Helper()
			c, _ := client(t)
			return end{client: c, url: nowhere(t)}
		}},
		"no such host": {proved: true, to: func(t *testing.T) end {
			t.Helper()
			return dialled(t, func(context.Context) (net.Conn, error) { return nil, &net.DNSError{IsNotFound: true} })
		}},
		"no TLS at the other end": {proved: true, to: func(t *testing.T) end {
			t.Helper()
			e := wired(t, answer)
			e.url = strings.Replace(e.url, "http:", "https:", 1)
			return e
		}},
		"impatient while dialling": {proved: true, to: func(t *testing.T) end {
			t.Helper()
			dialling := make(chan struct{})
			e := dialled(t, func(ctx context.Context) (net.Conn, error) { close(dialling); <-ctx.Done(); return nil, ctx.Err() })
			e.giveUp = dialling
			return e
		}},
		"given up before": {proved: true, to: func(t *testing.T) end {
			t.Helper()
			e, already := wired(t, answer), make(chan struct{})
			close(already)
			e.giveUp = already
			return e
		}},
		"hung up":         {to: func(t *testing.T) end { t.Helper(); return wired(t, hangUp) }},
		"reset":           {to: func(t *testing.T) end { t.Helper(); return wired(t, reset) }},
		"silence":         {to: func(t *testing.T) end { t.Helper(); return wired(t, silent) }},
		"dead from start": {to: func(t *testing.T) end { t.Helper(); return dialled(t, deadPipe) }},
		"Base does not say": {to: func(*testing.T) end {
			return over(func(*http.Request) (*http.Response, error) { return nil, lost })
		}},
		"Base says something else": {to: func(*testing.T) end {
			return over(func(*http.Request) (*http.Response, error) { return nil, &net.OpError{Op: "dial", Err: lost} })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, to := newShop(t), tt.to(t)
			err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
				err := to.ask(ctx)
				if oncecall.NotSent(err) != tt.proved {
					t.Errorf("proved %t: %v", !tt.proved, err)
				}
				return err
			})
			want := onlyonce.InDoubt
			if tt.proved {
				want = onlyonce.FailedRetryable
			}
			if err == nil || onlyonce.IsNotApplied(err) != tt.proved || errors.Is(err, onlyonce.ErrOutcomeUnknown) == tt.proved {
				t.Errorf("%v; proof of no effect: %t, want %t", err, !tt.proved, tt.proved)
			}
			s.wantState(t, "k", want)
		})
	}
}

// ask asks until it gives up.
func (e end) ask(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case <-e.giveUp:
		cancel() // at once
	default:
	}
	if e.giveUp != nil {
		waiting := make(chan struct{})
		defer func() { <-waiting }()
		defer cancel()
		go func() {
			defer close(waiting)
			select {
			case <-e.giveUp:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ask(ctx, e.client, http.MethodPost, e.url, pay())
}

// deadPipe is a connection whose other end is gone.
func deadPipe(context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	return near, far.Close()
}

// D3: client libraries try again by themselves, and then hand out the last error,
// or all of them. None of these may pass for proof when one try may have left.
func TestProofIsOfTheWholeSend(t *testing.T) {
	t.Parallel()
	last := func(errs []error) error { return errs[len(errs)-1] }
	first := func(errs []error) error { return errs[0] }
	joined := func(errs []error) error { return errors.Join(errs...) }
	for name, tt := range map[string]struct {
		connects []bool // for each try
		says     func([]error) error
		proved   bool
	}{
		"never connected, all":    {[]bool{false, false}, joined, true},
		"never connected, last":   {[]bool{false, false, false}, last, true},
		"left, then refused":      {[]bool{true, false}, last, false},
		"left, refused, all":      {[]bool{true, false}, joined, false},
		"refused, then left":      {[]bool{false, true}, last, false},
		"refused, left, all":      {[]bool{false, true}, joined, false},
		"refused, left, first":    {[]bool{false, true}, first, false},
		"refused, left, refused":  {[]bool{false, true, false}, last, false},
		"left twice, the last of": {[]bool{true, true}, last, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			try := 0
			c := dial(t, func(ctx context.Context) (net.Conn, error) {
				if tt.connects[try] {
					return deadPipe(ctx)
				}
				return nil, errors.New("refused")
			})
			err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
				var errs []error
				for try = range tt.connects {
					errs = append(errs, ask(ctx, c, "POST", "http://acme.invalid/charges", pay()))
				}
				return tt.says(errs)
			})
			if err == nil || onlyonce.IsNotApplied(err) != tt.proved {
				t.Errorf("%v; want proof: %t", err, tt.proved)
			}
		})
	}
}

// D3: what a request without an effect meets says nothing of the effect.
func TestOthersProveNothing(t *testing.T) {
	t.Parallel()
	for name, mark := range map[string]func(context.Context) context.Context{
		"POST": oncecall.WithoutKey,
		"GET":  func(ctx context.Context) context.Context { return ctx },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			c, _ := client(t)
			err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
				err := ask(mark(ctx), c, name, nowhere(t), nil)
				if !oncecall.NotSent(err) {
					t.Errorf("it was not sent, though: %v", err)
				}
				return err
			})
			wantCode(t, err, onlyonce.CodeOutcomeUnknown)
		})
	}
}

// NotSent outside of an operation, for clients that keep their own accounts.
func TestNotSentOutside(t *testing.T) {
	t.Parallel()
	c, _ := client(t)
	err := ask(t.Context(), c, "POST", nowhere(t), pay())
	if !oncecall.NotSent(err) || !onlyonce.IsNotApplied(err) || !strings.Contains(err.Error(), "not sent: dial") {
		t.Errorf("nowhere: %v", err)
	}
	err = ask(t.Context(), c, "POST", startWire(t, func(int) reaction { return hangUp }).url, pay())
	if oncecall.NotSent(err) || onlyonce.IsNotApplied(err) || err == nil {
		t.Errorf("hung up: %v", err)
	}
	for _, err := range []error{nil, io.EOF, onlyonce.NotAppliedError(io.EOF)} {
		if oncecall.NotSent(err) {
			t.Errorf("%v was not sent", err)
		}
	}
}

// url.Error asks its cause whether it is a timeout, and so do callers.
func TestTimeoutIsTold(t *testing.T) {
	t.Parallel()
	slow := dial(t, func(context.Context) (net.Conn, error) { return nil, &net.DNSError{IsTimeout: true} })
	for want, c := range map[bool]*http.Client{
		true:  slow,
		false: dial(t, func(context.Context) (net.Conn, error) { return nil, io.EOF }),
	} {
		err := ask(t.Context(), c, "POST", "http://acme.invalid", pay())
		if e, ok := errors.AsType[*url.Error](err); !ok || e.Timeout() != want || !oncecall.NotSent(err) {
			t.Errorf("%v: a timeout, want %t", err, want)
		}
	}
}

// A handshake that fails is before the connection is one.
func TestUntrustedServer(t *testing.T) {
	t.Parallel()
	base := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: nil, ServerName: "acme.invalid"}}
	t.Cleanup(base.CloseIdleConnections)
	server := tlsServer(t, false, func(http.ResponseWriter, *http.Request) { t.Error("the request arrived") })
	s := newShop(t)
	err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
		return ask(ctx, oncecall.NewClient(&oncecall.Transport{Base: base}), "POST", server.URL, pay())
	})
	if !onlyonce.IsNotApplied(err) {
		t.Errorf("%v", err)
	}
	s.wantState(t, "k", onlyonce.FailedRetryable)
}

// D3: two clients with transports of their own in one Effect.Send are one send: that
// the second was not connected proves nothing of the first.
func TestTwoTransportsOfOneSend(t *testing.T) {
	t.Parallel()
	w := startWire(t, func(int) reaction { return hangUp })
	one, _ := client(t)
	two, _ := client(t)
	s := newShop(t)
	err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
		if err := ask(ctx, one, "POST", w.url, pay()); err == nil || oncecall.NotSent(err) {
			t.Errorf("the first client: %v", err)
		}
		err := ask(ctx, two, "POST", w.url, pay())
		if err == nil || oncecall.NotSent(err) {
			t.Errorf("the second client: %v", err)
		}
		return ask(ctx, two, "POST", nowhere(t), pay())
	})
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	s.wantState(t, "k", onlyonce.InDoubt)
}
