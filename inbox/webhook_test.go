package inbox_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// reports remembers what a webhook says.
type reports struct {
	mu   sync.Mutex
	seen []inbox.WebhookReport
}

func (r *reports) told(_ context.Context, report inbox.WebhookReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, report)
}

// err is the first error of a try to handle an event.
func (r *reports) err(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		if s.Status == 0 && s.ID == id && s.Err != nil {
			return s.Err.Error()
		}
	}
	return "nothing"
}

// tries are the verdicts of the tries, in order.
func (r *reports) tries() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var verdicts []string
	for _, s := range r.seen {
		if s.Status == 0 {
			verdicts = append(verdicts, s.Verdict.String())
		}
	}
	return strings.Join(verdicts, " ")
}

// signed accepts what bears the header of the sender.
func signed(header http.Header, _ []byte) error {
	if header.Get("Signed") != "yes" {
		return inbox.ErrSignature
	}
	return nil
}

// door is a webhook and what came of it.
type door struct {
	processor
	*inbox.Webhook
	reports *reports
}

func (p processor) door(t *testing.T, cfg inbox.WebhookConfig) door {
	t.Helper()
	id, err := inbox.IDFromJSON("/id")
	if err != nil {
		t.Fatal(err)
	}
	seen := &reports{}
	cfg.Verify, cfg.EventID, cfg.Report = signed, id, seen.told
	w, err := p.webhook(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return door{p, w, seen}
}

func request(body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/hook", strings.NewReader(body))
	r.Header.Set("Signed", "yes")
	r.Header.Set("Content-Type", "application/json")
	return r
}

// post sends an event and returns the status of the answer.
func (d door) post(t *testing.T, body string) int {
	t.Helper()
	rec := httptest.NewRecorder()
	d.ServeHTTP(rec, request(body).WithContext(t.Context()))
	if rec.Code == http.StatusServiceUnavailable && rec.Header().Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	return rec.Code
}

func (d door) wantStatus(t *testing.T, body string, want int) {
	t.Helper()
	if got := d.post(t, body); got != want {
		t.Errorf("%s: status %d, want %d", body, got, want)
	}
}

const event = `{"id":"evt_1","amount":5}`

// eachDoor runs a test for webhooks of both kinds of inbox.
func eachDoor(t *testing.T, fn func(d door)) {
	t.Helper()
	each(t, func(p processor) {
		fn(p.door(p.t, inbox.WebhookConfig{}))
	})
}

// I1: an event is answered when it is kept, handled behind the answer, and a repetition
// is answered and not handled.
func TestWebhook(t *testing.T) {
	t.Parallel()
	eachDoor(t, func(d door) {
		t := d.t

		var attributes map[string]string
		release := make(chan struct{})
		d.before = func(msg inbox.Message) error { attributes = msg.Attributes; <-release; return nil }
		for range 3 {
			d.wantStatus(t, event, http.StatusOK) // while the first is still being handled
		}
		if kept, has, err := d.w.mem.Kept(t.Context(), inbox.KeyOf("balances", "evt_1")); err != nil || !has {
			t.Errorf("answered, and kept is %q, %v", kept, err)
		}
		d.want(t)
		close(release)
		synctest.Wait()
		d.want(t, event)
		d.wantStatus(t, event, http.StatusOK)
		synctest.Wait()
		d.wantRuns(t, 1)
		if d.reports.tries() != "handled" || len(attributes) != 1 || attributes["Content-Type"] != "application/json" {
			t.Errorf("tries %q, attributes %v", d.reports.tries(), attributes)
		}
	})
}

// I2: a handler that fails is tried again from the store, later each time; the sender
// hears nothing of it.
func TestWebhookTriesAgain(t *testing.T) {
	t.Parallel()
	eachDoor(t, func(d door) {
		t := d.t

		d.fail(2)
		d.wantStatus(t, event, http.StatusOK)
		synctest.Wait()
		entry := d.show(t, "evt_1")
		if !entry.Waits || entry.Record.Reason != "held: waits after try 1 of 3: the account is closed" {
			t.Errorf("%+v", entry)
		}
		d.wantStatus(t, event, http.StatusOK)
		d.wantRuns(t, 1)
		pass(5 * time.Minute)
		d.want(t, event)
		d.wantRuns(t, 3)
		if got := d.reports.tries(); got != "again again handled" {
			t.Errorf("tries: %s", got)
		}
		if got := d.reports.err("evt_1"); !strings.Contains(got, "try 1 of 3; it is kept, and is tried again: the account is closed") {
			t.Errorf("the first failure was told as: %s", got)
		}
	})
}

// I2, X3: after its tries an event is parked for a person; the webhook itself makes the
// try that is asked for.
func TestWebhookParks(t *testing.T) {
	t.Parallel()
	eachDoor(t, func(d door) {
		t := d.t

		d.before = func(inbox.Message) error { return errBroken }
		d.wantStatus(t, event, http.StatusOK)
		pass(24 * time.Hour)
		d.wantRuns(t, 3)
		if got := d.reports.tries(); got != "again again parked" {
			t.Errorf("tries: %s", got)
		}
		entry := d.show(t, "evt_1")
		if entry.Waits || entry.Record.Reason != "held: parked after 3 tries: the account is closed" || string(entry.Message.Payload) != event {
			t.Errorf("%+v", entry)
		}
		d.wantStatus(t, event, http.StatusOK)
		d.before = nil
		if _, err := inbox.Retry(t.Context(), d.w.mem, d.act("evt_1")); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		d.want(t, event)
	})
}

// I2, D6: a process that dies after it has answered loses nothing: its next life handles
// the event, once.
func TestWebhookCrash(t *testing.T) {
	t.Parallel()
	for name, make := range kinds() {
		for _, sweeps := range []string{"with sweeps", "without sweeps"} {
			t.Run(name+" "+sweeps, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					e := &effects{}
					mem := newWorld(t).mem
					for life := range 2 { // as often as it is tried, less once
						dying := make(worldOn(t, mem), t, e)
						e.before = func(inbox.Message) error { dying.w.down(); return errBroken }
						d := dying.door(t, inbox.WebhookConfig{})
						if life == 0 {
							d.wantStatus(t, event, http.StatusOK)
						}
						pass(time.Minute)
						dying.w.end(t, 0)
						if err := d.Close(t.Context()); err != nil {
							t.Error(err)
						}
						if sweeps == "with sweeps" {
							sweep(t, mem)
						}
					}
					e.before = nil
					d := make(worldOn(t, mem), t, e).door(t, inbox.WebhookConfig{})
					pass(time.Minute)
					d.want(t, event)
					d.wantStatus(t, event, http.StatusOK)
					d.wantRuns(t, 3)
				})
			})
		}
	}
}

// I3: another payload under an event's id is parked and answered: its sender would only
// repeat it.
func TestWebhookOtherPayload(t *testing.T) {
	t.Parallel()
	eachDoor(t, func(d door) {
		t := d.t

		d.wantStatus(t, event, http.StatusOK)
		synctest.Wait()
		other := `{"id":"evt_1","amount":500}`
		d.wantStatus(t, other, http.StatusOK)
		d.wantStatus(t, other, http.StatusOK)
		pass(time.Hour)
		d.want(t, event)
		page, err := inbox.List(t.Context(), d.w.mem, "balances", "")
		if err != nil || len(page.Entries) != 1 || !page.Entries[0].OtherPayload || string(page.Entries[0].Message.Payload) != other {
			t.Errorf("%+v, %v", page, err)
		}
	})
}

// Nothing is stored of a request that is refused, whatever it says it is.
func TestWebhookRefuses(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		d := p.door(t, inbox.WebhookConfig{MaxBody: 100})
		for name, c := range map[string]struct {
			change func(r *http.Request) *http.Request
			want   int
		}{
			"not signed":        {func(r *http.Request) *http.Request { r.Header.Del("Signed"); return r }, http.StatusUnauthorized},
			"not even read":     {func(r *http.Request) *http.Request { r.Method = http.MethodGet; return r }, http.StatusMethodNotAllowed},
			"broken off":        {func(r *http.Request) *http.Request { r.Body = http.NoBody; r.Body = broken{}; return r }, http.StatusBadRequest},
			"no id":             {func(*http.Request) *http.Request { return request(`{"type":"x"}`) }, http.StatusBadRequest},
			"empty id":          {func(*http.Request) *http.Request { return request(`{"id":""}`) }, http.StatusBadRequest},
			"no JSON":           {func(*http.Request) *http.Request { return request(`id=evt_1`) }, http.StatusBadRequest},
			"too long":          {func(*http.Request) *http.Request { return request(`{"id":"` + strings.Repeat("x", 100) + `"}`) }, http.StatusRequestEntityTooLarge},
			"two ids":           {func(*http.Request) *http.Request { return request(`{"id":"evt_1","id":"evt_2"}`) }, http.StatusBadRequest},
			"id is no text":     {func(*http.Request) *http.Request { return request(`{"id":{"id":"evt_1"}}`) }, http.StatusBadRequest},
			"two values":        {func(*http.Request) *http.Request { return request(`{"id":"evt_1"}{"id":"evt_1"}`) }, http.StatusBadRequest},
			"signed by nobody":  {func(r *http.Request) *http.Request { r.Header.Set("Signed", "no"); return r }, http.StatusUnauthorized},
			"id in a deep part": {func(*http.Request) *http.Request { return request(`{"data":{"id":"evt_1"}}`) }, http.StatusBadRequest},
		} {
			rec := httptest.NewRecorder()
			d.ServeHTTP(rec, c.change(request(event)))
			if rec.Code != c.want || rec.Body.Len() != 0 {
				t.Errorf("%s: %d %s, want %d", name, rec.Code, rec.Body, c.want)
			}
		}
		synctest.Wait()
		d.wantRuns(t, 0)
		if page, err := d.w.mem.List(t.Context(), onlyonce.ListFilter{}); err != nil || len(page.Records) != 0 {
			t.Errorf("%+v, %v", page, err)
		}
		d.wantStatus(t, event, http.StatusOK) // no place is lost
	})
}

type broken struct{}

func (broken) Read(p []byte) (int, error) { return iotest.ErrReader(errBroken).Read(p) }
func (broken) Close() error               { return nil }

// C11: while the store is down, or only its replies are lost, the sender is asked to
// repeat the event, which is then handled once.
func TestWebhookWithoutStore(t *testing.T) {
	t.Parallel()
	eachDoor(t, func(d door) {
		t := d.t

		for _, fault := range []storefault.Fault{{Before: storefault.ErrDown}, {After: onlyonce.ErrUncertain}} {
			d.w.fault.Store(&fault)
			d.wantStatus(t, event, http.StatusServiceUnavailable)
			d.wantRuns(t, 0)
		}
		d.w.up()
		pass(time.Minute)
		for d.post(t, event) != http.StatusOK {
			pass(5 * time.Second)
		}
		pass(time.Minute)
		d.want(t, event)
	})
}

// More than may be handled at a time is left to its sender, and so is what comes after
// the end; what is under way is waited for.
func TestWebhookIsFullAndEnds(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		d := p.door(t, inbox.WebhookConfig{MaxRunning: 2})
		release := make(chan struct{})
		d.after = func(inbox.Message) error { <-release; return nil }
		d.wantStatus(t, event, http.StatusOK)
		d.wantStatus(t, `{"id":"evt_2"}`, http.StatusOK)
		d.wantStatus(t, `{"id":"evt_3"}`, http.StatusServiceUnavailable)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || onlyonce.CodeOf(err) != onlyonce.CodeUncertain {
			t.Errorf("closed with handlers that run: %v", err)
		}
		d.wantStatus(t, `{"id":"evt_4"}`, http.StatusServiceUnavailable)
		close(release)
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if len(d.seen) != 2 || d.reports.tries() != "handled handled" {
			t.Errorf("effects %q, tries %s", d.seen, d.reports.tries())
		}
	})
}

// Who has not shown that it may send keeps nobody out, however slowly it sends.
func TestWebhookSlowStranger(t *testing.T) {
	t.Parallel()
	each(t, func(p processor) {
		t := p.t

		d := p.door(t, inbox.WebhookConfig{MaxRunning: 1})
		body, send := io.Pipe()
		stranger := httptest.NewRequest(http.MethodPost, "/hook", body).WithContext(t.Context())
		rec := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			defer close(done)
			d.ServeHTTP(rec, stranger)
		}()
		if _, err := io.WriteString(send, "{"); err != nil { // it is read from
			t.Fatal(err)
		}
		d.wantStatus(t, event, http.StatusOK)
		send.Close()
		<-done
		if rec.Code != http.StatusUnauthorized {
			t.Errorf("the stranger got %d", rec.Code)
		}
	})
}

// A broker's consumer and a webhook may share an inbox: what the one handles the other
// does not, and an event is not taken for kept because somebody is at it.
func TestWebhookBesideProcess(t *testing.T) {
	t.Parallel()
	eachDoor(t, func(d door) {
		t := d.t

		msg := inbox.Message{ID: "evt_1", Payload: []byte(event)}
		d.before = func(inbox.Message) error {
			d.wantStatus(t, event, http.StatusServiceUnavailable) // nothing is kept of it
			return nil
		}
		d.wantVerdict(t, msg, inbox.Handled)
		d.before = nil
		d.wantStatus(t, event, http.StatusOK)
		d.want(t, event)

		failed := inbox.Message{ID: "evt_2", Payload: []byte(`{"id":"evt_2"}`)}
		d.fail(1)
		d.wantVerdict(t, failed, inbox.Again)
		d.wantStatus(t, `{"id":"evt_2"}`, http.StatusOK)
		synctest.Wait()
		d.wantVerdict(t, failed, inbox.Duplicate)
		d.want(t, event, `{"id":"evt_2"}`)
	})
}

// A webhook that anybody could use, or that could not tell events apart, is refused.
func TestWebhookConfig(t *testing.T) {
	t.Parallel()
	p := newWorld(t).transactional(t, &effects{})
	id := inbox.IDFromHeader("Event")
	for says, cfg := range map[string]inbox.WebhookConfig{
		"Verify": {EventID: id}, "EventID": {Verify: signed}, "MaxBody": {Verify: signed, EventID: id, MaxBody: -1},
		"MaxRunning": {Verify: signed, EventID: id, MaxRunning: -1},
	} {
		_, err := p.webhook(cfg)
		wantRefusal(t, err, says)
	}
	_, err := inbox.IDFromJSON("id")
	wantRefusal(t, err, "JSON Pointer")
}

// The id is where it is said to be, as it is written.
func TestEventID(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ pointer, body, want string }{
		{"/id", `{"data":{"id":"no"},"id":"evt_1"}`, "evt_1"},
		{"/event/id", `{"id":"no","event":{"x":["id"],"id":12345678901234567890123}}`, "12345678901234567890123"},
		{"/0/a~1b", `[{"a/b":"x"}]`, "x"},
		{"", `"whole"`, "whole"},
		{"/id", `{"id":"\u00e9\n"}`, "é\n"},
		{"/id", `{"id":null}`, ""},
		{"/id", `{"x":"id"}`, ""},
		{"/id", `{"id":true}`, ""},
		{"/id", ``, ""},
		{"/id", `{"id":"x"`, ""},
	} {
		find, err := inbox.IDFromJSON(c.pointer)
		if err != nil {
			t.Fatal(err)
		}
		got, err := find(nil, []byte(c.body))
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s in %s: %q, %v", c.pointer, c.body, got, err)
		}
	}
	find := inbox.IDFromHeader("X-Event")
	for want, values := range map[string][]string{"e1": {"e1"}, "": {"e1", "e2"}} {
		got, err := find(http.Header{"X-Event": values}, nil)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", values, got, err)
		}
	}
}
