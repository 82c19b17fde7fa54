package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce/inbox"
)

// amqpWindow is how many messages are on their way at once. The channel of those that
// come back holds as many, so that the client never waits for us to read it.
const amqpWindow = 256

// amqpHandshake bounds the beginning of a connection.
const amqpHandshake = 10 * time.Second

// amqpPublisher publishes to an exchange with confirms. A message that no queue takes
// comes back and counts as failed: RabbitMQ would confirm it, and drop it.
type amqpPublisher struct {
	address Address

	mu sync.Mutex
	// All nil where there is no connection. socket is under conn, to end it at once.
	conn     *amqp.Connection
	socket   net.Conn
	channel  *amqp.Channel
	returned chan amqp.Return
}

// Publish publishes. A channel on which anything has failed is not used again.
func (p *amqpPublisher) Publish(ctx context.Context, msgs []inbox.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.connect(ctx); err != nil {
		return errors.Join(fmt.Errorf("connect to RabbitMQ: %w", err), p.disconnect())
	}
	// RabbitMQ that is short of memory or disk stops reading, and writes to it wait.
	stop := context.AfterFunc(ctx, func() { _ = p.socket.Close() })
	defer stop()
	for window := range slices.Chunk(msgs, amqpWindow) {
		if err := p.publish(ctx, window); err != nil {
			return errors.Join(fmt.Errorf("publish to RabbitMQ: %w", err), p.disconnect())
		}
	}
	return nil
}

// publish sends messages and waits for all confirms.
func (p *amqpPublisher) publish(ctx context.Context, msgs []inbox.Message) error {
	confirms := make([]*amqp.DeferredConfirmation, len(msgs))
	for i, msg := range msgs {
		headers := amqp.Table{}
		for name, value := range msg.Attributes {
			headers[name] = value
		}
		var err error
		confirms[i], err = p.channel.PublishWithDeferredConfirmWithContext(ctx, p.address.name, kindOf(msg), true, false, amqp.Publishing{
			MessageId: msg.ID, ContentType: contentType, DeliveryMode: amqp.Persistent, Headers: headers, Body: msg.Payload,
		})
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	for _, confirm := range confirms {
		acked, err := confirm.WaitContext(ctx)
		if err != nil {
			return fmt.Errorf("wait for confirm: %w", err)
		}
		if !acked {
			return errors.New("the message was not confirmed")
		}
	}
	// What comes back does so before its confirm.
	select {
	case r := <-p.returned:
		return fmt.Errorf("no queue takes the events (%d %s): start a consumer, which makes its queue, or bind one to the exchange %s",
			r.ReplyCode, r.ReplyText, p.address.name)
	default:
		return nil
	}
}

// connect connects, makes the exchange and asks for confirms, where that is not done.
func (p *amqpPublisher) connect(ctx context.Context) (err error) {
	if p.conn != nil && !p.conn.IsClosed() && !p.channel.IsClosed() {
		return nil
	}
	if err := p.disconnect(); err != nil {
		return err
	}
	if p.conn, p.socket, err = dialAMQP(ctx, p.address.url); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.socket.Close() })
	defer stop()
	if p.channel, err = p.conn.Channel(); err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
	if err := declareExchange(p.channel, p.address.name); err != nil {
		return err
	}
	if err := p.channel.Confirm(false); err != nil {
		return fmt.Errorf("ask for confirms: %w", err)
	}
	p.returned = p.channel.NotifyReturn(make(chan amqp.Return, amqpWindow))
	return nil
}

// disconnect ends the connection, if there is one.
func (p *amqpPublisher) disconnect() error {
	conn, socket := p.conn, p.socket
	p.conn, p.socket, p.channel, p.returned = nil, nil, nil, nil
	if conn == nil || conn.IsClosed() {
		return nil
	}
	// Taking leave waits for an answer, which a broker that hangs does not give.
	_ = socket.SetDeadline(soon(time.Second))
	if err := conn.Close(); err != nil && !errors.Is(err, amqp.ErrClosed) {
		return fmt.Errorf("close connection: %w", err)
	}
	return nil
}

// Close ends the connection.
func (p *amqpPublisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.disconnect()
}

// dialAMQP connects, and ends the attempt with ctx.
func dialAMQP(ctx context.Context, url string) (conn *amqp.Connection, socket net.Conn, err error) {
	ended := func() bool { return true }
	conn, err = amqp.DialConfig(url, amqp.Config{
		Heartbeat: 10 * time.Second,
		Locale:    "en_US",
		Dial: func(network, address string) (net.Conn, error) {
			var dialer net.Dialer
			var err error
			if socket, err = dialer.DialContext(ctx, network, address); err != nil {
				return nil, err
			}
			ended = context.AfterFunc(ctx, func() { _ = socket.Close() })
			// The client lifts the deadline when the connection is open.
			return socket, socket.SetDeadline(soon(amqpHandshake))
		},
	})
	ended()
	if err != nil && socket != nil {
		_ = socket.Close()
	}
	return conn, socket, err
}

// declareExchange makes the exchange of the events, where there is none.
func declareExchange(channel *amqp.Channel, name string) error {
	if err := channel.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		return fmt.Errorf("declare exchange %s: %w", name, err)
	}
	return nil
}
