package amqpinbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce"
)

const (
	// openTimeout bounds the way from connecting to consuming.
	openTimeout = 30 * time.Second
	// closeTimeout is how long the broker may take to answer the end of a connection.
	closeTimeout = 2 * time.Second
	// consumerTag names the consumer, the only one of its channel.
	consumerTag = "onlyonce"
)

// session is one connection's consumption. Its context ends when no message is to be
// begun any more, and the context's cause says why.
type session struct {
	*run
	channel *amqp091.Channel
	end     context.CancelCauseFunc
	cut     func() // ends the connection, and all calls on it
}

// session connects, and consumes until ctx is done or the connection lost. Its error is an
// *onlyonce.Error if another connection would not help.
func (r *run) session(ctx context.Context) error {
	// A broker that cannot serve a queue may leave a call without a reply, for ever.
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	l, err := r.connect(opening)
	if err != nil {
		return fmt.Errorf("connect to broker: %w", err)
	}
	defer l.close()
	opened := context.AfterFunc(opening, l.cut)
	o, err := r.open(l.conn)
	if !opened() || err != nil {
		return errors.Join(err, opening.Err())
	}
	r.refused = 0
	lasted := time.NewTimer(r.cfg.MaxBackoff)
	defer lasted.Stop()
	r.cfg.Observe(Event{Kind: EventConsuming})
	err = r.consume(ctx, o, l.cut)
	select {
	case <-lasted.C:
		r.failures = 0
	default:
	}
	return err
}

// consume hands out what comes until ctx is done or the broker ends it.
func (r *run) consume(ctx context.Context, o opened, cut func()) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	s := &session{run: r, channel: o.channel, end: end, cut: cut}
	r.hands.Go(func() { s.watch(ctx, o) })
	s.take(ctx, o.deliveries)
	return s.finish(ctx)
}

// opened is a channel on which the queue is consumed, and what comes by it.
type opened struct {
	channel    *amqp091.Channel
	deliveries <-chan amqp091.Delivery
	closed     <-chan *amqp091.Error
	cancelled  <-chan string
}

// open has the broker deliver the queue's messages.
func (r *run) open(conn *amqp091.Connection) (o opened, err error) {
	if o.channel, err = conn.Channel(); err != nil {
		return o, fmt.Errorf("open channel: %w", err)
	}
	o.closed = o.channel.NotifyClose(make(chan *amqp091.Error, 1))
	o.cancelled = o.channel.NotifyCancel(make(chan string, 1))
	if err := o.channel.Qos(r.cfg.Prefetch, 0, false); err != nil {
		return o, fmt.Errorf("set prefetch: %w", err)
	}
	if o.deliveries, err = o.channel.Consume(r.cfg.Queue, consumerTag, false, false, false, false, nil); err != nil {
		return o, fmt.Errorf("consume queue %q: %w", r.cfg.Queue, err)
	}
	return o, nil
}

// link is a connection to the broker.
type link struct {
	conn *amqp091.Connection
	cut  func() // ends it without a word, and with it all calls on it
}

// close ends the connection in order, unless the broker does not answer. What was not
// acknowledged is the broker's again, said or not.
func (l link) close() {
	silent := time.AfterFunc(closeTimeout, l.cut)
	defer silent.Stop()
	_ = l.conn.Close()
}

// connect makes a connection, or gives up when ctx is done.
func (r *run) connect(ctx context.Context) (link, error) {
	config := r.cfg.Connection
	dial := config.Dial
	if dial == nil {
		dial = func(network, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	}
	l := link{cut: func() {}}
	made := func() bool { return true }
	config.Dial = func(network, address string) (net.Conn, error) {
		wire, err := dial(network, address)
		if err == nil {
			l.cut = func() { _ = wire.Close() }
			made = context.AfterFunc(ctx, l.cut)
		}
		return wire, err
	}
	var err error
	l.conn, err = amqp091.DialConfig(r.cfg.URL, config)
	made()
	return l, err
}

// errCancelled: the broker has ended the consumer, not the channel.
var errCancelled = errors.New("the broker has cancelled the consumer: its queue was deleted, or moves to another node")

// watch ends the session when the broker does.
func (s *session) watch(ctx context.Context, o opened) {
	var err *amqp091.Error
	select {
	case err = <-o.closed:
	case _, ok := <-o.cancelled:
		if ok {
			s.end(errCancelled)
			return
		}
		err = <-o.closed // with the channel all its notices end
	case <-ctx.Done():
		return
	}
	if err == nil {
		err = amqp091.ErrClosed
	}
	s.end(fmt.Errorf("channel closed: %w", err))
}

// take hands out the messages in their order until ctx is done. One that has come is
// handled when there is a free place.
func (s *session) take(ctx context.Context, deliveries <-chan amqp091.Delivery) {
	for {
		select {
		case d, ok := <-deliveries:
			if !ok {
				<-ctx.Done() // the library closes it and says why beside it
				return
			}
			if !s.begin(ctx, &d) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// begin has a message handled, or decides about one without an id.
func (s *session) begin(ctx context.Context, d *amqp091.Delivery) bool {
	msg := s.cfg.message(d)
	if msg.ID == "" {
		return s.withoutID(d)
	}
	if !s.hands.Place(ctx) {
		return false
	}
	s.hands.Go(func() { s.handle(ctx, hand{d, msg}) })
	return true
}

// withoutID rejects the message, or leaves it to the broker and ends the session.
func (s *session) withoutID(d *amqp091.Delivery) bool {
	if s.cfg.WithoutID == DeadLetter {
		s.settle(d, Event{Kind: EventRejected, Deliveries: deliveries(d)}, d.Reject(false))
		return true
	}
	s.end(&onlyonce.Error{
		Code: onlyonce.CodeKeyRequired, Op: "take message",
		Hint: fmt.Sprintf("a message of queue %q (exchange %q, routing key %q) has no id, so it cannot be told from its redelivery; "+
			"it is still there. Have the publisher set one, or set Config.ID or Config.WithoutID", s.cfg.Queue, d.Exchange, d.RoutingKey),
	})
	return false
}

// finish ends the session. Where the channel lives, what is being handled is waited for
// and acknowledged, with no new messages coming; what waits goes back with the channel.
func (s *session) finish(ctx context.Context) error {
	cause := context.Cause(ctx)
	if s.channel.IsClosed() || errors.Is(cause, errCancelled) {
		return cause
	}
	silent := time.AfterFunc(s.cfg.Drain, s.cut)
	err := s.channel.Cancel(consumerTag, false)
	if !silent.Stop() || err != nil {
		return errors.Join(cause, err)
	}
	s.hands.Drain()
	return cause
}
