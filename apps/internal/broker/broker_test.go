package broker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/internal/broker"
	"github.com/onlyonce-go/onlyonce/apps/payments/event"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestMain(m *testing.M) { apptest.Exit(testserver.Run(m)) }

// parse is a URL that is sound.
func parse(t *testing.T, text string) broker.Address {
	t.Helper()
	a, err := broker.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// publisher is closed with the test.
func publisher(t *testing.T, a broker.Address) broker.Publisher {
	t.Helper()
	p := broker.NewPublisher(a)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// messages are so many, with ids and payloads of their own.
func messages(n int) []inbox.Message {
	all := make([]inbox.Message, n)
	for i := range all {
		all[i] = inbox.Message{
			ID: event.IDOf(event.ChargeSucceeded, fmt.Sprint(i)), Payload: fmt.Appendf(nil, `{"n":%d}`, i),
			Attributes: map[string]string{event.KindAttribute: "charge.succeeded"},
		}
	}
	return all
}

// until publishes again and again until the broker confirms, as the relay does.
func until(t *testing.T, p broker.Publisher, msgs []inbox.Message) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := p.Publish(ctx, msgs)
		cancel()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal(err)
		}
	}
}

// received collects what a consumer is given, by id.
type received struct {
	mu   sync.Mutex
	got  map[string]string
	kind map[string]string
	want int
	all  chan struct{}
	fail func(msg inbox.Message) error
}

func (r *received) process(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(msg); err != nil {
			return inbox.Again, err
		}
	}
	if _, again := r.got[msg.ID]; again {
		return inbox.Duplicate, nil
	}
	r.got[msg.ID], r.kind[msg.ID] = string(msg.Payload), msg.Attributes[event.KindAttribute]
	if len(r.got) == r.want {
		close(r.all)
	}
	return inbox.Handled, nil
}

// consume starts a consumer, which is stopped by stop or with the test.
func consume(t *testing.T, a broker.Address, r *received) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		err := broker.Consume(ctx, a, broker.Consumer{Name: "c", Process: r.process, Concurrency: 8, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

func expecting(n int) *received {
	return &received{got: map[string]string{}, kind: map[string]string{}, want: n, all: make(chan struct{})}
}

// wait waits until all have come, and compares them.
func (r *received) wait(t *testing.T, msgs []inbox.Message) {
	t.Helper()
	select {
	case <-r.all:
	case <-t.Context().Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	want, kinds := map[string]string{}, map[string]string{}
	for _, msg := range msgs {
		want[msg.ID], kinds[msg.ID] = string(msg.Payload), msg.Attributes[event.KindAttribute]
	}
	if diff := cmp.Diff(want, r.got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(kinds, r.kind); diff != "" {
		t.Error(diff)
	}
}

// What is published comes, under its id and with its bytes and its kind, also what is
// published while nobody consumes; what fails comes again.
func TestPublishAndConsume(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Brokers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := parse(t, open(t))
			p := publisher(t, a)
			msgs := messages(600) // more than one window
			first := expecting(300)
			failed := map[string]bool{}
			first.fail = func(msg inbox.Message) error {
				if n := len(failed); n < 3 && !failed[msg.ID] {
					failed[msg.ID] = true
					return errors.New("not now")
				}
				return nil
			}
			stop := consume(t, a, first)
			until(t, p, msgs[:300])
			first.wait(t, msgs[:300])
			stop()
			if len(failed) != 3 {
				t.Errorf("%d failed", len(failed))
			}
			until(t, p, msgs[300:])
			second := expecting(300)
			consume(t, a, second)
			second.wait(t, msgs[300:])
		})
	}
}

// Two processes of one name share the events.
func TestConsumersShare(t *testing.T) {
	t.Parallel()
	for name, open := range apptest.Brokers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, msgs := parse(t, open(t)), messages(200)
			r := expecting(len(msgs))
			consume(t, a, r)
			consume(t, a, r)
			until(t, publisher(t, a), msgs)
			r.wait(t, msgs)
		})
	}
}

// RabbitMQ confirms what no queue takes, and drops it: such events count as failed, and
// wait until a consumer has made its queue.
func TestUnroutable(t *testing.T) {
	t.Parallel()
	a, msgs := parse(t, testserver.RabbitMQ(t)), messages(3)
	p := publisher(t, a)
	for range 2 {
		if err := p.Publish(t.Context(), msgs); err == nil || !strings.Contains(err.Error(), "start a consumer") {
			t.Errorf("published to nobody: %v", err)
		}
	}
	r := expecting(3)
	consume(t, a, r)
	until(t, p, msgs)
	r.wait(t, msgs)
}

// A broker that cannot be reached is an error, and no longer one when it can be.
func TestDown(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"amqp://u:secret@127.0.0.1:1", "nats://u:secret@127.0.0.1:1", "kafka://127.0.0.1:1"} {
		t.Run(strings.SplitN(url, ":", 2)[0], func(t *testing.T) {
			t.Parallel()
			p := publisher(t, parse(t, url))
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				if err := p.Publish(ctx, messages(1)); err == nil || strings.Contains(err.Error(), "secret") {
					t.Errorf("published to nobody: %v", err)
				}
				cancel()
			}
			stop := consume(t, parse(t, url), expecting(1))
			stop() // and does not hang
		})
	}
}

// A broker that is killed and comes back is published to and consumed from as before.
func TestRestart(t *testing.T) {
	t.Parallel()
	server := testserver.NATS(t)
	a, msgs := parse(t, server.URL()), messages(100)
	p, r := publisher(t, a), expecting(len(msgs))
	consume(t, a, r)
	until(t, p, msgs[:50])
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := p.Publish(ctx, msgs[50:]); err == nil {
		t.Error("published to a dead server")
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, p, msgs[50:])
	r.wait(t, msgs)
}

// A broker that takes connections and says nothing holds nobody up for longer than he
// waits.
func TestSilent(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"amqp", "nats", "kafka"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var accepting sync.WaitGroup
			accepted := make(chan struct{}, 16)
			accepting.Go(func() {
				var held []net.Conn
				for {
					conn, err := listener.Accept()
					if err != nil {
						for _, conn := range held {
							_ = conn.Close()
						}
						return
					}
					held = append(held, conn)
					select {
					case accepted <- struct{}{}:
					default:
					}
				}
			})
			t.Cleanup(func() { _ = listener.Close(); accepting.Wait() })
			a := parse(t, scheme+"://"+listener.Addr().String())
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if err := publisher(t, a).Publish(ctx, messages(1)); err == nil {
				t.Error("published to nobody")
			}
			for len(accepted) > 0 {
				<-accepted
			}
			stop := consume(t, a, expecting(1))
			<-accepted
			stop()
		})
	}
}
