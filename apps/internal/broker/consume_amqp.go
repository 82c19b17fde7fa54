package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce/adapters/amqpinbox"
)

// amqpDeliveries is how often RabbitMQ delivers a message before it is a dead letter. It
// counts every death of a process that had the message in hand, so it is far above the
// tries of the inbox, which parks what fails.
const amqpDeliveries = 1000

// consumeAMQP consumes the queue NAME.CONSUMER.
func (c Consumer) consumeAMQP(ctx context.Context, a Address) error {
	queue := a.name + "." + c.Name
	consumer, err := amqpinbox.New(amqpinbox.Config{
		URL: a.url, Queue: queue, Process: c.Process, Concurrency: c.Concurrency,
		WithoutID: amqpinbox.DeadLetter, // declareQueue makes a place for them
		Observe:   func(e amqpinbox.Event) { c.observeAMQP(ctx, e) },
	})
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		err := declareQueue(ctx, a, queue)
		if err == nil {
			return consumer.Run(ctx)
		}
		if !pause(ctx, try) {
			return nil
		}
		c.trouble(ctx, "RabbitMQ's queue cannot be made", err)
	}
}

// declareQueue makes the queue, bound to all events, and one for its dead letters.
func declareQueue(ctx context.Context, a Address, queue string) (err error) {
	conn, socket, err := dialAMQP(ctx, a.url)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer stop()
	defer func() {
		_ = socket.SetDeadline(soon(time.Second)) // an answer to our leave is not waited for
		if closed := conn.Close(); !errors.Is(closed, amqp.ErrClosed) {
			err = errors.Join(err, closed)
		}
	}()
	channel, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
	if err := declareExchange(channel, a.name); err != nil {
		return err
	}
	dead := queue + ".dead"
	for name, args := range map[string]amqp.Table{
		dead: {amqp.QueueTypeArg: amqp.QueueTypeQuorum},
		queue: {
			amqp.QueueTypeArg: amqp.QueueTypeQuorum, "x-delivery-limit": int32(amqpDeliveries),
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead,
		},
	} {
		if _, err := channel.QueueDeclare(name, true, false, false, false, args); err != nil {
			return fmt.Errorf("declare queue %s: %w", name, err)
		}
	}
	if err := channel.QueueBind(queue, "#", a.name, false, nil); err != nil {
		return fmt.Errorf("bind queue %s: %w", queue, err)
	}
	return nil
}

func (c Consumer) observeAMQP(ctx context.Context, e amqpinbox.Event) {
	switch e.Kind {
	case amqpinbox.EventProcessed:
		c.processed(ctx, e.MessageID, e.Verdict, e.Err)
	case amqpinbox.EventLost:
		c.trouble(ctx, "RabbitMQ was lost", e.Err)
	case amqpinbox.EventRejected:
		c.warn(ctx, "a message without an id is no event; it is rejected, and lies in the queue of dead letters", with(e.Err)...)
	case amqpinbox.EventUnsettled:
		c.unsettled(ctx, e.MessageID, e.Err)
	case amqpinbox.EventConsuming, amqpinbox.EventGivenBack: // its tries were told of
	}
}
