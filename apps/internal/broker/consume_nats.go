package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/adapters/natsinbox"
)

// natsAckWait is how long a process that was killed keeps the messages that it had in
// hand. Processes that live prolong it.
const natsAckWait = 5 * time.Second

// consumeNATS pulls from the stream's durable consumer of the consumer's name.
func (c Consumer) consumeNATS(ctx context.Context, a Address) error {
	for try := 0; ; try++ {
		conn, js, err := c.attachNATS(ctx, a)
		if err == nil {
			defer conn.Close()
			return c.pullNATS(ctx, a, js)
		}
		if !pause(ctx, try) {
			return nil
		}
		c.trouble(ctx, "NATS's consumer cannot be made", err)
	}
}

func (c Consumer) pullNATS(ctx context.Context, a Address, js jetstream.JetStream) error {
	consumer, err := natsinbox.New(natsinbox.Config{
		JetStream: js, Stream: streamName(a), Durable: c.Name, Concurrency: c.Concurrency,
		// An event has an id. What has none is parked by the inbox: it cannot be read.
		Process: c.Process, WithoutID: c.Process,
		Observe: func(e natsinbox.Event) { c.observeNATS(ctx, e) },
	})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

// attachNATS connects, and makes stream and consumer where there are none. Those that
// are there stay as they are.
func (c Consumer) attachNATS(ctx context.Context, a Address) (conn *nats.Conn, js jetstream.JetStream, err error) {
	if conn, err = dialNATS(ctx, a.url); err != nil {
		return nil, nil, err
	}
	if js, err = jetstream.New(conn); err == nil {
		err = ensureStream(ctx, js, a)
	}
	if err == nil {
		err = c.ensureConsumer(ctx, js, streamName(a))
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, js, nil
}

func (c Consumer) ensureConsumer(ctx context.Context, js jetstream.JetStream, stream string) error {
	_, err := js.Consumer(ctx, stream, c.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		_, err = js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
			Durable: c.Name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: natsAckWait, DeliverPolicy: jetstream.DeliverAllPolicy, MaxDeliver: -1,
		})
		if errors.Is(err, jetstream.ErrConsumerExists) {
			err = nil // somebody else was faster
		}
	}
	if err != nil {
		return fmt.Errorf("make consumer %s: %w", c.Name, err)
	}
	return nil
}

func (c Consumer) observeNATS(ctx context.Context, e natsinbox.Event) {
	switch e.Kind {
	case natsinbox.EventProcessed:
		c.processed(ctx, e.MessageID, e.Verdict, e.Err)
	case natsinbox.EventLost:
		c.trouble(ctx, "NATS was lost", e.Err)
	case natsinbox.EventUnsettled:
		c.unsettled(ctx, e.MessageID, e.Err)
	case natsinbox.EventConsuming:
	}
}
