package journaltest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/onceclient"
)

// Run checks the rules that every journal must keep. open returns a journal on fresh,
// empty storage; it is closed with the test if it needs that.
func Run(t *testing.T, open func(t *testing.T) onceclient.Journal) {
	t.Helper()
	RunShared(t, func(t *testing.T) func() onceclient.Journal {
		t.Helper()
		j := open(t)
		return func() onceclient.Journal { return j }
	})
}

// RunShared checks the same with several handles on one storage, as several processes
// would have them. open makes fresh, empty storage and returns what opens one more
// handle on it; that is called by the test's own goroutine only.
func RunShared(t *testing.T, open func(t *testing.T) func() onceclient.Journal) {
	t.Helper()
	for _, r := range slices.Concat(beginRules(), lockRules(), listRules()) {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("BROKEN RULE: %s", r.broken)
				}
			})
			handle := open(t)
			r.check(t, &bench{first: handle(), second: handle(), handle: handle})
		})
	}
}

// rule is one promise of the interface.
type rule struct {
	name string
	// broken is printed when the rule does not hold.
	broken string
	check  func(t *testing.T, b *bench)
}

// bench is what a rule is checked with.
type bench struct {
	first, second onceclient.Journal
	handle        func() onceclient.Journal
}

// moment is when entries are made, in microseconds, which every journal can hold.
func moment() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 123_456_000, time.UTC) }

// entryOf is an entry that is about to be begun.
func entryOf(intent string) onceclient.Entry {
	return onceclient.Entry{
		Intent: intent, Key: "key of " + intent, Method: http.MethodPost, Target: "https://api.example.com/charges?a=b&a=c",
		Header: map[string][]string{"Content-Type": {"application/json"}}, Body: []byte(`{"amount":1999}`),
		CreatedAt: moment(), State: onceclient.Open,
	}
}

// madeAt is an entry of another time.
func madeAt(intent string, at time.Time) onceclient.Entry {
	e := entryOf(intent)
	e.CreatedAt = at
	return e
}

// ended is the entry when it ended.
func ended(e onceclient.Entry, state onceclient.State, at time.Time) onceclient.Entry {
	e.State, e.EndedAt, e.Attempts = state, at, e.Attempts+1
	if state != onceclient.NotSent {
		e.Answer = &onceclient.Answer{Status: http.StatusCreated, Header: http.Header{"X": {"y"}}, Body: []byte("answer of " + e.Intent)}
	}
	return e
}

// normal is an entry with what journals may give back in more than one way: the place of
// times and what is finer than a microsecond, and empty or nil.
func normal(e onceclient.Entry) onceclient.Entry {
	e.CreatedAt, e.EndedAt = normalTime(e.CreatedAt), normalTime(e.EndedAt)
	e.Body = append([]byte{}, e.Body...)
	if len(e.Header) == 0 {
		e.Header = nil
	}
	if e.Answer != nil {
		a := *e.Answer
		a.Body = append([]byte{}, a.Body...)
		if len(a.Header) == 0 {
			a.Header = nil
		}
		e.Answer = &a
	}
	return e
}

func normalTime(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}

// same compares entries.
func same(t *testing.T, what string, got, want onceclient.Entry) {
	t.Helper()
	got, want = normal(got), normal(want)
	if reflect.DeepEqual(got, want) {
		return
	}
	t.Errorf("%s:\n got %s\nwant %s", what, show(got), show(want))
}

// show is an entry for people.
func show(e onceclient.Entry) string {
	text := fmt.Sprintf("%s %q under %q: %s %s %q, body of %d bytes %.80q, made at %v; attempts %d, note %q, ended at %v, ",
		e.State, e.Intent, e.Key, e.Method, e.Target, e.Header, len(e.Body), e.Body, e.CreatedAt, e.Attempts, e.Note, e.EndedAt)
	if e.Answer == nil {
		return text + "no answer"
	}
	return text + fmt.Sprintf("answer %d %q, body of %d bytes %.80q", e.Answer.Status, e.Answer.Header, len(e.Answer.Body), e.Answer.Body)
}

// begin begins an entry that must be new.
func begin(t *testing.T, j onceclient.Journal, e onceclient.Entry) {
	t.Helper()
	stands, made, err := j.Begin(t.Context(), e)
	if err != nil || !made {
		t.Fatalf("begin %q: made %v, %v", e.Intent, made, err)
	}
	same(t, "what Begin gives", stands, e)
}

// standing is an entry as it stands, by Begin.
func standing(t *testing.T, j onceclient.Journal, intent string) onceclient.Entry {
	t.Helper()
	other := entryOf(intent)
	other.Key, other.Body = "another key", []byte("another body")
	stands, made, err := j.Begin(t.Context(), other)
	if err != nil || made {
		t.Fatalf("begin %q again: made %v, %v", intent, made, err)
	}
	return stands
}

// lock locks an entry, until the end of the test at the latest.
func lock(t *testing.T, j onceclient.Journal, intent string) (onceclient.Lock, onceclient.Entry) {
	t.Helper()
	l, e, err := j.Lock(t.Context(), intent)
	if err != nil {
		t.Fatalf("lock %q: %v", intent, err)
	}
	t.Cleanup(func() {
		if err := l.Unlock(); err != nil {
			t.Errorf("unlock %q: %v", intent, err)
		}
	})
	return l, e
}

// notLocked makes sure that a lock is refused for a reason.
func notLocked(t *testing.T, j onceclient.Journal, intent string, want error) {
	t.Helper()
	l, _, err := j.Lock(t.Context(), intent)
	if err == nil {
		t.Errorf("lock %q was given: %v", intent, l.Unlock())
		return
	}
	if !errors.Is(err, want) {
		t.Errorf("lock %q: %v, want: %v", intent, err, want)
	}
}

func unlock(t *testing.T, l onceclient.Lock) {
	t.Helper()
	if err := l.Unlock(); err != nil {
		t.Fatalf("unlock: %v", err)
	}
}

func save(t *testing.T, l onceclient.Lock, e onceclient.Entry) {
	t.Helper()
	if err := l.Save(t.Context(), e); err != nil {
		t.Fatalf("save %q: %v", e.Intent, err)
	}
}

// change locks an entry, saves it and lets go.
func change(t *testing.T, j onceclient.Journal, e onceclient.Entry) {
	t.Helper()
	l, _, err := j.Lock(t.Context(), e.Intent)
	if err != nil {
		t.Fatalf("lock %q: %v", e.Intent, err)
	}
	err = l.Save(t.Context(), e)
	if err := errors.Join(err, l.Unlock()); err != nil {
		t.Fatalf("save %q: %v", e.Intent, err)
	}
}

// pending lists all open entries in pages.
func pending(t *testing.T, j onceclient.Journal, page int) []string {
	t.Helper()
	var all []string
	for after := ""; ; {
		intents, err := j.Pending(t.Context(), after, page)
		if err != nil || len(intents) > page {
			t.Fatalf("pending behind %q: %d, %v", after, len(intents), err)
		}
		all = append(all, intents...)
		if len(intents) < page {
			return all
		}
		after = intents[len(intents)-1]
	}
}

// listed compares a list.
func listed(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}

// over is a context that has ended.
func over(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
