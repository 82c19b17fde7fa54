package onceclient

import (
	"math"
	"net/http"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func headerOf(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// L2: what each answer means.
func TestDecide(t *testing.T) {
	t.Parallel()
	should, shouldNot := []string{"X-Should-Retry", "true"}, []string{"X-Should-Retry", "false"}
	refusedMark := []string{"Idempotency-Status", "refused"}
	executed, replayed := []string{"Idempotency-Status", "executed"}, []string{"Idempotent-Replayed", "true"}
	for _, tt := range []struct {
		status    int
		header    []string
		want      Verdict
		beforeKey bool
	}{
		{0, nil, Again, false},
		{99, shouldNot, Again, false},
		{101, nil, Again, false},
		{200, nil, Done, false},
		{201, should, Done, false},
		{202, shouldNot, Done, false},
		{204, nil, Done, false},
		{300, nil, Denied, true},
		{301, nil, Denied, true},
		{301, executed, Done, false},
		{302, nil, Denied, true},
		{302, should, Again, false},
		{302, shouldNot, Denied, true},
		{302, replayed, Done, false},
		{303, nil, Done, true},
		{303, executed, Done, false},
		{304, refusedMark, Denied, true},
		{304, nil, Denied, true},
		{305, nil, Denied, true},
		{305, replayed, Done, false},
		{306, nil, Denied, true},
		{307, nil, Denied, true},
		{308, nil, Denied, true},
		{400, nil, Denied, true},
		{400, replayed, Denied, false},
		{400, append(shouldNot, executed...), Denied, false},
		{400, append(shouldNot, refusedMark...), Denied, true},
		{401, nil, Denied, true},
		{401, should, Again, false},
		{402, nil, Denied, false},
		{403, nil, Denied, true},
		{404, nil, Denied, true},
		{408, nil, Again, false},
		{408, shouldNot, Unclear, true},
		{408, append(shouldNot, replayed...), Denied, false},
		{409, nil, Denied, true},
		{409, executed, Denied, false},
		{409, refusedMark, Again, false},
		{409, []string{"Retry-After", "1"}, Again, false},
		{409, append(shouldNot, "Retry-After", "1"), Denied, true},
		{409, should, Again, false},
		{410, nil, Denied, true},
		{410, replayed, Denied, false},
		{410, refusedMark, Unclear, false},
		{410, append(shouldNot, refusedMark...), Unclear, false},
		{413, nil, Denied, true},
		{415, nil, Denied, true},
		{418, nil, Denied, true},
		{421, nil, Denied, true},
		{421, append(should, refusedMark...), Again, false},
		{422, nil, Denied, false},
		{422, refusedMark, Denied, true},
		{422, append(shouldNot, refusedMark...), Denied, true},
		{425, nil, Again, false},
		{425, shouldNot, Denied, true},
		{429, nil, Again, false},
		{429, shouldNot, Denied, true},
		{431, nil, Denied, true},
		{451, nil, Denied, true},
		{500, nil, Again, false},
		{500, executed, Again, false},
		{500, shouldNot, Unclear, false},
		{500, append(shouldNot, executed...), Done, false},
		{500, append(shouldNot, replayed...), Done, false},
		{500, append(shouldNot, refusedMark...), Unclear, false},
		{501, nil, Again, false},
		{502, nil, Again, false},
		{503, should, Again, false},
		{504, nil, Again, false},
		{599, shouldNot, Unclear, false},
		// Other spellings, and what is none.
		{500, []string{"Stripe-Should-Retry", "false"}, Unclear, false},
		{400, []string{"Stripe-Should-Retry", " TRUE "}, Again, false},
		{400, []string{"X-Should-Retry", "maybe"}, Denied, true},
		{400, []string{"X-Should-Retry", "maybe", "Stripe-Should-Retry", "true"}, Again, false},
		{400, []string{"X-Should-Retry", "false", "Stripe-Should-Retry", "true"}, Denied, true},
		{400, []string{"Idempotency-Status", "Replayed"}, Denied, false},
		{400, []string{"Idempotency-Status", "ignored"}, Denied, true},
	} {
		got, beforeKey := decide(tt.status, headerOf(tt.header...))
		if got != tt.want || ((got == Denied || got == Done) && beforeKey != tt.beforeKey) {
			t.Errorf("%d %v: %d, before the key %t; want %d, %t", tt.status, tt.header, got, beforeKey, tt.want, tt.beforeKey)
		}
	}
}

// What is decided of no answer whatever: that a refusal by who knows whom counts as the
// operation's, that a success is asked for again, or that a directive is not heard.
func TestDecideNever(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		status := rapid.IntRange(200, 599).Draw(t, "status")
		h := http.Header{}
		for _, name := range []string{"X-Should-Retry", "Stripe-Should-Retry", "Idempotency-Status", "Idempotent-Replayed", "Retry-After"} {
			if v := rapid.SampledFrom([]string{"", "true", "false", "refused", "executed", "replayed", "1"}).Draw(t, name); v != "" {
				h.Set(name, v)
			}
		}
		v, beforeKey := decide(status, h)
		should, said := directive(h)
		switch {
		case v == Unsent:
			t.Error("an answer proves that nothing left")
		case status < 300 && v != Done:
			t.Error("a success is none")
		case status >= 400 && said && !should && v == Again:
			t.Error("it is asked again though the server said not to")
		case status >= 400 && status != 410 && said && should && v != Again:
			t.Error("it is not asked again though the server said to")
		case v == Denied && !beforeKey && !mark(h).looked() && status != 402 && status != 422:
			t.Error("a refusal by who knows whom counts as the operation's")
		case v == Done && status >= 300 && !mark(h).looked() && (status != 303 || !beforeKey):
			t.Error("a redirect by who knows whom counts as the answer")
		case v == Done && status >= 400 && !mark(h).looked():
			t.Error("a failure counts as the answer")
		}
	})
}

// L3: both forms of Retry-After, and what is none.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for value, want := range map[string]time.Duration{
		"":                               0,
		"0":                              0,
		"1":                              time.Second,
		" 120 ":                          2 * time.Minute,
		"-1":                             0,
		"1.5":                            0,
		"soon":                           0,
		"1 2":                            0,
		"9223372036":                     9223372036 * time.Second,
		"9223372037":                     math.MaxInt64,
		"99999999999999999999999999":     math.MaxInt64,
		in(90 * time.Second):             90 * time.Second,
		in(-time.Hour):                   0,
		"Sunday, 01-Mar-26 12:00:10 GMT": 10 * time.Second,
		"Sun, 99 Mar 2026 12:00:00 GMT":  0,
	} {
		if got := retryAfter(headerOf("Retry-After", value), now); got != want {
			t.Errorf("%q is %v, want %v", value, got, want)
		}
	}
	// The server's clock is an hour ahead.
	h := headerOf("Retry-After", in(time.Hour+5*time.Second), "Date", in(time.Hour))
	if got := retryAfter(h, now); got != 5*time.Second {
		t.Errorf("by the server's clock it is %v", got)
	}
	h = headerOf("Retry-After", in(5*time.Second), "Date", "today")
	if got := retryAfter(h, now); got != 5*time.Second {
		t.Errorf("without the server's clock it is %v", got)
	}
}

// L3: pauses are anywhere between nothing and a limit that doubles to the cap.
func TestBackoff(t *testing.T) {
	t.Parallel()
	const base, limit = 250 * time.Millisecond, 8 * time.Second
	for try, most := range []time.Duration{base, 2 * base, 4 * base, 8 * base, 16 * base, limit, limit, limit} {
		low, high := limit, time.Duration(0)
		for range 2000 {
			d := backoff(try, base, limit)
			low, high = min(low, d), max(high, d)
		}
		if low <= 0 || high > most || low > most/10 || high < most/10*9 {
			t.Errorf("pause %d is between %v and %v, want all up to %v", try, low, high, most)
		}
	}
	for _, try := range []int{62, 63, 64, 1 << 20} {
		if d := backoff(try, base, limit); d <= 0 || d > limit {
			t.Errorf("pause %d is %v", try, d)
		}
	}
	if d := backoff(3, time.Hour, limit); d <= 0 || d > limit {
		t.Errorf("with a base over the cap it is %v", d)
	}
	if d := backoff(3, 0, 0); d != 1 {
		t.Errorf("without a base it is %v", d)
	}
	if got := sum(math.MaxInt64-1, 2); got != math.MaxInt64 {
		t.Errorf("the sum is %v", got)
	}
}

func TestReference(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"application/problem+json":                "op_1",
		"application/problem+json; charset=utf-8": "op_1",
		"application/json":                        "op_1",
		"text/html":                               "",
		"":                                        "",
	} {
		a := &Answer{Header: headerOf("Content-Type", kind), Body: []byte(`{"operation":"op_1"}`)}
		if got := reference(a); got != want {
			t.Errorf("of %q the reference is %q, want %q", kind, got, want)
		}
	}
	for _, body := range []string{``, `{`, `[]`, `{"operation":7}`, `{"operation":"a\nb"}`, `{"operation":"a b"}`, `null`} {
		a := &Answer{Header: headerOf("Content-Type", "application/json"), Body: []byte(body)}
		if got := reference(a); got != "" {
			t.Errorf("of %s the reference is %q", body, got)
		}
	}
	if reference(nil) != "" {
		t.Error("no answer has a reference")
	}
}

// B103: which conflicts may be an earlier attempt that is at work.
func TestAtWork(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		header []string
		want   bool
	}{
		{409, nil, true},
		{409, []string{"X-Should-Retry", "false"}, false},
		{409, []string{"Idempotency-Status", "executed"}, false},
		{409, []string{"Idempotent-Replayed", "true"}, false},
		{422, nil, false},
		{423, nil, false},
	} {
		if got := atWork(tt.status, headerOf(tt.header...)); got != tt.want {
			t.Errorf("%d %v: %t", tt.status, tt.header, got)
		}
	}
}
