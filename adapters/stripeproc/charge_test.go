package stripeproc_test

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/stripeproc"
	"github.com/onlyonce-go/onlyonce/provider"
)

// attempt is one try at the key and what it has to leave behind.
type attempt struct {
	// after is how much later than the last one it comes.
	after time.Duration
	// before changes the server first.
	before func(s *server)
	// status of the outcome; empty: the outcome is unknown, or not applied.
	status provider.Status
	code   string
	state  onlyonce.State
	// posts is how many requests to charge have arrived in all.
	posts int
}

const (
	done  = onlyonce.Completed
	free  = onlyonce.FailedRetryable
	doubt = onlyonce.InDoubt
)

func behind(d time.Duration) func(*server) { return func(s *server) { s.lag = d } }

// answers makes the next searches answer something else.
func answers(bodies ...string) func(*server) {
	return func(s *server) { s.searches = append(s.searches, bodies...) }
}

// D3, D4, D5: whatever happens on the way, the card is charged at most once, an
// answer that is given is the true one, and what is not known is in doubt until the
// same key, a look-up or a person settles it.
func TestCharge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		source   string // default pm_visa
		faults   []fault
		config   stripeproc.Config
		attempts []attempt
		charged  int
	}{
		{
			name: "it works", charged: 1,
			attempts: []attempt{{status: provider.Succeeded, state: done, posts: 1}, {status: provider.Succeeded, state: done, posts: 1}},
		},
		{
			name: "a declined card is an answer and is replayed", source: "pm_declined",
			attempts: []attempt{
				{status: provider.Declined, code: "insufficient_funds", state: done, posts: 1},
				{status: provider.Declined, code: "insufficient_funds", state: done, posts: 1},
			},
		},
		{
			name: "a decline whose answer was lost is found", source: "pm_declined", faults: []fault{resetAfter},
			attempts: []attempt{{state: doubt, posts: 1}, {status: provider.Declined, code: "insufficient_funds", state: done, posts: 1}},
		},
		{
			name: "a card that needs the bank's page is declined", source: "pm_auth",
			attempts: []attempt{{status: provider.Declined, code: "authentication_required", state: done, posts: 1}},
		},
		{
			name: "a request that is refused is an answer", source: "pm_missing",
			attempts: []attempt{{status: provider.Refused, code: "resource_missing", state: done, posts: 1}},
		},
		{
			name: "500 after charging is found by our reference", faults: []fault{error500After}, charged: 1,
			attempts: []attempt{{state: doubt, posts: 1}, {status: provider.Succeeded, state: done, posts: 1}},
		},
		{
			name: "500 after charging, saved under the key, while search is behind", faults: []fault{error500After}, charged: 1,
			attempts: []attempt{
				{state: doubt, posts: 1, before: behind(2 * time.Hour)},
				{state: doubt, posts: 2},
				{after: 3 * time.Hour, status: provider.Succeeded, state: done, posts: 2},
			},
		},
		{
			name: "500 without a charge is settled when not found is proof", faults: []fault{error500Before}, charged: 1,
			attempts: []attempt{
				{state: doubt, posts: 1},
				{state: doubt, posts: 2},
				{after: 23*time.Hour + 30*time.Minute, state: doubt, posts: 2},
				{after: time.Hour, status: provider.Succeeded, state: done, posts: 3},
			},
		},
		{
			name: "504 after charging, search behind: the same key answers", faults: []fault{gatewayAfter}, charged: 1,
			attempts: []attempt{{state: doubt, posts: 1, before: behind(time.Hour)}, {status: provider.Succeeded, state: done, posts: 2}},
		},
		{
			name: "reset after charging", faults: []fault{resetAfter}, charged: 1,
			attempts: []attempt{{state: doubt, posts: 1, before: behind(time.Hour)}, {status: provider.Succeeded, state: done, posts: 2}},
		},
		{
			name: "reset before charging: the same key charges", faults: []fault{resetBefore}, charged: 1,
			attempts: []attempt{{state: doubt, posts: 1}, {status: provider.Succeeded, state: done, posts: 2}},
		},
		{
			name: "resets again and again", faults: []fault{resetBefore, resetAfter, resetAfter}, charged: 1,
			attempts: []attempt{
				{state: doubt, posts: 1, before: behind(time.Hour)},
				{state: doubt, posts: 2},
				{state: doubt, posts: 3},
				{status: provider.Succeeded, state: done, posts: 4},
			},
		},
		{
			name: "no answer in time", faults: []fault{hangAfter}, charged: 1, config: stripeproc.Config{Timeout: 200 * time.Millisecond},
			attempts: []attempt{{state: doubt, posts: 1}, {status: provider.Succeeded, state: done, posts: 1}},
		},
		{
			name: "a gateway's page", faults: []fault{htmlAfter, htmlBefore, notFoundHTML}, charged: 1,
			attempts: []attempt{
				{state: doubt, posts: 1, before: behind(time.Hour)},
				{state: doubt, posts: 2},
				{state: doubt, posts: 3},
				{status: provider.Succeeded, state: done, posts: 4},
			},
		},
		{
			name: "an answer that breaks off", faults: []fault{cutAfter}, charged: 1,
			attempts: []attempt{{state: doubt, posts: 1}, {status: provider.Succeeded, state: done, posts: 1}},
		},
		{
			name: "answers that are about nothing, or something else", faults: []fault{emptyAnswer, foreignAnswer}, charged: 1,
			attempts: []attempt{{state: doubt, posts: 1}, {state: doubt, posts: 2}, {status: provider.Succeeded, state: done, posts: 3}},
		},
		{
			name: "a redirect is not followed", faults: []fault{redirect}, charged: 1,
			attempts: []attempt{{state: doubt, posts: 1}, {status: provider.Succeeded, state: done, posts: 2}},
		},
		{
			name: "an earlier send is still under way", faults: []fault{inUse}, charged: 1,
			attempts: []attempt{{state: doubt, posts: 1}, {status: provider.Succeeded, state: done, posts: 2}},
		},
		{
			name: "a failed dependency proves nothing", faults: []fault{failedDep}, charged: 1,
			attempts: []attempt{{state: doubt, posts: 1}, {status: provider.Succeeded, state: done, posts: 2}},
		},
		{
			name: "over the rate limit nothing happened", faults: []fault{rateLimit}, charged: 1,
			attempts: []attempt{{state: free, posts: 1}, {status: provider.Succeeded, state: done, posts: 2}},
		},
		{
			name: "a rate limit says nothing of an earlier send", faults: []fault{resetAfter, rateLimit}, charged: 1,
			attempts: []attempt{
				{state: doubt, posts: 1, before: behind(time.Hour)},
				{state: doubt, posts: 2},
				{status: provider.Succeeded, state: done, posts: 3},
			},
		},
		{
			name: "a lock that was waited for in vain proves nothing", faults: []fault{lockTimeout}, charged: 1,
			attempts: []attempt{{state: doubt, posts: 1}, {status: provider.Succeeded, state: done, posts: 2}},
		},
		{
			name: "a wrong API key, then one without the permission", faults: []fault{badKey, forbidden}, charged: 1,
			attempts: []attempt{{state: free, posts: 1}, {state: free, posts: 2}, {status: provider.Succeeded, state: done, posts: 3}},
		},
		{
			name: "nothing is sent past the key's memory", faults: []fault{gatewayAfter}, charged: 1,
			attempts: []attempt{
				{state: doubt, posts: 1, before: behind(48 * time.Hour)},
				{after: 23*time.Hour + 10*time.Minute, state: doubt, posts: 1},
				{after: time.Minute, before: behind(0), status: provider.Succeeded, state: done, posts: 1},
			},
		},
		{
			name: "no memory is trusted: nothing is sent twice", faults: []fault{resetBefore}, charged: 1,
			config: stripeproc.Config{Memory: -1, Visible: 2 * time.Hour},
			attempts: []attempt{
				{state: doubt, posts: 1},
				{after: time.Hour, state: doubt, posts: 1},
				{after: 2 * time.Hour, status: provider.Succeeded, state: done, posts: 2},
			},
		},
		{
			name: "an account without search", faults: []fault{resetAfter}, charged: 1, config: stripeproc.Config{NoSearch: true},
			attempts: []attempt{{state: doubt, posts: 1}, {status: provider.Succeeded, state: done, posts: 2}},
		},
		{
			name: "an account without search, past the memory", faults: []fault{resetBefore}, config: stripeproc.Config{NoSearch: true},
			attempts: []attempt{{state: doubt, posts: 1}, {after: 72 * time.Hour, state: doubt, posts: 1}},
		},
		{
			name: "a search that answers something else proves no absence", faults: []fault{gatewayAfter}, charged: 1,
			attempts: []attempt{
				{state: doubt, posts: 1},
				{
					after: 48 * time.Hour, state: doubt, posts: 1,
					before: answers(`{}`),
				},
				{before: answers(`{"object":"search_result","has_more":true,"data":[]}`), state: doubt, posts: 1},
				{before: answers(`<html>`), state: doubt, posts: 1},
				{before: answers(`{"object":"search_result","has_more":false,"data":null}`), state: doubt, posts: 1},
				{status: provider.Succeeded, state: done, posts: 1},
			},
		},
		{
			name: "a payment that is not final stays in doubt", source: "pm_processing", charged: 1,
			attempts: []attempt{
				{state: doubt, posts: 1},
				{state: doubt, posts: 2},
				{before: func(s *server) { s.intents[0].status = "succeeded" }, status: provider.Succeeded, state: done, posts: 2},
			},
		},
		{
			name: "one that waits for the customer is canceled by hand", source: "pm_action",
			attempts: []attempt{
				{state: doubt, posts: 1},
				{before: func(s *server) { s.intents[0].status = "canceled" }, status: provider.Declined, code: "canceled", state: done, posts: 1},
			},
		},
		{
			name: "of several under our reference the one that moved money counts", faults: []fault{resetAfter}, charged: 1,
			attempts: []attempt{
				{state: doubt, posts: 1},
				{
					before: func(s *server) {
						s.pageSize = 1
						failed := *s.intents[0]
						failed.id, failed.status, failed.failure = "pi_0", "requires_payment_method", map[string]any{"type": "card_error", "code": "card_declined"}
						other := *s.intents[0]
						other.id, other.reference = "pi_9", strings.ToUpper(other.reference)
						other.status = "canceled"
						s.intents = []*intent{&failed, &other, s.intents[0], &failed}
					},
					status: provider.Succeeded, state: done, posts: 1,
				},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.config)
			w.will(c.faults...)
			if c.source == "" {
				c.source = "pm_visa"
			}
			for i, a := range c.attempts {
				w.clock.advance(a.after)
				if a.before != nil {
					w.set(a.before)
				}
				w.try(t, i, a, c.source)
			}
			if got := w.charged(); got != c.charged {
				t.Errorf("%d charges moved money, want %d", got, c.charged)
			}
		})
	}
}

// try makes one attempt and checks what it leaves.
func (w *world) try(t *testing.T, i int, a attempt, source string) {
	t.Helper()
	out, _, err := w.charge(t.Context(), "k", euros(source))
	switch {
	case a.status == "" && err == nil:
		t.Fatalf("attempt %d: got %+v, want an error", i+1, out)
	case a.status == "" && a.state == doubt && !errors.Is(err, onlyonce.ErrOutcomeUnknown):
		t.Errorf("attempt %d: got %v, want an unknown outcome", i+1, err)
	case a.status != "" && err != nil:
		t.Fatalf("attempt %d: %v, want %s", i+1, err, a.status)
	case out.Status != a.status || out.Code != a.code:
		t.Errorf("attempt %d: got %+v, want %s %q", i+1, out, a.status, a.code)
	}
	if a.status == provider.Succeeded && (out.Amount != 1234 || out.Currency != "EUR" || out.ID == "") {
		t.Errorf("attempt %d: the outcome is %+v", i+1, out)
	}
	if err != nil && (strings.Contains(err.Error(), testKey) || strings.Contains(err.Error(), "_secret_")) {
		t.Errorf("attempt %d: the error shows a secret: %v", i+1, err)
	}
	w.wantState(t, "k", a.state)
	if got := len(w.arrived()); got != a.posts {
		t.Errorf("attempt %d: %d requests to charge have arrived in all, want %d", i+1, got, a.posts)
	}
}

// D1: sends that are repeated without proof bear the same key and bytes; after
// proof that nothing happened the key is another, and the reference the same.
func TestKeysOfRepeatedSends(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stripeproc.Config{})
	w.will(resetBefore, htmlBefore, works)
	for range 3 {
		_, _, _ = w.charge(t.Context(), "same", euros("pm_visa"))
	}
	w.will(rateLimit, works)
	for range 2 {
		_, _, _ = w.charge(t.Context(), "other", euros("pm_visa"))
	}
	posts := w.arrived()
	if len(posts) != 5 || posts[0].key != posts[1].key || posts[1].key != posts[2].key || posts[0].body != posts[2].body {
		t.Errorf("without proof: %+v", posts)
	}
	if posts[3].key == posts[4].key || posts[3].body != posts[4].body {
		t.Errorf("after proof: %+v", posts[3:])
	}
	if len(posts[0].key) > 36 || !strings.Contains(posts[0].body, reference("same", "charge")) {
		t.Errorf("key %q, body %q", posts[0].key, posts[0].body)
	}
}

// G1: net/http sends a request with an Idempotency-Key once more by itself when a
// kept connection breaks before the answer. Here one call is one request.
func TestOneRequestOnAKeptConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stripeproc.Config{})
	for i, f := range []fault{resetBefore, resetAfter} {
		if _, _, err := w.charge(t.Context(), "warm"+string(f), euros("pm_visa")); err != nil {
			t.Fatal(err)
		}
		before := len(w.arrived())
		w.will(f)
		if _, _, err := w.charge(t.Context(), "k"+string(f), euros("pm_visa")); !errors.Is(err, onlyonce.ErrOutcomeUnknown) {
			t.Errorf("%d: got %v, want an unknown outcome", i, err)
		}
		if got := len(w.arrived()) - before; got != 1 {
			t.Errorf("%s: %d requests arrived, want 1", f, got)
		}
	}
}

// D3: no connection is the one thing that proves that no byte left.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, stripeproc.Config{BaseURL: "http://" + l.Addr().String()})
	_ = l.Close()
	_, _, err = w.charge(t.Context(), "k", euros("pm_visa"))
	if err == nil || errors.Is(err, onlyonce.ErrOutcomeUnknown) {
		t.Fatalf("got %v, want a failure that may be repeated", err)
	}
	w.wantState(t, "k", free)
	steps, err := w.mem.Steps(t.Context(), keyOf("k"))
	if err != nil || len(steps) != 1 || steps[0].State != onlyonce.StepNotApplied {
		t.Errorf("steps %+v, %v", steps, err)
	}
}

// A key with another request's result proves nothing of ours.
func TestKeyWithAnotherResult(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stripeproc.Config{})
	key := onlyonce.Derivation{Key: keyOf("k"), Step: "charge", Provider: "stripe"}.DerivedKey()
	w.set(func(s *server) { s.saved[key] = saved{params: "/v1/other?", at: s.now(), status: http.StatusOK} })
	_, _, err := w.charge(t.Context(), "k", euros("pm_visa"))
	e, ok := errors.AsType[*stripeproc.Error](err)
	if !ok || e.Type != "idempotency_error" || !strings.Contains(e.Error(), "another request") || onlyonce.IsNotApplied(err) {
		t.Errorf("got %v", err)
	}
	w.wantState(t, "k", doubt)
}

// Something under our reference that is not what we asked for is for a person.
func TestFoundSomethingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stripeproc.Config{})
	w.will(resetAfter, inUse)
	_, _, _ = w.charge(t.Context(), "k", euros("pm_visa"))
	w.set(func(s *server) { s.intents[0].amount++ })
	if _, _, err := w.charge(t.Context(), "k", euros("pm_visa")); !errors.Is(err, onlyonce.ErrOutcomeUnknown) {
		t.Errorf("got %v, want an unknown outcome", err)
	}
	w.clock.advance(48 * time.Hour)
	if _, _, err := w.charge(t.Context(), "k", euros("pm_visa")); !errors.Is(err, provider.ErrDiffers) {
		t.Errorf("got %v, want ErrDiffers", err)
	}
	w.wantState(t, "k", doubt)
}

// C1: callers at the same time get one charge between them.
func TestConcurrentCallers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stripeproc.Config{})
	var wg sync.WaitGroup
	statuses := make([]string, 16)
	for i := range statuses {
		wg.Go(func() {
			out, _, err := w.charge(t.Context(), "k", euros("pm_visa"))
			statuses[i] = string(out.Status) + string(onlyonce.CodeOf(err))
		})
	}
	wg.Wait()
	for _, s := range statuses {
		if s != string(provider.Succeeded) && s != string(onlyonce.CodeInProgress) {
			t.Errorf("a caller got %q", s)
		}
	}
	if !slices.Contains(statuses, string(provider.Succeeded)) || w.charged() != 1 || len(w.arrived()) != 1 {
		t.Errorf("answers %q, %d charges, %d requests", statuses, w.charged(), len(w.arrived()))
	}
}

// What leaves is what was recorded, under Stripe's headers and no others of ours.
func TestTheRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stripeproc.Config{Account: "acct_1"})
	for _, key := range []string{"a", "b"} { // telemetry would show in the second
		if _, _, err := w.charge(t.Context(), key, euros("pm_visa")); err != nil {
			t.Fatal(err)
		}
	}
	steps, err := w.mem.Steps(t.Context(), keyOf("b"))
	if err != nil || len(steps) != 1 {
		t.Fatal(steps, err)
	}
	got := w.arrived()[1]
	if got.body != string(steps[0].Request) || got.key != steps[0].DerivedKey {
		t.Errorf("sent %q under %q, recorded %q under %q", got.body, got.key, steps[0].Request, steps[0].DerivedKey)
	}
	want := map[string]string{
		"Authorization": "Bearer " + testKey, "Content-Type": "application/x-www-form-urlencoded",
		"Stripe-Account": "acct_1", "X-Stripe-Client-Telemetry": "", "Stripe-Version": "2026-03-25.dahlia",
	}
	for name, value := range want {
		if diff := cmp.Diff(value, got.header.Get(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
