package journaltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/onceclient"
)

func beginRules() []rule {
	return []rule{
		{"L1_an_entry_comes_back_as_it_was_begun", "what is asked again must be the same bytes to the same target", comesBack},
		{"L1_an_intent_has_one_entry", "a second Begin must not replace the first one's key", oneEntry},
		{"L1_of_several_that_begin_one_makes_it", "two keys for one intent are two charges", oneMakes},
		{"L1_no_state_means_open", "an entry that was begun may have been sent", noStateIsOpen},
		{"L1_a_body_is_a_body", "an empty body is no different from none, and a big one is whole", bodies},
		{"L1_nothing_is_shared_with_the_caller", "what a caller changes afterwards is not what is journaled", sharesNothing},
		{"K_intents_are_compared_byte_by_byte", "two intents that look alike are two operations", byteByByte},
		{"K_what_is_no_entry_is_refused", "an intent that is cut off, or an entry without a key, could be sent twice", refuses},
		{"L3_a_context_that_has_ended_ends_the_call", "a caller that has given up is not kept", contexts},
	}
}

func comesBack(t *testing.T, b *bench) {
	e := onceclient.Entry{
		Intent: "order-42/charge", Key: "8e03978e-40d5-43dd-bc93-6894a57f9324", Method: "POST", Target: "https://api.example.com/%2F/ü?q=%00&x=' OR 1=1 --",
		Header: map[string][]string{
			"Accept": {"application/json", "text/plain;q=0.5", ""}, "Content-Type": {"application/x-www-form-urlencoded"},
			"X-Latin": {"caf\xe9"}, "trace-bin": {"\x00\xff\n: \x7f"},
		},
		Body: []byte("\x00\xff\r\n<&>\\'\"%s$1?{now}"), CreatedAt: moment(), State: onceclient.Open,
		Attempts: 1, // without it, it was proved that nothing had left
	}
	begin(t, b.first, e)
	same(t, "Begin by another", standing(t, b.second, e.Intent), e)
	_, got := lock(t, b.second, e.Intent)
	same(t, "Lock by another", got, e)
}

func oneEntry(t *testing.T, b *bench) {
	e := entryOf("i")
	begin(t, b.first, e)
	same(t, "Begin again", standing(t, b.second, "i"), e)
	l, _ := lock(t, b.first, "i")
	same(t, "Begin of one that is locked", standing(t, b.second, "i"), e)
	done := ended(e, onceclient.Answered, moment().Add(time.Minute))
	save(t, l, done)
	same(t, "Begin of one that has ended", standing(t, b.second, "i"), done)
}

// oneMakes has goroutines with handles of their own begin the same few intents.
func oneMakes(t *testing.T, b *bench) {
	const beginners, intents = 8, 4
	type result struct {
		made bool
		key  string
	}
	results := make([][intents]result, beginners)
	var group sync.WaitGroup
	start := make(chan struct{})
	for n := range beginners {
		j := b.handle()
		group.Go(func() {
			<-start
			for i := range intents {
				i = (i + n) % intents
				e := entryOf(fmt.Sprint("intent ", i))
				e.Key = fmt.Sprint("key of ", n)
				stands, made, err := j.Begin(t.Context(), e)
				if err != nil || made && stands.Key != e.Key {
					t.Errorf("begin: made %v of %q, %v", made, stands.Key, err)
				}
				results[n][i] = result{made, stands.Key}
			}
		})
	}
	close(start)
	group.Wait()
	for i := range intents {
		makers := 0
		for n := range beginners {
			if results[n][i].made {
				makers++
			}
			if got, first := results[n][i].key, results[0][i].key; got != first {
				t.Errorf("intent %d has the keys %q and %q", i, got, first)
			}
		}
		if makers != 1 {
			t.Errorf("intent %d was made by %d", i, makers)
		}
	}
}

func noStateIsOpen(t *testing.T, b *bench) {
	e := entryOf("i")
	e.State = ""
	stands, made, err := b.first.Begin(t.Context(), e)
	if err != nil || !made {
		t.Fatalf("begin: made %v, %v", made, err)
	}
	e.State = onceclient.Open
	same(t, "what Begin gives", stands, e)
	same(t, "Begin again", standing(t, b.second, "i"), e)
	listed(t, pending(t, b.second, 10), "i")
}

func bodies(t *testing.T, b *bench) {
	for name, body := range map[string][]byte{
		"none": nil, "empty": {}, "zero": {0}, "big": bytes.Repeat([]byte("onlyonce\x00\xff\r\n"), 5<<20/12),
	} {
		e := entryOf(name)
		e.Body = body
		begin(t, b.first, e)
		l, got := lock(t, b.second, name)
		same(t, name, got, e)
		done := ended(e, onceclient.Answered, moment())
		done.Answer.Body = body
		save(t, l, done)
		unlock(t, l)
		same(t, name+" with an answer", standing(t, b.first, name), done)
	}
}

func sharesNothing(t *testing.T, b *bench) {
	e := entryOf("i")
	begin(t, b.first, e)
	e.Body[0], e.Header["Content-Type"][0] = '!', "!"
	want := entryOf("i")
	same(t, "after a change of what was begun", standing(t, b.first, "i"), want)
	l, got := lock(t, b.first, "i")
	got.Body[0], got.Header["Content-Type"][0] = '!', "!"
	done := ended(want, onceclient.Answered, moment())
	save(t, l, done)
	done.Answer.Body[0], done.Answer.Header["X"][0] = '!', "!"
	same(t, "after a change of what was saved", standing(t, b.first, "i"), ended(want, onceclient.Answered, moment()))
}

// byteByByte begins intents that some storage takes for one, or for another name.
func byteByByte(t *testing.T, b *bench) {
	intents := []string{
		"order", "Order", "ORDER", "order ", " order", "order/", "/order", "order/../order", "../../etc/passwd", ".", "..", "./order", "order.lock",
		"o\u0308rder", "\u00f6rder", "ör", "or", "stra\u00dfe", "strasse", "ＯＲＤＥＲ", "order\u200b", "order\u00a0", "💶", "'; DROP TABLE onlyonce_journal; --",
		"order%", "order_", "o?der", "o*der", "$1", "{now}", "CON", "NUL.txt", `a\b`, "a:b", strings.Repeat("a", 255), strings.Repeat("a", 254),
		strings.Repeat("é", 127), strings.Repeat("/", 255), "0", "00", "null",
	}
	for i, intent := range intents {
		begin(t, b.first, madeAt(intent, moment().Add(time.Duration(i)*time.Second)))
	}
	for i, intent := range intents {
		same(t, "Begin again", standing(t, b.second, intent), madeAt(intent, moment().Add(time.Duration(i)*time.Second)))
	}
	listed(t, pending(t, b.second, 7), intents...)
	l, _ := lock(t, b.first, "order")
	notLocked(t, b.second, "order", onceclient.ErrLocked)
	other, _ := lock(t, b.second, "order ")
	save(t, l, ended(entryOf("order"), onceclient.Answered, moment()))
	save(t, other, ended(entryOf("order "), onceclient.Refused, moment()))
	if got := standing(t, b.first, "Order").State; got != onceclient.Open {
		t.Errorf("the end of another intent ended it: %v", got)
	}
}

func refuses(t *testing.T, b *bench) {
	for name, spoil := range map[string]func(e *onceclient.Entry){
		"no intent":         func(e *onceclient.Entry) { e.Intent = "" },
		"a long intent":     func(e *onceclient.Entry) { e.Intent = strings.Repeat("a", 256) },
		"an intent no text": func(e *onceclient.Entry) { e.Intent = "caf\xe9" },
		"no key":            func(e *onceclient.Entry) { e.Key = "" },
		"no time":           func(e *onceclient.Entry) { e.CreatedAt = time.Time{} },
		"an intent of NUL":  func(e *onceclient.Entry) { e.Intent = "a\x00b" },
		"a strange state":   func(e *onceclient.Entry) { e.State = "done" },
		"no answer":         func(e *onceclient.Entry) { e.State = onceclient.Answered },
		"fewer than none":   func(e *onceclient.Entry) { e.Attempts = -1 },
	} {
		e := entryOf("i")
		spoil(&e)
		if _, made, err := b.first.Begin(t.Context(), e); err == nil || made {
			t.Errorf("an entry with %s was begun: %v", name, err)
		}
	}
	listed(t, pending(t, b.second, 10))
	begin(t, b.first, entryOf("i"))
	l, _ := lock(t, b.first, "i")
	for name, spoil := range map[string]func(e *onceclient.Entry){
		"a strange state": func(e *onceclient.Entry) { e.State = "done" },
		"no state":        func(e *onceclient.Entry) { e.State = "" },
		"no answer":       func(e *onceclient.Entry) { e.State = onceclient.Answered },
		"fewer than none": func(e *onceclient.Entry) { e.Attempts = -1 },
	} {
		strange := entryOf("i")
		spoil(&strange)
		if err := l.Save(t.Context(), strange); err == nil {
			t.Errorf("an entry with %s was saved", name)
		}
	}
	same(t, "after a refused save", standing(t, b.second, "i"), entryOf("i"))
}

func contexts(t *testing.T, b *bench) {
	j, done := b.first, over(t)
	canceled := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, made, err := j.Begin(done, entryOf("new"))
	canceled("begin", err)
	if made {
		t.Error("begin says that it made an entry")
	}
	listed(t, pending(t, b.second, 10))
	begin(t, j, entryOf("i"))
	_, _, err = j.Lock(done, "i")
	canceled("lock", err)
	l, _ := lock(t, b.second, "i")
	canceled("save", l.Save(done, ended(entryOf("i"), onceclient.Answered, moment())))
	same(t, "after a cancelled save", standing(t, j, "i"), entryOf("i"))
	_, err = j.Pending(done, "", 10)
	canceled("pending", err)
	_, err = j.Prune(done, moment(), 10)
	canceled("prune", err)
}
