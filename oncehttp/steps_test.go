package oncehttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// charge is the input of the typed handlers.
type charge struct {
	Amount   int    `json:"amount"`
	Currency string `json:"currency"`
}

func decodeCharge(_ *http.Request, body []byte) (charge, error) {
	var c charge
	if err := json.Unmarshal(body, &c); err != nil {
		return charge{}, fmt.Errorf("decode charge: %w", err)
	}
	if c.Amount < 0 {
		return charge{}, &oncehttp.Problem{Status: 400, Code: "amount_negative"}
	}
	return c, nil
}

func (s *service) steps(pattern string, handle func(ctx context.Context, in charge) (onlyonce.Answer, error)) {
	s.t.Helper()
	h, err := oncehttp.Steps(s.guard, oncehttp.StepsRoute[charge]{
		Decode: decodeCharge,
		Handle: func(ctx context.Context, in charge) (onlyonce.Answer, error) {
			s.runs.Add(1)
			return handle(ctx, in)
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.mux.Handle(pattern, h)
}

func (s *service) atomic(pattern string, handle func(ctx context.Context, tx *memstore.Tx, in charge) (onlyonce.Answer, error)) {
	s.t.Helper()
	h, err := oncehttp.Atomic(s.guard, s.engine, oncehttp.AtomicRoute[*memstore.Tx, charge]{
		Decode: decodeCharge,
		Handle: func(ctx context.Context, tx *memstore.Tx, in charge) (onlyonce.Answer, error) {
			s.runs.Add(1)
			return handle(ctx, tx, in)
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.mux.Handle(pattern, h)
}

// O4, D1: a retry resumes behind the finished step.
func TestSteps(t *testing.T) {
	t.Parallel()
	s := newService(t)
	sent := map[string]int{}
	s.steps("POST /charges", func(ctx context.Context, in charge) (onlyonce.Answer, error) {
		id, err := onlyonce.Call(ctx, onlyonce.Effect{
			Name: "charge", Provider: "bank", Request: fmt.Append(nil, in),
			Send: func(_ context.Context, send onlyonce.Sending) ([]byte, error) {
				sent[send.Key]++
				return []byte("ch_1"), nil
			},
		})
		if err != nil {
			return onlyonce.Answer{}, err
		}
		if s.runs.Load() == 1 {
			return onlyonce.Answer{}, errors.New("the receipt printer is on fire")
		}
		a := oncehttp.JSON(http.StatusCreated, map[string]string{"id": string(id)})
		a.Header["Location"] = []string{"/charges/ch_1"}
		a.Header["set-cookie"] = []string{"sid=A"}
		return a, nil
	})
	got := s.do(ask{keys: key("k1")}).expect(t, 500, "executed")
	got.problem(t, 500, "handler_failed")
	if got.header.Get("X-Should-Retry") != "true" || strings.Contains(got.body, "fire") {
		t.Errorf("%v %s", got.header, got.body)
	}
	first := s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	again := s.do(ask{keys: key("k1")})
	again.replayOf(t, first)
	if first.header.Get("Set-Cookie") != "sid=A" || again.header.Get("Set-Cookie") != "" {
		t.Errorf("Set-Cookie: first %q, replay %q", first.header.Get("Set-Cookie"), again.header.Get("Set-Cookie")) // O8, B59
	}
	if len(sent) != 1 || s.runs.Load() != 2 {
		t.Errorf("sent %v in %d runs", sent, s.runs.Load())
	}
	for _, n := range sent {
		if n != 1 {
			t.Errorf("sent %v", sent)
		}
	}
}

// An answer that Finish has committed is the answer, and is replayed as it was
// sent.
func TestStepsFinish(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.steps("POST /charges", func(ctx context.Context, in charge) (onlyonce.Answer, error) {
		return s.engine.Finish(ctx, func(context.Context, *memstore.Tx) (onlyonce.Answer, error) {
			if in.Amount == 1 {
				return onlyonce.Answer{Status: 201, Body: []byte("<html>")}, nil // no content type
			}
			return oncehttp.JSON(201, in), nil
		})
	})
	for _, amount := range []int{100, 1} {
		a := ask{keys: key(fmt.Sprint("k", amount)), body: pay(amount)}
		first := s.do(a).expect(t, 201, "executed")
		s.do(a).replayOf(t, first)
	}
	s.ran(2)
}

// O2, O4, B53: an outcome that nobody knows is not run again.
func TestStepsUnknown(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.steps("POST /charges", func(ctx context.Context, _ charge) (onlyonce.Answer, error) {
		_, err := onlyonce.Call(ctx, onlyonce.Effect{
			Name: "charge", Provider: "bank",
			Send: func(context.Context, onlyonce.Sending) ([]byte, error) { return nil, errors.New("timeout") },
		})
		return onlyonce.Answer{}, err
	})
	for _, how := range []string{"executed", "executed", "executed"} {
		got := s.do(ask{keys: key("k1")})
		m := got.problem(t, 409, "outcome_unknown")
		if m["retry_with"] != "same_key" || got.header.Get("Retry-After") == "" {
			t.Errorf("%s: %v %s", how, got.header, got.body)
		}
	}
}

// O10: a status without a body has none, in the store too; and a Problem that is
// returned as an error is a failure like any other, not an answer.
func TestReturnedAnswers(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.steps("POST /charges", func(_ context.Context, in charge) (onlyonce.Answer, error) {
		if in.Amount == 1 {
			return onlyonce.Answer{}, &oncehttp.Problem{Status: 402, Code: "declined"}
		}
		return onlyonce.Answer{Status: 204, Body: []byte("no place for it")}, nil
	})
	first := s.do(ask{keys: key("k1")}).expect(t, 204, "executed")
	s.do(ask{keys: key("k1")}).replayOf(t, first)
	if a := s.record("acme", "k1").Answer; len(a.Body) > 0 || len(a.Header) > 0 {
		t.Errorf("stored: %+v", a)
	}
	s.do(ask{keys: key("k2"), body: pay(1)}).expect(t, 500, "executed").problem(t, 500, "handler_failed")
}

// O1: what cannot be decoded does not use the key; a used key answers.
func TestDecode(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.steps("POST /charges", func(context.Context, charge) (onlyonce.Answer, error) { return oncehttp.JSON(201, nil), nil })
	s.do(ask{keys: key("k1"), body: `{`}).problem(t, 400, "invalid_request")
	s.do(ask{keys: key("k1"), body: pay(-1)}).problem(t, 400, "amount_negative")
	s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	s.do(ask{keys: key("k1"), body: `{`}).problem(t, 422, "idempotency_key_reused")
	s.do(ask{}).problem(t, 400, "idempotency_key_required")
	s.ran(1)
}

// O2, O3, B47: one transaction for the key, the write and the answer.
func TestAtomic(t *testing.T) {
	t.Parallel()
	s := newService(t)
	balance := 0
	s.atomic("POST /charges", func(_ context.Context, tx *memstore.Tx, in charge) (onlyonce.Answer, error) {
		tx.OnCommit(func() { balance += in.Amount })
		switch in.Amount {
		case 402:
			p := &oncehttp.Problem{Status: 402, Code: "card_declined", RetryWith: oncehttp.NewKey}
			return p.Answer(), nil
		case 500:
			return onlyonce.Answer{}, errors.New("constraint violated")
		case 503:
			return onlyonce.Answer{Status: 503}, nil
		case 7:
			return onlyonce.Answer{}, nil
		}
		return oncehttp.JSON(201, map[string]int{"amount": in.Amount}), nil
	})
	first := s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	s.do(ask{keys: key("k1")}).replayOf(t, first)
	s.do(ask{keys: key("k1"), body: pay(1)}).problem(t, 422, "idempotency_key_reused")
	if balance != 100 {
		t.Errorf("balance is %d", balance)
	}
	first = s.do(ask{keys: key("k2"), body: pay(402)}).expect(t, 402, "executed")
	again := s.do(ask{keys: key("k2"), body: pay(402)})
	again.replayOf(t, first)
	again.problem(t, 402, "card_declined")
	before := balance
	for _, tt := range []struct {
		amount, status int
		code           string
	}{{500, 500, "handler_failed"}, {7, 500, "handler_failed"}} {
		for range 2 {
			s.do(ask{keys: key(fmt.Sprint("k", tt.amount)), body: pay(tt.amount)}).expect(t, tt.status, "executed").problem(t, tt.status, tt.code)
		}
	}
	s.do(ask{keys: key("k503"), body: pay(503)}).expect(t, 503, "executed")
	s.do(ask{keys: key("k503"), body: pay(5)}).problem(t, 422, "idempotency_key_reused") // F6
	if balance != before {
		t.Errorf("a rolled back transaction left %d, want %d", balance, before)
	}
}

// C2: a duplicate of an open transaction is told so at once.
func TestAtomicBusy(t *testing.T) {
	t.Parallel()
	s := newService(t)
	entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.atomic("POST /charges", func(context.Context, *memstore.Tx, charge) (onlyonce.Answer, error) {
		close(entered)
		<-leave
		return oncehttp.JSON(201, nil), nil
	})
	s.start(false)
	go func() {
		defer close(done)
		s.do(ask{keys: key("k1")}).expect(t, 201, "executed")
	}()
	<-entered
	got := s.do(ask{keys: key("k1")})
	got.problem(t, 409, "request_in_progress")
	if got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	close(leave)
	<-done
	s.do(ask{keys: key("k1")}).expect(t, 201, "replayed")
	s.ran(1)
}

// K5: a typed handler has nothing to run without a key.
func TestTypedMethods(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.steps("/charges", func(context.Context, charge) (onlyonce.Answer, error) { return oncehttp.JSON(200, nil), nil })
	got := s.do(ask{method: "GET"})
	got.problem(t, 405, "method_not_allowed")
	if got.header.Get("Allow") != "POST, PATCH" {
		t.Errorf("Allow is %q", got.header.Get("Allow"))
	}
	s.do(ask{method: "PATCH", keys: key("k1")}).expect(t, 400, "refused")
}

// Faults of configuration are found at start, each named.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := http.HandlerFunc(created)
	ok := func(context.Context, charge) (onlyonce.Answer, error) { return onlyonce.Answer{}, nil }
	okTx := func(context.Context, *memstore.Tx, charge) (onlyonce.Answer, error) { return onlyonce.Answer{}, nil }
	other := newService(t)
	wrap := func(r oncehttp.Route) func() error {
		return func() error { _, err := s.guard.Wrap(r, h); return err }
	}
	steps := func(r oncehttp.StepsRoute[charge]) func() error {
		return func() error { _, err := oncehttp.Steps(s.guard, r); return err }
	}
	guard := func(o oncehttp.Option) func() error {
		return func() error { _, err := oncehttp.New(s.engine.Engine, account, o); return err }
	}
	for field, try := range map[string]func() error{
		"next":              func() error { _, err := s.guard.Wrap(oncehttp.Route{}, nil); return err },
		"Op.Lease":          wrap(oncehttp.Route{Op: onlyonce.Op{Lease: -1}}),
		"Route.Op.Policy":   wrap(oncehttp.Route{Op: onlyonce.Op{Policy: []byte("{}")}}),
		"Route.Key":         wrap(oncehttp.Route{Key: 9}),
		"Route.Methods":     wrap(oncehttp.Route{Methods: []string{"GET"}}),
		"honours no keys":   wrap(oncehttp.Route{Methods: []string{"post"}}),
		"Route.KeyPointer":  wrap(oncehttp.Route{KeyPointer: "id"}),
		"Route.MaxBody":     wrap(oncehttp.Route{MaxBody: -1}),
		"Route.MaxSpool":    wrap(oncehttp.Route{MaxSpool: 1, MaxAnswer: 2}),
		"Route.KeepHeaders": wrap(oncehttp.Route{KeepHeaders: []string{"Set-Cookie"}}),
		"Decode":            steps(oncehttp.StepsRoute[charge]{Handle: ok}),
		"Handle":            steps(oncehttp.StepsRoute[charge]{Decode: decodeCharge}),
		"Route.Key must":    steps(oncehttp.StepsRoute[charge]{Route: oncehttp.Route{Key: oncehttp.Optional}, Decode: decodeCharge, Handle: ok}),
		"DocsURL":           guard(oncehttp.DocsURL("docs?x")),
		"KeyHeaders":        guard(oncehttp.KeyHeaders("a b")),
		"StoreRetryAfter":   guard(oncehttp.StoreRetryAfter(time.Millisecond)),
		"MaxBody":           guard(oncehttp.MaxBody(0)),
		"Logger":            guard(oncehttp.Logger(nil)),
		"engine": func() error {
			_, err := oncehttp.Atomic(s.guard, other.engine, oncehttp.AtomicRoute[*memstore.Tx, charge]{Decode: decodeCharge, Handle: okTx})
			return err
		},
		"Op.Deadline": func() error {
			_, err := oncehttp.Atomic(s.guard, s.engine, oncehttp.AtomicRoute[*memstore.Tx, charge]{
				Route: oncehttp.Route{Op: onlyonce.Op{Deadline: time.Minute}}, Decode: decodeCharge, Handle: okTx,
			})
			return err
		},
	} {
		err := try()
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// O8: what Finish commits is only what may be stored; the first caller gets the
// rest too.
func TestFinishStoresOnlyWhatMayBeStored(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.steps("POST /charges", func(ctx context.Context, in charge) (onlyonce.Answer, error) {
		return s.engine.Finish(ctx, func(context.Context, *memstore.Tx) (onlyonce.Answer, error) {
			a := oncehttp.JSON(201, in)
			a.Header["Set-Cookie"] = []string{"sid=A"}
			return a, nil
		})
	})
	first := s.do(ask{keys: key("k")}).expect(t, 201, "executed")
	if first.header.Get("Set-Cookie") != "sid=A" {
		t.Error("the first caller lost a header")
	}
	if h := s.record("acme", "k").Answer.Header; len(h["Set-Cookie"]) > 0 || len(h["Content-Type"]) != 1 {
		t.Errorf("stored headers: %v", h)
	}
	s.do(ask{keys: key("k")}).replayOf(t, first)
}
