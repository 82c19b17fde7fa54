package stripeproc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/stripeproc"
	"github.com/onlyonce-go/onlyonce/provider"
)

// saying is a provider whose API gives one answer to everything.
func saying(t *testing.T, status int, body string) *stripeproc.Provider {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Request-Id", "req_9")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	p := newProvider(t, stripeproc.Config{BaseURL: s.URL})
	t.Cleanup(func() { p.CloseIdleConnections(); s.Close() })
	return p
}

// intentJSON is a payment intent of ours.
func intentJSON(status string) string {
	return `{"id":"pi_1","object":"payment_intent","amount":1234,"amount_received":1234,"currency":"eur","client_secret":"pi_1_secret_xyz",` +
		`"metadata":{"onlyonce_reference":"oo_1"},"status":"` + status + `"}`
}

// verdict is what a call's result proves.
type verdict string

const (
	unknown    verdict = "unknown"
	notApplied verdict = "not applied"
	refused    verdict = "not applied, and refused"
	declined   verdict = "declined"
	succeeded  verdict = "succeeded"
)

func judge(out provider.Outcome, err error) verdict {
	_, refusal := errors.AsType[*provider.RefusedError](err)
	switch {
	case err == nil:
		return verdict(out.Status)
	case onlyonce.IsNotApplied(err) && refusal:
		return refused
	case onlyonce.IsNotApplied(err):
		return notApplied
	case refusal:
		return "refused, but not marked"
	}
	return unknown
}

// D3: only Stripe's documented word is proof. Whatever else comes back, under
// whatever status, is unknown.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	wrong := func(kind, code, more string) string {
		return `{"error":{"type":"` + kind + `","code":"` + code + `","message":"no"` + more + `}}`
	}
	with := func(status string) string { return `,"payment_intent":` + intentJSON(status) }
	for _, c := range []struct {
		status int
		body   string
		want   verdict
	}{
		{200, intentJSON("succeeded"), succeeded},
		{200, intentJSON("canceled"), declined},
		{200, intentJSON("requires_payment_method"), unknown}, // without an error it was not confirmed
		{200, strings.Replace(intentJSON("requires_payment_method"), "{", `{"last_payment_error":{"type":"card_error","code":"card_declined"},`, 1), declined},
		{200, intentJSON("requires_capture"), unknown},
		{200, intentJSON("requires_confirmation"), unknown},
		{200, intentJSON("something_new"), unknown},
		{200, strings.Replace(intentJSON("succeeded"), "oo_1", "OO_1", 1), unknown},
		{200, strings.Replace(intentJSON("succeeded"), "payment_intent", "charge", 1), unknown},
		{200, strings.Replace(intentJSON("succeeded"), `"eur"`, `"xx"`, 1), unknown},
		{200, intentJSON("succeeded")[:80], unknown},
		{200, ``, unknown},
		{200, `null`, unknown},
		{200, `{"id":"pi_1","pad":"` + strings.Repeat("x", 9<<20) + `"}`, unknown},
		{202, intentJSON("succeeded"), unknown},
		{302, intentJSON("succeeded"), unknown},

		{402, wrong("card_error", "card_declined", ""), declined},
		{402, wrong("card_error", "card_declined", with("requires_payment_method")), declined},
		{402, wrong("card_error", "card_declined", with("canceled")), declined},
		{402, wrong("card_error", "card_declined", with("processing")), unknown},
		{402, wrong("card_error", "card_declined", with("succeeded")), unknown},
		{402, wrong("card_error", "card_declined", with("requires_action")), unknown},
		{402, wrong("api_error", "", ""), unknown},
		{402, `{}`, unknown},

		{400, wrong("invalid_request_error", "parameter_missing", ""), refused},
		{400, wrong("invalid_request_error", "", ""), refused},
		{400, wrong("invalid_request_error", "payment_intent_invalid_parameter", with("requires_payment_method")), refused},
		{400, wrong("invalid_request_error", "payment_intent_unexpected_state", with("succeeded")), unknown},
		{400, wrong("invalid_request_error", "payment_intent_unexpected_state", with("processing")), unknown},
		{400, wrong("invalid_request_error", "idempotency_key_in_use", ""), unknown},
		{400, wrong("invalid_request_error", "lock_timeout", ""), unknown},
		{400, wrong("invalid_request_error", "payment_method_provider_timeout", ""), unknown},
		{400, wrong("idempotency_error", "", ""), unknown},
		{400, wrong("api_error", "", ""), unknown},
		{400, wrong("card_error", "", ""), unknown},
		{400, wrong("something_new", "", ""), unknown},
		{400, wrong("", "", ""), unknown},
		{400, `bad request`, unknown},
		{404, wrong("invalid_request_error", "resource_missing", ""), refused},
		{404, wrong("invalid_request_error", "", ""), unknown}, // no such URL: something else is wrong
		{404, `not found`, unknown},

		{401, wrong("invalid_request_error", "", ""), notApplied},
		{401, wrong("invalid_request_error", "api_key_expired", ""), notApplied},
		{403, wrong("invalid_request_error", "", ""), notApplied},
		{403, `<html>forbidden by a firewall</html>`, unknown},
		{401, with("succeeded")[1:], unknown},
		{429, wrong("invalid_request_error", "rate_limit", ""), notApplied},
		{429, wrong("invalid_request_error", "lock_timeout", ""), unknown},
		{429, wrong("invalid_request_error", "", ""), unknown},
		{429, `slow down`, unknown},

		{405, wrong("invalid_request_error", "", ""), unknown},
		{409, wrong("invalid_request_error", "idempotency_key_in_use", ""), unknown},
		{409, wrong("idempotency_error", "", ""), unknown},
		{413, wrong("invalid_request_error", "", ""), unknown},
		{424, wrong("invalid_request_error", "", ""), unknown},
		{500, wrong("api_error", "", ""), unknown},
		{500, wrong("invalid_request_error", "parameter_missing", ""), unknown},
		{500, wrong("card_error", "card_declined", ""), unknown},
		{503, wrong("invalid_request_error", "rate_limit", ""), unknown},
		{504, ``, unknown},
		{599, `<html>`, unknown},
	} {
		p := saying(t, c.status, c.body)
		s := onlyonce.Sending{Key: "k", Reference: "oo_1", Request: []byte("amount=1234&currency=eur")}
		out, err := p.Charge(t.Context(), s)
		if got := judge(out, err); got != c.want {
			t.Errorf("%d %.120s: %s (%v), want %s", c.status, c.body, got, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "secret_xyz") || strings.Contains(err.Error(), "pad")) {
			t.Errorf("%d: the error shows the answer: %v", c.status, err)
		}
		if c.want == declined && (out.Amount != 1234 || out.Currency != "EUR" || out.Code == "") {
			t.Errorf("%d %.120s: declined as %+v", c.status, c.body, out)
		}
		// The same holds for refunds, which are never payment intents.
		if out, err := p.Refund(t.Context(), s); c.status != 200 && c.status != 402 && judge(out, err) != c.want {
			t.Errorf("refund, %d %.120s: %s, want %s", c.status, c.body, judge(out, err), c.want)
		}
	}
}

// What support asks for, and what to do, is in the error.
func TestErrorText(t *testing.T) {
	t.Parallel()
	p := saying(t, 409, `{"error":{"type":"invalid_request_error","code":"idempotency_key_in_use","message":"in use"}}`)
	_, err := p.Charge(t.Context(), onlyonce.Sending{Key: "k", Reference: "oo_1"})
	want := `stripe: create payment intent: http 409 invalid_request_error idempotency_key_in_use: "in use" (request req_9): an earlier send is still under way; ask again with the same key`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	p = saying(t, 400, `{"error":{"type":"invalid_request_error","code":"parameter_missing","message":"Missing: `+testKey+`"}}`)
	_, err = p.Charge(t.Context(), onlyonce.Sending{Key: "k", Reference: "oo_1"})
	r, ok := errors.AsType[*provider.RefusedError](err)
	if !ok || r.Code != "parameter_missing" || strings.Contains(err.Error(), testKey) {
		t.Fatalf("got %v", err)
	}
	if e, ok := errors.AsType[*stripeproc.Error](r); !ok || e.RequestID != "req_9" || e.Status != 400 || e.Op != "create payment intent" {
		t.Errorf("got %+v", e)
	}
}

// A cancelled call is an error like others, and says so.
func TestCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	arrived := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		<-r.Context().Done()
	}))
	defer s.Close()
	p := newProvider(t, stripeproc.Config{BaseURL: s.URL})
	defer p.CloseIdleConnections()
	go func() {
		<-arrived
		cancel()
	}()
	_, err := p.Charge(ctx, onlyonce.Sending{Key: "k", Reference: "oo_1", Request: []byte("a=b")})
	if !errors.Is(err, context.Canceled) || judge(provider.Outcome{}, err) != unknown {
		t.Errorf("got %v", err)
	}
	// Before anything left, it is proof.
	_, err = p.Charge(ctx, onlyonce.Sending{Key: "k", Reference: "oo_1"})
	if !errors.Is(err, context.Canceled) || judge(provider.Outcome{}, err) != notApplied {
		t.Errorf("got %v", err)
	}
}

// Search does not look at case, so what it found is looked at again.
func TestFoundUnderAnotherReference(t *testing.T) {
	t.Parallel()
	body := strings.ReplaceAll(intentJSON("succeeded"), "oo_1", "OO_1")
	p := saying(t, 200, `{"object":"search_result","has_more":false,"data":[`+body+`]}`)
	if out, found, err := p.FindCharge(t.Context(), onlyonce.Sending{Reference: "oo_1"}); found || err != nil {
		t.Errorf("got %+v, %v, %v", out, found, err)
	}
	p = saying(t, 200, `{"object":"search_result","has_more":false,"data":[`+intentJSON("succeeded")+`]}`)
	if out, found, err := p.FindCharge(t.Context(), onlyonce.Sending{Reference: "oo_1"}); !found || err != nil || out.ID != "pi_1" {
		t.Errorf("got %+v, %v, %v", out, found, err)
	}
}

// D5: the deadline of the send is the transport's, and nothing leaves after it.
func TestNothingLeavesLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stripeproc.Config{})
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	if _, err := w.stripe.Charge(ctx, onlyonce.Sending{Key: "k", Reference: "oo_1"}); !onlyonce.IsNotApplied(err) || len(w.arrived()) != 0 {
		t.Errorf("got %v", err)
	}
}
