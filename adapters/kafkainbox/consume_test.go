package kafkainbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/kafkainbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// shuffled are records of so many ids, each as often as given, in any order and partition.
func (k *kafka) shuffled(ids, times int, partitions int32) []*kgo.Record {
	var records []*kgo.Record
	for id := range ids {
		for range times {
			name := "m" + strconv.Itoa(id)
			records = append(records, k.record(rand.Int32N(partitions), name, name))
		}
	}
	rand.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
	return records
}

// I1, B113: a producer that repeats and reorders causes one effect an id, and everything is
// committed at the end.
func TestOneEffectAnID(t *testing.T) {
	t.Parallel()
	eachKafka(t, 4, func(k *kafka) {
		t := k.t
		l := newLedger(t)
		records := k.shuffled(100, 3, 4)
		k.produce(t, records...)
		verdicts := newCounter(len(records))
		cfg := k.config(l.process)
		cfg.Observe = func(e kafkainbox.Event) {
			if e.Kind == kafkainbox.EventProcessed && e.Verdict.Ack() {
				verdicts.add()
			}
		}
		r := run(t, cfg)
		verdicts.wait(t)
		r.stop()
		l.wantOne(t, 100)
		var committed int64
		for p := range int32(4) {
			committed += max(0, k.committed(t, p))
		}
		if committed != int64(len(records)) {
			t.Errorf("%d records are committed, want %d", committed, len(records))
		}
	})
}

// I1: a record that must come again keeps its partition, in order and uncommitted, and
// none other.
func TestAgainHoldsItsPartitionAlone(t *testing.T) {
	t.Parallel()
	eachKafka(t, 2, func(k *kafka) {
		t := k.t
		var records []*kgo.Record
		for i := range 20 {
			records = append(records, k.record(0, fmt.Sprint("a", i), ""), k.record(1, fmt.Sprint("b", i), ""))
		}
		k.produce(t, records...)
		var mu sync.Mutex
		var order []string
		var free atomic.Bool
		other, all := newCounter(20), newCounter(40)
		cfg := k.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
			if msg.ID == "a0" && !free.Load() {
				return inbox.Again, &onlyonce.Error{Code: onlyonce.CodeInProgress, RetryAfter: time.Millisecond}
			}
			if msg.Attributes[kafkainbox.AttributePartition] == "1" {
				other.add()
			} else {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, msg.ID)
			}
			all.add()
			return inbox.Handled, nil
		})
		cfg.Concurrency = 1 // a record that waits for its next try has no slot
		r := run(t, cfg)
		other.wait(t)
		if at := k.committed(t, 0); at > 0 {
			t.Errorf("offset %d is committed past a record that was not handled", at)
		}
		free.Store(true)
		all.wait(t)
		r.stop()
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprint("a", i))
		}
		if diff := cmp.Diff(want, order); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		if at := k.committed(t, 0); at != 20 {
			t.Errorf("offset %d is committed at the end, want 20", at)
		}
	})
}

// I1: whatever the verdicts, no commit ever reaches past a record that has none which
// acknowledges it. Every commit on the wire is looked at.
func TestNoCommitPastAnUnhandledRecord(t *testing.T) {
	t.Parallel()
	const partitions, each = 3, 60
	k := fakeKafka(t, partitions)
	var mu sync.Mutex
	handled := [partitions]int64{}
	commits := 0
	k.fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.OffsetCommit}, Observe: true, Count: -1,
		When: func(req kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			for _, topic := range req.(*kmsg.OffsetCommitRequest).Topics {
				for _, p := range topic.Partitions {
					commits++
					if p.Offset > handled[p.Partition] {
						t.Errorf("partition %d: committed %d, handled %d", p.Partition, p.Offset, handled[p.Partition])
					}
				}
			}
			return true
		},
	})
	var records []*kgo.Record
	for i := range partitions * each {
		records = append(records, k.record(int32(i%partitions), strconv.Itoa(i), ""))
	}
	k.produce(t, records...)
	all := newCounter(partitions * each)
	cfg := k.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
		p, _ := strconv.Atoi(msg.Attributes[kafkainbox.AttributePartition])
		offset, _ := strconv.ParseInt(msg.Attributes[kafkainbox.AttributeOffset], 10, 64)
		switch verdict := inbox.Verdict(rand.IntN(5)); {
		case verdict == 4:
			panic("handlers may")
		case !verdict.Ack():
			return inbox.Again, errors.New("not now")
		default:
			mu.Lock()
			handled[p] = max(handled[p], offset+1)
			mu.Unlock()
			all.add()
			return verdict, nil
		}
	})
	cfg.Queue = 5
	r := run(t, cfg)
	all.wait(t)
	r.stop()
	for p := range int32(partitions) {
		if at := k.committed(t, p); at != each {
			t.Errorf("partition %d is committed to %d, want %d", p, at, each)
		}
	}
	if commits == 0 {
		t.Error("no commit was seen")
	}
}

// A handler that takes longer than the group's session keeps its partition: heartbeats do
// not wait for it.
func TestSlowHandlerStaysInTheGroup(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	k.produce(t, k.record(0, "slow", ""))
	begun, release := make(chan struct{}, 9), make(chan struct{})
	cfg := k.config(func(context.Context, inbox.Message) (inbox.Verdict, error) {
		begun <- struct{}{}
		<-release
		return inbox.Handled, nil
	})
	r := run(t, cfg)
	<-begun
	before := k.fake.GroupInfo(k.group).Epoch
	beats := k.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: k.group, Observe: true, Count: -1})
	if err := beats.Wait(t.Context(), 15); err != nil { // ten are a session
		t.Fatal(err)
	}
	if g := k.fake.GroupInfo(k.group); g.Epoch != before || len(g.Members) != 1 {
		t.Errorf("generation %d with %d members, want %d with 1", g.Epoch, len(g.Members), before)
	}
	close(release)
	r.stop()
	if at := k.committed(t, 0); at != 1 {
		t.Errorf("committed %d, want 1", at)
	}
	if len(begun) != 0 {
		t.Errorf("it was begun again %d times", len(begun))
	}
}

// A commit that Kafka refuses is told and made again.
func TestCommitIsTriedAgain(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	k.produce(t, k.record(0, "m", ""))
	refused := k.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.InvalidCommitOffsetSize, Count: 1})
	failed := make(chan error, 99)
	cfg := k.config(func(context.Context, inbox.Message) (inbox.Verdict, error) { return inbox.Handled, nil })
	cfg.Observe = func(e kafkainbox.Event) {
		if e.Kind == kafkainbox.EventCommitFailed {
			failed <- e.Err
		}
	}
	again := k.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Observe: true, Count: -1})
	r := run(t, cfg)
	if err := <-failed; !errors.Is(err, kerr.InvalidCommitOffsetSize) {
		t.Errorf("failed with %v", err)
	}
	if err := again.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if at := k.committed(t, 0); at != 1 || refused.Hits() != 1 {
		t.Errorf("committed %d after %d refusals", at, refused.Hits())
	}
}

// A record without an id goes to the function for such, by its position.
func TestWithoutID(t *testing.T) {
	t.Parallel()
	eachKafka(t, 1, func(k *kafka) {
		t := k.t
		bare := &kgo.Record{Topic: k.topic, Key: []byte("key"), Headers: []kgo.RecordHeader{{Key: "color", Value: []byte("red")}}}
		k.produce(t, bare, k.record(0, "m", "p"))
		others, got := make(chan inbox.Message, 9), make(chan inbox.Message, 9)
		cfg := k.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
			got <- msg
			return inbox.Handled, nil
		})
		cfg.WithoutID = func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
			others <- msg
			return inbox.Parked, errors.New("no id")
		}
		r := run(t, cfg)
		with, without := <-got, <-others
		r.stop()
		delete(without.Attributes, kafkainbox.AttributeTime)
		want := inbox.Message{ID: "position/" + k.topic + "/0/0", Deliveries: 2, Attributes: map[string]string{
			"kafka.topic": k.topic, "kafka.partition": "0", "kafka.offset": "0", "kafka.key": "key", "kafka.tombstone": "true", "color": "red",
		}}
		if diff := cmp.Diff(want, without); diff != "" {
			t.Errorf("without id (-want +got):\n%s", diff)
		}
		if with.ID != "m" || string(with.Payload) != "p" {
			t.Errorf("with id: %+v", with)
		}
		if at := k.committed(t, 0); at != 2 {
			t.Errorf("committed %d, want 2", at)
		}
	})
}

// I1: a record that fails again and again is parked by the inbox, by tries that are counted
// in its store; then its partition goes on.
func TestPoisonIsParked(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	k.produce(t, k.record(0, "poison", "p"), k.record(0, "m", "p"))
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	box := inboxOn(t, store)
	handler := func(_ context.Context, _ *memstore.Tx, msg inbox.Message) error {
		if msg.ID == "poison" {
			return errors.New("cannot be handled")
		}
		return nil
	}
	verdicts := make(chan inbox.Verdict, 99)
	cfg := k.config(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		return box.Process(ctx, msg, handler)
	})
	cfg.Observe = func(e kafkainbox.Event) {
		if e.Kind == kafkainbox.EventProcessed {
			verdicts <- e.Verdict
		}
	}
	r := run(t, cfg)
	var got []inbox.Verdict
	for v := range verdicts {
		if got = append(got, v); v == inbox.Handled {
			break
		}
	}
	r.stop()
	want := []inbox.Verdict{inbox.Again, inbox.Again, inbox.Again, inbox.Again, inbox.Parked, inbox.Handled}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	if at := k.committed(t, 0); at != 2 {
		t.Errorf("committed %d, want 2", at)
	}
}
