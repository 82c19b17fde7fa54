package amqpinbox_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce/adapters/amqpinbox"
	"github.com/onlyonce-go/onlyonce/adapters/internal/consumetest"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// Whatever a publisher sends, it is handled, or parked where it fails, and nothing behind it
// waits. Publishers may pretend to be the broker; that makes the inbox careful, and no more.
func TestHostileMessages(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	deep := nested(20)
	q.publish(
		amqp091.Publishing{MessageId: string(bytes.Repeat([]byte("x"), 255)), Body: []byte("p")},
		amqp091.Publishing{MessageId: "\x00\xff\r\n", Body: []byte("p")},
		amqp091.Publishing{MessageId: "empty"},
		amqp091.Publishing{MessageId: "headers", Headers: deep, Timestamp: time.Unix(1<<40, 0)},
		amqp091.Publishing{MessageId: "count", Headers: amqp091.Table{"x-delivery-count": int64(math.MaxInt64)}},
		amqp091.Publishing{MessageId: "less", Headers: amqp091.Table{"x-delivery-count": int64(math.MinInt64)}},
		amqp091.Publishing{MessageId: "fails", Headers: deep, Body: bytes.Repeat([]byte("\x00"), 10<<20)},
		amqp091.Publishing{Body: []byte("no id")},
		amqp091.Publishing{MessageId: "last", Body: []byte("p")},
	)
	cfg := q.config(newInbox(t, func(_ context.Context, _ *memstore.Tx, msg inbox.Message) error {
		if msg.ID == "fails" {
			return errors.New("\x00 \xff")
		}
		return nil
	}))
	cfg.WithoutID = amqpinbox.DeadLetter
	c := run(t, cfg)
	c.events.Wait(t, 8, acked)
	c.events.Wait(t, 1, kind(amqpinbox.EventRejected))
	c.stop()
	done, _ := c.events.Find(verdict(inbox.Handled))
	parked, _ := c.events.Find(verdict(inbox.Parked))
	if len(done) != 7 || len(parked) != 1 {
		t.Errorf("handled %d, parked %+v", len(done), parked)
	}
	q.wantEmpty()
}

// nested are headers within headers.
func nested(depth int) amqp091.Table {
	table := amqp091.Table{}
	for range depth {
		table = amqp091.Table{"": table, "list": []any{nil, int8(1)}, "\x00\xff": "\x00\xff"}
	}
	return table
}

// A message that the library cannot read breaks the connection each time it is delivered. A
// quorum queue's limit of deliveries takes it away, and what is behind it is handled.
func TestUnreadableMessage(t *testing.T) {
	t.Parallel()
	url := testserver.RabbitMQ(t)
	dead := &queue{t: t, url: url, name: "dead", channel: connect(t, url)}
	dead.declare(classic())
	args := quorum()
	args["x-delivery-limit"], args["x-dead-letter-exchange"], args["x-dead-letter-routing-key"] = 3, "", "dead"
	q := newQueue(t, url, args)
	q.publish(amqp091.Publishing{MessageId: "unreadable", Headers: nested(100)})
	l, _ := consumetest.NewLedger(t)
	c := run(t, q.config(l.Process))
	eventually(t, "there is a dead letter", func() bool { return dead.ready() == 1 })
	q.publishIDs("behind")
	c.events.Wait(t, 1, acked)
	c.stop()
	l.WantOne(t, []string{"behind"})
	q.wantEmpty()
}
