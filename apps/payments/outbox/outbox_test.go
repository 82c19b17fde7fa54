package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/outbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// An event is there with what it tells of, or not at all.
func TestAdd(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *db.Database) {
		t.Helper()
		failure := errors.New("no")
		if err := d.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
			return errors.Join(outbox.Add(ctx, tx, numbered(0)), failure)
		}); !errors.Is(err, failure) || waiting(t, d) != 0 {
			t.Errorf("rolled back, %d wait; %v", waiting(t, d), err)
		}
		add(t, d, 0, 2)
		w, err := outbox.Look(t.Context(), d)
		if diff := cmp.Diff(outbox.Waiting{Events: 2, Since: numbered(0).OccurredAt}, w); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
		for what, n := range map[string]int{"waits": 1, "cannot be read": -1} { // -1: its amount is 0
			if err := d.Write(t.Context(), func(ctx context.Context, tx db.Tx) error { return outbox.Add(ctx, tx, numbered(n)) }); err == nil {
				t.Errorf("an event that %s is added", what)
			}
		}
		if got := waiting(t, d); got != 2 {
			t.Errorf("%d wait", got)
		}
	})
}

// Batch after batch, in the order in which they were written, and each is deleted.
func TestDrain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *db.Database) {
		t.Helper()
		b := &broker{}
		r := relay(t, outbox.Config{DB: d, Publisher: b, Batch: 3})
		if got, err := r.Drain(t.Context()); got != (outbox.Drained{}) || err != nil {
			t.Errorf("nothing waits: %+v, %v", got, err)
		}
		ids := add(t, d, 0, 7)
		for _, want := range []outbox.Drained{{Published: 3, More: true}, {Published: 3, More: true}, {Published: 1}, {}} {
			if got, err := r.Drain(t.Context()); got != want || err != nil {
				t.Errorf("drained %+v, %v; want %+v", got, err, want)
			}
		}
		if diff := cmp.Diff(ids, b.got); diff != "" || waiting(t, d) != 0 {
			t.Errorf("%d wait\n%s", waiting(t, d), diff)
		}
		if w, err := outbox.Look(t.Context(), d); w != (outbox.Waiting{}) || err != nil {
			t.Errorf("nothing waits: %+v, %v", w, err)
		}
	})
}

// The delivery ends after two of three events; then two instances go on at once. All
// come, those two again, under the ids that they had. (B114)
func TestDrainInterrupted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *db.Database) {
		t.Helper()
		ids := add(t, d, 0, 3)
		b := &broker{before: func(context.Context, []inbox.Message) (int, error) { return 2, errBroker }}
		first := relay(t, outbox.Config{DB: d, Publisher: b, Lease: 20 * time.Millisecond})
		if got, err := first.Drain(t.Context()); !errors.Is(err, errBroker) || got != (outbox.Drained{}) || waiting(t, d) != 3 {
			t.Fatalf("drained %+v, %v", got, err)
		}
		b.before = nil
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var wg sync.WaitGroup
		for range 2 {
			r := relay(t, outbox.Config{DB: d, Publisher: b, Every: 20 * time.Millisecond})
			wg.Go(func() { r.Run(ctx) })
		}
		untilNoneWait(t, d)
		stop()
		wg.Wait()
		got := b.counts()
		for i, id := range ids {
			if most := map[bool]int{true: 2, false: 1}[i < 2]; got[id] != most {
				t.Errorf("event %d came %d times, want %d", i, got[id], most)
			}
		}
		if len(got) != 3 {
			t.Errorf("%d ids of 3 events", len(got))
		}
	})
}

// Killed between the broker's confirm and the deletion: all come again.
func TestDrainKilledBeforeDeleting(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *db.Database) {
		t.Helper()
		ids := add(t, d, 0, 2)
		b := &broker{}
		b.before = func(_ context.Context, batch []inbox.Message) (int, error) {
			return len(batch), errBroker // the confirm is never seen
		}
		r := relay(t, outbox.Config{DB: d, Publisher: b})
		if _, err := r.Drain(t.Context()); !errors.Is(err, errBroker) {
			t.Fatal(err)
		}
		b.before = nil
		if got, err := r.Drain(t.Context()); got.Published != 2 || err != nil {
			t.Errorf("drained %+v, %v", got, err)
		}
		if diff := cmp.Diff([]string{ids[0], ids[1], ids[0], ids[1]}, b.got); diff != "" {
			t.Error(diff)
		}
	})
}

// An event that is committed behind later ones is not lost with them: nothing is
// deleted by its place.
func TestDrainLateCommit(t *testing.T) {
	t.Parallel()
	d := open(t, testserver.Postgres(t)) // SQLite writes one transaction at a time
	written, goOn := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := d.Write(t.Context(), func(ctx context.Context, tx db.Tx) error {
			err := outbox.Add(ctx, tx, numbered(0))
			close(written)
			<-goOn
			return err
		}); err != nil {
			t.Error(err)
		}
	})
	<-written
	later := add(t, d, 1, 3)
	b := &broker{}
	r := relay(t, outbox.Config{DB: d, Publisher: b})
	if got, err := r.Drain(t.Context()); got.Published != 2 || err != nil {
		t.Errorf("drained %+v, %v", got, err)
	}
	close(goOn)
	wg.Wait()
	if got, err := r.Drain(t.Context()); got.Published != 1 || err != nil {
		t.Errorf("drained %+v, %v", got, err)
	}
	if diff := cmp.Diff(append(later, numbered(0).ID), b.got); diff != "" {
		t.Error(diff)
	}
}

// One relay publishes at a time. Another one begins when that has ended, or when its
// lease is over.
func TestDrainBusy(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *db.Database) {
		t.Helper()
		add(t, d, 0, 1)
		var second *outbox.Relay
		b := &broker{}
		b.before = func(ctx context.Context, batch []inbox.Message) (int, error) {
			if got, err := second.Drain(ctx); got != (outbox.Drained{Busy: true}) || err != nil {
				t.Errorf("beside another one: %+v, %v", got, err)
			}
			return 0, errBroker // and it dies, with the right to publish
		}
		first := relay(t, outbox.Config{DB: d, Publisher: b, Lease: time.Second})
		second = relay(t, outbox.Config{DB: d, Publisher: &broker{}, Every: 20 * time.Millisecond})
		if _, err := first.Drain(t.Context()); !errors.Is(err, errBroker) {
			t.Error(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var wg sync.WaitGroup
		wg.Go(func() { second.Run(ctx) })
		untilNoneWait(t, d)
		stop()
		wg.Wait()
	})
}

// A broker that hangs is given up: the batch waits, and another one may have it.
func TestDrainHangingBroker(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *db.Database) {
		t.Helper()
		add(t, d, 0, 1)
		b := &broker{before: func(ctx context.Context, _ []inbox.Message) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}}
		r := relay(t, outbox.Config{DB: d, Publisher: b, Lease: 100 * time.Millisecond})
		if _, err := r.Drain(t.Context()); !errors.Is(err, context.DeadlineExceeded) || waiting(t, d) != 1 {
			t.Errorf("%d wait; %v", waiting(t, d), err)
		}
	})
}

// A process that is told to stop while the broker confirms deletes what it has
// confirmed.
func TestDrainStopped(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *db.Database) {
		t.Helper()
		add(t, d, 0, 2)
		ctx, stop := context.WithCancel(t.Context())
		b := &broker{before: func(_ context.Context, batch []inbox.Message) (int, error) {
			stop()
			return len(batch), nil
		}}
		r := relay(t, outbox.Config{DB: d, Publisher: b})
		if got, err := r.Drain(ctx); got.Published != 2 || err != nil || waiting(t, d) != 0 {
			t.Errorf("drained %+v, %v; %d wait", got, err, waiting(t, d))
		}
	})
}

// Run goes on through a broker that is down, says so, and gives the right to publish
// back in the end.
func TestRun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *db.Database) {
		t.Helper()
		ids := add(t, d, 0, 5)
		var log bytes.Buffer
		var tries atomic.Int64
		b := &broker{before: func(_ context.Context, batch []inbox.Message) (int, error) {
			if tries.Add(1) <= 3 {
				return 1, errBroker
			}
			return len(batch), nil
		}}
		cfg := outbox.Config{DB: d, Publisher: b, Batch: 2, Every: 5 * time.Millisecond, MaxBackoff: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { relay(t, cfg).Run(ctx) })
		ids = append(ids, add(t, d, 5, 25)...) // events come all the time
		untilNoneWait(t, d)
		stop()
		wg.Wait()
		got := b.counts()
		for i, id := range ids {
			if got[id] == 0 {
				t.Errorf("event %d never came", i)
			}
		}
		if got[ids[0]] != 4 || len(got) != len(ids) {
			t.Errorf("the first came %d times, %d ids of %d", got[ids[0]], len(got), len(ids))
		}
		for _, want := range []string{"events cannot be published", "failures=3", "waiting=", "since=2023-", errBroker.Error(), "events are published again"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("no %q in\n%s", want, log.String())
			}
		}
		add(t, d, 90, 91)
		if drained, err := relay(t, cfg).Drain(t.Context()); drained.Published != 1 || err != nil {
			t.Errorf("after the end of the other one: %+v, %v", drained, err)
		}
	})
}

// A database that has gone is reported, and ends nothing.
func TestRunWithoutDatabase(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *db.Database) {
		t.Helper()
		if err := d.Unmigrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var log countingHandler
		log.enough = func() { stop() }
		relay(t, outbox.Config{DB: d, Publisher: &broker{}, Every: time.Millisecond, Logger: slog.New(&log)}).Run(ctx)
		if n := log.n.Load(); n < 3 {
			t.Errorf("%d lines", n)
		}
	})
}

// countingHandler counts lines, and calls enough with the third.
type countingHandler struct {
	slog.Handler
	n      atomic.Int64
	enough func()
}

func (h *countingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *countingHandler) Handle(context.Context, slog.Record) error {
	if h.n.Add(1) == 3 {
		h.enough()
	}
	return nil
}

// Everything that is wrong is named, each as an error of its own.
func TestConfig(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]outbox.Config{
		"Config.DB is required":        {Publisher: &broker{}},
		"Config.Publisher is required": {DB: &db.Database{}},
		"Config.Batch must be from 1":  {DB: &db.Database{}, Publisher: &broker{}, Batch: 1001},
		"Config.Every must not":        {DB: &db.Database{}, Publisher: &broker{}, Every: -1},
		"Config.Lease must not":        {DB: &db.Database{}, Publisher: &broker{}, Lease: -1},
		"Config.MaxBackoff must not":   {DB: &db.Database{}, Publisher: &broker{}, MaxBackoff: -1},
	} {
		_, err := outbox.New(cfg)
		if e, ok := errors.AsType[*onlyonce.Error](err); !ok || e.Code != onlyonce.CodeConfig || !strings.Contains(e.Hint, want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	err := outbox.Config{Batch: -1, Lease: -1}.Validate()
	for _, field := range []string{"DB", "Publisher", "Batch", "Lease"} {
		if err == nil || !strings.Contains(err.Error(), "Config."+field+" ") {
			t.Errorf("not said of %s: %v", field, err)
		}
	}
}
