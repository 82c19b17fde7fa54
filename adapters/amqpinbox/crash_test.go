package amqpinbox_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/amqpinbox"
	"github.com/onlyonce-go/onlyonce/adapters/internal/consumetest"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// The environment of a consumer in a process of its own.
const (
	childURL    = "ONLYONCE_AMQP_CHILD_URL"
	childLedger = "ONLYONCE_AMQP_CHILD_LEDGER"
)

// childMain is a consumer that handles a message, says so, and never acknowledges it.
func childMain() int {
	l, err := consumetest.OpenLedger(context.Background(), os.Getenv(childLedger))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c, err := amqpinbox.New(amqpinbox.Config{
		URL: os.Getenv(childURL), Queue: "payments",
		Process: func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
			v, err := l.Process(ctx, msg)
			fmt.Println(v, err)
			select {}
		},
	})
	if err == nil {
		err = c.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// I2: a consumer killed between commit and ack; the message comes again, as a duplicate.
func TestConsumerKilled(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]amqp091.Table{"classic": classic(), "quorum": quorum()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t, testserver.RabbitMQ(t), args)
			l, path := consumetest.NewLedger(t)
			q.publishIDs("m")
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), childURL+"="+q.url, childLedger+"="+path)
			child.Stderr = os.Stderr
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			said, err := bufio.NewReader(out).ReadString('\n')
			if err != nil || said != "handled <nil>\n" {
				t.Errorf("the child said %q, %v", said, err)
			}
			child.Process.Kill()
			child.Wait()
			c := run(t, q.config(l.Process))
			got := c.events.Wait(t, 1, acked)[0]
			c.stop()
			if got.Verdict != inbox.Duplicate || got.Deliveries != 2 {
				t.Errorf("after the crash: %+v", got)
			}
			l.WantOne(t, []string{"m"})
			q.wantEmpty()
		})
	}
}

// kills is how often a broker is killed: once, or with ONLYONCE_SOAK five times.
func kills() int {
	if os.Getenv("ONLYONCE_SOAK") != "" {
		return 5
	}
	return 1
}

// The broker is killed while it is consumed from, and started again: every message takes
// effect once, and the consumers come back by themselves.
func TestBrokerKilled(t *testing.T) {
	t.Parallel()
	server := testserver.NewRabbitMQ(t)
	var all []*survivor
	for _, args := range []amqp091.Table{classic(), quorum()} {
		all = append(all, newSurvivor(t, server.VHost(t), args))
	}
	for kill := range kills() {
		for _, s := range all {
			s.allow(50)
			s.consumer.events.Wait(t, 50*(kill+1), acked)
		}
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			s.consumer.events.Wait(t, kill+1, kind(amqpinbox.EventLost))
		}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range all {
		s.allow(10_000)
		s.finish(t)
	}
}

// survivor is a consumer that is to outlive its broker. It handles as many messages as
// the test allows.
type survivor struct {
	queue    *queue
	ledger   *consumetest.Ledger
	ids      []string
	allowed  chan struct{}
	consumer *consumer
}

func newSurvivor(t *testing.T, url string, args amqp091.Table) *survivor {
	t.Helper()
	s := &survivor{queue: newQueue(t, url, args), ids: numbered(300), allowed: make(chan struct{}, 11_000)}
	s.ledger, _ = consumetest.NewLedger(t)
	s.queue.publishIDs(s.ids...)
	s.consumer = run(t, s.queue.config(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		select {
		case <-s.allowed:
			return s.ledger.Process(ctx, msg)
		case <-ctx.Done():
			return inbox.Again, ctx.Err()
		}
	}))
	return s
}

func (s *survivor) allow(n int) {
	for range n {
		s.allowed <- struct{}{}
	}
}

// finish waits until everything was handled and acknowledged.
func (s *survivor) finish(t *testing.T) {
	t.Helper()
	s.consumer.events.Wait(t, len(s.ids), verdict(inbox.Handled))
	s.queue.channel = connect(t, s.queue.url)
	eventually(t, "the queue is empty", func() bool { return s.queue.ready() == 0 })
	s.consumer.stop()
	s.ledger.WantOne(t, s.ids)
	s.queue.wantEmpty()
}

// eventually polls until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("never: %s", what)
		}
	}
}

// wires are the connections of a consumer, for a test to cut.
type wires struct {
	mu  sync.Mutex
	all []net.Conn
}

func (w *wires) dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	if err == nil {
		w.mu.Lock()
		w.all = append(w.all, conn)
		w.mu.Unlock()
	}
	return conn, err
}

func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.all {
		conn.Close()
	}
}

// A connection that breaks between commit and ack does not interrupt the handler. The ack
// is lost, and the message comes again, as a duplicate.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	l, _ := consumetest.NewLedger(t)
	q.publishIDs("m")
	var w wires
	var c *consumer
	ready := make(chan struct{})
	cfg := q.config(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		<-ready
		v, err := l.Process(ctx, msg)
		if v == inbox.Handled {
			w.cut()
			c.events.Wait(t, 1, kind(amqpinbox.EventLost))
		}
		return v, err
	})
	cfg.Connection = amqp091.Config{Dial: w.dial}
	c = run(t, cfg)
	close(ready)
	got := c.events.Wait(t, 1, verdict(inbox.Duplicate))[0]
	c.events.Wait(t, 1, kind(amqpinbox.EventUnsettled))
	c.stop()
	if got.Deliveries != 2 {
		t.Errorf("the duplicate: %+v", got)
	}
	l.WantOne(t, []string{"m"})
	q.wantEmpty()
}

// A queue that is deleted while it is consumed ends Run, when Patience is over.
func TestQueueDeleted(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	l, _ := consumetest.NewLedger(t)
	cfg := q.config(l.Process)
	cfg.Patience = 100 * time.Millisecond
	c := run(t, cfg)
	c.events.Wait(t, 1, kind(amqpinbox.EventConsuming))
	if _, err := q.channel.QueueDelete(q.name, false, false, false); err != nil {
		t.Fatal(err)
	}
	if err := c.ended(); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("run: %v", err)
	}
	lost, _ := c.events.Find(kind(amqpinbox.EventLost))
	var waited time.Duration
	for _, e := range lost[1:] { // the first is the broker's cancel
		waited += e.Wait
	}
	if waited != cfg.Patience {
		t.Errorf("waited %v in all for the queue: %+v", waited, lost)
	}
}

// One that is there again within it is consumed again.
func TestQueueDeclaredAgain(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	l, _ := consumetest.NewLedger(t)
	c := run(t, q.config(l.Process))
	c.events.Wait(t, 1, kind(amqpinbox.EventConsuming))
	if _, err := q.channel.QueueDelete(q.name, false, false, false); err != nil {
		t.Fatal(err)
	}
	c.events.Wait(t, 2, kind(amqpinbox.EventLost))
	q.declare(classic())
	q.publishIDs("m")
	c.events.Wait(t, 1, acked)
	c.stop()
	l.WantOne(t, []string{"m"})
}

// A queue that another consumer has for itself ends Run as well; a broker that is not
// there does not.
func TestRefused(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	if _, err := q.channel.Consume(q.name, "owner", false, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	cfg := q.config(func(context.Context, inbox.Message) (inbox.Verdict, error) { return inbox.Handled, nil })
	cfg.Patience = time.Millisecond
	if err := run(t, cfg).ended(); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("run on an exclusive queue: %v", err)
	}
	cfg.URL = "amqp://127.0.0.1:1/"
	away := run(t, cfg)
	lost := away.events.Wait(t, 20, kind(amqpinbox.EventLost))
	away.stop()
	if !slices.ContainsFunc(lost, func(e amqpinbox.Event) bool { return e.Wait >= 10*time.Millisecond }) {
		t.Errorf("the pauses do not grow: %+v", lost)
	}
}

// Run ends with its context also while it connects to somebody who does not answer.
func TestEndWhileConnecting(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := run(t, amqpinbox.Config{
		URL: "amqp://" + l.Addr().String(), Queue: "q",
		Process: func(context.Context, inbox.Message) (inbox.Verdict, error) { return inbox.Handled, nil },
	})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c.stop()
}

// mute is a connection whose words can be swallowed, as by a broker that hangs.
type mute struct {
	net.Conn
	silent atomic.Bool
}

func (m *mute) Write(b []byte) (int, error) {
	if m.silent.Load() {
		return len(b), nil
	}
	return m.Conn.Write(b)
}

// Run ends also when the broker does not answer any more.
func TestEndWithSilentBroker(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	m := &mute{}
	cfg := q.config(handled)
	cfg.Drain = time.Millisecond
	cfg.Connection.Dial = func(network, address string) (conn net.Conn, err error) {
		m.Conn, err = net.Dial(network, address)
		return m, err
	}
	c := run(t, cfg)
	c.events.Wait(t, 1, kind(amqpinbox.EventConsuming))
	m.silent.Store(true)
	c.stop()
}

// It does also where the broker takes the connection and then answers no more.
func TestEndWhileOpening(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	m := &mute{}
	asked := make(chan struct{})
	cfg := q.config(handled)
	cfg.Connection.Dial = func(network, address string) (conn net.Conn, err error) {
		m.Conn, err = net.Dial(network, address)
		return &until{m, []byte("payments"), sync.OnceFunc(func() { close(asked) })}, err
	}
	c := run(t, cfg)
	<-asked
	c.stop()
}

// until falls silent with the first write that has the word.
type until struct {
	*mute
	word []byte
	then func()
}

func (u *until) Write(b []byte) (int, error) {
	if bytes.Contains(b, u.word) {
		u.silent.Store(true)
		u.then()
	}
	return u.mute.Write(b)
}
