package oncecall_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/oncecall"
)

// derivedKey is the key of the step "charge" under a caller's key.
func derivedKey(key string) string {
	return onlyonce.Derivation{Key: keyOf(key), Step: "charge", Provider: "acme"}.DerivedKey()
}

// D1, B108: a request that may have an effect bears the derived key in one header
// line, whatever the caller of the client library did; others bear none.
func TestDerivedKeyIsSent(t *testing.T) {
	t.Parallel()
	want := func(name string) map[string][]string { return map[string][]string{name: {derivedKey("k")}} }
	for name, tt := range map[string]struct {
		method string
		change func(*oncecall.Transport)
		set    http.Header // %s is the derived key
		want   map[string][]string
	}{
		"POST":                   {method: "POST", want: want("Idempotency-Key")},
		"PUT":                    {method: "PUT", want: want("Idempotency-Key")},
		"PATCH":                  {method: "PATCH", want: want("Idempotency-Key")},
		"DELETE":                 {method: "DELETE", want: want("Idempotency-Key")},
		"a method of their own":  {method: "CAPTURE", want: want("Idempotency-Key")},
		"GET":                    {method: "GET"},
		"HEAD":                   {method: "HEAD"},
		"OPTIONS":                {method: "OPTIONS"},
		"TRACE":                  {method: "TRACE"},
		"set to the same":        {method: "POST", set: http.Header{"Idempotency-Key": {"%s"}}, want: want("Idempotency-Key")},
		"set twice to the same":  {method: "POST", set: http.Header{"Idempotency-Key": {"%s", "%s"}}, want: want("Idempotency-Key")},
		"spelled otherwise":      {method: "POST", set: http.Header{"idempotency-key": {"%s"}}, want: want("Idempotency-Key")},
		"set on a GET":           {method: "GET", set: http.Header{"Idempotency-Key": {"mine"}}, want: map[string][]string{"Idempotency-Key": {"mine"}}},
		"another header":         {method: "POST", change: func(tr *oncecall.Transport) { tr.Header = "paypal-request-id" }, want: want("Paypal-Request-Id")},
		"a provider without any": {method: "POST", change: func(tr *oncecall.Transport) { tr.Keyless = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWire(t, nil)
			c, tr := client(t)
			if tt.change != nil {
				tt.change(tr)
			}
			err := newShop(t).send(t, "k", func(ctx context.Context, s onlyonce.Sending) error {
				header := http.Header{}
				for name, values := range tt.set {
					for _, v := range values {
						header[name] = append(header[name], strings.ReplaceAll(v, "%s", s.Key))
					}
				}
				return askWith(ctx, c, message{method: tt.method, url: w.url, header: header})
			})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][]string{}
			for _, req := range w.arrived() {
				for _, name := range []string{"Idempotency-Key", "Paypal-Request-Id"} {
					if values := req.Header[name]; values != nil {
						got[name] = values
					}
				}
			}
			w.want(t, 1)
			if tt.want == nil {
				tt.want = map[string][]string{}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("keys on the wire (-want +got):\n%s", diff)
			}
		})
	}
}

// D1: a key that a client library has made up is refused, before anything is sent,
// and so proves that nothing happened.
func TestOtherKeyIsRefused(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]http.Header{
		"another value":     {"Idempotency-Key": {"made-up"}},
		"empty":             {"Idempotency-Key": {""}},
		"a second line":     {"Idempotency-Key": {derivedKey("k"), "made-up"}},
		"spelled otherwise": {"Idempotency-Key": {derivedKey("k")}, "idempotency-KEY": {"made-up"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s := startWire(t, nil), newShop(t)
			c, _ := client(t)
			err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
				return askWith(ctx, c, message{method: "POST", url: w.url, header: header, body: pay()})
			})
			wantCode(t, err, oncecall.CodeOtherKey)
			s.wantState(t, "k", onlyonce.FailedRetryable)
			w.want(t, 0)
		})
	}
}

// A header that cannot be is found before it costs an outcome.
func TestHeaderNameIsChecked(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Idempotency Key", "Idempotency-Key:", "Schlüssel", "a\nb"} {
		s := newShop(t)
		c, tr := client(t)
		tr.Header = name
		err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error { return ask(ctx, c, "POST", nowhere(t), pay()) })
		wantCode(t, err, onlyonce.CodeConfig)
		s.wantState(t, "k", onlyonce.FailedRetryable)
	}
}

// B106: one derived key stands for one request; for another it is refused.
func TestOneSendIsOneRequest(t *testing.T) {
	t.Parallel()
	w, s := startWire(t, nil), newShop(t)
	c, _ := client(t)
	err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
		if err := ask(ctx, c, "POST", w.url+"/customers?a=1", pay()); err != nil {
			t.Errorf("first request: %v", err)
		}
		if err := ask(ctx, c, "POST", w.url+"/customers?a=1", pay()); err != nil {
			t.Errorf("the same again, under the same key: %v", err)
		}
		if err := ask(ctx, c, "PUT", w.url+"/customers?a=1", pay()); !oncecallIs(err, oncecall.CodeOtherKey) {
			t.Errorf("another method: %v", err)
		}
		if err := ask(ctx, c, "POST", w.url+"/customers?a=2", pay()); !oncecallIs(err, oncecall.CodeOtherKey) {
			t.Errorf("another query: %v", err)
		}
		return ask(ctx, c, "POST", w.url+"/charges", pay())
	})
	wantCode(t, err, onlyonce.CodeOutcomeUnknown) // the first may have done it
	wantCode(t, err, oncecall.CodeOtherKey)
	s.wantState(t, "k", onlyonce.InDoubt)
	w.want(t, 2)
}

func oncecallIs(err error, code onlyonce.Code) bool { return onlyonce.CodeOf(err) == code }

// Where the provider knows no keys, a second request is a second effect.
func TestKeylessSendsOneRequest(t *testing.T) {
	t.Parallel()
	w, s := startWire(t, func(n int) reaction { return hangUp }), newShop(t)
	c, tr := client(t)
	tr.Keyless = true
	err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
		if err := ask(ctx, c, "POST", nowhere(t), pay()); !oncecall.NotSent(err) {
			t.Errorf("to nowhere: %v", err)
		}
		first := ask(ctx, c, "POST", w.url, pay())
		second := ask(ctx, c, "POST", w.url, pay())
		if first == nil || oncecall.NotSent(first) || !oncecallIs(second, oncecall.CodeSentBefore) || oncecall.NotSent(second) {
			t.Errorf("first %v, second %v", first, second)
		}
		return second
	})
	wantCode(t, err, onlyonce.CodeOutcomeUnknown)
	w.want(t, 1)
}

// B108: a request that may have an effect is refused in a protected operation,
// unless it is made in Effect.Send or declared to have none.
func TestCallOutsideSendIsRefused(t *testing.T) {
	t.Parallel()
	w, s := startWire(t, nil), newShop(t)
	c, _ := client(t)
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			err := ask(ctx, c, method, w.url, pay())
			wantCode(t, err, oncecall.CodeWithoutKey)
			if !oncecall.NotSent(err) || !strings.Contains(err.Error(), "onlyonce.Call") {
				t.Errorf("the refusal does not say that nothing was sent, or what to do: %v", err)
			}
		}
		if err := ask(ctx, c, "GET", w.url+"/status", nil); err != nil {
			t.Errorf("GET: %v", err)
		}
		if err := ask(oncecall.WithoutKey(ctx), c, "POST", w.url+"/token", pay()); err != nil {
			t.Errorf("POST without a key: %v", err)
		}
		return onlyonce.Answer{Status: 200}, nil
	}
	if _, err := s.Wrap(t.Context(), charge(), request("wrap"), handler); err != nil {
		t.Error(err)
	}
	if _, err := s.Steps(t.Context(), charge(), request("steps"), handler); err != nil {
		t.Error(err)
	}
	for _, req := range w.arrived() {
		if req.Header.Get("Idempotency-Key") != "" {
			t.Errorf("%s %s bears a key", req.Method, req.URL)
		}
	}
	w.want(t, 4)
}

// A token that is fetched in Effect.Send gets no key, and the charge its own.
func TestTokenInsideSend(t *testing.T) {
	t.Parallel()
	w, s := startWire(t, nil), newShop(t)
	c, _ := client(t)
	err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error {
		if err := ask(oncecall.WithoutKey(ctx), c, "POST", w.url+"/token", pay()); err != nil {
			return err
		}
		return ask(ctx, c, "POST", w.url+"/charges", pay())
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, req := range w.arrived() {
		got = append(got, req.URL.Path+" "+req.Header.Get("Idempotency-Key"))
	}
	if diff := cmp.Diff([]string{"/token ", "/charges " + derivedKey("k")}, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// D2: no network call inside an open transaction, whatever its method and mark.
func TestCallInTransactionIsRefused(t *testing.T) {
	t.Parallel()
	w, s := startWire(t, nil), newShop(t)
	c, _ := client(t)
	inside := func(ctx context.Context, _ *memstore.Tx) (onlyonce.Answer, error) {
		for name, err := range map[string]error{
			"GET":         ask(ctx, c, "GET", w.url, nil),
			"POST":        ask(ctx, c, "POST", w.url, pay()),
			"without key": ask(oncecall.WithoutKey(ctx), c, "POST", w.url, pay()),
		} {
			if !oncecallIs(err, onlyonce.CodeInTx) || !oncecall.NotSent(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		return onlyonce.Answer{Status: 200}, nil
	}
	if _, err := s.Atomic(t.Context(), charge(), request("atomic"), inside); err != nil {
		t.Error(err)
	}
	_, err := s.Steps(t.Context(), charge(), request("steps"), func(ctx context.Context) (onlyonce.Answer, error) {
		return s.Finish(ctx, inside)
	})
	if err != nil {
		t.Error(err)
	}
	w.want(t, 0)
}

// Outside of an operation a request passes as it is.
func TestOutsideOfAnOperation(t *testing.T) {
	t.Parallel()
	w := startWire(t, nil)
	c, _ := client(t)
	for _, key := range []string{"", "mine"} {
		header := http.Header{}
		if key != "" {
			header.Set("Idempotency-Key", key)
		}
		if err := askWith(t.Context(), c, message{method: "POST", url: w.url, header: header, body: pay()}); err != nil {
			t.Fatal(err)
		}
		requests := w.arrived()
		req := requests[len(requests)-1]
		body, err := io.ReadAll(req.Body)
		if req.Header.Get("Idempotency-Key") != key || string(body) != `{"amount":100}` || req.ContentLength != int64(len(body)) || err != nil {
			t.Errorf("%v %q %d arrived, %v", req.Header, body, req.ContentLength, err)
		}
	}
}

// closeNoter is a body that notes that it was closed.
type closeNoter struct {
	io.Reader
	closed bool
}

func (c *closeNoter) Close() error { c.closed = true; return nil }

// The contract of http.RoundTripper: the request stays as it is and its body is
// closed, whether it was sent or refused.
func TestRequestIsNotChanged(t *testing.T) {
	t.Parallel()
	w, s := startWire(t, nil), newShop(t)
	_, tr := client(t)
	round := func(ctx context.Context) error {
		noter := &closeNoter{Reader: pay()}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, noter)
		if err != nil {
			return err
		}
		req.Header.Set("Accept", "text/plain")
		before, getBody := req.Clone(ctx), func() (io.ReadCloser, error) { return noter, nil }
		req.GetBody = getBody
		res, err := tr.RoundTrip(req)
		if err == nil {
			res.Body.Close()
		}
		if diff := cmp.Diff(before.Header, req.Header); diff != "" || req.Body != noter || req.GetBody == nil || req.Context() != ctx {
			t.Errorf("the request has changed: %s", diff)
		}
		if !noter.closed {
			t.Error("the body was not closed")
		}
		return err
	}
	if err := s.send(t, "k", func(ctx context.Context, _ onlyonce.Sending) error { return round(ctx) }); err != nil {
		t.Error(err)
	}
	_, err := s.Wrap(t.Context(), charge(), request("wrap"), func(ctx context.Context) (onlyonce.Answer, error) {
		wantCode(t, round(ctx), oncecall.CodeWithoutKey)
		return onlyonce.Answer{Status: 200}, nil
	})
	if err != nil {
		t.Error(err)
	}
	w.want(t, 1)
}

// The zero Transport works, has connections of its own and lets go of them, and a
// Transport serves many attempts at once.
func TestManySends(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	keys := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		keys[r.Header.Get("Idempotency-Key")]++
	}))
	t.Cleanup(server.Close)
	c := oncecall.NewClient(nil)
	s := newShop(t)
	var all sync.WaitGroup
	want := map[string]int{}
	for i := range 32 {
		key := fmt.Sprintf("k%d", i)
		want[derivedKey(key)] = 1
		all.Go(func() {
			err := s.send(t, key, func(ctx context.Context, _ onlyonce.Sending) error { return ask(ctx, c, "POST", server.URL, pay()) })
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	c.CloseIdleConnections()
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("requests by key (-want +got):\n%s", diff)
	}
}
