package kafkainbox_test

import (
	"context"
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

	"github.com/onlyonce-go/onlyonce/adapters/kafkainbox"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// expel makes the group forget its member, as when a session timed out.
func (k *kafka) expel() {
	k.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Group: k.group, Err: kerr.UnknownMemberID, Count: 1})
}

// A partition that the group took away may be another's: the handler's context ends at once,
// nothing is committed for it, and its record comes again.
func TestLost(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	k.produce(t, k.record(0, "m", ""))
	begun, lost := make(chan struct{}, 9), make(chan struct{}, 9)
	handled := newCounter(1)
	var tries atomic.Int64
	cfg := k.config(func(ctx context.Context, _ inbox.Message) (inbox.Verdict, error) {
		if tries.Add(1) > 1 {
			handled.add()
			return inbox.Handled, nil
		}
		begun <- struct{}{}
		<-ctx.Done()
		return inbox.Handled, nil // too late to be committed
	})
	cfg.Observe = func(e kafkainbox.Event) {
		if e.Kind == kafkainbox.EventLost {
			lost <- struct{}{}
		}
	}
	r := run(t, cfg)
	<-begun
	k.expel()
	<-lost
	handled.wait(t)
	r.stop()
	if at := k.committed(t, 0); at != 1 || tries.Load() != 2 {
		t.Errorf("committed %d after %d tries", at, tries.Load())
	}
}

// A member that gets a partition back while an abandoned handler of it still runs waits for
// that one: within a process nothing of a partition runs beside itself.
func TestNotBesideItself(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	k.produce(t, k.record(0, "m", ""))
	begun, release := make(chan struct{}, 9), make(chan struct{})
	abandoned, assigned := make(chan struct{}, 9), make(chan struct{}, 9)
	handled := newCounter(1)
	var running, tries atomic.Int64
	cfg := k.config(func(context.Context, inbox.Message) (inbox.Verdict, error) {
		if running.Add(1) > 1 {
			t.Error("two handlers of one partition at once")
		}
		defer running.Add(-1)
		if tries.Add(1) > 1 {
			handled.add()
			return inbox.Handled, nil
		}
		begun <- struct{}{}
		<-release
		return inbox.Handled, nil
	})
	cfg.Observe = func(e kafkainbox.Event) {
		if e.Kind == kafkainbox.EventAbandoned {
			abandoned <- struct{}{}
		}
		if e.Kind == kafkainbox.EventAssigned {
			assigned <- struct{}{}
		}
	}
	r := run(t, cfg)
	<-assigned
	<-begun
	k.expel()
	<-abandoned
	fetches := k.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
	<-assigned
	if err := fetches.Wait(t.Context(), 3); err != nil { // the record is here again by the second
		t.Fatal(err)
	}
	close(release)
	handled.wait(t)
	r.stop()
	if at := k.committed(t, 0); at != 1 {
		t.Errorf("committed %d, want 1", at)
	}
}

// expelAt expels the member between the fetch of a record and its delivery, and gives the
// group time to hand the partition out anew.
type expelAt struct {
	k        *kafka
	offset   int64
	assigned <-chan struct{}
	once     sync.Once
}

// OnFetchRecordUnbuffered is called by a poll before it returns.
func (e *expelAt) OnFetchRecordUnbuffered(r *kgo.Record, polled bool) {
	if !polled || r.Offset < e.offset {
		return
	}
	e.once.Do(func() {
		e.k.expel()
		select {
		case <-e.assigned: // what must not happen before the record is queued
		case <-time.After(time.Second):
		}
	})
}

// Records that were fetched under an assignment which ended before they were handled do not
// pass for the next records of the new one: those before them would be committed away.
func TestFetchedBeforeALoss(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	numbered := func(from, to int) (records []*kgo.Record) {
		for i := from; i < to; i++ {
			records = append(records, k.record(0, strconv.Itoa(i), ""))
		}
		return records
	}
	k.produce(t, numbered(0, 10)...)
	assigned, begun := make(chan struct{}, 9), make(chan struct{}, 9)
	all := newCounter(20)
	var order []string // of one partition: one goroutine at a time
	first := true
	cfg := k.config(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		if first {
			first = false
			begun <- struct{}{}
			<-ctx.Done()
			return inbox.Again, ctx.Err()
		}
		order = append(order, msg.ID)
		all.add()
		return inbox.Handled, nil
	})
	cfg.Options = append(cfg.Options, kgo.WithHooks(&expelAt{k: k, offset: 10, assigned: assigned}))
	cfg.Observe = func(e kafkainbox.Event) {
		if e.Kind == kafkainbox.EventAssigned {
			assigned <- struct{}{}
		}
	}
	r := run(t, cfg)
	<-assigned
	<-begun
	k.produce(t, numbered(10, 20)...)
	all.wait(t)
	r.stop()
	var want []string
	for i := range 20 {
		want = append(want, strconv.Itoa(i))
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
