package event_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments/event"
	"github.com/onlyonce-go/onlyonce/inbox"
)

func TestMain(m *testing.M) { apptest.Exit(m.Run()) }

// some is an event that can be published.
func some() event.Event {
	return event.Event{
		ID: event.IDOf(event.ChargeSucceeded, "op_1"), Kind: event.ChargeSucceeded, Merchant: "acme",
		Amount: 1500, Currency: "ARS", Subject: "ch_1", Operation: "op_1", OccurredAt: time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC),
	}
}

// What is published is what is read, and the message is known by the event's id. (B114)
func TestMessageAndBack(t *testing.T) {
	t.Parallel()
	for _, amount := range []int64{1, 1<<53 + 1, math.MaxInt64} { // also what no float64 holds
		e := some()
		e.Amount = amount
		msg, err := e.Message()
		if err != nil {
			t.Fatal(err)
		}
		if msg.ID != e.ID || msg.Attributes[event.KindAttribute] != "charge.succeeded" {
			t.Errorf("message %s of %v", msg.ID, msg.Attributes)
		}
		got, err := event.Read(msg)
		if diff := cmp.Diff(e, got); diff != "" || err != nil {
			t.Errorf("read back: %v\n%s", err, diff)
		}
		again, err := e.Message()
		if diff := cmp.Diff(msg, again); diff != "" || err != nil {
			t.Errorf("the same event is published in other bytes: %v\n%s", err, diff)
		}
	}
}

// The bytes are a contract with consumers that exist.
func TestPayload(t *testing.T) {
	t.Parallel()
	msg, err := some().Message()
	const want = `{"id":"66457aae-7a09-860e-a076-7314f198edf8","kind":"charge.succeeded","merchant":"acme","amount":1500,"currency":"ARS",` +
		`"subject":"ch_1","operation":"op_1","occurred_at":"2026-01-02T03:04:05.000678Z"}`
	if err != nil || string(msg.Payload) != want {
		t.Errorf("payload %s, %v\nwant    %s", msg.Payload, err, want)
	}
}

// An id is that of one kind and one operation, and holds nothing else. (B114)
func TestIDs(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, kind := range []event.Kind{event.ChargeSucceeded, event.RefundSucceeded} {
		for _, operation := range []string{"op_1", "op_2", ""} {
			id, what := event.IDOf(kind, operation), string(kind)+" "+operation
			if other, ok := seen[id]; ok || id != event.IDOf(kind, operation) {
				t.Errorf("%s and %s have the id %s", what, other, id)
			}
			if len(id) != 36 || id[14] != '8' || !strings.Contains("89ab", id[19:20]) {
				t.Errorf("%s is no UUID of version 8", id)
			}
			seen[id] = what
		}
	}
}

// What could be misread is not read.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	good, err := some().Message()
	if err != nil {
		t.Fatal(err)
	}
	change := func(from, to string) string { return strings.Replace(string(good.Payload), from, to, 1) }
	for name, c := range map[string]struct{ payload, want string }{
		"nothing":           {"", "read event"},
		"no JSON":           {"amount=1500", "read event"},
		"something behind":  {string(good.Payload) + "{}", "read event"},
		"amount twice":      {change(`"amount":1500`, `"amount":1500,"amount":1`), "duplicate"},
		"amount of text":    {change("1500", `"1500"`), "amount"},
		"amount in parts":   {change("1500", "1500.5"), "amount"},
		"amount too large":  {change("1500", "9223372036854775808"), "amount"},
		"amount of nothing": {change("1500", "0"), "above zero"},
		"amount below zero": {change("1500", "-1500"), "above zero"},
		"amount missing":    {change(`"amount":1500,`, ""), "above zero"},
		"amount misspelt":   {change(`"amount"`, `"Amount"`), "above zero"},
		"currency":          {change("ARS", "ars"), "currency"},
		"merchant":          {change("acme", ""), "merchant"},
		"kind of later":     {change("charge.succeeded", "dispute.lost"), `kind "dispute.lost" is not known`},
		"another id":        {change(`"66457aae`, `"76457aae`), "that of its message"},
		"id in capitals":    {change(`"66457aae`, `"66457AAE`), "no UUID"},
		"no time":           {change(`,"occurred_at":"2026-01-02T03:04:05.000678Z"`, ""), "occurred_at"},
	} {
		e, err := event.Read(inbox.Message{ID: good.ID, Payload: []byte(c.payload)})
		if err == nil || !strings.Contains(err.Error(), c.want) || e != (event.Event{}) {
			t.Errorf("%s gives %+v, %v; want %q", name, e, err, c.want)
		}
	}
	e, err := event.Read(inbox.Message{ID: good.ID, Payload: []byte(change("{", `{"later":{"x":1},`))})
	if err != nil || e != some() {
		t.Errorf("a field of later gives %+v, %v", e, err)
	}
}

// What nobody could read is not published.
func TestMessageRefuses(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*event.Event){
		"id": func(e *event.Event) { e.ID = "1" }, "kind": func(e *event.Event) { e.Kind = "charge.failed" },
		"merchant": func(e *event.Event) { e.Merchant = "" }, "amount": func(e *event.Event) { e.Amount = -1 },
		"currency": func(e *event.Event) { e.Currency = "AR" }, "occurred_at": func(e *event.Event) { e.OccurredAt = time.Time{} },
	} {
		e := some()
		spoil(&e)
		if _, err := e.Message(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("a wrong %s gives %v", name, err)
		}
	}
}

func TestSign(t *testing.T) {
	t.Parallel()
	for kind, want := range map[event.Kind]int64{event.ChargeSucceeded: 1, event.RefundSucceeded: -1, "": 0, "charge.failed": 0} {
		if got := kind.Sign(); got != want {
			t.Errorf("%q counts %d", kind, got)
		}
	}
}
