package kafkainbox_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/kafkainbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

func TestMain(m *testing.M) {
	runChild()
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil { // tests wait most of the time
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// kafkaEnv names the brokers of a real Kafka, joined by commas. Without it the tests run on
// franz-go's in-process cluster alone, which has one log and no replicas: elections, lost
// acknowledgements of replicas and truncated logs are not tested there.
const kafkaEnv = "ONLYONCE_TEST_KAFKA"

// kafka is a cluster with a topic and a group of the test's own.
type kafka struct {
	t       *testing.T
	addrs   []string
	topic   string
	group   string
	session time.Duration
	admin   *kadm.Client
	// fake is nil on a real cluster.
	fake *kfake.Cluster
}

// eachKafka runs a test on every cluster there is, with a topic of so many partitions.
func eachKafka(t *testing.T, partitions int32, test func(*kafka)) {
	t.Helper()
	t.Run("kfake", func(t *testing.T) {
		t.Parallel()
		test(fakeKafka(t, partitions))
	})
	addrs := os.Getenv(kafkaEnv)
	if addrs == "" {
		return
	}
	t.Run("kafka", func(t *testing.T) {
		t.Parallel()
		test(newKafka(t, partitions, &kafka{addrs: strings.Split(addrs, ","), session: 6 * time.Second}))
	})
}

// fakeKafka is an in-process cluster, whose group sessions can be short.
func fakeKafka(t *testing.T, partitions int32) *kafka {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100*time.Millisecond),
		kfake.BrokerConfigs(map[string]string{"group.consumer.session.timeout.ms": "2000"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return newKafka(t, partitions, &kafka{addrs: fake.ListenAddrs(), session: 2 * time.Second, fake: fake})
}

func newKafka(t *testing.T, partitions int32, k *kafka) *kafka {
	t.Helper()
	k.t = t
	k.topic = fmt.Sprintf("payments-%x", rand.Uint64())
	k.group = "group-of-" + k.topic
	client, err := kgo.NewClient(kgo.SeedBrokers(k.addrs...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	k.admin = kadm.NewClient(client)
	if _, err := k.admin.CreateTopic(t.Context(), partitions, -1, nil, k.topic); err != nil {
		t.Fatal(err)
	}
	return k
}

// options are what the tests' consumers have in common.
func (k *kafka) options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(k.addrs...), kgo.SessionTimeout(k.session), kgo.HeartbeatInterval(k.session / 10), kgo.RebalanceTimeout(7 * time.Second),
		kgo.FetchMaxWait(100 * time.Millisecond), kgo.MetadataMinAge(50 * time.Millisecond),
	}, more...)
}

// config is a consumer's, with short times.
func (k *kafka) config(process inbox.ProcessFunc) kafkainbox.Config {
	return kafkainbox.Config{
		Group: k.group, Topics: []string{k.topic}, Options: k.options(), Process: process, WithoutID: process,
		CommitInterval: time.Millisecond, Drain: time.Second, MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond,
	}
}

// record is a record with an id.
func (k *kafka) record(partition int32, id, payload string) *kgo.Record {
	return &kgo.Record{
		Topic: k.topic, Partition: partition, Value: []byte(payload),
		Headers: []kgo.RecordHeader{{Key: kafkainbox.DefaultHeader, Value: []byte(id)}},
	}
}

// produce sends records to the partitions they name, in their order.
func (k *kafka) produce(t *testing.T, records ...*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// committed is the group's offset in a partition; -1: none.
func (k *kafka) committed(t *testing.T, partition int32) int64 {
	t.Helper()
	offsets, err := k.admin.FetchOffsets(t.Context(), k.group)
	if err != nil {
		t.Fatal(err)
	}
	o, ok := offsets.Lookup(k.topic, partition)
	if !ok {
		return -1
	}
	return o.At
}

// running is a consumer in a goroutine of the test.
type running struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
}

// run runs a consumer until it is stopped, or the test ends.
func run(t *testing.T, cfg kafkainbox.Config) *running {
	t.Helper()
	c, err := kafkainbox.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{t: t, cancel: cancel, done: make(chan error, 1)}
	go func() {
		defer close(r.done)
		r.done <- c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	return r
}

// stop ends the consumer in order.
func (r *running) stop() {
	r.t.Helper()
	r.cancel()
	if err := <-r.done; err != nil {
		r.t.Errorf("run: %v", err)
	}
}

// ledger is an inbox and what took effect by it.
type ledger struct {
	process inbox.ProcessFunc
	mu      sync.Mutex
	found   map[string]int
}

// newLedger is an inbox in memory, whose effects come with the store's commits.
func newLedger(t *testing.T) *ledger {
	t.Helper()
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{found: map[string]int{}}
	box := inboxOn(t, store)
	l.process = func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		return box.Process(ctx, msg, func(_ context.Context, tx *memstore.Tx, msg inbox.Message) error {
			tx.OnCommit(func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.found[msg.ID]++
			})
			return nil
		})
	}
	return l
}

func inboxOn[Tx any](t *testing.T, store onlyonce.TxStore[Tx]) *inbox.TxInbox[Tx] {
	t.Helper()
	engine, err := onlyonce.NewTx(store, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	box, err := inbox.NewTx(engine, inbox.Config{Consumer: "balances"})
	if err != nil {
		t.Fatal(err)
	}
	return box
}

// wantOne wants one effect of each of n ids, and no other.
func (l *ledger) wantOne(t *testing.T, n int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	wantOne(t, l.found, n)
}

func wantOne(t *testing.T, found map[string]int, n int) {
	t.Helper()
	if len(found) != n {
		t.Errorf("%d ids took effect, want %d", len(found), n)
	}
	for id, times := range found {
		if times != 1 {
			t.Errorf("%s took effect %d times", id, times)
		}
	}
}

// counter waits for a number of events.
type counter struct {
	left chan struct{}
	want int
}

func newCounter(want int) *counter { return &counter{make(chan struct{}, 1<<16), want} }

func (c *counter) add() { c.left <- struct{}{} }

func (c *counter) wait(t *testing.T) {
	t.Helper()
	for i := range c.want {
		select {
		case <-c.left:
		case <-t.Context().Done():
			t.Fatalf("%d of %d, %v", i, c.want, t.Context().Err())
		}
	}
}
