package kafkainbox_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/onlyonce-go/onlyonce/adapters/kafkainbox"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// soakEnv makes the rebalance test long: a duration, as in the other suites.
const soakEnv = "ONLYONCE_SOAK"

// network is one consumer's, and can be cut for good: the member is then dead to the
// group, which it neither leaves nor commits to any more.
type network struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return nil, errors.New("cut")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		n.conns = append(n.conns, conn)
	}
	return conn, err
}

func (n *network) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = true
	for _, c := range n.conns {
		c.Close()
	}
}

// I1, I2, B113: members join, leave in order and die while a producer repeats and
// reorders; each id has one effect, by both protocols of groups.
func TestRebalance(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string][]kgo.Opt{
		"cooperative": nil,
		"eager":       {kgo.Balancers(kgo.RoundRobinBalancer())},
		"server side": {kgo.ServerSideBalancer()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachKafka(t, 6, func(k *kafka) { rebalance(k, protocol) })
		})
	}
}

// members run consumers of one group and wait for what they acknowledge.
type members struct {
	k        *kafka
	l        *ledger
	protocol []kgo.Opt
	events   chan kafkainbox.Event
	// moved counts partitions that changed hands, handled and repeated the deliveries.
	moved, handled, repeated atomic.Int64
}

func (m *members) observe(e kafkainbox.Event) {
	switch {
	case e.Kind == kafkainbox.EventGivenUp, e.Kind == kafkainbox.EventLost:
		m.moved.Add(1)
	case e.Verdict == inbox.Handled:
		m.handled.Add(1)
	case e.Verdict == inbox.Duplicate:
		m.repeated.Add(1)
	}
	m.events <- e
}

func (m *members) start(t *testing.T, more ...kgo.Opt) *running {
	t.Helper()
	cfg := m.k.config(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		<-time.After(time.Millisecond) // so that partitions change hands amid records
		return m.l.process(ctx, msg)
	})
	cfg.Options = append(m.k.options(m.protocol...), more...)
	cfg.Queue, cfg.CommitInterval = 7, 20*time.Millisecond
	cfg.Observe = m.observe
	return run(t, cfg)
}

// until waits until so many ids have had their effects.
func (m *members) until(t *testing.T, effects int64) {
	t.Helper()
	for m.handled.Load() < effects {
		select {
		case <-m.events:
		case <-t.Context().Done():
			t.Fatalf("%d of %d effects", m.handled.Load(), effects)
		}
	}
}

// heartbeat is to wait for the first heartbeat of the client: kfake never expels a classic
// member that died before it, as a broker does. Nothing to wait for on a real one.
func (k *kafka) heartbeat(t *testing.T, client string) (wait func()) {
	t.Helper()
	if k.fake == nil {
		return func() {}
	}
	beats := k.fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Heartbeat, kmsg.ConsumerGroupHeartbeat}, Group: k.group, Observe: true, Count: -1,
		When: func(req kmsg.Request) bool {
			beat, classic := req.(*kmsg.HeartbeatRequest)
			return !classic || strings.HasPrefix(beat.MemberID, client)
		},
	})
	return func() {
		if err := beats.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
}

// assigned waits until a member has been given partitions.
func (m *members) assigned(t *testing.T) {
	t.Helper()
	for e := range m.events {
		if e.Kind == kafkainbox.EventAssigned {
			return
		}
	}
}

func rebalance(k *kafka, protocol []kgo.Opt) {
	t := k.t
	rounds := 1
	if d, err := time.ParseDuration(os.Getenv(soakEnv)); err == nil {
		rounds = 1 + int(d/(30*time.Second))
	}
	for range rounds {
		m := &members{k: k, l: newLedger(t), protocol: protocol, events: make(chan kafkainbox.Event, 1<<20)}
		const ids = 600
		records := k.shuffled(ids, 3, 6)
		third := len(records) / 3
		k.produce(t, records[:third]...)
		stays := m.start(t)
		m.assigned(t)
		leaves := m.start(t)
		m.assigned(t)
		k.produce(t, records[third:2*third]...)
		m.until(t, ids/4)
		leaves.stop()
		var line network
		lives := k.heartbeat(t, "dies")
		dies := m.start(t, kgo.ClientID("dies"), kgo.Dialer(line.dial), kgo.RetryTimeout(time.Second), kgo.RequestRetries(1))
		m.assigned(t)
		k.produce(t, records[2*third:]...)
		m.until(t, ids/2)
		lives()
		line.kill()
		dies.stop()
		m.caughtUp(t, int64(len(records)))
		stays.stop()
		m.l.wantOne(t, ids)
		if m.moved.Load() < 8 || m.repeated.Load() < 2*ids {
			t.Errorf("%d partitions changed hands, %d duplicates", m.moved.Load(), m.repeated.Load())
		}
		k.forget(t)
	}
}

// caughtUp waits until the group has committed everything.
func (m *members) caughtUp(t *testing.T, records int64) {
	t.Helper()
	for {
		var committed int64
		for p := range int32(6) {
			committed += max(0, m.k.committed(t, p))
		}
		if committed == records {
			return
		}
		select {
		case <-m.events:
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatalf("%d of %d records are committed", committed, records)
		}
	}
}

// forget makes a new topic and group for the next round.
func (k *kafka) forget(t *testing.T) {
	t.Helper()
	*k = *newKafka(t, 6, &kafka{addrs: k.addrs, session: k.session, fake: k.fake})
}

// A partition that waits for its next try changes hands at once, and the other member goes
// on with the record.
func TestRevokedWhileWaiting(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	k.produce(t, k.record(0, "m", ""))
	tried := make(chan struct{}, 1)
	cfg := k.config(func(context.Context, inbox.Message) (inbox.Verdict, error) {
		tried <- struct{}{}
		return inbox.Again, errors.New("not here")
	})
	cfg.MinBackoff, cfg.MaxBackoff = time.Hour, time.Hour
	first := run(t, cfg)
	<-tried
	first.stop() // and not in an hour
	if at := k.committed(t, 0); at > 0 {
		t.Errorf("committed %d", at)
	}
	handled := newCounter(1)
	second := run(t, k.config(func(context.Context, inbox.Message) (inbox.Verdict, error) {
		handled.add()
		return inbox.Handled, nil
	}))
	handled.wait(t)
	second.stop()
	if at := k.committed(t, 0); at != 1 {
		t.Errorf("committed %d, want 1", at)
	}
}

// Records in hand end before their partition is given up, and are committed; what only
// waits is not begun.
func TestDrain(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	k.produce(t, k.record(0, "in hand", ""), k.record(0, "waits", ""))
	begun, release := make(chan string, 9), make(chan struct{})
	r := run(t, k.config(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		begun <- msg.ID
		<-release
		return inbox.Handled, ctx.Err()
	}))
	<-begun
	r.cancel()
	close(release)
	r.stop()
	if at := k.committed(t, 0); at != 1 {
		t.Errorf("committed %d, want 1", at)
	}
	if len(begun) > 0 {
		t.Errorf("%s was begun after the end", <-begun)
	}
	if g := k.fake.GroupInfo(k.group); len(g.Members) != 0 {
		t.Errorf("%d members are left", len(g.Members))
	}
}

// A handler that does not end in time has its context cancelled; one that ignores that is
// abandoned: the group goes on, and its record is not committed, whatever its verdict.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	k := fakeKafka(t, 1)
	k.produce(t, k.record(0, "m", ""))
	begun, release := make(chan context.Context, 1), make(chan struct{})
	events := make(chan kafkainbox.EventKind, 99)
	cfg := k.config(func(ctx context.Context, _ inbox.Message) (inbox.Verdict, error) {
		begun <- ctx
		<-release
		return inbox.Handled, nil
	})
	cfg.Drain = time.Millisecond
	cfg.Observe = func(e kafkainbox.Event) { events <- e.Kind }
	r := run(t, cfg)
	ctx := <-begun
	r.cancel()
	<-ctx.Done()
	for e := range events {
		if e == kafkainbox.EventGivenUp {
			t.Fatal("given up without saying that a handler is left behind")
		}
		if e == kafkainbox.EventAbandoned {
			break
		}
	}
	handled := newCounter(1)
	second := run(t, k.config(func(context.Context, inbox.Message) (inbox.Verdict, error) {
		handled.add()
		return inbox.Duplicate, nil
	}))
	handled.wait(t) // while the first still hangs
	close(release)
	r.stop()
	second.stop()
}
