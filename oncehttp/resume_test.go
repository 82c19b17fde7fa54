package oncehttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// payment is all that a Decode may read of a request.
type payment struct {
	Method, Path, Query, Order, File, Version, Channel, Type string
	charge
}

type userKey struct{}

func user(ctx context.Context) string {
	name, _ := ctx.Value(userKey{}).(string)
	return name
}

func decodePayment(r *http.Request, body []byte) (payment, error) {
	p := payment{
		Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery,
		Order: r.PathValue("order"), File: r.PathValue("file"),
		Version: r.Header.Get("Api-Version"), Channel: r.Header.Get("X-Channel"), Type: r.Header.Get("Content-Type"),
	}
	if r.Pattern != "" {
		p.Method += " on " + r.Pattern
	}
	c, err := decodeCharge(r, body)
	p.charge = c
	return p, err
}

// recoverable is a route that keeps its requests. Its first run fails behind its
// charge; later ones answer with all that they were given.
func (s *service) recoverable() oncehttp.StepsRoute[payment] {
	return oncehttp.StepsRoute[payment]{
		Route:          oncehttp.Route{Op: onlyonce.Op{Name: "pay order"}, Policy: canon.Policy{Headers: []string{"API-Version"}}},
		Recoverable:    true,
		RequestHeaders: []string{"x-channel"},
		Decode:         decodePayment,
		Handle: func(ctx context.Context, in payment) (onlyonce.Answer, error) {
			run := s.runs.Add(1)
			id, err := onlyonce.Call(ctx, onlyonce.Effect{
				Name: "charge", Provider: "bank", Request: fmt.Append(nil, in.charge),
				Send: func(context.Context, onlyonce.Sending) ([]byte, error) { return fmt.Append(nil, "ch_", run), nil },
			})
			if err != nil || run == 1 {
				return onlyonce.Answer{}, errors.Join(err, errors.New("the process is going down"))
			}
			a := oncehttp.JSON(http.StatusCreated, map[string]any{"in": in, "for": user(ctx), "id": string(id)})
			a.Header["Location"] = []string{"/charges/" + string(id)}
			a.Header["Set-Cookie"] = []string{"sid=A"}
			return a, nil
		},
	}
}

const payPattern = "POST /orders/{order}/pay/{file...}"

// mount puts a recoverable route under guard.
func (s *service) mount(pattern string, route oncehttp.StepsRoute[payment]) http.Handler {
	s.t.Helper()
	h, err := oncehttp.Steps(s.guard, route)
	if err != nil {
		s.t.Fatal(err)
	}
	if pattern != "" {
		s.mux.Handle(pattern, h)
	}
	return h
}

// recover lets a recoverer look, when the callers have had their time.
func (s *service) recover(resume map[string]onlyonce.ResumeFunc) (onlyonce.RecoverySum, []onlyonce.Recovery) {
	s.t.Helper()
	s.ahead.Add(int64(time.Hour))
	var turns []onlyonce.Recovery
	r := onlyonce.Recoverer{
		Engine: s.engine.Engine, Resume: resume, Workers: 1,
		Recovered: func(_ context.Context, turn onlyonce.Recovery) { turns = append(turns, turn) },
	}
	sum, err := r.Once(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return sum, turns
}

// keptOf is what the store keeps of a request.
func (s *service) keptOf(value string) (string, bool) {
	s.t.Helper()
	kept, found, err := s.store.Kept(s.t.Context(), onlyonce.Key{Scope: "acme", Value: value})
	if err != nil {
		s.t.Fatal(err)
	}
	return string(kept), found
}

// signedIn is a middleware that knows who asks, and an option that keeps it.
func signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _ := account(r)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, "user 7 of "+name)))
	})
}

func keepUser() oncehttp.Option {
	return oncehttp.KeepPrincipal(
		func(r *http.Request) ([]byte, error) { return []byte(user(r.Context())), nil },
		func(ctx context.Context, saved []byte) (context.Context, error) {
			return context.WithValue(ctx, userKey{}, string(saved)), nil
		},
	)
}

func zipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

// D6, X1: an operation whose caller has gone is run again as its caller's retry
// would run it: the same input, principal and fingerprint. The retry that comes
// after all gets its answer.
func TestResumedWithoutItsCaller(t *testing.T) {
	t.Parallel()
	const odd = "/orders/a%2Fb/pay/x/y%20z?currency=EUR&note=%C3%A4&empty="
	for name, a := range map[string]ask{
		"plain":      {path: "/orders/1/pay/"},
		"odd path":   {path: odd},
		"compressed": {path: odd, body: zipped(pay(100)), header: http.Header{"Content-Encoding": {"gzip"}}},
		"headers":    {path: odd, header: http.Header{"Api-Version": {"2026-05-01"}, "X-Channel": {"till"}}},
		"by PATCH":   {path: "/orders/1/pay/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, keepUser())
			s.outer = signedIn
			pattern := payPattern
			if name == "by PATCH" {
				pattern, a.method, a.body = "PATCH /orders/{order}/pay/{file...}", http.MethodPatch, pay(5)
			}
			s.mount(pattern, s.recoverable())
			a.keys, a.as = key("k1"), "acme/s3cret"
			s.do(a).problem(t, 500, "handler_failed")

			sum, turns := s.recover(s.guard.Resumers())
			if sum.Completed != 1 {
				t.Fatalf("recovered: %+v, %+v", sum, turns)
			}
			answer := turns[0].Result.Answer
			got := s.do(a).expect(t, 201, "replayed")
			if got.body != string(answer.Body) || got.header.Get("Location") != "/charges/ch_1" || got.header.Get("Set-Cookie") != "" {
				t.Errorf("the retry got %v %s\nstored: %s", got.header, got.body, answer.Body)
			}
			s.ran(2)
			direct := s.do(ask{method: a.method, path: a.path, body: a.body, header: a.header, as: a.as, keys: key("k2")})
			if diff := cmp.Diff(inputOf(t, direct.body), inputOf(t, got.body)); diff != "" {
				t.Errorf("the resumed handler was given something else (-direct +resumed):\n%s", diff)
			}
			a.body = pay(200)
			delete(a.header, "Content-Encoding")
			s.do(a).problem(t, 422, "idempotency_key_reused") // F6
		})
	}
}

// inputOf is what a handler says that it was given.
func inputOf(t *testing.T, body string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if m["for"] != "user 7 of acme" {
		t.Errorf("it ran for %q", m["for"])
	}
	delete(m, "id")
	return m
}

// D6: what is kept has no credential in it: only what the operation has named.
func TestKeptRequest(t *testing.T) {
	t.Parallel()
	s := newService(t, keepUser())
	s.outer = signedIn
	s.mount(payPattern, s.recoverable())
	s.do(ask{keys: key("k1"), as: "acme/s3cret", path: "/orders/1/pay/x?a=b", header: http.Header{
		"Cookie": {"sid=s3cret"}, "X-Api-Key": {"s3cret"}, "Proxy-Authorization": {"Basic s3cret"}, "X-Channel": {"till"}, "Api-Version": {"1"},
	}})
	kept, found := s.keptOf("k1")
	if !found || strings.Contains(kept, "s3cret") {
		t.Errorf("kept: %v %s", found, kept)
	}
	var form map[string]any
	if err := json.Unmarshal([]byte(kept), &form); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"version": 1.0, "method": "POST", "url": "/orders/1/pay/x?a=b", "pattern": payPattern,
		"values": map[string]any{"order": "1", "file": "x"},
		"header": map[string]any{"Content-Type": []any{"application/json"}, "Api-Version": []any{"1"}, "X-Channel": []any{"till"}},
		"body":   "eyJhbW91bnQiOjEwMCwiY3VycmVuY3kiOiJFVVIifQ==", "principal": "dXNlciA3IG9mIGFjbWU=",
	}
	if diff := cmp.Diff(want, form); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	s.do(ask{keys: key("k1"), as: "acme/s3cret", path: "/orders/1/pay/x?a=b", header: http.Header{"Api-Version": {"1"}}}).expect(t, 201, "executed")
	if _, found := s.keptOf("k1"); found {
		t.Error("the request of a completed key is still kept")
	}

	plain := newService(t)
	route := plain.recoverable()
	route.Recoverable = false
	plain.mount(payPattern, route)
	plain.do(ask{keys: key("k1"), path: "/orders/1/pay/x"})
	if _, found := plain.keptOf("k1"); found || len(plain.guard.Resumers()) != 0 {
		t.Error("a route that is not recoverable keeps its requests")
	}
}

// D6: what an older deploy has kept can be read for ever: this very text. What no
// deploy of ours has kept is said to be unreadable, and nothing runs.
func TestKeptFormIsForGood(t *testing.T) {
	t.Parallel()
	s := newService(t, keepUser())
	s.outer = signedIn
	s.mount(payPattern, s.recoverable())
	s.runs.Add(1) // the first run fails
	resume := s.guard.Resumers()["pay order"]
	due := func(value, kept string) onlyonce.Due {
		return onlyonce.Due{Record: onlyonce.Record{Key: onlyonce.Key{Scope: "acme", Value: value}, Operation: "pay order"}, Keep: []byte(kept)}
	}
	const first = `{"version":1,"method":"POST","url":"/orders/1/pay/x?a=b","pattern":"POST /orders/{order}/pay/{file...}",` +
		`"values":{"file":"x","order":"1"},"header":{"Content-Type":["application/json"]},` +
		`"body":"eyJhbW91bnQiOjEwMCwiY3VycmVuY3kiOiJFVVIifQ==","principal":"dXNlciA3IG9mIGFjbWU=","added_later":true}`
	res, err := resume(t.Context(), due("old", first))
	if err != nil || res.State != onlyonce.Completed {
		t.Fatalf("resumed: %+v, %v", res, err)
	}
	got := s.do(ask{keys: key("old"), path: "/orders/1/pay/x?a=b"}).expect(t, 201, "replayed")
	inputOf(t, got.body)

	for kept, says := range map[string]string{
		strings.Replace(first, `"version":1`, `"version":2`, 1): "version 2 is not known",
		strings.Replace(first, `"version":1,`, ``, 1):           "version 0 is not known",
		"not JSON": "invalid character",
		"":         "end of JSON",
		strings.Replace(first, `"POST"`, `"PO ST"`, 1):                     "invalid method",
		strings.Replace(first, `"/orders/1/pay/x?a=b"`, `"orders/%zz"`, 1): "invalid",
	} {
		_, err := resume(t.Context(), due("new", kept))
		e, ok := errors.AsType[*onlyonce.Error](err)
		if !ok || e.Code != onlyonce.CodeConfig || !strings.Contains(e.Error(), says) || !strings.Contains(e.Hint, "settled by hand") || e.Operation == "" {
			t.Errorf("%s\n%v, want %q", kept, err, says)
		}
	}
	if _, found, _ := s.store.Get(t.Context(), onlyonce.Key{Scope: "acme", Value: "new"}); found {
		t.Error("what cannot be read has claimed a key")
	}
}

// D6: outside of a ServeMux a path may begin with two slashes, and has no pattern:
// it is the same path when it is resumed.
func TestResumedPathIsNoHost(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.mount("", s.recoverable())
	s.outer = func(http.Handler) http.Handler { return h }
	a := ask{keys: key("k1"), path: "//orders/1?"}
	s.do(a).problem(t, 500, "handler_failed")
	if sum, turns := s.recover(s.guard.Resumers()); sum.Completed != 1 {
		t.Fatalf("recovered: %+v", turns)
	}
	got := s.do(a).expect(t, 201, "replayed")
	if !strings.Contains(got.body, `"Path":"//orders/1"`) {
		t.Errorf("it was given %s", got.body)
	}
}

// F7, D6: a newer deploy, with another policy, resumes what an older one has kept.
// What it would refuse by now is told, and stays for a person.
func TestResumedByANewerDeploy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*oncehttp.StepsRoute[payment])
		code   onlyonce.Code // empty: it is resumed
	}{
		"another policy": {func(r *oncehttp.StepsRoute[payment]) { r.Policy = canon.Policy{Ignore: []string{"/note"}} }, ""},
		"a lower limit":  {func(r *oncehttp.StepsRoute[payment]) { r.MaxBody = 3 }, onlyonce.CodeBodyTooLarge},
		"stricter syntax": {func(r *oncehttp.StepsRoute[payment]) {
			r.CheckSyntax = func(*http.Request, []byte) error { return errors.New("no more of these") }
		}, onlyonce.CodeInvalidRequest},
		"another decoding": {func(r *oncehttp.StepsRoute[payment]) {
			r.Decode = func(*http.Request, []byte) (payment, error) { return payment{}, errors.New("not a payment") }
		}, onlyonce.CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			s.mount(payPattern, s.recoverable())
			a := ask{keys: key("k1"), path: "/orders/1/pay/x"}
			s.do(a).problem(t, 500, "handler_failed")
			newer, err := oncehttp.New(s.engine.Engine, account)
			if err != nil {
				t.Fatal(err)
			}
			route := s.recoverable()
			c.change(&route)
			if _, err := oncehttp.Steps(newer, route); err != nil {
				t.Fatal(err)
			}
			sum, turns := s.recover(newer.Resumers())
			if len(turns) != 1 || onlyonce.CodeOf(turns[0].Err) != c.code {
				t.Fatalf("turns: %+v", turns)
			}
			if c.code == "" {
				s.do(a).expect(t, 201, "replayed")
				return
			}
			if kept, found := s.keptOf("k1"); sum.Pending != 1 || !found || kept == "" {
				t.Errorf("%+v, kept %v", sum, found)
			}
			s.ran(1)
		})
	}
}

// D6: a principal that cannot be kept refuses the request before its key is used;
// one that cannot be restored runs nothing.
func TestPrincipalThatCannotBeKept(t *testing.T) {
	t.Parallel()
	var saveErr, restoreErr error
	s := newService(t, oncehttp.KeepPrincipal(
		func(*http.Request) ([]byte, error) { return []byte("user 7"), saveErr },
		func(ctx context.Context, _ []byte) (context.Context, error) { return ctx, restoreErr },
	))
	s.mount(payPattern, s.recoverable())
	a := ask{keys: key("k1"), path: "/orders/1/pay/x"}
	saveErr = errors.New("no session")
	s.do(a).problem(t, 401, "unauthenticated")
	if _, found, _ := s.store.Get(t.Context(), onlyonce.Key{Scope: "acme", Value: "k1"}); found {
		t.Error("the key was used")
	}
	saveErr = nil
	s.do(a).problem(t, 500, "handler_failed")
	restoreErr = errors.New("user 7 is locked")
	sum, turns := s.recover(s.guard.Resumers())
	if sum.Pending != 1 || onlyonce.CodeOf(turns[0].Err) != onlyonce.CodeConfig || !errors.Is(turns[0].Err, restoreErr) {
		t.Errorf("turns: %+v", turns)
	}
	s.ran(1)
	restoreErr = nil
	if sum, turns := s.recover(s.guard.Resumers()); sum.Completed != 1 {
		t.Errorf("turns: %+v", turns)
	}
}

// X1: a route that panics on a kept request costs that request its turn.
func TestResumedDecodePanics(t *testing.T) {
	t.Parallel()
	s := newService(t)
	route, decode := s.recoverable(), decodePayment
	poisoned := false
	route.Decode = func(r *http.Request, body []byte) (payment, error) {
		if poisoned {
			panic("index out of range")
		}
		return decode(r, body)
	}
	s.mount(payPattern, route)
	s.do(ask{keys: key("k1"), path: "/orders/1/pay/x"}).problem(t, 500, "handler_failed")
	poisoned = true
	_, turns := s.recover(s.guard.Resumers())
	if _, panicked := errors.AsType[*onlyonce.PanicError](turns[0].Err); !panicked {
		t.Errorf("turns: %+v", turns)
	}
	poisoned = false
	if sum, turns := s.recover(s.guard.Resumers()); sum.Completed != 1 {
		t.Errorf("turns: %+v", turns)
	}
}

// What makes a route that cannot be resumed, or would keep a credential, is found
// at start.
func TestRecoverableConfiguration(t *testing.T) {
	t.Parallel()
	for field, try := range map[string]func(s *service) error{
		"Route.Op.Name must": func(s *service) error {
			r := s.recoverable()
			r.Op.Name = ""
			_, err := oncehttp.Steps(s.guard, r)
			return err
		},
		"name of another": func(s *service) error {
			s.mount(payPattern, s.recoverable())
			_, err := oncehttp.Steps(s.guard, s.recoverable())
			return err
		},
		"Authorization looks like a credential": func(s *service) error {
			r := s.recoverable()
			r.RequestHeaders = []string{"authorization"}
			_, err := oncehttp.Steps(s.guard, r)
			return err
		},
		"Cookie looks like a credential": func(s *service) error {
			r := s.recoverable()
			r.RequestHeaders = []string{"X-Channel", "cookie"}
			_, err := oncehttp.Steps(s.guard, r)
			return err
		},
		"KeepPrincipal": func(s *service) error {
			_, err := oncehttp.New(s.engine.Engine, account, oncehttp.KeepPrincipal(nil, nil))
			return err
		},
		"keeps no requests": func(s *service) error {
			_, err := oncehttp.Steps(s.lesser(func(f *onlyonce.Features) { f.Recovery = false }), s.recoverable())
			return err
		},
		"guards no resources": func(s *service) error {
			r := s.recoverable()
			r.Resource = func(payment) string { return "x" }
			_, err := oncehttp.Steps(s.lesser(func(f *onlyonce.Features) { f.Resources = false }), r)
			return err
		},
	} {
		s := newService(t)
		if err := try(s); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// lesser is a guard on a store that promises less.
func (s *service) lesser(change func(*onlyonce.Features)) *oncehttp.Guard {
	s.t.Helper()
	f := s.store.Features()
	change(&f)
	engine, err := onlyonce.New(lesserStore{s.store.Store, f}, onlyonce.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	g, err := oncehttp.New(engine, account)
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

type lesserStore struct {
	*memstore.Store
	features onlyonce.Features
}

func (s lesserStore) Features() onlyonce.Features { return s.features }
