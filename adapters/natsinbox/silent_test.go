package natsinbox_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/adapters/internal/consumetest"
	"github.com/onlyonce-go/onlyonce/adapters/natsinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// A server that keeps its connections and is silent for a while costs an ack that is sent
// again, and nothing else: consumption goes on when it answers.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	s := newStream(t, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Second })
	l, _ := consumetest.NewLedger(t)
	s.publish("m")
	c := run(t, s.config(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		v, err := l.Process(ctx, msg)
		if v == inbox.Handled && msg.ID == "m" {
			err = s.server.Pause()
		}
		return v, err
	}))
	c.events.Wait(t, 1, kind(natsinbox.EventLost))
	if err := s.server.Resume(); err != nil {
		t.Fatal(err)
	}
	s.publish("next")
	c.events.Wait(t, 2, verdict(inbox.Handled))
	eventually(t, "both are received", func() bool {
		i := s.info()
		return i.NumAckPending == 0 && i.NumPending == 0
	})
	c.stop()
	l.WantOne(t, []string{"m", "next"})
}

// Run ends also when the server does not answer any more, with an ack on its way.
func TestEndWithSilentServer(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	s.publish("m")
	cfg := s.config(func(context.Context, inbox.Message) (inbox.Verdict, error) {
		return inbox.Handled, s.server.Pause()
	})
	cfg.Drain = 100 * time.Millisecond
	c := run(t, cfg)
	c.events.Wait(t, 1, acked)
	c.stop()
	if n, _ := c.events.Find(kind(natsinbox.EventUnsettled)); len(n) != 1 {
		t.Errorf("the ack was not confirmed, and that was told %d times", len(n))
	}
}

// Whatever a publisher sends, it is handled, or parked where it fails, and nothing behind it
// waits.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	messages := []*nats.Msg{
		{Header: nats.Header{eventID: {strings.Repeat("x", 10_000)}}, Data: []byte("p")},
		{Header: nats.Header{eventID: {"\x00\xff\u2028"}}, Data: []byte("p")},
		{Header: nats.Header{eventID: {"empty"}}},
		{Header: nats.Header{eventID: {"twice", "twice"}}},
		{Header: nats.Header{eventID: {"fails"}}, Data: bytes.Repeat([]byte("\x00"), 900_000)},
		{},
		{Header: nats.Header{}},
		{Header: nats.Header{eventID: {""}}},
		{Header: nats.Header{eventID: {"one", "other"}}}, // without an id
	}
	for _, m := range messages {
		m.Subject = "payments.charged"
		if _, err := s.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	cfg := s.config(newInbox(t, func(_ context.Context, _ *memstore.Tx, msg inbox.Message) error {
		if msg.ID == "fails" {
			return errors.New("\x00 \xff")
		}
		return nil
	}))
	cfg.WithoutID = func(context.Context, inbox.Message) (inbox.Verdict, error) {
		return inbox.Parked, errors.New("no id") // an error beside a verdict that acknowledges
	}
	c := run(t, cfg)
	c.events.Wait(t, len(messages), acked)
	c.stop()
	done, _ := c.events.Find(verdict(inbox.Handled))
	parked, _ := c.events.Find(verdict(inbox.Parked))
	if len(done) != 4 || len(parked) != 5 {
		t.Errorf("handled %d, parked %d", len(done), len(parked))
	}
	s.wantReceived()
}
