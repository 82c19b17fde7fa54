package natsinbox_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/consumetest"
	"github.com/onlyonce-go/onlyonce/adapters/natsinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// The environment of a consumer in a process of its own.
const (
	childURL    = "ONLYONCE_NATS_CHILD_URL"
	childLedger = "ONLYONCE_NATS_CHILD_LEDGER"
)

// childMain is a consumer that handles a message, says so, and never acknowledges it.
func childMain() int {
	if err := childRun(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 1
}

func childRun() error {
	l, err := consumetest.OpenLedger(context.Background(), os.Getenv(childLedger))
	if err != nil {
		return err
	}
	conn, err := nats.Connect(os.Getenv(childURL))
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	process := func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		v, err := l.Process(ctx, msg)
		fmt.Println(v, err)
		select {}
	}
	c, err := natsinbox.New(natsinbox.Config{
		JetStream: js, Stream: "PAYMENTS", Durable: "balances", Process: process, WithoutID: process, ID: natsinbox.Header(eventID),
	})
	if err != nil {
		return err
	}
	return c.Run(context.Background())
}

// I2: a consumer killed between commit and ack; the message comes again, as a duplicate.
func TestConsumerKilled(t *testing.T) {
	t.Parallel()
	s := newStream(t, func(c *jetstream.ConsumerConfig) { c.AckWait = 500 * time.Millisecond })
	l, path := consumetest.NewLedger(t)
	s.publish("m")
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childURL+"="+s.server.URL(), childLedger+"="+path)
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
	c := run(t, s.config(l.Process))
	got := c.events.Wait(t, 1, acked)[0]
	c.stop()
	if got.Verdict != inbox.Duplicate || got.Deliveries < 2 {
		t.Errorf("after the crash: %+v", got)
	}
	l.WantOne(t, []string{"m"})
	s.wantReceived()
}

// The server is killed while it is consumed from, and started again, twice or more: every message
// takes effect once, and the consumer comes back by itself.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	s := newStream(t, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Second })
	l, _ := consumetest.NewLedger(t)
	ids := numbered(300)
	s.publish(ids...)
	allowed := make(chan struct{}, 20_000)
	allow := func(n int) {
		for range n {
			allowed <- struct{}{}
		}
	}
	c := run(t, s.config(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		select {
		case <-allowed:
			return l.Process(ctx, msg)
		case <-ctx.Done():
			return inbox.Again, ctx.Err()
		}
	}))
	kills := 2
	if os.Getenv("ONLYONCE_SOAK") != "" {
		kills = 20
	}
	for kill := 1; kill <= kills; kill++ {
		allow(10)
		c.events.Wait(t, 10*kill, acked)
		if err := s.server.Kill(); err != nil {
			t.Fatal(err)
		}
		// It need not notice: with all of Prefetch in hand it asks for nothing.
		eventually(t, "the connection is lost", func() bool { return !s.conn.IsConnected() })
		if err := s.server.Start(); err != nil {
			t.Fatal(err)
		}
	}
	allow(10_000)
	c.events.Wait(t, len(ids), verdict(inbox.Handled))
	eventually(t, "all are received", func() bool {
		i := s.info()
		return i.NumAckPending == 0 && i.NumPending == 0
	})
	c.stop()
	l.WantOne(t, ids)
	s.wantReceived()
}

// The server goes away between commit and ack: the ack waits for it, or is lost and the
// message comes again, as a duplicate.
func TestServerKilledBeforeAck(t *testing.T) {
	t.Parallel()
	s := newStream(t, func(c *jetstream.ConsumerConfig) { c.AckWait = time.Second })
	l, _ := consumetest.NewLedger(t)
	s.publish("m")
	killed := make(chan error, 1)
	c := run(t, s.config(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		v, err := l.Process(ctx, msg)
		if v == inbox.Handled {
			killed <- s.server.Kill()
		}
		return v, err
	}))
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	if err := s.server.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the message is received", func() bool {
		i := s.info()
		return i.NumAckPending == 0 && i.NumPending == 0
	})
	c.stop()
	l.WantOne(t, []string{"m"})
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

// A consumer that is deleted while it is consumed ends Run, when Patience is over.
func TestConsumerDeleted(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	cfg := s.config(handled)
	cfg.Patience = 100 * time.Millisecond
	c := run(t, cfg)
	c.events.Wait(t, 1, kind(natsinbox.EventConsuming))
	if err := s.js.DeleteConsumer(t.Context(), "PAYMENTS", "balances"); err != nil {
		t.Fatal(err)
	}
	if err := c.ended(); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), "missing") {
		t.Errorf("run: %v", err)
	}
	var waited time.Duration
	lost, _ := c.events.Find(kind(natsinbox.EventLost))
	for _, e := range lost {
		if strings.Contains(e.Err.Error(), "find consumer") {
			waited += e.Wait
		}
	}
	if waited != cfg.Patience {
		t.Errorf("waited %v in all for the consumer: %+v", waited, lost)
	}
}

// One that is there again within it is consumed again.
func TestConsumerMadeAgain(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	l, _ := consumetest.NewLedger(t)
	c := run(t, s.config(l.Process))
	c.events.Wait(t, 1, kind(natsinbox.EventConsuming))
	if err := s.js.DeleteConsumer(t.Context(), "PAYMENTS", "balances"); err != nil {
		t.Fatal(err)
	}
	c.events.Wait(t, 2, kind(natsinbox.EventLost))
	s.makeConsumer(nil)
	s.publish("m")
	c.events.Wait(t, 1, acked)
	c.stop()
	l.WantOne(t, []string{"m"})
}

// A connection that is closed for good ends Run.
func TestConnectionClosed(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	c := run(t, s.config(handled))
	c.events.Wait(t, 1, kind(natsinbox.EventConsuming))
	s.conn.Close()
	if err := c.ended(); onlyonce.CodeOf(err) != onlyonce.CodeUnreachable {
		t.Errorf("run: %v", err)
	}
}
