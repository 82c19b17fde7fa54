package watermillinbox_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/watermillinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

func wantEqual[T any](t *testing.T, what string, got, want []T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// I1: what is published twice takes effect once, and both are acknowledged.
func TestDuplicate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.handle(w.config(), func(_ context.Context, tx *memstore.Tx, msg inbox.Message) error {
		w.effect(tx, msg.ID)
		return nil
	})
	w.run()
	w.publish("m1", "p")
	w.publish("m2", "p") // the same payload: two messages (B119)
	w.publish("m1", "p")
	w.want("m1", "m2")
	w.wantVerdicts(inbox.Handled, inbox.Handled, inbox.Duplicate)
}

// I2, B113: a failed or panicked handler leaves nothing, not even a mark: the nacked message
// comes again and runs.
func TestFailureComesAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tries := 0
	w.handle(w.config(), func(_ context.Context, tx *memstore.Tx, msg inbox.Message) error {
		w.effect(tx, msg.ID)
		switch tries++; tries {
		case 1:
			return errors.New("not now")
		case 2:
			panic("not now")
		}
		return nil
	})
	w.run()
	w.publish("m", "p")
	w.want("m")
	w.wantVerdicts(inbox.Again, inbox.Again, inbox.Handled)
}

// I3: the same id with another payload is parked, and acknowledged.
func TestOtherPayload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.handle(w.config(), func(_ context.Context, tx *memstore.Tx, msg inbox.Message) error {
		w.effect(tx, string(msg.Payload))
		return nil
	})
	w.run()
	w.publish("m", "5 EUR")
	w.publish("m", "500 EUR")
	w.want("5 EUR")
	w.wantVerdicts(inbox.Handled, inbox.Parked)
}

// I1: a message that never succeeds is parked, and no longer comes.
func TestPoisonIsParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.handle(w.config(), func(context.Context, *memstore.Tx, inbox.Message) error { return errors.New("never") })
	w.run()
	w.publish("m", "p")
	w.publish("m", "p")
	w.wantVerdicts(inbox.Again, inbox.Again, inbox.Again, inbox.Again, inbox.Parked, inbox.Parked)
}

// I1, B113: many messages, each several times, handlers that fail at random: one effect an
// id.
func TestOneEffectAnID(t *testing.T) {
	t.Parallel()
	const ids, times = 50, 4
	w := newWorld(t)
	w.handle(w.config(), func(_ context.Context, tx *memstore.Tx, msg inbox.Message) error {
		w.effect(tx, msg.ID)
		if rand.IntN(4) == 0 {
			return errors.New("not now")
		}
		return nil
	})
	w.run()
	var order []int
	for i := range ids * times {
		order = append(order, i%ids)
	}
	rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, id := range order {
		w.publish(strconv.Itoa(id), "p")
	}
	found := map[string]int{}
	for _, e := range w.effects {
		found[e]++
	}
	parked := 0
	for _, v := range w.verdicts {
		if v == inbox.Parked {
			parked++ // a message that failed five times running
		}
	}
	if len(found) > ids || len(found) < ids-parked {
		t.Errorf("%d ids took effect, want %d without those parked", len(found), ids)
	}
	for id, n := range found {
		if n != 1 {
			t.Errorf("%s took effect %d times", id, n)
		}
	}
}

// What the inbox is given is what Watermill delivered.
func TestMessage(t *testing.T) {
	t.Parallel()
	var got inbox.Message
	var original *message.Message
	h, err := watermillinbox.Handler(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		got, original = msg, watermillinbox.MessageFrom(ctx)
		return inbox.Handled, nil
	}, watermillinbox.Config{ID: watermillinbox.Metadata("event"), Deliveries: func(*message.Message) int { return 3 }})
	if err != nil {
		t.Fatal(err)
	}
	m := message.NewMessage("uuid", []byte("p"))
	m.Metadata.Set("event", "evt_1")
	if err := h(m); err != nil {
		t.Fatal(err)
	}
	want := inbox.Message{ID: "evt_1", Payload: []byte("p"), Attributes: map[string]string{"event": "evt_1"}, Deliveries: 3}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	if original == nil || original.UUID != "uuid" {
		t.Errorf("Watermill's message: %+v", original)
	}
	if watermillinbox.MessageFrom(t.Context()) != nil {
		t.Error("a message outside of a delivery")
	}
}

// A message without an id is refused, never dropped; what else is the caller's choice.
func TestWithoutID(t *testing.T) {
	t.Parallel()
	process := func(context.Context, inbox.Message) (inbox.Verdict, error) { return inbox.Handled, nil }
	h, err := watermillinbox.Handler(process, watermillinbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := h(message.NewMessage("", nil)); onlyonce.CodeOf(err) != onlyonce.CodeKeyRequired {
		t.Errorf("without id: %v", err)
	}
	seen := 0
	h, err = watermillinbox.Handler(process, watermillinbox.Config{WithoutID: func(*message.Message) error { seen++; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	if err := h(message.NewMessage("", nil)); err != nil || seen != 1 {
		t.Errorf("without id: %v, seen %d", err, seen)
	}
}

// A verdict that does not acknowledge is an error, whatever the process function says.
func TestAgainIsAnError(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for _, tt := range []struct {
		verdict inbox.Verdict
		err     error
		acked   bool
	}{
		{inbox.Again, nil, false},
		{inbox.Again, cause, false},
		{inbox.Verdict(99), nil, false},
		{inbox.Handled, nil, true},
		{inbox.Duplicate, nil, true},
		{inbox.Parked, cause, true},
	} {
		h, err := watermillinbox.Handler(func(context.Context, inbox.Message) (inbox.Verdict, error) {
			return tt.verdict, tt.err
		}, watermillinbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		err = h(message.NewMessage("m", nil))
		if (err == nil) != tt.acked || (!tt.acked && tt.err != nil && !errors.Is(err, tt.err)) {
			t.Errorf("%v, %v: %v", tt.verdict, tt.err, err)
		}
	}
}

func TestNoProcess(t *testing.T) {
	t.Parallel()
	if _, err := watermillinbox.Handler(nil, watermillinbox.Config{}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("handler: %v", err)
	}
	if _, err := watermillinbox.Middleware(nil, watermillinbox.Config{}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("middleware: %v", err)
	}
}
