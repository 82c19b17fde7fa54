package amqpinbox_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/amqpinbox"
	"github.com/onlyonce-go/onlyonce/adapters/internal/consumetest"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
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
	for name, args := range map[string]amqp091.Table{"classic": classic(), "quorum": quorum()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t, testserver.RabbitMQ(t), args)
			found := &effects{n: map[string]int{}}
			process := newInbox(t, func(_ context.Context, tx *memstore.Tx, msg inbox.Message) error {
				found.of(tx, msg)
				return nil
			})
			ids := numbered(100)
			c := run(t, q.config(process))
			q.publishIDs(ids...)
			q.publishIDs(ids[:50]...)
			c.events.Wait(t, 150, acked)
			c.stop()
			if n, _ := c.events.Find(verdict(inbox.Duplicate)); len(n) != 50 {
				t.Errorf("%d duplicates, want 50", len(n))
			}
			found.wantOne(t, ids)
			q.wantEmpty()
		})
	}
}

// I2, B113: a failed handler leaves no mark: the next try runs. A message that always
// fails is parked, and the others are not kept waiting.
func TestFailuresAndPoison(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	found := &effects{n: map[string]int{}}
	process := newInbox(t, func(_ context.Context, tx *memstore.Tx, msg inbox.Message) error {
		found.mu.Lock()
		tries := found.n["tries of "+msg.ID]
		found.n["tries of "+msg.ID]++
		found.mu.Unlock()
		if msg.ID == "poison" || tries == 0 {
			return errors.New("no")
		}
		found.of(tx, msg)
		return nil
	})
	ids := numbered(20)
	q.publishIDs(slices.Concat([]string{"poison"}, ids)...)
	c := run(t, q.config(process))
	c.events.Wait(t, len(ids)+1, acked)
	c.stop()
	parked, _ := c.events.Find(verdict(inbox.Parked))
	if len(parked) != 1 || parked[0].MessageID != "poison" || parked[0].Try != 3 || parked[0].Err == nil {
		t.Errorf("parked: %+v", parked)
	}
	maps.DeleteFunc(found.n, func(name string, _ int) bool { return name[0] == 't' })
	found.wantOne(t, ids)
	q.wantEmpty()
}

// Deliveries are the broker's word: a count from quorum queues, a flag from classic ones.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args amqp091.Table
		want []int
	}{
		"classic": {classic(), []int{1, 2, 2, 2}},
		"quorum":  {quorum(), []int{1, 2, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t, testserver.RabbitMQ(t), c.args)
			q.publishIDs("m")
			var got []int
			cfg := q.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
				got = append(got, msg.Deliveries)
				if len(got) < len(c.want) {
					return inbox.Again, errors.New("not yet")
				}
				return inbox.Handled, nil
			})
			cfg.Hold = time.Nanosecond // each try is a delivery
			cfg.MinBackoff, cfg.MaxBackoff = time.Hour, time.Hour
			consumer := run(t, cfg)
			consumer.events.Wait(t, 1, acked)
			consumer.stop()
			if !slices.Equal(got, c.want) {
				t.Errorf("deliveries %v, want %v", got, c.want)
			}
			if back, _ := consumer.events.Find(kind(amqpinbox.EventGivenBack)); len(back) != len(c.want)-1 {
				t.Errorf("given back %d times: %+v", len(back), back)
			}
		})
	}
}

// A message that must come again is tried in hand, so that no limit of deliveries is
// used up, after the time that the error asks for.
func TestAgainStaysInHand(t *testing.T) {
	t.Parallel()
	args := quorum()
	args["x-delivery-limit"] = 2
	q := newQueue(t, testserver.RabbitMQ(t), args)
	q.publishIDs("m")
	tries := 0
	c := run(t, q.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
		if tries++; tries < 10 {
			return inbox.Again, &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, RetryAfter: 15 * time.Millisecond}
		}
		if msg.Deliveries != 1 {
			t.Errorf("delivered %d times", msg.Deliveries)
		}
		return inbox.Handled, nil
	}))
	c.events.Wait(t, 1, acked)
	c.stop()
	again, _ := c.events.Find(verdict(inbox.Again))
	for _, e := range again {
		if e.Wait < 15*time.Millisecond || e.Wait > 20*time.Millisecond {
			t.Errorf("pause of %v, want RetryAfter, up to MaxBackoff", e.Wait)
		}
	}
	if len(again) != 9 {
		t.Errorf("%d tries before the last", len(again))
	}
	q.wantEmpty()
}

// Prefetch bounds what is in hand, what waits for its next try included: the backlog
// stays in the queue, for others. Waiting messages take no place of those that run.
func TestPrefetch(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	q.publishIDs(numbered(10)...)
	cfg := q.config(func(context.Context, inbox.Message) (inbox.Verdict, error) { return inbox.Again, errors.New("down") })
	cfg.Concurrency, cfg.Prefetch = 1, 4
	cfg.MinBackoff, cfg.MaxBackoff = time.Hour, time.Hour
	down := run(t, cfg)
	down.events.Wait(t, 4, verdict(inbox.Again))
	if n := q.ready(); n != 6 {
		t.Errorf("%d messages are left to others, want 6", n)
	}
	l, _ := consumetest.NewLedger(t)
	up := run(t, q.config(l.Process))
	up.events.Wait(t, 6, acked)
	down.stop() // what waits there is delivered to the other, at once
	up.events.Wait(t, 10, acked)
	up.stop()
	l.WantOne(t, numbered(10))
	q.wantEmpty()
}

// With Concurrency 1 messages run one by one, in the queue's order.
func TestOrder(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	ids := numbered(50)
	q.publishIDs(ids...)
	var got []string
	cfg := q.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
		got = append(got, msg.ID) // unguarded: the race detector sees two at once
		return inbox.Handled, nil
	})
	cfg.Concurrency = 1
	c := run(t, cfg)
	c.events.Wait(t, len(ids), acked)
	c.stop()
	if !slices.Equal(got, ids) {
		t.Errorf("handled %v", got)
	}
}

// The end of Run lets what is being handled end, and acknowledges it. The rest goes back.
func TestDrain(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	q.publishIDs("first", "second")
	begun, end := make(chan struct{}), make(chan struct{})
	cfg := q.config(func(ctx context.Context, _ inbox.Message) (inbox.Verdict, error) {
		begun <- struct{}{}
		<-end
		return inbox.Handled, ctx.Err()
	})
	cfg.Concurrency = 1
	c := run(t, cfg)
	<-begun
	c.cancel()
	close(end)
	if err := c.ended(); err != nil {
		t.Fatal(err)
	}
	done, _ := c.events.Find(verdict(inbox.Handled))
	if len(done) != 1 || done[0].Err != nil {
		t.Errorf("handled: %+v", done)
	}
	eventually(t, "the second is in the queue", func() bool { return q.ready() == 1 })
}

// A handler that does not end by itself is told to when Drain is over, and its message
// comes again.
func TestDrainIsOver(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	q.publishIDs("m")
	begun := make(chan struct{})
	cfg := q.config(func(ctx context.Context, _ inbox.Message) (inbox.Verdict, error) {
		close(begun)
		<-ctx.Done()
		return inbox.Again, ctx.Err()
	})
	cfg.Drain = time.Millisecond
	c := run(t, cfg)
	<-begun
	c.stop()
	eventually(t, "the message is in the queue", func() bool { return q.ready() == 1 })
}

// A message without an id is never handled, nor lost: it stays, and Run says so.
func TestWithoutIDStops(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	q.publish(message("good"), message(""))
	l, _ := consumetest.NewLedger(t)
	c := run(t, q.config(l.Process))
	if err := c.ended(); onlyonce.CodeOf(err) != onlyonce.CodeKeyRequired {
		t.Errorf("run: %v", err)
	}
	l.WantOne(t, []string{"good"})
	eventually(t, "the message is in the queue", func() bool { return q.ready() == 1 })
}

// Or it goes to the queue's dead letters, if the caller says that there are such.
func TestWithoutIDIsDeadLettered(t *testing.T) {
	t.Parallel()
	url := testserver.RabbitMQ(t)
	dead := &queue{t: t, url: url, name: "dead", channel: connect(t, url)}
	dead.declare(classic())
	args := classic()
	args["x-dead-letter-exchange"], args["x-dead-letter-routing-key"] = "", "dead"
	q := newQueue(t, url, args)
	q.publish(message(""), message("good"))
	l, _ := consumetest.NewLedger(t)
	cfg := q.config(l.Process)
	cfg.WithoutID = amqpinbox.DeadLetter
	c := run(t, cfg)
	c.events.Wait(t, 1, acked)
	c.events.Wait(t, 1, kind(amqpinbox.EventRejected))
	c.stop()
	l.WantOne(t, []string{"good"})
	q.wantEmpty()
	eventually(t, "there is a dead letter", func() bool { return dead.ready() == 1 })
}
