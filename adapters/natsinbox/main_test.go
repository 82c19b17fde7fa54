package natsinbox_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite" // the ledger's driver

	"github.com/onlyonce-go/onlyonce/adapters/internal/consumetest"
	"github.com/onlyonce-go/onlyonce/adapters/natsinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestMain(m *testing.M) {
	if os.Getenv(childURL) != "" {
		os.Exit(childMain())
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil { // tests wait most of the time
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// eventID is the header that bears the ids of most tests: what bears Nats-Msg-Id twice,
// JetStream itself drops.
const eventID = "Event-Id"

// stream is a stream on a server of the test's own, with a consumer.
type stream struct {
	t      *testing.T
	server *testserver.NATSServer
	conn   *nats.Conn
	js     jetstream.JetStream
}

// newStream makes a stream and its consumer, which change may change.
func newStream(t *testing.T, change func(*jetstream.ConsumerConfig)) *stream {
	t.Helper()
	s := &stream{t: t, server: testserver.NATS(t)}
	s.conn = connect(t, s.server.URL())
	js, err := jetstream.New(s.conn)
	if err != nil {
		t.Fatal(err)
	}
	s.js = js
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "PAYMENTS", Subjects: []string{"payments.>"}, Storage: jetstream.FileStorage,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.makeConsumer(change)
	return s
}

// connect opens a connection that comes back by itself.
func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// makeConsumer makes the consumer. It redelivers what was not acknowledged only by order,
// unless change says otherwise.
func (s *stream) makeConsumer(change func(*jetstream.ConsumerConfig)) {
	s.t.Helper()
	config := jetstream.ConsumerConfig{Durable: "balances", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour}
	if change != nil {
		change(&config)
	}
	if _, err := s.js.CreateConsumer(s.t.Context(), "PAYMENTS", config); err != nil {
		s.t.Fatal(err)
	}
}

// publish sends a message for each id, and returns when the stream has them.
func (s *stream) publish(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		m := nats.NewMsg("payments.charged")
		m.Data = []byte("payload of " + id)
		if id != "" {
			m.Header[eventID] = []string{id}
		}
		if _, err := s.js.PublishMsg(s.t.Context(), m); err != nil {
			s.t.Fatal(err)
		}
	}
}

// numbered are n ids.
func numbered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("m-%04d", i)
	}
	return ids
}

// info is what the server knows of the consumer.
func (s *stream) info() *jetstream.ConsumerInfo {
	s.t.Helper()
	consumer, err := s.js.Consumer(s.t.Context(), "PAYMENTS", "balances")
	if err != nil {
		s.t.Fatal(err)
	}
	return consumer.CachedInfo()
}

// wantReceived wants that the server waits for no ack and has nothing to deliver.
func (s *stream) wantReceived() {
	s.t.Helper()
	if i := s.info(); i.NumAckPending != 0 || i.NumPending != 0 {
		s.t.Errorf("%d messages wait for an ack, %d for delivery", i.NumAckPending, i.NumPending)
	}
}

// config is a consumer's of the stream, with short times.
func (s *stream) config(process inbox.ProcessFunc) natsinbox.Config {
	return natsinbox.Config{
		JetStream: s.js, Stream: "PAYMENTS", Durable: "balances", Process: process, WithoutID: process, ID: natsinbox.Header(eventID),
		MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond,
	}
}

// consumer is a Consumer that runs in a goroutine of the test.
type consumer struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
	events *consumetest.Events[natsinbox.Event]
}

// run runs a consumer until it is stopped, or the test ends.
func run(t *testing.T, cfg natsinbox.Config) *consumer {
	t.Helper()
	r := &consumer{t: t, done: make(chan error, 1), events: consumetest.NewEvents[natsinbox.Event]()}
	cfg.Observe = r.events.Add
	c, err := natsinbox.New(cfg)
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

func kind(want natsinbox.EventKind) func(natsinbox.Event) bool {
	return func(e natsinbox.Event) bool { return e.Kind == want }
}

func verdict(want inbox.Verdict) func(natsinbox.Event) bool {
	return func(e natsinbox.Event) bool { return e.Kind == natsinbox.EventProcessed && e.Verdict == want }
}

// acked matches the end of a message.
func acked(e natsinbox.Event) bool { return e.Kind == natsinbox.EventProcessed && e.Verdict.Ack() }
