package kafkainbox_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce/adapters/kafkainbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// Whatever a producer sends, it is handled, or parked where it fails, and nothing behind it
// waits.
func TestHostileRecords(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	id := func(values ...string) (headers []kgo.RecordHeader) {
		for _, v := range values {
			headers = append(headers, kgo.RecordHeader{Key: kafkainbox.DefaultHeader, Value: []byte(v)})
		}
		return headers
	}
	records := []*kgo.Record{
		{Headers: id(strings.Repeat("x", 10_000)), Value: []byte("p")},
		{Headers: id("\x00\xff\r\n"), Value: []byte("p")},
		{Headers: id("empty"), Value: []byte{}},
		{Headers: id("tombstone")},
		{Headers: id("twice", "twice"), Value: []byte("p")},
		{Headers: append(id("names"), kgo.RecordHeader{}, kgo.RecordHeader{Key: "\x00\xff", Value: []byte("\x00\xff")}), Value: []byte("p")},
		{Headers: id("fails\x00"), Value: bytes.Repeat([]byte("\x00"), 900_000)},
		{},
		{Headers: id("")},
		{Headers: id("one", "other")}, // without an id
		{Headers: id("last"), Value: []byte("p")},
	}
	for _, r := range records {
		r.Topic = k.topic
	}
	k.produce(t, records...)
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	box := inboxOn(t, store)
	var mu sync.Mutex
	verdicts := map[inbox.Verdict]int{}
	all := newCounter(len(records))
	cfg := k.config(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		return box.Process(ctx, msg, func(context.Context, *memstore.Tx, inbox.Message) error {
			if strings.HasPrefix(msg.ID, "fails") {
				return errors.New("\x00 \xff")
			}
			return nil
		})
	})
	cfg.WithoutID = func(context.Context, inbox.Message) (inbox.Verdict, error) {
		return inbox.Parked, errors.New("no id") // an error beside a verdict that acknowledges
	}
	cfg.Observe = func(e kafkainbox.Event) {
		if e.Kind == kafkainbox.EventProcessed && e.Verdict.Ack() {
			mu.Lock()
			verdicts[e.Verdict]++
			mu.Unlock()
			all.add()
		}
	}
	r := run(t, cfg)
	all.wait(t)
	r.stop()
	if diff := cmp.Diff(map[inbox.Verdict]int{inbox.Handled: 7, inbox.Parked: 4}, verdicts); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	if at := k.committed(t, 0); at != int64(len(records)) {
		t.Errorf("committed %d of %d", at, len(records))
	}
}

// A topic that is deleted and made anew is consumed from its beginning, by a member that
// joins anew; and failures that come at once do not spin.
func TestTopicMadeAgain(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	k.produce(t, k.record(0, "a", ""), k.record(0, "b", ""), k.record(0, "c", ""))
	seen := make(chan string, 99)
	var failures atomic.Int64
	cfg := k.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
		seen <- msg.ID
		return inbox.Handled, nil
	})
	cfg.Observe = func(e kafkainbox.Event) {
		if e.Kind == kafkainbox.EventFetchFailed {
			failures.Add(1)
		}
	}
	r := run(t, cfg)
	for range 3 {
		<-seen
	}
	if _, err := k.admin.DeleteTopic(t.Context(), k.topic); err != nil {
		t.Fatal(err)
	}
	if _, err := k.admin.CreateTopic(t.Context(), 1, -1, nil, k.topic); err != nil {
		t.Fatal(err)
	}
	k.produce(t, k.record(0, "new", ""))
	for got := range seen {
		if got == "new" {
			break
		}
	}
	r.stop()
	if n := failures.Load(); n < 1 || n > 100 {
		t.Errorf("%d failures were told", n)
	}
}
