package kafkainbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onlyonce-go/onlyonce/adapters/kafkainbox"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// I2: the record that may have ended the process of the member before is the first that is
// neither a duplicate nor parked: up to it, records are said to have been delivered before.
// When it is handled and a commit is sure, Kafka's silence is kept.
func TestSuspicion(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	verdicts := map[string]inbox.Verdict{"duplicate": inbox.Duplicate, "parked": inbox.Parked}
	k.produce(t, k.record(0, "duplicate", ""), k.record(0, "parked", ""), k.record(0, "again", ""), k.record(0, "sure", ""))
	said := make(chan string, 99)
	cfg := k.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
		if msg.ID == "sure" && msg.Deliveries != 0 { // until the commit is
			return inbox.Again, errors.New("not yet")
		}
		said <- fmt.Sprint(msg.ID, msg.Deliveries)
		if msg.ID == "again" && len(said) == 3 {
			return inbox.Again, errors.New("not yet")
		}
		if v, ok := verdicts[msg.ID]; ok {
			return v, nil
		}
		return inbox.Handled, nil
	})
	wait := func(want ...string) {
		t.Helper()
		var got []string
		for len(got) < len(want) {
			select {
			case s := <-said:
				got = append(got, s)
			case <-t.Context().Done():
				t.Fatalf("only %q", got)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
	}
	first := run(t, cfg)
	for len(said) < 5 {
		<-time.After(time.Millisecond)
	}
	wait("duplicate2", "parked2", "again2", "again2", "sure0")
	first.stop()
	k.produce(t, k.record(0, "next", ""))
	second := run(t, cfg)
	wait("next2")
	second.stop()
}

// An abandoned handler that keeps a partition from its next worker does not keep the group
// waiting when the partition is given up once more, and still nothing runs beside it.
func TestGivenUpBehindAnAbandonedHandler(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	k.produce(t, k.record(0, "m", ""))
	begun, release := make(chan struct{}, 9), make(chan struct{})
	events := make(chan kafkainbox.EventKind, 1<<10)
	var running, tries atomic.Int64
	cfg := k.config(func(context.Context, inbox.Message) (inbox.Verdict, error) {
		if running.Add(1) > 1 {
			t.Error("two handlers of one partition at once")
		}
		defer running.Add(-1)
		if tries.Add(1) == 1 {
			begun <- struct{}{}
			<-release
		}
		return inbox.Handled, nil
	})
	cfg.Drain = 5 * time.Second
	cfg.Options = append(cfg.Options, kgo.RebalanceTimeout(20*time.Second))
	cfg.Observe = func(e kafkainbox.Event) { events <- e.Kind }
	until := func(want kafkainbox.EventKind) {
		t.Helper()
		for e := range events {
			if e == want {
				return
			}
		}
	}
	r := run(t, cfg)
	<-begun
	k.expel()
	until(kafkainbox.EventAbandoned)
	fetches := k.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
	until(kafkainbox.EventAssigned)
	if err := fetches.Wait(t.Context(), 3); err != nil { // its record waits for the one that is left behind
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.cancel()
		until(kafkainbox.EventGivenUp)
	}()
	other := run(t, k.config(func(context.Context, inbox.Message) (inbox.Verdict, error) {
		return inbox.Handled, nil
	}))
	select {
	case <-ended:
	case <-time.After(cfg.Drain):
		t.Error("the group waits for a worker that does nothing")
	}
	close(release)
	r.stop()
	other.stop()
}

// A record at which the ID function panics has no id, and ends nothing.
func TestIDPanics(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	k.produce(t, k.record(0, "bad", ""), k.record(0, "good", ""))
	ids := make(chan string, 9)
	cfg := k.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
		ids <- msg.ID
		return inbox.Handled, nil
	})
	cfg.ID = func(r *kgo.Record) string {
		if id := kafkainbox.Header(kafkainbox.DefaultHeader)(r); id != "bad" {
			return id
		}
		panic("no id here")
	}
	r := run(t, cfg)
	got := []string{<-ids, <-ids}
	r.stop()
	if diff := cmp.Diff([]string{"position/" + k.topic + "/0/0", "good"}, got); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
}
