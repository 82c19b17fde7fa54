package natsinbox_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/natsinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
)

func handled(context.Context, inbox.Message) (inbox.Verdict, error) { return inbox.Handled, nil }

// nowhere is a JetStream that nobody may ask.
func nowhere(t *testing.T) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(&nats.Conn{})
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func good(t *testing.T) natsinbox.Config {
	t.Helper()
	return natsinbox.Config{JetStream: nowhere(t), Stream: "S", Durable: "d", Process: handled, WithoutID: handled}
}

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	if err := good(t).Validate(); err != nil {
		t.Fatal(err)
	}
	c := good(t).WithDefaults()
	if c.Concurrency != 8 || c.Prefetch != 16 || c.MinBackoff != 100*time.Millisecond || c.MaxBackoff != time.Minute ||
		c.Patience != 30*time.Second || c.Drain != 20*time.Second || c.LeastMaxDeliver != 0 || c.ID == nil {
		t.Errorf("defaults: %+v", c)
	}
	c.Observe(natsinbox.Event{})
}

func TestConfigRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*natsinbox.Config){
		"JetStream":       func(c *natsinbox.Config) { c.JetStream = nil },
		"Stream":          func(c *natsinbox.Config) { c.Stream = "" },
		"Durable":         func(c *natsinbox.Config) { c.Durable = "" },
		"Process":         func(c *natsinbox.Config) { c.Process = nil },
		"WithoutID":       func(c *natsinbox.Config) { c.WithoutID = nil },
		"LeastMaxDeliver": func(c *natsinbox.Config) { c.LeastMaxDeliver = -1 },
		"Concurrency":     func(c *natsinbox.Config) { c.Concurrency = -1 },
		"Prefetch":        func(c *natsinbox.Config) { c.Concurrency, c.Prefetch = 8, 7 },
		"MinBackoff":      func(c *natsinbox.Config) { c.MinBackoff = -1 },
		"MaxBackoff":      func(c *natsinbox.Config) { c.MinBackoff, c.MaxBackoff = 2, 1 },
		"Patience":        func(c *natsinbox.Config) { c.Patience = -1 },
		"Drain":           func(c *natsinbox.Config) { c.Drain = -1 },
	} {
		c := good(t)
		change(&c)
		_, err := natsinbox.New(c)
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A consumer that would lose messages, or take them for received, is refused by Run.
func TestConsumerRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*jetstream.ConsumerConfig)
		least  int
		want   string
	}{
		"acks for all before":    {func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy }, 0, "AckPolicy"},
		"no acks":                {func(c *jetstream.ConsumerConfig) { c.AckPolicy, c.AckWait = jetstream.AckNonePolicy, 0 }, 0, "AckPolicy"},
		"not durable":            {func(c *jetstream.ConsumerConfig) { c.Durable, c.Name = "", "balances" }, 0, "durable"},
		"no payload":             {func(c *jetstream.ConsumerConfig) { c.HeadersOnly = true }, 0, "HeadersOnly"},
		"a limit of deliveries":  {func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 }, 0, "MaxDeliver"},
		"a limit that is low":    {func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 }, 6, "LeastMaxDeliver"},
		"a limit that is enough": {func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 6 }, 6, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStream(t, c.change)
			cfg := s.config(handled)
			cfg.LeastMaxDeliver = c.least
			r := run(t, cfg)
			if c.want == "" {
				r.events.Wait(t, 1, kind(natsinbox.EventConsuming))
				r.stop()
				return
			}
			if err := r.ended(); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), c.want) {
				t.Errorf("run: %v", err)
			}
		})
	}
}

// So is one that pushes.
func TestPushConsumerRefused(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	if err := s.js.DeleteConsumer(t.Context(), "PAYMENTS", "balances"); err != nil {
		t.Fatal(err)
	}
	_, err := s.js.CreatePushConsumer(t.Context(), "PAYMENTS", jetstream.ConsumerConfig{
		Durable: "balances", AckPolicy: jetstream.AckExplicitPolicy, DeliverSubject: "deliver.here",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t, s.config(handled)).ended(); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "pull") {
		t.Errorf("run: %v", err)
	}
}
