package memjournal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func entry(intent string) onceclient.Entry {
	return onceclient.Entry{
		Intent: intent, Key: "key of " + intent, Method: "POST", Target: "somewhere", Header: map[string][]string{"A": {"1"}},
		Body: []byte("body"), CreatedAt: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), State: onceclient.Open,
	}
}

func begin(t *testing.T, j *memjournal.Journal, intent string) {
	t.Helper()
	if _, made, err := j.Begin(t.Context(), entry(intent)); err != nil || !made {
		t.Fatalf("made: %t, %v", made, err)
	}
}

// Of many that begin one intent, one makes it, and all see that one's.
func TestBegin(t *testing.T) {
	t.Parallel()
	j := memjournal.New()
	var mu sync.Mutex
	var makers []string
	keys := map[string]bool{}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			e := entry("a")
			e.Key = fmt.Sprint(i)
			stands, made, err := j.Begin(t.Context(), e)
			mu.Lock()
			defer mu.Unlock()
			keys[stands.Key] = true
			if err != nil {
				t.Error(err)
			}
			if made {
				makers = append(makers, e.Key)
			}
		})
	}
	all.Wait()
	if len(makers) != 1 || len(keys) != 1 || !keys[makers[0]] {
		t.Errorf("made by %q, and %v stand", makers, keys)
	}
}

// A lock is one's alone until Unlock; what was lost changes nothing.
func TestLock(t *testing.T) {
	t.Parallel()
	j := memjournal.New()
	if _, _, err := j.Lock(t.Context(), "a"); !errors.Is(err, onceclient.ErrNoEntry) {
		t.Errorf("%v", err)
	}
	begin(t, j, "a")
	first, e, err := j.Lock(t.Context(), "a")
	if err != nil || cmp.Diff(entry("a"), e) != "" {
		t.Fatalf("%+v, %v", e, err)
	}
	if _, _, err := j.Lock(t.Context(), "a"); !errors.Is(err, onceclient.ErrLocked) {
		t.Errorf("%v", err)
	}
	e.State, e.Attempts, e.Note, e.EndedAt = onceclient.Answered, 3, "why", e.CreatedAt.Add(time.Hour)
	e.Answer = &onceclient.Answer{Status: 201, Header: map[string][]string{"B": {"2"}}, Body: []byte("paid")}
	want := e
	e.Key, e.Target, e.Body = "other", "elsewhere", []byte("other") // never changes
	if err := first.Save(t.Context(), e); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := first.Unlock(); err != nil {
			t.Error(err)
		}
	}
	second, got, err := j.Lock(t.Context(), "a")
	if err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("%v, %s", err, cmp.Diff(want, got))
	}
	e.State = onceclient.Open
	if err := first.Save(t.Context(), e); !errors.Is(err, onceclient.ErrLockLost) {
		t.Errorf("%v", err)
	}
	if err := first.Unlock(); err != nil {
		t.Error(err)
	}
	if _, _, err := j.Lock(t.Context(), "a"); !errors.Is(err, onceclient.ErrLocked) {
		t.Errorf("somebody else's lock was let go: %v", err)
	}
	if err := second.Unlock(); err != nil {
		t.Error(err)
	}
}

// What a caller does to an entry afterwards is not the journal's.
func TestNothingIsShared(t *testing.T) {
	t.Parallel()
	j := memjournal.New()
	e := entry("a")
	if _, _, err := j.Begin(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	e.Body[0], e.Header["A"][0] = 'x', "x"
	lock, got, err := j.Lock(t.Context(), "a")
	if err != nil || cmp.Diff(entry("a"), got) != "" {
		t.Errorf("%v %s", err, cmp.Diff(entry("a"), got))
	}
	got.Answer = &onceclient.Answer{Body: []byte("paid")}
	if err := lock.Save(t.Context(), got); err != nil {
		t.Error(err)
	}
	got.Answer.Body[0] = 'x'
	stands, _, err := j.Begin(t.Context(), entry("a"))
	if err != nil || string(stands.Answer.Body) != "paid" {
		t.Errorf("%+v, %v", stands, err)
	}
}

// Pending lists what is open, in pages, oldest first; Prune forgets what ended.
func TestPendingAndPrune(t *testing.T) {
	t.Parallel()
	j := memjournal.New()
	old := entry("").CreatedAt
	for i := range 9 {
		intent := fmt.Sprint("i", 9-i)
		begin(t, j, intent)
		if i%3 == 0 {
			continue
		}
		lock, e, err := j.Lock(t.Context(), intent)
		if err != nil {
			t.Fatal(err)
		}
		e.State, e.EndedAt = onceclient.Refused, old.Add(time.Duration(i)*time.Hour)
		if err := errors.Join(lock.Save(t.Context(), e), lock.Unlock()); err != nil {
			t.Fatal(err)
		}
	}
	var all []string
	after := ""
	for {
		page, err := j.Pending(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		all = append(all, page...)
		after = page[len(page)-1]
	}
	if !slices.Equal(all, []string{"i9", "i6", "i3"}) {
		t.Errorf("open are %q", all)
	}
	if _, _, err := j.Lock(t.Context(), "i8"); err != nil { // the oldest, but in use
		t.Fatal(err)
	}
	for _, want := range []int{2, 1, 0} {
		if n, err := j.Prune(t.Context(), old.Add(6*time.Hour), 2); n != want || err != nil {
			t.Errorf("%d were forgotten, %v; want %d", n, err, want)
		}
	}
}

// A context that has ended: nothing is done.
func TestEnded(t *testing.T) {
	t.Parallel()
	j := memjournal.New()
	begin(t, j, "a")
	lock, e, err := j.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	_, _, began := j.Begin(ctx, entry("b"))
	_, _, locked := j.Lock(ctx, "a")
	_, listed := j.Pending(ctx, "", 1)
	_, pruned := j.Prune(ctx, time.Now(), 1)
	for _, err := range []error{began, locked, listed, pruned, lock.Save(ctx, e)} {
		if !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
	}
}
