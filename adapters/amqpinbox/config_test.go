package amqpinbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/amqpinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
)

func handled(context.Context, inbox.Message) (inbox.Verdict, error) { return inbox.Handled, nil }

func good() amqpinbox.Config {
	return amqpinbox.Config{URL: "amqp://guest:guest@127.0.0.1:1/", Queue: "q", Process: handled}
}

func TestConfigDefaults(t *testing.T) {
	t.Parallel()
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	c := good().WithDefaults()
	if c.Concurrency != 8 || c.Prefetch != 32 || c.MinBackoff != 100*time.Millisecond || c.MaxBackoff != time.Minute ||
		c.Hold != 10*time.Minute || c.Patience != 30*time.Second || c.Drain != 20*time.Second || c.WithoutID != amqpinbox.Stop {
		t.Errorf("defaults: %+v", c)
	}
	c.Observe(amqpinbox.Event{})
	if id := c.ID(&amqp091.Delivery{MessageId: "m"}); id != "m" {
		t.Errorf("default id: %q", id)
	}
	wide := good()
	wide.Concurrency = 60_000
	if err := wide.Validate(); err != nil || wide.WithDefaults().Prefetch != 65_535 {
		t.Errorf("with a high concurrency: %v, %d", err, wide.WithDefaults().Prefetch)
	}
}

func TestConfigRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*amqpinbox.Config){
		"URL":         func(c *amqpinbox.Config) { c.URL = "http://127.0.0.1" },
		"URL must":    func(c *amqpinbox.Config) { c.URL = "" },
		"Connection":  func(c *amqpinbox.Config) { c.Connection.Recovery = &amqp091.Recovery{} },
		"Queue":       func(c *amqpinbox.Config) { c.Queue = "" },
		"Process":     func(c *amqpinbox.Config) { c.Process = nil },
		"WithoutID":   func(c *amqpinbox.Config) { c.WithoutID = 2 },
		"Concurrency": func(c *amqpinbox.Config) { c.Concurrency = -1 },
		"Prefetch":    func(c *amqpinbox.Config) { c.Concurrency, c.Prefetch = 8, 7 },
		"65535":       func(c *amqpinbox.Config) { c.Prefetch = 65_536 },
		"MinBackoff":  func(c *amqpinbox.Config) { c.MinBackoff = -1 },
		"MaxBackoff":  func(c *amqpinbox.Config) { c.MinBackoff, c.MaxBackoff = 2, 1 },
		"Hold":        func(c *amqpinbox.Config) { c.Hold = -1 },
		"Patience":    func(c *amqpinbox.Config) { c.Patience = -1 },
		"Drain":       func(c *amqpinbox.Config) { c.Drain = -1 },
	} {
		c := good()
		change(&c)
		_, err := amqpinbox.New(c)
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := amqpinbox.New(amqpinbox.Config{})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 3 {
		t.Errorf("an empty configuration: %v", err)
	}
}

// A password must not get into a log by a typing error in the URL.
func TestConfigKeepsThePassword(t *testing.T) {
	t.Parallel()
	c := good()
	c.URL = "amqp://guest:secret@127.0.0.1:port/"
	_, err := amqpinbox.New(c)
	if err == nil || strings.Contains(err.Error(), "secret") || errors.Unwrap(err) != nil {
		t.Errorf("a wrong port: %v", err)
	}
}
