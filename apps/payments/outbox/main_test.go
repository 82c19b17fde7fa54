package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/event"
	"github.com/onlyonce-go/onlyonce/apps/payments/outbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestMain(m *testing.M) { apptest.Exit(testserver.Run(m)) }

// broker is a Publisher that keeps what it is given. Before it does, it may fail.
type broker struct {
	mu  sync.Mutex
	got []string // ids, in their order
	// before is called with each batch; an error is that of the publisher, and the first
	// keep messages have arrived all the same.
	before func(ctx context.Context, batch []inbox.Message) (keep int, err error)
}

func (b *broker) Publish(ctx context.Context, msgs []inbox.Message) error {
	keep, err := len(msgs), error(nil)
	if b.before != nil {
		keep, err = b.before(ctx, msgs)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, msg := range msgs[:keep] {
		if e, err := event.Read(msg); err != nil || string(e.Kind) != msg.Attributes[event.KindAttribute] {
			return fmt.Errorf("an event that cannot be read: %w", err)
		}
		b.got = append(b.got, msg.ID)
	}
	return err
}

// counts is how often each id has come.
func (b *broker) counts() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := map[string]int{}
	for _, id := range b.got {
		n[id]++
	}
	return n
}

// each runs a test on a database of either kind.
func each(t *testing.T, test func(t *testing.T, d *db.Database)) {
	t.Helper()
	for name, store := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, store(t)))
		})
	}
}

func open(t *testing.T, url string) *db.Database {
	t.Helper()
	d, err := db.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// numbered is the event of the nth operation.
func numbered(n int) event.Event {
	op := fmt.Sprintf("op_%d", n)
	return event.Event{
		ID: event.IDOf(event.ChargeSucceeded, op), Kind: event.ChargeSucceeded, Merchant: "m", Amount: int64(n + 1), Currency: "EUR",
		Subject: fmt.Sprintf("ch_%d", n), Operation: op, OccurredAt: time.Unix(int64(1_700_000_000+n), 0).UTC(),
	}
}

// add writes events, each in a transaction of its own, and returns their ids.
func add(t *testing.T, d *db.Database, from, to int) (ids []string) {
	t.Helper()
	for n := from; n < to; n++ {
		e := numbered(n)
		ids = append(ids, e.ID)
		if err := d.Write(t.Context(), func(ctx context.Context, tx db.Tx) error { return outbox.Add(ctx, tx, e) }); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

// waiting is how many events wait.
func waiting(t *testing.T, d *db.Database) int {
	t.Helper()
	w, err := outbox.Look(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return w.Events
}

// untilNoneWait returns when relays have published all.
func untilNoneWait(t *testing.T, d *db.Database) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for waiting(t, d) > 0 {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("events wait for ever")
		}
	}
}

func relay(t *testing.T, cfg outbox.Config) *outbox.Relay {
	t.Helper()
	r, err := outbox.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var errBroker = errors.New("the broker is down")
