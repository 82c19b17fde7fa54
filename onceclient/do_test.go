package onceclient_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// What attempts come to is what the operation ends as, and what the journal says.
func TestEnds(t *testing.T) {
	t.Parallel()
	unclear := onceclient.Reply{Verdict: onceclient.Unclear, Answer: &onceclient.Answer{Status: 500}, Err: errLost}
	for name, tt := range map[string]struct {
		replies []onceclient.Reply
		kind    string
		state   onceclient.State
		sends   int
	}{
		"answered":                     {[]onceclient.Reply{done(201)}, "answered", onceclient.Answered, 1},
		"lost, answered":               {[]onceclient.Reply{lost(), lost(), done(201)}, "answered", onceclient.Answered, 3},
		"not sent, answered":           {[]onceclient.Reply{unsent(), done(201)}, "answered", onceclient.Answered, 2},
		"refused":                      {[]onceclient.Reply{denied(402)}, "refused", onceclient.Refused, 1},
		"refused by anybody":           {[]onceclient.Reply{beforeKey(401)}, "refused", onceclient.Refused, 1},
		"lost, refused":                {[]onceclient.Reply{lost(), denied(402)}, "refused", onceclient.Refused, 2},
		"lost, refused by anybody":     {[]onceclient.Reply{lost(), beforeKey(401)}, "unknown", onceclient.Open, 2},
		"not sent, refused by anybody": {[]onceclient.Reply{unsent(), beforeKey(401)}, "refused", onceclient.Refused, 2},
		"never sent":                   {[]onceclient.Reply{unsent()}, "not sent", onceclient.NotSent, 12},
		"never answered":               {[]onceclient.Reply{lost()}, "unknown", onceclient.Open, 12},
		"sent once":                    {[]onceclient.Reply{unsent(), lost(), unsent()}, "unknown", onceclient.Open, 12},
		"unclear":                      {[]onceclient.Reply{unclear}, "unknown", onceclient.Open, 1},
		"unclear after not sent":       {[]onceclient.Reply{unsent(), unclear}, "unknown", onceclient.Open, 2},
		"says nothing":                 {[]onceclient.Reply{{Verdict: onceclient.Done}}, "answered", onceclient.Answered, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, s := memjournal.New(), replies(tt.replies...)
			cfg := quick(j)
			cfg.Sender = s
			out, err := newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
			wantKind(t, err, tt.kind)
			s.want(t, tt.sends)
			e := stands(t, j, "order-1")
			if e.State != tt.state || e.Attempts != tt.sends || out.Attempts != tt.sends || e.EndedAt.IsZero() == (tt.state != onceclient.Open) {
				t.Errorf("the entry says %+v", e)
			}
			if out.Intent != "order-1" || out.Key != e.Key || out.Recorded {
				t.Errorf("the outcome says %+v", out)
			}
			if err != nil && (!strings.Contains(err.Error(), `"order-1"`) || tt.state == onceclient.Open && e.Note == "") {
				t.Errorf("%v, noted as %q", err, e.Note)
			}
		})
	}
}

// L4: what the errors carry, and what they are to others.
func TestErrorsCarry(t *testing.T) {
	t.Parallel()
	again := lost()
	again.Answer, again.Reference = &onceclient.Answer{Status: 503}, "op_7"
	j := memjournal.New()
	cfg := quick(j)
	cfg.Sender = replies(again, lost())
	_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
	unknown, ok := errors.AsType[*onceclient.UnknownError](err)
	if !ok || unknown.Intent != "order-1" || unknown.Key != stands(t, j, "order-1").Key || unknown.Answer == nil || unknown.Answer.Status != 503 {
		t.Errorf("%+v", unknown)
	}
	if !errors.Is(err, onlyonce.ErrOutcomeUnknown) || !errors.Is(err, errLost) || onlyonce.IsNotApplied(err) {
		t.Errorf("%v", err)
	}

	cfg = quick(memjournal.New())
	cfg.Sender = replies(unsent())
	_, err = newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
	if !onlyonce.IsNotApplied(err) || !errors.Is(err, errLost) || errors.Is(err, onlyonce.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}

	cfg = quick(memjournal.New())
	cfg.Base = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{IsTimeout: true}
	}}
	_, err = newClient(t, cfg).Do(t.Context(), charge("order-1", "http://acme.invalid"))
	if notSent, ok := errors.AsType[*onceclient.NotSentError](err); !ok || !notSent.Timeout() {
		t.Errorf("%v", err)
	}

	refusal := denied(402)
	refusal.Reference = "op_8"
	cfg = quick(memjournal.New())
	cfg.Sender = replies(refusal)
	_, err = newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
	refused, ok := errors.AsType[*onceclient.RefusedError](err)
	if !ok || refused.Reference != "op_8" || refused.Answer.Status != 402 || !strings.Contains(err.Error(), "402") || !strings.Contains(err.Error(), "op_8") {
		t.Errorf("%v", err)
	}
}

// B100: the same intent again.
func TestSameIntent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first, second []onceclient.Reply
		kind          string
		state         onceclient.State
		sends         int // by the second
		recorded      bool
	}{
		"answered":                           {[]onceclient.Reply{done(201)}, nil, "answered", onceclient.Answered, 0, true},
		"refused, answered":                  {[]onceclient.Reply{denied(401)}, []onceclient.Reply{done(201)}, "answered", onceclient.Answered, 1, false},
		"refused, refused":                   {[]onceclient.Reply{denied(402)}, []onceclient.Reply{denied(402)}, "refused", onceclient.Refused, 1, false},
		"refused, refused by anybody":        {[]onceclient.Reply{denied(402)}, []onceclient.Reply{beforeKey(404)}, "refused", onceclient.Refused, 1, false},
		"refused, not sent":                  {[]onceclient.Reply{denied(402)}, []onceclient.Reply{unsent()}, "refused", onceclient.Refused, 12, false},
		"refused, lost":                      {[]onceclient.Reply{denied(402)}, []onceclient.Reply{lost()}, "unknown", onceclient.Open, 12, false},
		"not sent, answered":                 {[]onceclient.Reply{unsent()}, []onceclient.Reply{done(201)}, "answered", onceclient.Answered, 1, false},
		"not sent, not sent":                 {[]onceclient.Reply{unsent()}, []onceclient.Reply{unsent()}, "not sent", onceclient.NotSent, 12, false},
		"not sent, refused by anybody":       {[]onceclient.Reply{unsent()}, []onceclient.Reply{beforeKey(404)}, "refused", onceclient.Refused, 1, false},
		"unknown, answered":                  {[]onceclient.Reply{lost()}, []onceclient.Reply{done(201)}, "answered", onceclient.Answered, 1, false},
		"unknown, not sent":                  {[]onceclient.Reply{lost()}, []onceclient.Reply{unsent()}, "unknown", onceclient.Open, 12, false},
		"unknown, refused by the operation":  {[]onceclient.Reply{lost()}, []onceclient.Reply{denied(402)}, "refused", onceclient.Refused, 1, false},
		"unknown, refused by anybody":        {[]onceclient.Reply{lost()}, []onceclient.Reply{beforeKey(404)}, "unknown", onceclient.Open, 1, false},
		"unknown, not sent, then by anybody": {[]onceclient.Reply{lost()}, []onceclient.Reply{unsent(), beforeKey(404)}, "unknown", onceclient.Open, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := memjournal.New()
			cfg := quick(j)
			first, second := replies(tt.first...), replies(tt.second...)
			cfg.Sender = first
			_, _ = newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
			before := stands(t, j, "order-1")
			cfg.Sender = second
			out, err := newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
			wantKind(t, err, tt.kind)
			second.want(t, tt.sends)
			wantState(t, j, "order-1", tt.state)
			if out.Recorded != tt.recorded || out.Key != before.Key {
				t.Errorf("recorded: %t, key %q; want %t, %q", out.Recorded, out.Key, tt.recorded, before.Key)
			}
			for _, e := range append(first.entries(), second.entries()...) {
				if e.Key != before.Key || string(e.Body) != `{"amount":100}` || e.Target != "somewhere" {
					t.Errorf("sent was %+v", e)
				}
			}
			if tt.recorded && cmp.Diff(out.Answer, before.Answer) != "" {
				t.Error(cmp.Diff(out.Answer, before.Answer))
			}
			if tt.state == onceclient.Refused && (out.Answer == nil || stands(t, j, "order-1").Answer == nil) {
				t.Error("the refusal is lost")
			}
		})
	}
}

// The journal says, before each attempt, that it may have been made; of one that was
// refused or not sent before, too.
func TestJournalIsAhead(t *testing.T) {
	t.Parallel()
	j := memjournal.New()
	cfg := quick(j)
	check := func(_ context.Context, n int, e onceclient.Entry) onceclient.Reply {
		// What stands in the journal, read past the lock.
		open, err := j.Pending(t.Context(), "", 10)
		if err != nil || len(open) != 1 || open[0] != e.Intent || e.State != onceclient.Open || e.Attempts < n+1 {
			t.Errorf("before attempt %d open are %q, %v; the entry is %+v", n, open, err, e)
		}
		return []onceclient.Reply{unsent(), unsent(), done(200)}[min(n, 2)]
	}
	cfg.Sender = &script{plan: func(context.Context, int, onceclient.Entry) onceclient.Reply { return denied(401) }}
	_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
	wantKind(t, err, "refused")
	cfg.Sender = &script{plan: check}
	_, err = newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
	wantKind(t, err, "answered")
}

// The same intent with another request is refused, and says what is another.
func TestIntentOfAnotherRequest(t *testing.T) {
	t.Parallel()
	j := memjournal.New()
	cfg := quick(j)
	s := replies(done(201))
	cfg.Sender = s
	c := newClient(t, cfg)
	if _, err := c.Do(t.Context(), charge("order-1", "somewhere")); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*onceclient.Request){
		"method":              func(r *onceclient.Request) { r.Method = http.MethodPatch },
		"url":                 func(r *onceclient.Request) { r.URL = "elsewhere" },
		"body":                func(r *onceclient.Request) { r.Body = []byte(`{"amount":101}`) },
		"header:X-Account":    func(r *onceclient.Request) { r.Header.Set("X-Account", "2") },
		"header:Content-Type": func(r *onceclient.Request) { r.Header = nil },
	} {
		r := charge("order-1", "somewhere")
		change(&r)
		_, err := c.Do(t.Context(), r)
		e, ok := errors.AsType[*onlyonce.Error](err)
		if !ok || e.Code != onceclient.CodeIntentReused || cmp.Diff(e.Differs, []string{want}) != "" || !strings.Contains(e.Hint, "another intent") {
			t.Errorf("%s: %v", want, err)
		}
	}
	// What may be another: credentials, and what changes by itself.
	r := charge("order-1", "somewhere")
	r.Key = "another"
	for _, name := range []string{"authorization", "Cookie", "X-Api-Key", "traceparent", "User-Agent", "X-B3-Traceid", "Date", "Content-Length"} {
		r.Header[name] = []string{"1"}
	}
	out, err := c.Do(t.Context(), r)
	wantKind(t, err, "answered")
	if !out.Recorded || out.Key == "another" {
		t.Errorf("%+v", out)
	}
	s.want(t, 1)
}

// Keys and intents are made where there are none, of the form that is promised.
func TestMadeUp(t *testing.T) {
	t.Parallel()
	cfg := quick(memjournal.New())
	cfg.Sender = replies(done(200))
	c := newClient(t, cfg)
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 100 {
		out, err := c.Do(t.Context(), charge("", "somewhere"))
		if err != nil {
			t.Fatal(err)
		}
		if !form.MatchString(out.Key) || !strings.HasPrefix(out.Intent, "once-") || seen[out.Key] || seen[out.Intent] || strings.Contains(out.Intent, out.Key) {
			t.Errorf("key %q, intent %q", out.Key, out.Intent)
		}
		seen[out.Key], seen[out.Intent] = true, true
	}
	r := charge("", "somewhere")
	r.Key = "order-7"
	if out, err := c.Do(t.Context(), r); err != nil || out.Key != "order-7" {
		t.Errorf("%+v, %v", out, err)
	}
}

// Somebody else works on the intent: that is told, and nothing is known.
func TestLocked(t *testing.T) {
	t.Parallel()
	j := memjournal.New()
	cfg := quick(j)
	var inner error
	var c *onceclient.Client
	cfg.Sender = &script{plan: func(ctx context.Context, _ int, e onceclient.Entry) onceclient.Reply {
		_, inner = c.Do(ctx, charge("order-1", "somewhere"))
		return done(200)
	}}
	c = newClient(t, cfg)
	_, err := c.Do(t.Context(), charge("order-1", "somewhere"))
	wantKind(t, err, "answered")
	wantKind(t, inner, "unknown")
	if !errors.Is(inner, onceclient.ErrLocked) || !errors.Is(inner, &onlyonce.Error{Code: onceclient.CodeIntentLocked}) {
		t.Errorf("%v", inner)
	}
}

// The journal fails at each of its calls: nothing is sent that is not journaled, nothing
// is called not done that may be, and no answer is lost.
func TestJournalFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault   func(string, int) error
		replies []onceclient.Reply
		kind    string
		sends   int
	}{
		"begin":                      {failing("begin", 0), nil, "journal_unavailable", 0},
		"begin's reply":              {failing("begun", 0), nil, "journal_unavailable", 0},
		"lock":                       {failing("lock", 0), nil, "unknown", 0},
		"answer":                     {failing("save", 0), []onceclient.Reply{done(201)}, "unrecorded", 1},
		"answer's reply":             {failing("saved", 0), []onceclient.Reply{done(201)}, "unrecorded", 1},
		"refusal":                    {failing("save", 0), []onceclient.Reply{denied(402)}, "unrecorded", 1},
		"second attempt":             {failing("save", 0), []onceclient.Reply{lost()}, "unknown", 1},
		"second attempt and the end": {failing("save", 0, 1), []onceclient.Reply{lost()}, "unknown", 1},
		"second after not sent":      {failing("save", 0), []onceclient.Reply{unsent()}, "not sent", 1},
		"proof of not sent":          {failing("save", 11), []onceclient.Reply{unsent()}, "unknown", 12},
		"second after not sent, end": {failing("save", 0, 1), []onceclient.Reply{unsent()}, "unknown", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newFaulty(tt.fault)
			s := replies(tt.replies...)
			cfg := quick(j)
			cfg.Sender = s
			out, err := newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
			wantKind(t, err, tt.kind)
			s.want(t, tt.sends)
			if !errors.Is(err, errDisk) && tt.kind != "not sent" {
				t.Errorf("the cause is lost: %v", err)
			}
			if tt.kind == "unrecorded" && !strings.Contains(err.Error(), "not recorded") {
				t.Errorf("%v", err)
			}
			if e, ok := errors.AsType[*onceclient.UnrecordedError](err); ok && (e.Answer == nil || out.Answer != e.Answer || e.Key != out.Key) {
				t.Errorf("the answer is lost: %+v, %+v", out, e)
			}
			e, ok := errors.AsType[*onlyonce.Error](err)
			if ok && e.Hint == "" || strings.Contains(err.Error(), "sent nothing") && tt.sends > 0 {
				t.Errorf("%v does not say what to do next, or what is not so", err)
			}
		})
	}
}

// A journal that has saved that an attempt is made, and did not say so: what was a proof is
// one again only when that is saved. Else Resume would send what was called not sent.
func TestProofsAreWithTheJournal(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first  onceclient.Reply
		faults []int // of what is saved by the second Do
		kind   string
		state  onceclient.State
	}{
		"not sent":           {unsent(), []int{0}, "not sent", onceclient.NotSent},
		"refused":            {denied(402), []int{0}, "refused", onceclient.Refused},
		"not sent, and more": {unsent(), []int{0, 1}, "unknown", onceclient.NotSent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newFaulty(failing(""))
			cfg := quick(j)
			cfg.Sender, cfg.Attempts = replies(tt.first), 1
			_, _ = newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
			j.calls, j.fault = map[string]int{}, failing("saved", tt.faults...)
			s := replies(done(201))
			cfg.Sender = s
			c := newClient(t, cfg)
			_, err := c.Do(t.Context(), charge("order-1", "somewhere"))
			wantKind(t, err, tt.kind)
			wantState(t, j, "order-1", tt.state)
			if err := c.Resume(t.Context(), nil); err != nil {
				t.Error(err)
			}
			s.want(t, 0)
		})
	}
}

// An entry that was kept though its journal says that it was not: its intent is told, also
// one that was made up, so that it is not done under another.
func TestBegunInVain(t *testing.T) {
	t.Parallel()
	j := newFaulty(failing("begun", 0))
	s := replies(done(201))
	cfg := quick(j)
	cfg.Sender = s
	c := newClient(t, cfg)
	r := charge("", "somewhere")
	out, err := c.Do(t.Context(), r)
	wantKind(t, err, string(onceclient.CodeJournal))
	if out.Intent == "" || !strings.Contains(err.Error(), out.Intent) {
		t.Errorf("%+v, %v", out, err)
	}
	r.Intent = out.Intent
	_, err = c.Do(t.Context(), r)
	wantKind(t, err, "answered")
	if err := c.Resume(t.Context(), nil); err != nil {
		t.Error(err)
	}
	s.want(t, 1)
}

// An answer that could not be recorded is had from the server again.
func TestUnrecordedIsHadAgain(t *testing.T) {
	t.Parallel()
	j := newFaulty(failing("save", 0))
	cfg := quick(j)
	s := replies(done(201))
	cfg.Sender = s
	c := newClient(t, cfg)
	_, err := c.Do(t.Context(), charge("order-1", "somewhere"))
	wantKind(t, err, "unrecorded")
	wantState(t, j, "order-1", onceclient.Open)
	var got []string
	if err := c.Resume(t.Context(), func(out onceclient.Outcome, err error) {
		got = append(got, fmt.Sprint(out.Intent, " ", out.Answer.Status, " ", err))
	}); err != nil || cmp.Diff(got, []string{"order-1 201 <nil>"}) != "" {
		t.Errorf("%v, %v", got, err)
	}
	s.want(t, 2)
	wantState(t, j, "order-1", onceclient.Answered)
}

// Somebody else has taken the entry over: this one stops.
func TestLockIsLost(t *testing.T) {
	t.Parallel()
	j := newFaulty(func(method string, _ int) error {
		if method == "save" {
			return onceclient.ErrLockLost
		}
		return nil
	})
	cfg := quick(j)
	s := replies(lost())
	cfg.Sender = s
	_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
	wantKind(t, err, "unknown")
	s.want(t, 1)
	if !errors.Is(err, onceclient.ErrLockLost) {
		t.Errorf("%v", err)
	}
}

// A context that has ended before: nothing is journaled, nothing sent.
func TestEndedBefore(t *testing.T) {
	t.Parallel()
	j := memjournal.New()
	cfg := quick(j)
	s := replies(done(200))
	cfg.Sender = s
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := newClient(t, cfg).Do(ctx, charge("order-1", "somewhere"))
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "nothing was sent") {
		t.Errorf("%v", err)
	}
	s.want(t, 0)
	if _, _, err := j.Lock(t.Context(), "order-1"); !errors.Is(err, onceclient.ErrNoEntry) {
		t.Errorf("it was journaled: %v", err)
	}
}

// What happens is told, in order.
func TestObserve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := lost()
		slow.Answer, slow.RetryAfter = &onceclient.Answer{Status: 503}, 5*time.Second
		var told []string
		cfg := onceclient.Config{
			Journal: memjournal.New(), Sender: replies(slow, done(201)),
			Observe: func(_ context.Context, e onceclient.Event) {
				if e.Intent != "order-1" || e.Key != "k" {
					t.Errorf("%+v", e)
				}
				if e.Kind == onceclient.EventWaiting && (e.Wait <= 5*time.Second || e.Wait > 5250*time.Millisecond || !errors.Is(e.Err, errLost)) {
					t.Errorf("%+v", e)
				}
				told = append(told, fmt.Sprint(e.Kind, " ", e.Attempt, " ", e.Status))
			},
		}
		c := newClient(t, cfg)
		r := charge("order-1", "somewhere")
		r.Key = "k"
		for range 2 {
			if _, err := c.Do(t.Context(), r); err != nil {
				t.Error(err)
			}
		}
		want := []string{"sending 1 0", "waiting 1 503", "sending 2 0", "ended 2 201", "ended 2 201"}
		if diff := cmp.Diff(want, told); diff != "" {
			t.Error(diff)
		}
	})
}

// L1: an entry for the caller's own transaction is what Do makes of the request.
func TestEntry(t *testing.T) {
	t.Parallel()
	c := newClient(t, quick(memjournal.New()))
	req := onceclient.Request{
		Intent: "order-1", Method: http.MethodPost, URL: "http://user:secret@127.0.0.1/charges", Body: []byte("pay"),
		Header: http.Header{"authorization": {"Bearer secret"}, "api-version": {"7"}},
	}
	one, err := c.Entry(req)
	if err != nil {
		t.Fatal(err)
	}
	two, err := c.Entry(req)
	if err != nil {
		t.Fatal(err)
	}
	if one.Key == "" || one.Key == two.Key || strings.Contains(fmt.Sprint(one), "secret") {
		t.Errorf("%+v and %+v", one, two)
	}
	one.Key, one.CreatedAt = "", time.Time{}
	want := onceclient.Entry{
		Intent: "order-1", Method: http.MethodPost, Target: "http://127.0.0.1/charges", Body: []byte("pay"), State: onceclient.Open,
		Header: map[string][]string{"Api-Version": {"7"}},
	}
	if diff := cmp.Diff(want, one); diff != "" {
		t.Error(diff)
	}
	if _, err := c.Entry(onceclient.Request{Method: http.MethodPost}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("no URL: %v", err)
	}
}
