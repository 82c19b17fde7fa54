package stripeproc_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/stripeproc"
	"github.com/onlyonce-go/onlyonce/provider"
)

// paid is a world in which 100.00 EUR were charged.
func paid(t *testing.T, cfg stripeproc.Config) (*world, string) {
	t.Helper()
	w := newWorld(t, cfg)
	req := euros("pm_visa")
	req.Amount = 10000
	out, _, err := w.charge(t.Context(), "paid", req)
	if err != nil {
		t.Fatal(err)
	}
	w.set(func(s *server) { s.posts, s.gets = nil, 0 })
	return w, out.ID
}

func back(charge string) provider.RefundRequest {
	return provider.RefundRequest{Charge: charge, Amount: 2500, Currency: "EUR"}
}

// D3, D4, D5: money goes back at most once, and lists are not behind as search is.
func TestRefund(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		faults   []fault
		attempts []attempt
		refunded int
	}{
		{
			name: "it works", refunded: 1,
			attempts: []attempt{{status: provider.Succeeded, state: done, posts: 1}, {status: provider.Succeeded, state: done, posts: 1}},
		},
		{
			name: "500 after refunding", faults: []fault{error500After}, refunded: 1,
			attempts: []attempt{{state: doubt, posts: 1}, {status: provider.Succeeded, state: done, posts: 1}},
		},
		{
			name: "reset before refunding", faults: []fault{resetBefore}, refunded: 1,
			attempts: []attempt{{state: doubt, posts: 1}, {status: provider.Succeeded, state: done, posts: 2}},
		},
		{
			name: "past the key's memory the list decides", faults: []fault{resetBefore}, refunded: 1,
			attempts: []attempt{
				{state: doubt, posts: 1},
				{after: 48 * time.Hour, status: provider.Succeeded, state: done, posts: 2},
			},
		},
		{
			name: "over the rate limit nothing happened", faults: []fault{rateLimit}, refunded: 1,
			attempts: []attempt{{state: free, posts: 1}, {status: provider.Succeeded, state: done, posts: 2}},
		},
		{
			name: "pending counts as done", faults: []fault{resetAfter}, refunded: 1,
			attempts: []attempt{
				{state: doubt, posts: 1},
				{before: func(s *server) { s.refunds[0].status = "pending" }, status: provider.Succeeded, state: done, posts: 1},
			},
		},
		{
			name: "failed is declined", faults: []fault{resetAfter},
			attempts: []attempt{
				{state: doubt, posts: 1},
				{before: func(s *server) { s.refunds[0].status = "failed" }, status: provider.Declined, code: "failed", state: done, posts: 1},
			},
		},
		{
			name: "one that waits for the customer is not final", faults: []fault{resetAfter, inUse},
			attempts: []attempt{
				{state: doubt, posts: 1},
				{before: func(s *server) { s.refunds[0].status = "requires_action" }, state: doubt, posts: 2},
				{before: func(s *server) { s.refunds[0].status = "canceled" }, status: provider.Declined, code: "canceled", state: done, posts: 2},
			},
		},
		{
			name: "of several under our reference the one that moved money counts", faults: []fault{resetAfter}, refunded: 1,
			attempts: []attempt{
				{state: doubt, posts: 1},
				{
					before: func(s *server) {
						s.pageSize = 1
						failed := *s.refunds[0]
						failed.id, failed.status = "re_0", "failed"
						s.refunds = []*refund{s.refunds[0], {id: "re_8", intent: failed.intent, status: "failed"}, &failed}
					},
					status: provider.Succeeded, state: done, posts: 1,
				},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w, id := paid(t, stripeproc.Config{})
			w.will(c.faults...)
			for i, a := range c.attempts {
				w.clock.advance(a.after)
				if a.before != nil {
					w.set(a.before)
				}
				out, _, err := w.refund(t.Context(), "k", back(id))
				if out.Status != a.status || out.Code != a.code || (err == nil) != (a.status != "") {
					t.Errorf("attempt %d: got %+v, %v, want %s %q", i+1, out, err, a.status, a.code)
				}
				if out.Status == provider.Succeeded && (out.Amount != 2500 || out.Currency != "EUR" || out.ID != "re_1") {
					t.Errorf("attempt %d: the outcome is %+v", i+1, out)
				}
				w.wantState(t, "k", a.state)
				if got := len(w.arrived()); got != a.posts {
					t.Errorf("attempt %d: %d requests in all, want %d", i+1, got, a.posts)
				}
			}
			if got := w.refunded(); got != c.refunded {
				t.Errorf("%d refunds moved money, want %d", got, c.refunded)
			}
		})
	}
}

// A refund that Stripe refuses is an answer: of more than is left, or of a charge
// that is not there.
func TestRefusedRefund(t *testing.T) {
	t.Parallel()
	w, id := paid(t, stripeproc.Config{})
	for charge, code := range map[string]string{id: "charge_already_refunded", "pi_404": "resource_missing"} {
		req := back(charge)
		req.Amount = 10001
		out, _, err := w.refund(t.Context(), "k "+charge, req)
		if err != nil || out.Status != provider.Refused || out.Code != code || out.Message == "" {
			t.Errorf("refund of %s: got %+v, %v, want %s", charge, out, err, code)
		}
		w.wantState(t, "k "+charge, done)
	}
}

// A charge with many refunds has many pages; one without an end is given up.
func TestRefundAmongMany(t *testing.T) {
	t.Parallel()
	w, id := paid(t, stripeproc.Config{})
	w.will(resetAfter)
	_, _, _ = w.refund(t.Context(), "k", back(id))
	more := func(n int) func(s *server) {
		return func(s *server) {
			for range n {
				s.refunds = append(s.refunds, &refund{id: fmt.Sprintf("re_%d", len(s.refunds)+1), status: "succeeded", intent: id, amount: 1, currency: "eur"})
			}
		}
	}
	w.set(more(250))
	sending := onlyonce.Sending{Reference: reference("k", "refund"), Request: []byte("amount=2500&payment_intent=" + id)}
	out, found, err := w.stripe.FindRefund(t.Context(), sending)
	if err != nil || !found || out.ID != "re_1" || w.looked() != 3 {
		t.Errorf("got %+v, %v, %v after %d requests", out, found, err, w.looked())
	}
	w.set(more(2000))
	if _, found, err := w.stripe.FindRefund(t.Context(), sending); err == nil || found || !strings.Contains(err.Error(), "more than 20 pages") {
		t.Errorf("got %v, %v", found, err)
	}
	if _, _, err := w.stripe.FindRefund(t.Context(), onlyonce.Sending{Request: []byte("amount=1")}); err == nil {
		t.Error("a recorded request without a charge was looked up")
	}
}

// A look-up that fails proves nothing, and says what to do.
func TestLookUpFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stripeproc.Config{})
	for name, body := range map[string]string{
		"not JSON": "<html>", "not a list": `{}`, "no data": `{"object":"search_result"}`,
		"no next page": `{"object":"search_result","data":[],"has_more":true}`,
	} {
		w.set(answers(body))
		_, found, err := w.stripe.FindCharge(t.Context(), onlyonce.Sending{Reference: "oo_1"})
		if found || err == nil {
			t.Errorf("%s: found %v, %v", name, found, err)
		}
	}
	if _, _, err := w.stripe.FindCharge(t.Context(), onlyonce.Sending{Reference: "a' OR created>0"}); err == nil || w.looked() != 4 {
		t.Errorf("a reference that is a query was searched for: %v", err)
	}
	if _, found, err := w.stripe.FindCharge(t.Context(), onlyonce.Sending{Reference: "oo_1"}); found || err != nil {
		t.Errorf("nothing there: got %v, %v", found, err)
	}
	endless := `{"object":"search_result","data":[null,{"id":"pi_1"}],"has_more":true,"next_page":"page_1"}`
	pages := make([]string, 25)
	for i := range pages {
		pages[i] = endless
	}
	w.set(answers(pages...))
	if _, _, err := w.stripe.FindCharge(t.Context(), onlyonce.Sending{Reference: "oo_1"}); err == nil || w.looked() != 4+1+20 {
		t.Errorf("a search without end: %v after %d requests", err, w.looked())
	}
	w.http.Close()
	_, _, err := w.stripe.FindCharge(t.Context(), onlyonce.Sending{Reference: "oo_1"})
	if e, ok := errors.AsType[*stripeproc.Error](err); !ok || e.Status != 0 || e.Err == nil {
		t.Errorf("got %v", err)
	}
}
