package processor_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// outcome is what a caller learns from one attempt.
type outcome struct {
	Status   processor.Status
	Decline  string
	Replayed bool
	HTTP     int
	Code     string
	Fate     string
}

func outcomeOf(c processor.Charge, err error) outcome {
	if e, ok := errors.AsType[*processor.Error](err); ok {
		return outcome{HTTP: e.Status, Code: e.Code, Fate: processor.FateOf(err).String()}
	}
	return outcome{Status: c.Status, Decline: c.DeclineCode, Replayed: c.Replayed}
}

// sourceCase is what two attempts with one key see, and how many charges there
// are after each.
type sourceCase struct {
	first, second outcome
	charges       [2]int
}

func sourceCases() map[string]sourceCase {
	paid := outcome{Status: processor.StatusSucceeded}
	again := outcome{Status: processor.StatusSucceeded, Replayed: true}
	unknown := func(status int, code string) outcome {
		return outcome{HTTP: status, Code: code, Fate: "unknown"}
	}
	declined := func(code string) sourceCase {
		return sourceCase{
			first:  outcome{Status: processor.StatusDeclined, Decline: code},
			second: outcome{Status: processor.StatusDeclined, Decline: code, Replayed: true},
		}
	}
	cases := map[string]sourceCase{
		"tok_chargeDeclined":                  declined("card_declined"),
		"tok_chargeDeclinedInsufficientFunds": declined("insufficient_funds"),
		"tok_error_before":                    {unknown(500, "internal_error"), paid, [2]int{0, 1}},
		"tok_error_before_always":             {unknown(500, "internal_error"), unknown(500, "internal_error"), [2]int{0, 0}},
		"tok_rate_limited":                    {outcome{HTTP: 429, Code: "rate_limited", Fate: "refused"}, paid, [2]int{0, 1}},
		"tok_in_progress":                     {unknown(409, "in_progress"), paid, [2]int{0, 1}},
		"tok_error_after":                     {unknown(500, "internal_error"), again, [2]int{1, 1}},
		"tok_gateway_timeout_after":           {unknown(504, "gateway_timeout"), again, [2]int{1, 1}},
		"tok_reset_after":                     {unknown(0, ""), again, [2]int{1, 1}},
		"tok_timeout":                         {unknown(0, ""), again, [2]int{1, 1}},
	}
	for _, card := range []string{"visa", "mastercard", "amex", "discover", "diners", "jcb", "unionpay"} {
		cases["tok_"+card] = sourceCase{paid, again, [2]int{1, 1}}
	}
	return cases
}

func TestSources(t *testing.T) {
	t.Parallel()
	cases := sourceCases()
	for _, source := range processor.Sources() {
		tt, ok := cases[source]
		if !ok {
			t.Errorf("source %s has no test", source)
		}
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			b := setup(t, processor.Config{Hang: time.Nanosecond})
			for i, want := range []outcome{tt.first, tt.second} {
				got := outcomeOf(b.client.Charge(t.Context(), "key-1", charge(source, "order-1").Encode()))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("attempt %d (-want +got):\n%s", i+1, diff)
				}
				if got := b.server.Stats().Charges; got != tt.charges[i] {
					t.Errorf("there are %d charges after attempt %d, want %d", got, i+1, tt.charges[i])
				}
			}
		})
	}
}

// TestWithoutIdempotencyTwoSendsAreTwoCharges shows what a provider that does
// not honour keys does, faults included.
func TestWithoutIdempotencyTwoSendsAreTwoCharges(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"tok_visa", "tok_error_after", "tok_reset_after"} {
		t.Run(source, func(t *testing.T) {
			t.Parallel()
			b := setup(t, processor.Config{IgnoreKeys: true})
			for range 2 {
				// Whether the first fails is the source's business.
				_, _ = b.client.Charge(t.Context(), "key-1", charge(source, "order-1").Encode())
			}
			third := mustCharge(t, b, "", charge("tok_visa", "order-2"))
			if third.Replayed {
				t.Error("a request without a key was replayed")
			}
			got := b.server.Stats()
			if got.Charges != 3 || !cmp.Equal(got.DuplicateCharges, []string{"order-1"}) {
				t.Errorf("%d charges, duplicates %v; want 3 and order-1", got.Charges, got.DuplicateCharges)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()

	t.Run("a_key_with_another_body_is_a_conflict_of_unknown_fate", func(t *testing.T) {
		t.Parallel()
		b := setup(t, processor.Config{})
		mustCharge(t, b, "key-1", charge("tok_visa", "order-1"))
		other := charge("tok_visa", "order-1")
		other.Amount++
		got := outcomeOf(b.client.Charge(t.Context(), "key-1", other.Encode()))
		if diff := cmp.Diff(outcome{HTTP: 409, Code: processor.CodeKeyReused, Fate: "unknown"}, got); diff != "" {
			t.Errorf("outcome (-want +got):\n%s", diff)
		}
	})

	t.Run("a_key_is_forgotten_when_its_time_is_over", func(t *testing.T) {
		t.Parallel()
		now := newClock()
		b := setup(t, processor.Config{KeyMemory: time.Hour, Now: now.Now})
		first := mustCharge(t, b, "key-1", charge("tok_visa", "order-1"))
		now.advance(time.Hour - time.Microsecond)
		if again := mustCharge(t, b, "key-1", charge("tok_visa", "order-1")); again.ID != first.ID {
			t.Error("the key was forgotten too early")
		}
		now.advance(time.Microsecond)
		if again := mustCharge(t, b, "key-1", charge("tok_visa", "order-1")); again.ID == first.ID {
			t.Error("the key was remembered too long")
		}
	})

	t.Run("optional_keys_may_be_left_out_and_are_honoured", func(t *testing.T) {
		t.Parallel()
		b := setup(t, processor.Config{KeysOptional: true})
		for _, key := range []string{"", "", "key-1", "key-1"} {
			mustCharge(t, b, key, charge("tok_visa", "order-1"))
		}
		if got := b.server.Stats().Charges; got != 3 {
			t.Errorf("%d charges, want 3", got)
		}
	})
}

// TestConcurrentDuplicates holds the first attempt before its effect while 63
// duplicates arrive.
func TestConcurrentDuplicates(t *testing.T) {
	t.Parallel()
	const callers = 64
	release := make(chan struct{})
	b := setup(t, processor.Config{Work: func(context.Context, string) { <-release }})
	body := charge("tok_visa", "order-1").Encode()
	outcomes := make(chan outcome, callers)
	for range callers {
		go func() { outcomes <- outcomeOf(b.client.Charge(t.Context(), "key-1", body)) }()
	}
	for range callers - 1 {
		if diff := cmp.Diff(outcome{HTTP: 409, Code: "in_progress", Fate: "unknown"}, <-outcomes); diff != "" {
			t.Errorf("duplicate in flight (-want +got):\n%s", diff)
		}
	}
	close(release)
	if diff := cmp.Diff(outcome{Status: processor.StatusSucceeded}, <-outcomes); diff != "" {
		t.Errorf("first attempt (-want +got):\n%s", diff)
	}
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			if got, err := b.client.Charge(t.Context(), "key-1", body); err != nil || !got.Replayed {
				t.Errorf("late duplicate: %+v, %v; want a replay", got, err)
			}
		})
	}
	all.Wait()
	if got := b.server.Stats().Charges; got != 1 {
		t.Errorf("%d charges, want 1", got)
	}
}

func TestInvalidRequestsDoNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, processor.Config{})
	valid := string(charge("tok_visa", "order-1").Encode())
	replaced := func(old, with string) string { return strings.Replace(valid, old, with, 1) }
	for name, tt := range map[string]struct{ key, body, code string }{
		"no key":                 {"", valid, processor.CodeKeyRequired},
		"long key":               {strings.Repeat("k", 256), valid, processor.CodeInvalidRequest},
		"amount of zero":         {"k", replaced("1500", "0"), processor.CodeInvalidRequest},
		"negative amount":        {"k", replaced("1500", "-1"), processor.CodeInvalidRequest},
		"huge amount":            {"k", replaced("1500", "1000000000000"), processor.CodeInvalidRequest},
		"fraction":               {"k", replaced("1500", "15.5"), processor.CodeInvalidRequest},
		"amount as text":         {"k", replaced("1500", `"1500"`), processor.CodeInvalidRequest},
		"lower-case currency":    {"k", replaced("ARS", "ars"), processor.CodeInvalidRequest},
		"unknown source":         {"k", replaced("tok_visa", "tok_bitcoin"), processor.CodeUnknownSource},
		"source without prefix":  {"k", replaced("tok_visa", "visa"), processor.CodeUnknownSource},
		"unknown fault":          {"k", replaced(`{`, `{"simulate":"explode",`), processor.CodeUnknownFault},
		"unknown member":         {"k", replaced(`{`, `{"amonut":1,`), processor.CodeInvalidRequest},
		"two values":             {"k", valid + valid, processor.CodeInvalidRequest},
		"no JSON":                {"k", "amount=1500", processor.CodeInvalidRequest},
		"long reference":         {"k", replaced("order-1", strings.Repeat("r", 256)), processor.CodeInvalidRequest},
		"body beyond the limit":  {"k", valid + strings.Repeat(" ", 64<<10), processor.CodeInvalidRequest},
		"key of only whitespace": {" ", valid, processor.CodeInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := postRaw(t, b, tt.key, tt.body)
			want := fmt.Sprintf(`{"code":%q,`, tt.code)
			if !strings.HasPrefix(response, "400 "+want) {
				t.Errorf("answer %s, want 400 %s", response, want)
			}
		})
	}
	t.Cleanup(func() {
		if got := b.server.Stats().Charges; got != 0 {
			t.Errorf("%d charges were made", got)
		}
	})
}

// postRaw posts a charge as no careful client would, and returns status and
// body.
func postRaw(t *testing.T, b *bundle, key, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.http.URL+"/v1/charges", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	response, err := b.client.HTTP.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var text strings.Builder
	if err := response.Write(&text); err != nil {
		t.Fatal(err)
	}
	_, answer, _ := strings.Cut(text.String(), "\r\n\r\n")
	return fmt.Sprintf("%d %s", response.StatusCode, answer)
}

func TestConfigFaultsAreAllNamed(t *testing.T) {
	t.Parallel()
	_, err := processor.NewServer(processor.Config{KeyMemory: -1, VisibleAfter: -1, Hang: -1})
	for _, field := range []string{"KeyMemory", "VisibleAfter", "Hang"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v does not name %s", err, field)
		}
	}
}
