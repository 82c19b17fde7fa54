package journaltest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/onceclient"
)

func lockRules() []rule {
	return []rule{
		{"L1_one_at_a_time_works_on_an_entry", "two that resume one operation overwrite each other's answer", oneWorks},
		{"L1_what_there_is_no_entry_of_is_not_locked", "there is nothing to send", noEntry},
		{"L1_many_work_one_after_the_other", "what one has saved, the next one reads", oneAfterTheOther},
		{"L1_a_save_is_seen_by_all", "an answer that was recorded is the answer", saves},
		{"L1_a_save_changes_nothing_else", "key, target and bytes never change", nothingElse},
		{"L1_an_entry_can_be_opened_anew", "what was proved not to be sent may be done again, under its key", reopens},
		{"C6_who_has_let_go_saves_nothing", "a late write over somebody else's is lost money", letGo},
	}
}

func oneWorks(t *testing.T, b *bench) {
	begin(t, b.first, entryOf("i"))
	begin(t, b.first, entryOf("other"))
	l, got := lock(t, b.first, "i")
	same(t, "what Lock reads", got, entryOf("i"))
	notLocked(t, b.first, "i", onceclient.ErrLocked)
	notLocked(t, b.second, "i", onceclient.ErrLocked)
	lock(t, b.second, "other")
	unlock(t, l)
	next, _ := lock(t, b.second, "i")
	unlock(t, l) // a second time: it must not let go of somebody else's
	notLocked(t, b.first, "i", onceclient.ErrLocked)
	save(t, next, ended(entryOf("i"), onceclient.Answered, moment()))
	notLocked(t, b.first, "i", onceclient.ErrLocked)
	unlock(t, next)
	_, got = lock(t, b.first, "i")
	same(t, "the next one reads", got, ended(entryOf("i"), onceclient.Answered, moment()))
}

func noEntry(t *testing.T, b *bench) {
	notLocked(t, b.first, "nothing", onceclient.ErrNoEntry)
	notLocked(t, b.second, "", onceclient.ErrNoEntry)
	begin(t, b.first, entryOf("nothing"))
	lock(t, b.second, "nothing")
}

// oneAfterTheOther has goroutines count in the same entry.
func oneAfterTheOther(t *testing.T, b *bench) {
	const workers, turns = 4, 3
	begin(t, b.first, entryOf("i"))
	var group sync.WaitGroup
	for range workers {
		j := b.handle()
		group.Go(func() {
			for range turns {
				if err := countOne(t.Context(), j); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if got := standing(t, b.second, "i").Attempts; got != workers*turns {
		t.Errorf("counted %d, want %d", got, workers*turns)
	}
}

// countOne waits for the lock and adds one attempt.
func countOne(ctx context.Context, j onceclient.Journal) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		l, e, err := j.Lock(ctx, "i")
		if err == nil {
			e.Attempts++
			return errors.Join(l.Save(ctx, e), l.Unlock())
		}
		if !errors.Is(err, onceclient.ErrLocked) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func saves(t *testing.T, b *bench) {
	at := moment().Add(time.Hour)
	e := entryOf("i")
	begin(t, b.first, e)
	l, _ := lock(t, b.first, "i")
	step := func(what string, adjust func(e *onceclient.Entry)) {
		t.Helper()
		adjust(&e)
		save(t, l, e)
		same(t, what, standing(t, b.second, "i"), e)
	}
	// A server's words may be in a note: what is no text must not keep the entry from being saved.
	e.Note = "malformed response \"\x00\xff\""
	save(t, l, e)
	step("an attempt", func(e *onceclient.Entry) { e.Attempts, e.Note = 1, "read response: verbinding verbroken – ü" })
	step("an answer that ends nothing", func(e *onceclient.Entry) {
		e.Answer = &onceclient.Answer{Status: http.StatusServiceUnavailable}
	})
	step("the answer", func(e *onceclient.Entry) {
		e.State, e.EndedAt, e.Note, e.Attempts = onceclient.Answered, at, "", 2
		e.Answer = &onceclient.Answer{
			Status: http.StatusCreated, Body: []byte("\x00\xff{}"),
			Header: http.Header{"Set-Cookie": {"a=1", "b=2"}, "X-Latin": {"caf\xe9"}, "trailer-bin": {"\x00\n: "}, "Empty": {""}},
		}
	})
	step("refused", func(e *onceclient.Entry) {
		e.State, e.Answer = onceclient.Refused, &onceclient.Answer{Status: http.StatusUnprocessableEntity, Body: []byte{}}
	})
	unlock(t, l)
	_, got := lock(t, b.second, "i")
	same(t, "Lock by another", got, e)
}

func nothingElse(t *testing.T, b *bench) {
	want := entryOf("i")
	begin(t, b.first, want)
	l, _ := lock(t, b.first, "i")
	save(t, l, onceclient.Entry{
		Intent: "j", Key: "another", Method: "DELETE", Target: "https://elsewhere.example.com/", Header: map[string][]string{"A": {"b"}},
		Body: []byte("another"), CreatedAt: moment().Add(time.Hour), State: onceclient.Open, Attempts: 7,
	})
	want.Attempts = 7
	same(t, "after a save of everything", standing(t, b.second, "i"), want)
	listed(t, pending(t, b.second, 10), "i")
}

func reopens(t *testing.T, b *bench) {
	e := entryOf("i")
	begin(t, b.first, e)
	change(t, b.first, ended(e, onceclient.NotSent, moment().Add(time.Minute)))
	listed(t, pending(t, b.second, 10))
	l, got := lock(t, b.second, "i")
	same(t, "when it was given up", got, ended(e, onceclient.NotSent, moment().Add(time.Minute)))
	e.Attempts = 1
	save(t, l, e)
	same(t, "opened anew", standing(t, b.first, "i"), e)
	unlock(t, l)
	listed(t, pending(t, b.first, 10), "i")
	if n, err := b.first.Prune(t.Context(), moment().Add(time.Hour), 10); n != 0 || err != nil {
		t.Errorf("pruned %d, %v", n, err)
	}
}

func letGo(t *testing.T, b *bench) {
	begin(t, b.first, entryOf("i"))
	late, _ := lock(t, b.first, "i")
	unlock(t, late)
	lost := func(what string) {
		t.Helper()
		err := late.Save(t.Context(), ended(entryOf("i"), onceclient.Refused, moment()))
		if !errors.Is(err, onceclient.ErrLockLost) {
			t.Errorf("%s: %v", what, err)
		}
	}
	lost("nobody has it")
	same(t, "after that", standing(t, b.second, "i"), entryOf("i"))
	l, _ := lock(t, b.second, "i")
	lost("somebody else has it")
	want := ended(entryOf("i"), onceclient.Answered, moment())
	save(t, l, want)
	lost("it has ended")
	unlock(t, l)
	lost(fmt.Sprint("it is ", want.State))
	same(t, "in the end", standing(t, b.first, "i"), want)
}
