package oncecall

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// DefaultHeader carries the derived key where [Transport.Header] is empty.
const DefaultHeader = "Idempotency-Key"

// Transport is an http.RoundTripper for calls of one provider; see the package's
// documentation for what it does. The zero value is ready. It is safe for
// concurrent use and must not be copied or changed after its first.
//
// Its refusals are *onlyonce.Error. A process that dies during a round trip leaves
// the effect unknown, and the intent that onlyonce.Call has recorded.
type Transport struct {
	// Base makes the round trips. It must be net/http's, or honour
	// net/http/httptrace and read a body only to send it: of another, nothing is ever proved to be not sent, and a
	// send deadline that passes on the way is noticed by reading the body alone.
	// Nil: a transport of its own with the settings of net/http's default one.
	Base http.RoundTripper
	// Header carries the derived key. Empty: [DefaultHeader].
	Header string
	// Keyless says that the provider honours no keys: then none is set, and a
	// second request of an Effect.Send is refused when the first may have left.
	// All other rules hold.
	Keyless bool

	mu  sync.Mutex
	own *http.Transport
	now func() time.Time // nil: the process's clock
}

// NewClient makes a client that follows no redirect, since 307 and 308 would send
// the request once more, to somebody else: a redirect is an answer like others.
// It has no timeout besides that of a request's context. Nil: a new Transport.
func NewClient(t *Transport) *http.Client {
	if t == nil {
		t = &Transport{}
	}
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type withoutKey struct{}

// WithoutKey is a context for requests that have no effect though their method may
// have one: fetching a token, or a search by POST in Effect.Check. They need no
// onlyonce.Call, get no key and prove nothing of an Effect.Send that they are made
// in. They are still refused while a transaction is open.
func WithoutKey(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutKey{}, true)
}

// RoundTrip makes one request, or refuses it. It follows http.RoundTripper: the
// request is not changed and its body always closed.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	c := t.callOf(req)
	if err := c.admit(); err != nil {
		if req.Body != nil {
			// It is the refusal that counts.
			_ = req.Body.Close()
		}
		return nil, c.unsent(err)
	}
	out, guard := c.prepare()
	res, err := t.base().RoundTrip(out)
	switch {
	case err == nil:
		return res, nil
	case guard.Unconnected():
		if c.send != nil {
			c.send.unsent()
		}
		return nil, c.unsent(err)
	default:
		return nil, guard.Explain(err)
	}
}

// CloseIdleConnections closes the connections of Base that are not in use.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// base is what makes the round trips.
func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.own == nil {
		// Something else may have been put in place of net/http's own, even a
		// Transport of this package.
		standard, ok := http.DefaultTransport.(*http.Transport)
		if !ok {
			standard = &http.Transport{Proxy: http.ProxyFromEnvironment}
		}
		t.own = standard.Clone()
	}
	return t.own
}
