package oncehttp_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// guarded puts a route under guard whose operations work on an order.
func (s *service) guarded(handle func(ctx context.Context, in payment) (onlyonce.Answer, error)) {
	s.t.Helper()
	s.mount("POST /orders/{order}/pay", oncehttp.StepsRoute[payment]{
		Decode:   decodePayment,
		Resource: func(in payment) string { return in.Order },
		Handle: func(ctx context.Context, in payment) (onlyonce.Answer, error) {
			s.runs.Add(1)
			return handle(ctx, in)
		},
	})
}

// C12: a second key for an order that is being paid gets 409 resource_busy, when
// to come back, and which operation to ask about: nothing else of it. Other orders
// and other accounts are not concerned.
func TestResourceBusy(t *testing.T) {
	t.Parallel()
	s := newService(t)
	entered, leave, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.guarded(func(_ context.Context, in payment) (onlyonce.Answer, error) {
		if in.Order == "slow" && in.Amount == 100 {
			close(entered)
			<-leave
		}
		return oncehttp.JSON(201, in.Order), nil
	})
	s.start(false)
	first := ask{keys: key("the-first"), path: "/orders/slow/pay"}
	second := ask{keys: key("the-second"), path: "/orders/slow/pay", body: pay(99)}
	go func() {
		defer close(done)
		s.do(first).expect(t, 201, "executed")
	}()
	<-entered
	got := s.do(second).expect(t, 409, "refused")
	m := got.problem(t, 409, "resource_busy")
	if m["retry_with"] != "same_key" || m["retryable"] != true || got.header.Get("X-Should-Retry") != "true" {
		t.Errorf("%v %s", got.header, got.body)
	}
	if wait, err := strconv.Atoi(got.header.Get("Retry-After")); err != nil || wait < 1 || wait > 30 {
		t.Errorf("Retry-After is %q", got.header.Get("Retry-After"))
	}
	holder := onlyonce.Key{Scope: "acme", Value: "the-first"}
	if m["operation"] != holder.Operation() || strings.Contains(got.body, "the-first") || got.header.Get("Idempotency-Key") != "the-second" {
		t.Errorf("%v %s", got.header, got.body)
	}
	s.do(ask{keys: key("other"), path: "/orders/2/pay"}).expect(t, 201, "executed")
	s.do(ask{keys: key("foreign"), path: "/orders/slow/pay", as: "rival/1", body: pay(99)}).expect(t, 201, "executed")
	s.do(first).problem(t, 409, "request_in_progress")
	close(leave)
	<-done
	s.do(second).expect(t, 201, "executed") // what to make of a paid order is the operation's affair
	s.ran(4)
}

// C12: an order stays taken while it is not known whether it was paid; a route
// that names no resource for it takes nothing.
func TestResourceInDoubt(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.guarded(func(_ context.Context, in payment) (onlyonce.Answer, error) {
		if in.Amount == 1 {
			return onlyonce.Answer{Status: 202, Outcome: onlyonce.Unknown}, nil
		}
		return oncehttp.JSON(201, in.Order), nil
	})
	s.do(ask{keys: key("k1"), path: "/orders/1/pay", body: pay(1)}).expect(t, 202, "executed")
	m := s.do(ask{keys: key("k2"), path: "/orders/1/pay"}).problem(t, 409, "resource_busy")
	if detail, _ := m["detail"].(string); !strings.Contains(detail, "not known yet") {
		t.Errorf("detail: %q", detail)
	}
	if _, err := s.engine.Settle(t.Context(), onlyonce.Settlement{Key: onlyonce.Key{Scope: "acme", Value: "k1"}, Actor: "ann", Reason: "not in the report"}); err != nil {
		t.Fatal(err)
	}
	s.do(ask{keys: key("k2"), path: "/orders/1/pay"}).expect(t, 201, "executed")
}

// O1, C12: a name that cannot be one is the caller's mistake: 400, and the key is
// not used.
func TestResourceName(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.guarded(func(_ context.Context, in payment) (onlyonce.Answer, error) { return oncehttp.JSON(201, in.Order), nil })
	for _, order := range []string{strings.Repeat("x", 256), "a%0Ab", "%FF"} {
		got := s.do(ask{keys: key("k1"), path: "/orders/" + order + "/pay"})
		if m := got.problem(t, 400, "invalid_request"); m["retryable"] != false {
			t.Errorf("%s", got.body)
		}
	}
	s.do(ask{keys: key("k1"), path: "/orders/1/pay"}).expect(t, 201, "executed")
	s.ran(1)
}
