package payments_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// The session every client should be able to have. (K4, R1, R2, F6)
func TestSession(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			b.call(t, http.MethodPost, "/charges", chargeBody(1500, "tok_visa")).want(t, 400, "idempotency_key_required")
			first := b.post(t, "/charges", "k1", chargeBody(1500, "tok_visa")).want(t, 201, "")
			if first.replayed() || first.header.Get("Idempotency-Status") != "executed" {
				t.Errorf("the first answer calls itself replayed: %v", first.header)
			}
			again := b.post(t, "/charges", "k1", `{ "source":"tok_visa", "currency":"ARS", "amount":1500, "description":"" }`).want(t, 201, "")
			if !again.replayed() || again.body != first.body || again.header.Get("Location") != first.header.Get("Location") {
				t.Errorf("the replay differs: %v %s; the first was %s", again.header, again.body, first.body)
			}
			r := b.post(t, "/charges", "k1", chargeBody(2000, "tok_visa")).want(t, 422, "idempotency_key_reused")
			if !strings.Contains(r.text(t, "differs"), "/amount") {
				t.Errorf("it does not say what differs: %s", r.body)
			}
			id := first.text(t, "id")
			if got := b.get(t, "/charges/"+id).want(t, 200, ""); got.body != first.body {
				t.Errorf("the charge reads %s, want %s", got.body, first.body)
			}
			if b.get(t, first.header.Get("Location")).status != 200 {
				t.Error("Location leads nowhere")
			}
			b.once(t, 1, 0)
			if got := b.available(t); got != "1500" {
				t.Errorf("balance is %s, want 1500", got)
			}
			if strings.Contains(b.log.String(), "k1\"") || strings.Contains(b.log.String(), "=k1") {
				t.Error("the log holds a key")
			}
			if !strings.Contains(b.log.String(), "answer replayed") || !strings.Contains(b.log.String(), onlyonce.Key{Scope: "dev", Value: "k1"}.Operation()) {
				t.Error("the log does not name the replayed operation")
			}
		})
	}
}

// A declined card is a final answer, stored and replayed; another try is
// another operation. (O2, B56)
func TestDecline(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			body := chargeBody(1500, "tok_chargeDeclinedInsufficientFunds")
			first := b.post(t, "/charges", "k1", body).want(t, 402, "card_declined")
			if got := first.text(t, "decline_code"); got != "insufficient_funds" {
				t.Errorf("decline_code is %q", got)
			}
			again := b.post(t, "/charges", "k1", body).want(t, 402, "card_declined")
			if !again.replayed() || again.body != first.body {
				t.Errorf("the replay differs: %s, first %s", again.body, first.body)
			}
			if got := b.get(t, "/charges/"+first.text(t, "charge")).text(t, "status"); got != "failed" {
				t.Errorf("the charge is %s", got)
			}
			unknown := b.post(t, "/charges", "k2", chargeBody(1500, "tok_nobody")).want(t, 422, "unknown_source")
			if unknown.text(t, "field") != "source" {
				t.Errorf("it names no field: %s", unknown.body)
			}
			if !b.post(t, "/charges", "k2", chargeBody(1500, "tok_nobody")).want(t, 422, "unknown_source").replayed() {
				t.Error("the refusal was not stored")
			}
			b.once(t, 0, 0)
			if got := b.available(t); got != "0" {
				t.Errorf("balance is %s, want 0", got)
			}
		})
	}
}

// Whatever the processor does to the first attempt, the retry ends in one
// charge, by look-up or by the same bytes under the same derived key. (D1, D3, D4, B74)
func TestUnknownOutcomeIsResolved(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]processor.Config{"lookup": {}, "resend": {NoLookup: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for name, open := range apptest.Stores() {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					b := setup(t, open(t), options{processor: cfg, timeout: time.Second})
					faults := []string{"tok_timeout", "tok_error_before", "tok_error_after", "tok_gateway_timeout_after", "tok_reset_after", "tok_in_progress"}
					for i, source := range faults {
						body := chargeBody(1000+i, source)
						r := b.post(t, "/charges", source, body).want(t, 409, "outcome_unknown")
						if r.header.Get("Retry-After") == "" || r.text(t, "retry_with") != "same_key" {
							t.Errorf("%s: it does not say how to retry: %v %s", source, r.header, r.body)
						}
						b.post(t, "/charges", source, chargeBody(1, source)).want(t, 422, "idempotency_key_reused")
						done := b.patiently(t, "/charges", source, body).want(t, 201, "")
						if again := b.post(t, "/charges", source, body); !again.replayed() || again.body != done.body {
							t.Errorf("%s: the replay differs", source)
						}
					}
					b.once(t, len(faults), 0)
				})
			}
		})
	}
}

// A declined card whose answer was lost is still declined when it is looked up.
// (D4)
func TestLostDecline(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			body := chargeBody(1500, "tok_chargeDeclined")
			b.loseAnswers()
			b.post(t, "/charges", "k1", body).want(t, 409, "outcome_unknown")
			b.mend()
			first := b.post(t, "/charges", "k1", body).want(t, 402, "card_declined")
			if again := b.post(t, "/charges", "k1", body); !again.replayed() || again.body != first.body {
				t.Errorf("the replay differs: %s", again.body)
			}
			b.once(t, 0, 0)
			if s := b.processor.Stats(); s.Declined != 1 {
				t.Errorf("the processor was asked %d times", s.Declined)
			}
		})
	}
}

// A refusal that proves that nothing happened frees the key at once. (O2, G2)
func TestProcessorTookNothing(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			f := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, `{"code":"rate_limited"}`, http.StatusTooManyRequests)
			})
			b.fault.Store(&f)
			body := chargeBody(1500, "tok_visa")
			r := b.post(t, "/charges", "k1", body).want(t, 503, "processor_unavailable")
			if r.header.Get("Retry-After") == "" || r.header.Get("X-Should-Retry") != "true" {
				t.Errorf("it does not ask to retry: %v", r.header)
			}
			b.mend()
			if b.post(t, "/charges", "k1", body).want(t, 201, "").replayed() {
				t.Error("the refusal used the key up")
			}
			b.once(t, 1, 0)
		})
	}
}

// What the processor refuses once, it takes on at the retry, though that comes
// under another derived key. (D1)
func TestRateLimitedOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, apptest.SQLite(t), options{})
	body := chargeBody(1500, "tok_rate_limited")
	b.post(t, "/charges", "k1", body).want(t, 503, "processor_unavailable")
	b.post(t, "/charges", "k1", body).want(t, 201, "")
	b.once(t, 1, 0)
}

// On a later send a refusal says nothing about the first one, whose charge may
// stand. (D4)
func TestRefusalOfALaterSendProvesNothing(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 422, 429} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			b := setup(t, apptest.SQLite(t), options{processor: processor.Config{NoLookup: true}})
			body := chargeBody(1500, "tok_error_after")
			b.post(t, "/charges", "k1", body).want(t, 409, "outcome_unknown")
			f := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"code":"unknown_source"}`, status) })
			b.fault.Store(&f)
			b.post(t, "/charges", "k1", body).want(t, 409, "outcome_unknown")
			b.mend()
			b.post(t, "/charges", "k1", body).want(t, 201, "")
			b.once(t, 1, 0)
		})
	}
}

// N simultaneous requests: one runs, the others replay or are told to come
// back. (C1, C2)
func TestConcurrentDuplicates(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{})
			var wg sync.WaitGroup
			replies := make([]reply, 24)
			for i := range replies {
				wg.Go(func() {
					r, err := b.try(t.Context(), http.MethodPost, "/charges", chargeBody(1500, "tok_visa"), "Idempotency-Key", "k1")
					if err != nil {
						t.Error(err)
					}
					replies[i] = r
				})
			}
			wg.Wait()
			executed := 0
			for _, r := range replies {
				switch {
				case r.status == 201 && !r.replayed():
					executed++
				case r.status == 409:
					r.want(t, 409, "request_in_progress")
					if r.header.Get("Retry-After") == "" {
						t.Error("a 409 without Retry-After")
					}
				default:
					r.want(t, 201, "")
				}
			}
			if executed != 1 {
				t.Errorf("%d were executed, want 1", executed)
			}
			b.once(t, 1, 0)
		})
	}
}

// A late retry after the key has expired finds the charge: the operation is not
// carried out again, at the processor or here. (T2)
func TestExpiredKeyFindsItsCharge(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{config: payments.Config{Retention: time.Millisecond}})
			first := b.post(t, "/charges", "k1", chargeBody(1500, "tok_visa")).want(t, 201, "")
			for r := first; ; { // until the answer has expired
				if r = b.post(t, "/charges", "k1", chargeBody(1500, "tok_visa")).want(t, 201, ""); !r.replayed() {
					if r.body != first.body {
						t.Errorf("another charge: %s, first %s", r.body, first.body)
					}
					break
				}
			}
			for {
				r := b.post(t, "/charges", "k1", chargeBody(2000, "tok_visa")).want(t, 422, "idempotency_key_reused")
				if strings.Contains(r.body, first.text(t, "id")) {
					break // said by the service, not by the record that was there still
				}
			}
			b.once(t, 1, 0)
		})
	}
}

// The same key of two merchants is two keys, and neither sees the other's
// things. (S1)
func TestMerchantsAreApart(t *testing.T) {
	t.Parallel()
	acmeKey, acmeHash := payments.NewAPIKey()
	evilKey, evilHash := payments.NewAPIKey()
	merchants, err := payments.ParseMerchants(map[string][]string{"acme": {acmeHash}, "evil": {evilHash}})
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{config: payments.Config{Merchants: merchants}})
			as := func(key string) []string {
				return []string{"Authorization", "Bearer " + key, "Idempotency-Key", "k1"}
			}
			acme := b.call(t, http.MethodPost, "/charges", chargeBody(1500, "tok_visa"), as(acmeKey)...).want(t, 201, "")
			evil := b.call(t, http.MethodPost, "/charges", chargeBody(99, "tok_visa"), as(evilKey)...).want(t, 201, "")
			if evil.replayed() || evil.text(t, "id") == acme.text(t, "id") {
				t.Error("two merchants share a key")
			}
			id := acme.text(t, "id")
			b.call(t, http.MethodGet, "/charges/"+id, "", as(evilKey)...).want(t, 404, "not_found")
			refund := fmt.Sprintf(`{"charge":%q,"amount":1}`, id)
			b.call(t, http.MethodPost, "/refunds", refund, "Authorization", "Bearer "+evilKey, "Idempotency-Key", "k2").want(t, 422, "unknown_charge")
			if list := b.call(t, http.MethodGet, "/charges", "", as(evilKey)...); strings.Contains(list.body, id) {
				t.Errorf("a merchant sees another's charges: %s", list.body)
			}
			b.once(t, 2, 0)
		})
	}
}
