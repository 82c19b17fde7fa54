package natsinbox_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/consumetest"
	"github.com/onlyonce-go/onlyonce/adapters/natsinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// effects counts what was committed.
type effects struct {
	mu sync.Mutex
	n  map[string]int
}

func (e *effects) of(tx *memstore.Tx, msg inbox.Message) {
	tx.OnCommit(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.n[msg.ID]++
	})
}

func (e *effects) wantOne(t *testing.T, ids []string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.n) != len(ids) {
		t.Errorf("%d ids took effect, want %d", len(e.n), len(ids))
	}
	for _, id := range ids {
		if e.n[id] != 1 {
			t.Errorf("%s took effect %d times", id, e.n[id])
		}
	}
}

// newInbox makes an inbox over a store in memory.
func newInbox(t *testing.T, handler inbox.TxHandlerFunc[*memstore.Tx]) inbox.ProcessFunc {
	t.Helper()
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := onlyonce.NewTx(store, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close(context.WithoutCancel(t.Context())) })
	box, err := inbox.NewTx(engine, inbox.Config{Consumer: "balances", MaxTries: 3, Pause: time.Millisecond, MaxPause: 2 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		return box.Process(ctx, msg, handler)
	}
}

// I1: duplicates of the publisher's take effect once, whatever is handled beside them.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	found := &effects{n: map[string]int{}}
	process := newInbox(t, func(_ context.Context, tx *memstore.Tx, msg inbox.Message) error {
		found.of(tx, msg)
		return nil
	})
	ids := numbered(100)
	c := run(t, s.config(process))
	s.publish(ids...)
	s.publish(ids[:50]...)
	c.events.Wait(t, 150, acked)
	c.stop()
	if n, _ := c.events.Find(verdict(inbox.Duplicate)); len(n) != 50 {
		t.Errorf("%d duplicates, want 50", len(n))
	}
	if n, _ := c.events.Find(kind(natsinbox.EventUnsettled)); len(n) != 0 {
		t.Errorf("not confirmed: %+v", n)
	}
	found.wantOne(t, ids)
	s.wantReceived()
}

// I2, B113: a failed handler leaves no mark: the next delivery runs. A message that always
// fails is parked, and the others are not kept waiting.
func TestFailuresAndPoison(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	found := &effects{n: map[string]int{}}
	process := newInbox(t, func(_ context.Context, tx *memstore.Tx, msg inbox.Message) error {
		if msg.ID == "poison" || msg.Deliveries == 1 {
			return errors.New("no")
		}
		found.of(tx, msg)
		return nil
	})
	ids := numbered(20)
	s.publish(slices.Concat([]string{"poison"}, ids)...)
	c := run(t, s.config(process))
	c.events.Wait(t, len(ids)+1, acked)
	c.stop()
	parked, _ := c.events.Find(verdict(inbox.Parked))
	if len(parked) != 1 || parked[0].MessageID != "poison" || parked[0].Deliveries != 3 || parked[0].Err == nil {
		t.Errorf("parked: %+v", parked)
	}
	found.wantOne(t, ids)
	s.wantReceived()
}

// A message that must come again comes by the server's delay, the error's RetryAfter, and
// not by AckWait, which is an hour here.
func TestAgainIsDelayed(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	var got []int
	cfg := s.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
		if got = append(got, msg.Deliveries); len(got) < 4 {
			return inbox.Again, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, RetryAfter: 15 * time.Millisecond}
		}
		return inbox.Handled, nil
	})
	s.publish("m")
	c := run(t, cfg)
	c.events.Wait(t, 1, acked)
	c.stop()
	if want := []int{1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("deliveries %v, want %v", got, want)
	}
	again, _ := c.events.Find(verdict(inbox.Again))
	for _, e := range again {
		if e.Wait < 15*time.Millisecond || e.Wait > 20*time.Millisecond {
			t.Errorf("delay of %v, want RetryAfter, up to MaxBackoff", e.Wait)
		}
	}
	s.wantReceived()
}

// While a handler runs longer than AckWait, neither its message nor those behind it are
// delivered again.
func TestProgress(t *testing.T) {
	t.Parallel()
	s := newStream(t, func(c *jetstream.ConsumerConfig) { c.AckWait = 2 * time.Second })
	s.publish("long", "behind it")
	cfg := s.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
		if msg.ID == "long" {
			<-time.After(5 * time.Second)
		}
		return inbox.Handled, nil
	})
	cfg.Concurrency, cfg.Prefetch = 1, 2
	c := run(t, cfg)
	done := c.events.Wait(t, 2, acked)
	c.stop()
	for _, e := range done {
		if e.Deliveries != 1 {
			t.Errorf("delivered again: %+v", e)
		}
	}
	if len(done) != 2 {
		t.Errorf("handled: %+v", done)
	}
	s.wantReceived()
}

// Prefetch bounds what is in hand: the rest is left to other processes.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	s.publish(numbered(10)...)
	l, _ := consumetest.NewLedger(t)
	end := make(chan struct{})
	cfg := s.config(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		<-end
		return l.Process(ctx, msg)
	})
	cfg.Concurrency, cfg.Prefetch = 1, 4
	stuck := run(t, cfg)
	eventually(t, "four messages are in hand", func() bool { return s.info().NumAckPending == 4 })
	other := run(t, s.config(l.Process))
	other.events.Wait(t, 6, acked)
	stuck.cancel()
	close(end) // three wait for their turn, and are given back
	if err := stuck.ended(); err != nil {
		t.Fatal(err)
	}
	done, _ := stuck.events.Find(acked)
	other.events.Wait(t, 10-len(done), acked)
	other.stop()
	l.WantOne(t, numbered(10))
	s.wantReceived()
}

// With a Prefetch of 1 messages run one by one, in the stream's order.
func TestOrder(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	ids := numbered(50)
	s.publish(ids...)
	var got []string
	cfg := s.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
		got = append(got, msg.ID) // unguarded: the race detector sees two at once
		return inbox.Handled, nil
	})
	cfg.Concurrency, cfg.Prefetch = 1, 1
	c := run(t, cfg)
	c.events.Wait(t, len(ids), acked)
	c.stop()
	if !slices.Equal(got, ids) {
		t.Errorf("handled %v", got)
	}
}

// The end of Run lets what is being handled end, and acknowledges it. What waits is
// given back at once.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	s.publish("first", "second")
	begun, end := make(chan string, 2), make(chan struct{})
	cfg := s.config(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		begun <- msg.ID
		<-end
		return inbox.Handled, ctx.Err()
	})
	cfg.Concurrency, cfg.Prefetch = 1, 2
	c := run(t, cfg)
	first := <-begun
	eventually(t, "both are in hand", func() bool { return s.info().NumAckPending == 2 })
	c.cancel()
	// The one that waits is given back, although the other is not yet done.
	next := run(t, s.config(handled))
	given := next.events.Wait(t, 1, acked)[0]
	close(end)
	if err := c.ended(); err != nil {
		t.Fatal(err)
	}
	next.stop()
	done, _ := c.events.Find(acked)
	if len(done) != 1 || done[0].Err != nil || done[0].MessageID != first || given.MessageID == first || given.Deliveries != 2 {
		t.Errorf("handled: %+v, given back: %+v", done, given)
	}
	s.wantReceived()
}

// A handler that does not end by itself is told to when Drain is over, and its message
// comes again.
func TestDrainIsOver(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	s.publish("m")
	begun := make(chan struct{})
	cfg := s.config(func(ctx context.Context, _ inbox.Message) (inbox.Verdict, error) {
		close(begun)
		<-ctx.Done()
		return inbox.Again, ctx.Err()
	})
	cfg.Drain = time.Millisecond
	c := run(t, cfg)
	<-begun
	c.stop()
	next := run(t, s.config(handled))
	if got := next.events.Wait(t, 1, acked)[0]; got.Deliveries != 2 {
		t.Errorf("after the end: %+v", got)
	}
	next.stop()
}

// A message without an id goes to WithoutID, by its position, which a redelivery has
// and no other message.
func TestWithoutID(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	s.publish("", "", "named")
	var mu sync.Mutex
	tries := map[string]int{}
	l, _ := consumetest.NewLedger(t)
	cfg := s.config(l.Process)
	cfg.WithoutID = func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
		mu.Lock()
		defer mu.Unlock()
		if tries[msg.ID]++; tries[msg.ID] == 1 {
			return inbox.Again, errors.New("not yet")
		}
		return inbox.Parked, nil
	}
	c := run(t, cfg)
	c.events.Wait(t, 3, acked)
	c.stop()
	if n := slices.Collect(maps.Values(tries)); !slices.Equal(n, []int{2, 2}) {
		t.Errorf("tries by id: %v", tries)
	}
	l.WantOne(t, []string{"named"})
	s.wantReceived()
}

// A message may be nothing but its headers.
func TestEmptyPayload(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	m := nats.NewMsg("payments.charged")
	m.Header[eventID] = []string{"empty"}
	if _, err := s.js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	l, _ := consumetest.NewLedger(t)
	c := run(t, s.config(l.Process))
	c.events.Wait(t, 1, acked)
	c.stop()
	l.WantOne(t, []string{"empty"})
	s.wantReceived()
}

// A consumer that allows only small and short pulls is pulled from by such.
func TestLimitsOfPulls(t *testing.T) {
	t.Parallel()
	s := newStream(t, func(c *jetstream.ConsumerConfig) {
		c.MaxRequestBatch, c.MaxRequestExpires = 2, 300*time.Millisecond
	})
	l, _ := consumetest.NewLedger(t)
	ids := numbered(20)
	c := run(t, s.config(l.Process))
	s.publish(ids[:10]...)
	c.events.Wait(t, 10, acked)
	<-time.After(time.Second) // in which pulls end without a message
	s.publish(ids[10:]...)
	c.events.Wait(t, 20, acked)
	c.stop()
	refused, _ := c.events.Find(func(e natsinbox.Event) bool {
		return e.Kind == natsinbox.EventLost && !errors.Is(e.Err, jetstream.ErrNoHeartbeat) // which a slow machine may miss
	})
	if len(refused) != 0 {
		t.Errorf("failures: %+v", refused)
	}
	l.WantOne(t, ids)
	s.wantReceived()
}
