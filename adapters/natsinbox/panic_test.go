package natsinbox_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/inbox"
)

// A process function that panics fails like any other, and ends nothing: the places of
// those that panicked are free again. A message at which the ID function panics has no id.
func TestPanics(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	s.publish(append(numbered(5), "bad")...)
	cfg := s.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
		if msg.Deliveries < 4 {
			panic("handlers may")
		}
		return inbox.Handled, nil
	})
	cfg.WithoutID = func(context.Context, inbox.Message) (inbox.Verdict, error) { return inbox.Parked, nil }
	id := cfg.ID
	cfg.ID = func(m jetstream.Msg) string {
		if id(m) == "bad" {
			panic("no id here")
		}
		return id(m)
	}
	cfg.Concurrency = 1
	c := run(t, cfg)
	c.events.Wait(t, 6, acked)
	c.stop()
	if parked, _ := c.events.Find(verdict(inbox.Parked)); len(parked) != 1 {
		t.Errorf("without an id: %+v", parked)
	}
	s.wantReceived()
}
