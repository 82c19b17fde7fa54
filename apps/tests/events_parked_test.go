package tests_test

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/balances"
	"github.com/onlyonce-go/onlyonce/apps/payments/event"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// Events that a consumer has parked wait for a person, who asks the consumer that runs for
// another try by `onlyonce inbox retry`: one is handled when what was wrong is mended, one
// is parked again and given up by `onlyonce inbox drop`. Neither is added twice. (I2)
func TestEventsParked(t *testing.T) {
	t.Parallel()
	e := newEvents(t, eventsCell{"nats", "sqlite"})
	full, over := eventOf(t, event.ChargeSucceeded, "full", math.MaxInt64), eventOf(t, event.ChargeSucceeded, "over", 5)
	odd := eventOf(t, event.ChargeSucceeded, "odd", 7)
	odd.Payload = bytes.Replace(odd.Payload, []byte(event.ChargeSucceeded), []byte("dispute.lost"), 1)
	e.lastTry(t, full, over, odd)
	e.fill(t, 1)
	e.publish(t, []inbox.Message{over, odd})
	for _, msg := range []inbox.Message{over, odd} {
		e.awaitEntry(t, msg, "parked", func(m inbox.Entry) bool { return m.Record.State == onlyonce.InDoubt && m.Kept })
	}
	if list := e.inbox(t, "list"); !strings.Contains(list, over.ID) || !strings.Contains(list, odd.ID) || !strings.Contains(list, "after 10 tries") {
		t.Errorf("what is parked:\n%s", list)
	}

	back := eventOf(t, event.RefundSucceeded, "back", 10) // then there is room for 5
	e.publish(t, []inbox.Message{back})
	done := func(m inbox.Entry) bool { return m.Record.State == onlyonce.Completed && !m.Dropped }
	e.awaitEntry(t, back, "handled", done)
	for _, msg := range []inbox.Message{over, odd} {
		e.inbox(t, "retry", msg.ID, "--actor", "ana", "--reason", "there is room now")
	}
	e.awaitEntry(t, over, "handled", done)
	e.awaitEntry(t, odd, "parked again", func(m inbox.Entry) bool { return strings.Contains(m.Record.Reason, "parked again: ") })
	if dropped := e.inbox(t, "drop", odd.ID, "--actor", "ana", "--reason", "disputes are no balances"); !strings.Contains(dropped, "is dropped") {
		t.Errorf("drop says %s", dropped)
	}
	said := e.consumers[0].log
	e.publish(t, []inbox.Message{over, odd, full})
	e.finish(t, 1)
	e.judge(t, []balances.Balance{{Merchant: "acme", Currency: "EUR", Amount: math.MaxInt64 - 5}}, 4)
	for _, want := range []string{"event parked: it waits", "parked event handled", "event parked again"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the consumer does not say %q", want)
		}
	}
}

// eventOf is an event of acme's, in euros.
func eventOf(t *testing.T, kind event.Kind, operation string, amount int64) inbox.Message {
	t.Helper()
	msg, err := event.Event{
		ID: event.IDOf(kind, operation), Kind: kind, Merchant: "acme", Amount: amount, Currency: "EUR",
		Subject: "x", Operation: operation, OccurredAt: time.Unix(1_700_000_000, 0),
	}.Message()
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

// lastTry handles a message, and has others fail so often that their next try is the
// last: the pauses between tries are minutes.
func (e *events) lastTry(t *testing.T, good inbox.Message, bad ...inbox.Message) {
	t.Helper()
	keeper, err := balances.NewKeeper(t.Context(), balances.Config{DB: e.db})
	if err != nil {
		t.Fatal(err)
	}
	if verdict, err := keeper.Process(t.Context(), good); verdict != inbox.Handled {
		t.Fatal(verdict, err)
	}
	for _, msg := range bad {
		for range balances.MaxTries - 1 {
			if verdict, err := keeper.Process(t.Context(), msg); verdict != inbox.Again || onlyonce.CodeOf(err) != onlyonce.CodeHandlerFailed {
				t.Fatal(verdict, err)
			}
		}
	}
	if err := keeper.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// inbox runs a command of `onlyonce inbox` on the consumer's messages.
func (e *events) inbox(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := run(t, append(append([]string{"inbox"}, args...), "--consumer", balances.Consumer, "--store", e.store)...)
	if code != 0 {
		t.Fatalf("inbox %v: exit %d: %s", args, code, errs)
	}
	return out
}

// awaitEntry waits until a message stands as it should.
func (e *events) awaitEntry(t *testing.T, msg inbox.Message, how string, stands func(inbox.Entry) bool) {
	t.Helper()
	e.await(t, msg.Attributes[event.KindAttribute]+" "+msg.ID+" is "+how, func() bool {
		entry, err := inbox.Show(t.Context(), e.db.Keys(), balances.Consumer, msg.ID)
		return err == nil && stands(entry)
	})
}
