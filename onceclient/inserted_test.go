package onceclient_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// insert puts an entry into a journal as the caller's own transaction does: nothing of it
// was sent.
func insert(t *testing.T, j onceclient.Journal, intent string) {
	t.Helper()
	cfg := quick(j)
	cfg.Sender = replies(unsent())
	e, err := newClient(t, cfg).Entry(charge(intent, "somewhere"))
	if err != nil {
		t.Fatal(err)
	}
	if _, made, err := j.Begin(t.Context(), e); err != nil || !made {
		t.Fatalf("made %t, %v", made, err)
	}
}

// resumed is how an open entry ends in one Resume; empty if there was none.
func resumed(t *testing.T, c *onceclient.Client) (end string) {
	t.Helper()
	if err := c.Resume(t.Context(), func(_ onceclient.Outcome, err error) { end = kindOf(err) }); err != nil {
		t.Error(err)
	}
	return end
}

// L2, L4: an entry of the caller's transaction was not sent yet, so that what comes of its
// first attempt is a proof, as it is of an operation that Do has begun.
func TestInserted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		replies []onceclient.Reply
		do      string
		doState onceclient.State
		resume  string
		state   onceclient.State
	}{
		"refused":              {[]onceclient.Reply{beforeKey(400)}, "refused", onceclient.Refused, "refused", onceclient.Refused},
		"not sent":             {[]onceclient.Reply{unsent()}, "not sent", onceclient.NotSent, "unknown", onceclient.Open},
		"not sent, refused":    {[]onceclient.Reply{unsent(), beforeKey(400)}, "refused", onceclient.Refused, "refused", onceclient.Refused},
		"lost, refused":        {[]onceclient.Reply{lost(), beforeKey(400)}, "unknown", onceclient.Open, "unknown", onceclient.Open},
		"lost, then not sent":  {[]onceclient.Reply{lost(), unsent(), unsent()}, "unknown", onceclient.Open, "unknown", onceclient.Open},
		"refused by operation": {[]onceclient.Reply{lost(), denied(402)}, "refused", onceclient.Refused, "refused", onceclient.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := memjournal.New()
			insert(t, j, "order-1")
			insert(t, j, "order-2")
			cfg := quick(j)
			cfg.Attempts = 3
			cfg.Sender = replies(tt.replies...)
			_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
			wantKind(t, err, tt.do)
			wantState(t, j, "order-1", tt.doState)
			cfg.Sender = replies(tt.replies...)
			lock, _, err := j.Lock(t.Context(), "order-1") // it may be open, too
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Unlock()
			if got := resumed(t, newClient(t, cfg)); got != tt.resume {
				t.Errorf("resumed, it is %s, want %s", got, tt.resume)
			}
			wantState(t, j, "order-2", tt.state)
		})
	}
}

// L1: what was committed is sent, however often Resume finds no server: each time nothing
// has left, so that a refusal is one still. Only when its key is too old it has ended.
func TestInsertedStaysOpen(t *testing.T) {
	t.Parallel()
	j := memjournal.New()
	insert(t, j, "order-1")
	insert(t, j, "order-2")
	lock, _, err := j.Lock(t.Context(), "order-2")
	if err != nil {
		t.Fatal(err)
	}
	cfg := quick(j)
	cfg.Attempts, cfg.Sender = 1, replies(unsent(), unsent(), beforeKey(400))
	c := newClient(t, cfg)
	for _, want := range []string{"unknown", "unknown", "refused", ""} {
		if got := resumed(t, c); got != want {
			t.Errorf("it is %q, want %q", got, want)
		}
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if stopped := resumedStopping(t, cfg); stopped != "unknown" {
		t.Errorf("a process that is stopped has made it %s", stopped)
	}
	if e := stands(t, j, "order-2"); e.State != onceclient.Open || e.Attempts != 0 {
		t.Errorf("it stands at %s after %d", e.State, e.Attempts)
	}
	s := replies(done(201))
	cfg.Sender, cfg.Now = s, func() time.Time { return time.Now().Add(22 * time.Hour) }
	if got := resumed(t, newClient(t, cfg)); got != "not sent" {
		t.Errorf("when it is too old it is %s", got)
	}
	wantState(t, j, "order-2", onceclient.NotSent)
	s.want(t, 0)
}

// resumedStopping resumes one entry in a process that is stopped while it cannot send.
func resumedStopping(t *testing.T, cfg onceclient.Config) (end string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg.Sender = &script{plan: func(context.Context, int, onceclient.Entry) onceclient.Reply {
		cancel()
		return unsent()
	}}
	if err := newClient(t, cfg).Resume(ctx, func(_ onceclient.Outcome, err error) { end = kindOf(err) }); err == nil {
		t.Error("Resume does not say that it was stopped")
	}
	return end
}

// L2: what Do has begun may have been sent from then on, also if its process died at once;
// and what a process has begun to send of an inserted entry.
func TestBegunMayBeSent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		inserted bool
		at       string
	}{"begun": {false, "begun"}, "inserted, saved": {true, "saved"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newFaulty(failing(""))
			if tt.inserted {
				insert(t, j, "order-1")
			}
			j.fault = func(method string, _ int) error {
				if method == tt.at {
					kill()
				}
				return nil
			}
			cfg := quick(j)
			cfg.Sender = replies(done(201))
			c := newClient(t, cfg)
			inProcess(func() { _, _ = c.Do(t.Context(), charge("order-1", "somewhere")) })
			j.fault = failing("")
			if e := stands(t, j.Journal, "order-1"); e.Attempts != 1 || e.State != onceclient.Open {
				t.Errorf("the journal says %d attempts, %s", e.Attempts, e.State)
			}
			cfg.Sender = replies(beforeKey(400))
			if got := resumed(t, newClient(t, cfg)); got != "unknown" {
				t.Errorf("it is %s", got)
			}
		})
	}
}

// L1: between Begin and Lock of one another does the operation. What that one may have
// sent is not forgotten, and what it has not sent is no doubt.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		other    func(t *testing.T, j onceclient.Journal)
		want     string
		attempts int
	}{
		"by one that is killed as it sends": {func(t *testing.T, j onceclient.Journal) {
			t.Helper()
			overtake(t, j, func() onceclient.Reply { kill(); return onceclient.Reply{} })
		}, "unknown", 3},
		"by one that loses the answer": {func(t *testing.T, j onceclient.Journal) {
			t.Helper()
			overtake(t, j, lost)
		}, "unknown", 3},
		"by one that only looks": {func(t *testing.T, j onceclient.Journal) {
			t.Helper()
			stands(t, j, "order-1")
		}, "refused", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newFaulty(failing(""))
			j.fault = func(method string, n int) error {
				if method == "begun" && n == 0 {
					tt.other(t, j.Journal)
				}
				return nil
			}
			cfg := quick(j)
			cfg.Sender = replies(beforeKey(404))
			out, err := newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
			wantKind(t, err, tt.want)
			if out.Attempts != tt.attempts {
				t.Errorf("after %d attempts, want %d", out.Attempts, tt.attempts)
			}
		})
	}
}

func overtake(t *testing.T, j onceclient.Journal, reply func() onceclient.Reply) {
	t.Helper()
	cfg := quick(j)
	cfg.Attempts = 1
	cfg.Sender = &script{plan: func(context.Context, int, onceclient.Entry) onceclient.Reply { return reply() }}
	c := newClient(t, cfg)
	inProcess(func() { _, _ = c.Do(t.Context(), charge("order-1", "somewhere")) })
}

// L4: what was not sent is not to be looked up when its key is too old.
func TestNotSentAndLate(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]onceclient.Reply{"not sent": unsent(), "unknown": lost(), "refused": denied(402)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := memjournal.New()
			cfg := quick(j)
			cfg.Attempts, cfg.Sender = 1, replies(first)
			_, err := newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
			wantKind(t, err, name)
			s := replies(done(201))
			cfg.Sender, cfg.Now = s, func() time.Time { return time.Now().Add(22 * time.Hour) }
			_, err = newClient(t, cfg).Do(t.Context(), charge("order-1", "somewhere"))
			wantKind(t, err, name)
			s.want(t, 0)
			if err == nil || strings.Contains(err.Error(), "another intent") != (name != "unknown") || strings.Contains(err.Error(), "look up") != (name == "unknown") {
				t.Errorf("%v", err)
			}
		})
	}
}
