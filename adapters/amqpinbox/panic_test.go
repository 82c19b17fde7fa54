package amqpinbox_test

import (
	"context"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce/adapters/amqpinbox"
	"github.com/onlyonce-go/onlyonce/adapters/internal/consumetest"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// A process function that panics fails like any other, and ends nothing: the places of
// those that panicked are free again.
func TestPanics(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	q.publishIDs(numbered(5)...)
	tries := map[string]int{}
	cfg := q.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
		if tries[msg.ID]++; tries[msg.ID] < 4 {
			panic("handlers may")
		}
		return inbox.Handled, nil
	})
	cfg.Concurrency = 1
	c := run(t, cfg)
	c.events.Wait(t, 5, acked)
	c.stop()
	q.wantEmpty()
}

// A message at which the ID function panics has no id.
func TestIDPanics(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	q.publishIDs("bad", "good")
	l, _ := consumetest.NewLedger(t)
	cfg := q.config(l.Process)
	cfg.WithoutID = amqpinbox.DeadLetter
	cfg.ID = func(d *amqp091.Delivery) string {
		if d.MessageId == "bad" {
			panic("no id here")
		}
		return d.MessageId
	}
	c := run(t, cfg)
	c.events.Wait(t, 1, acked)
	c.events.Wait(t, 1, kind(amqpinbox.EventRejected))
	c.stop()
	l.WantOne(t, []string{"good"})
}
