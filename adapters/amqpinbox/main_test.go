package amqpinbox_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // the ledger's driver

	"github.com/onlyonce-go/onlyonce/adapters/amqpinbox"
	"github.com/onlyonce-go/onlyonce/adapters/internal/consumetest"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestMain(m *testing.M) {
	if os.Getenv(childURL) != "" {
		os.Exit(childMain())
	}
	code := testserver.Run(m)
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// queue is a durable queue of a test, and a connection to look at it.
type queue struct {
	t       *testing.T
	url     string
	name    string
	channel *amqp091.Channel
}

func classic() amqp091.Table { return amqp091.Table{amqp091.QueueTypeArg: "classic"} }
func quorum() amqp091.Table  { return amqp091.Table{amqp091.QueueTypeArg: "quorum"} }

// newQueue declares a queue.
func newQueue(t *testing.T, url string, args amqp091.Table) *queue {
	t.Helper()
	q := &queue{t: t, url: url, name: "payments", channel: connect(t, url)}
	q.declare(args)
	return q
}

// connect opens a channel that can confirm.
func connect(t *testing.T, url string) *amqp091.Channel {
	t.Helper()
	conn, err := amqp091.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := channel.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return channel
}

func (q *queue) declare(args amqp091.Table) {
	q.t.Helper()
	if _, err := q.channel.QueueDeclare(q.name, true, false, false, false, args); err != nil {
		q.t.Fatal(err)
	}
}

// publish sends messages that survive the broker, and returns when it has them.
func (q *queue) publish(messages ...amqp091.Publishing) {
	q.t.Helper()
	var confirms []*amqp091.DeferredConfirmation
	for _, m := range messages {
		m.DeliveryMode = amqp091.Persistent
		c, err := q.channel.PublishWithDeferredConfirm("", q.name, true, false, m)
		if err != nil {
			q.t.Fatal(err)
		}
		confirms = append(confirms, c)
	}
	for _, c := range confirms {
		if ok, err := c.WaitContext(q.t.Context()); !ok || err != nil {
			q.t.Fatalf("not confirmed: %v", err)
		}
	}
}

// publishIDs sends a message for each id.
func (q *queue) publishIDs(ids ...string) {
	q.t.Helper()
	var messages []amqp091.Publishing
	for _, id := range ids {
		messages = append(messages, message(id))
	}
	q.publish(messages...)
}

func message(id string) amqp091.Publishing {
	return amqp091.Publishing{MessageId: id, Body: []byte("payload of " + id)}
}

// numbered are n ids.
func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("m-%04d", i)
	}
	return ids
}

// ready is how many messages wait in the queue, unlike those that some consumer has.
func (q *queue) ready() int {
	q.t.Helper()
	state, err := q.channel.QueueDeclarePassive(q.name, true, false, false, false, nil)
	if err != nil {
		q.t.Fatal(err)
	}
	return state.Messages
}

// wantEmpty wants that no message is left, although nobody consumes any more.
func (q *queue) wantEmpty() {
	q.t.Helper()
	if n := q.ready(); n != 0 {
		q.t.Errorf("%d messages are left in the queue", n)
	}
}

// config is a consumer's of the queue, with short times.
func (q *queue) config(process inbox.ProcessFunc) amqpinbox.Config {
	return amqpinbox.Config{
		URL: q.url, Queue: q.name, Process: process,
		MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond,
	}
}

// consumer is a Consumer that runs in a goroutine of the test.
type consumer struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
	events *consumetest.Events[amqpinbox.Event]
}

// run runs a consumer until it is stopped, or the test ends.
func run(t *testing.T, cfg amqpinbox.Config) *consumer {
	t.Helper()
	r := &consumer{t: t, done: make(chan error, 1), events: consumetest.NewEvents[amqpinbox.Event]()}
	cfg.Observe = r.events.Add
	c, err := amqpinbox.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.cancel = cancel
	go func() {
		defer close(r.done)
		r.done <- c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	return r
}

// stop ends the consumer in order.
func (r *consumer) stop() {
	r.t.Helper()
	r.cancel()
	if err := <-r.done; err != nil {
		r.t.Errorf("run: %v", err)
	}
}

// ended waits for the consumer to end by itself.
func (r *consumer) ended() error {
	r.t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-r.t.Context().Done():
		r.t.Fatal("the consumer has not ended")
		return nil
	}
}

func kind(want amqpinbox.EventKind) func(amqpinbox.Event) bool {
	return func(e amqpinbox.Event) bool { return e.Kind == want }
}

func verdict(want inbox.Verdict) func(amqpinbox.Event) bool {
	return func(e amqpinbox.Event) bool { return e.Kind == amqpinbox.EventProcessed && e.Verdict == want }
}

// acked matches the end of a message.
func acked(e amqpinbox.Event) bool { return e.Kind == amqpinbox.EventProcessed && e.Verdict.Ack() }
