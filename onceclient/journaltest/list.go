package journaltest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/onceclient"
)

func listRules() []rule {
	return []rule{
		{"L1_pending_are_the_open_ones_oldest_first", "an open entry that is not listed is never resumed", openOnes},
		{"L1_pages_leave_nothing_out", "entries of one moment are told apart by their intents", pages},
		{"L1_a_page_behind_what_is_gone_begins_anew", "an entry may end and be pruned between two pages", behindGone},
		{"T_pruned_is_what_ended_before", "an answer is kept for as long as its caller may ask", prunes},
		{"T_open_and_locked_entries_are_never_pruned", "an open entry is the only trace of a charge", keeps},
	}
}

func openOnes(t *testing.T, b *bench) {
	listed(t, pending(t, b.first, 10))
	at := moment()
	for i, intent := range []string{"third", "first", "fourth", "second", "answered", "refused", "given up"} {
		order := []time.Duration{3, 1, 4, 2, 0, 5, 6}[i]
		begin(t, b.first, madeAt(intent, at.Add(order*time.Second)))
	}
	change(t, b.first, ended(entryOf("answered"), onceclient.Answered, at))
	change(t, b.first, ended(entryOf("refused"), onceclient.Refused, at))
	change(t, b.first, ended(entryOf("given up"), onceclient.NotSent, at))
	lock(t, b.first, "first")
	listed(t, pending(t, b.second, 10), "first", "second", "third", "fourth")
	listed(t, pending(t, b.second, 1), "first", "second", "third", "fourth")
	for after, want := range map[string][]string{
		"second": {"third"}, "answered": {"first"}, "fourth": nil, "given up": nil,
	} {
		got, err := b.second.Pending(t.Context(), after, 1)
		if err != nil {
			t.Fatal(err)
		}
		listed(t, got, want...)
	}
	for _, limit := range []int{0, -1} {
		if got, err := b.first.Pending(t.Context(), "", limit); len(got) != 0 || err != nil {
			t.Errorf("at most %d: %q, %v", limit, got, err)
		}
	}
}

func pages(t *testing.T, b *bench) {
	var want []string
	for i := range 11 {
		intent := fmt.Sprintf("intent %02d", i*7%11)
		want = append(want, intent)
		begin(t, b.first, madeAt(intent, moment().Add(time.Duration(i/4)*time.Microsecond)))
	}
	slices.Sort(want)
	for _, page := range []int{1, 3, 11} {
		got := pending(t, b.second, page)
		slices.Sort(got)
		listed(t, got, want...)
	}
}

func behindGone(t *testing.T, b *bench) {
	begin(t, b.first, entryOf("i"))
	begin(t, b.first, entryOf("gone"))
	change(t, b.first, ended(entryOf("gone"), onceclient.Answered, moment()))
	if n, err := b.first.Prune(t.Context(), moment().Add(time.Second), 10); n != 1 || err != nil {
		t.Fatalf("pruned %d, %v", n, err)
	}
	got, err := b.second.Pending(t.Context(), "gone", 10)
	if err != nil {
		t.Fatal(err)
	}
	listed(t, got, "i")
}

func prunes(t *testing.T, b *bench) {
	at := moment()
	states := []onceclient.State{onceclient.Answered, onceclient.Refused, onceclient.NotSent}
	for i := range 6 {
		e := entryOf(fmt.Sprint(i))
		begin(t, b.first, e)
		change(t, b.first, ended(e, states[i%3], at.Add(time.Duration(i)*time.Second)))
	}
	prune := func(before time.Time, limit, want int) {
		t.Helper()
		if n, err := b.second.Prune(t.Context(), before, limit); n != want || err != nil {
			t.Errorf("pruned %d, %v; want %d", n, err, want)
		}
	}
	prune(at, 10, 0)
	prune(at.Add(time.Hour), 0, 0)
	prune(at.Add(time.Microsecond), 10, 1)
	prune(at.Add(3*time.Second), 1, 1)
	prune(at.Add(3*time.Second), 10, 1)
	notLocked(t, b.first, "2", onceclient.ErrNoEntry)
	same(t, "what ended at that time", standing(t, b.first, "3"), ended(entryOf("3"), onceclient.Answered, at.Add(3*time.Second)))
	prune(at.Add(time.Hour), 10, 3)
	prune(at.Add(time.Hour), 10, 0)
	e := entryOf("3")
	e.Key = "a new key" // it is a new operation
	begin(t, b.first, e)
}

func keeps(t *testing.T, b *bench) {
	later := moment().Add(time.Hour)
	begin(t, b.first, entryOf("open"))
	e := entryOf("with an answer")
	begin(t, b.first, e)
	e.Attempts, e.Answer = 1, &onceclient.Answer{Status: 503}
	change(t, b.first, e)
	begin(t, b.first, entryOf("locked"))
	l, _ := lock(t, b.first, "locked")
	done := ended(entryOf("locked"), onceclient.Answered, moment())
	save(t, l, done)
	for _, j := range []onceclient.Journal{b.first, b.second} {
		if n, err := j.Prune(t.Context(), later, 10); n != 0 || err != nil {
			t.Errorf("pruned %d, %v", n, err)
		}
	}
	same(t, "the locked one", standing(t, b.second, "locked"), done)
	same(t, "the open one", standing(t, b.second, "open"), entryOf("open"))
	same(t, "the one with an answer", standing(t, b.second, "with an answer"), e)
	unlock(t, l)
	if n, err := b.second.Prune(t.Context(), later, 10); n != 1 || err != nil {
		t.Errorf("pruned %d, %v; want 1", n, err)
	}
	listed(t, pending(t, b.first, 10), "open", "with an answer")
}
