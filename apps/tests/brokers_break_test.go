package tests_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/amqpinbox"
	"github.com/onlyonce-go/onlyonce/adapters/kafkainbox"
	"github.com/onlyonce-go/onlyonce/adapters/natsinbox"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/adapters/watermillinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// brokenEnv holds the configuration of a test binary that is to be a consumer of a broker,
// until it is killed.
const brokenEnv = "ONLYONCE_TEST_BROKER_CONSUMER"

// poison is the id of a message that ends the process that handles it.
const poison = "poison"

// brokenConsumer is what such a consumer is told.
type brokenConsumer struct {
	Broker, URL, Store string
	MaxTries           int
	Concurrency        int
}

// brokers are those that deliver at least once, each with a consumer of one queue, and
// with the publishing of messages by their ids.
var brokers = map[string]struct {
	consume func(ctx context.Context, c brokenConsumer, process inbox.ProcessFunc) error
	open    func(t *testing.T) (url string, publish func(t *testing.T, ids ...string))
}{
	"kafka":    {consumeKafka, openKafka},
	"rabbitmq": {consumeRabbitMQ, openRabbitMQ},
	"nats":     {consumeNATS, openNATS},
}

// TestBrokenConsumer is no test: it is the consumer's main.
func TestBrokenConsumer(t *testing.T) {
	text := os.Getenv(brokenEnv)
	if text == "" {
		return // in a process that has only tests to run
	}
	var c brokenConsumer
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	store, err := pgstore.Open(t.Context(), c.Store, pgstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := onlyonce.NewTx(store, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	box, err := inbox.NewTx(engine, inbox.Config{
		Consumer: "balances", MaxTries: c.MaxTries, Lease: 500 * time.Millisecond, Pause: time.Millisecond, MaxPause: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("runs")
	go func() { // it does not outlive its parent, who never says a word
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(1)
	}()
	consume := consumeWatermill
	if b, ok := brokers[c.Broker]; ok {
		consume = b.consume
	}
	t.Fatal(consume(t.Context(), c, func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		verdict, err := box.Process(ctx, msg, brokenEffect)
		if verdict.Ack() {
			fmt.Println(verdict, msg.ID)
		}
		return verdict, err
	}))
}

// brokenEffect writes the effect of a message, and dies of one.
func brokenEffect(ctx context.Context, tx pgx.Tx, msg inbox.Message) error {
	_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", msg.ID)
	if msg.ID == poison {
		return errors.Join(err, syscall.Kill(os.Getpid(), syscall.SIGKILL), errors.New("still alive"))
	}
	if err == nil { // so that a kill finds it amid its transaction, as often as not
		_, err = tx.Exec(ctx, "SELECT pg_sleep(0.01)")
	}
	return err
}

func consumeKafka(ctx context.Context, c brokenConsumer, process inbox.ProcessFunc) error {
	consumer, err := kafkainbox.New(kafkainbox.Config{
		Group: "balances", Topics: []string{"payments"}, Process: process, WithoutID: process, Concurrency: c.Concurrency,
		Options: []kgo.Opt{
			kgo.SeedBrokers(strings.Split(c.URL, ",")...), kgo.ServerSideBalancer(), kgo.FetchMaxWait(50 * time.Millisecond),
		},
		MinBackoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

func openKafka(t *testing.T) (url string, publish func(t *testing.T, ids ...string)) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "payments"), kfake.BrokerConfigs(map[string]string{
		"group.consumer.session.timeout.ms": "500", "group.consumer.heartbeat.interval.ms": "50",
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return strings.Join(fake.ListenAddrs(), ","), func(t *testing.T, ids ...string) {
		client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.DefaultProduceTopic("payments"))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		for _, id := range ids {
			r := &kgo.Record{
				Key: []byte(id), Value: []byte(id), Headers: []kgo.RecordHeader{{Key: kafkainbox.DefaultHeader, Value: []byte(id)}},
			}
			if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func consumeRabbitMQ(ctx context.Context, c brokenConsumer, process inbox.ProcessFunc) error {
	consumer, err := amqpinbox.New(amqpinbox.Config{
		URL: c.URL, Queue: "payments", Process: process, Concurrency: c.Concurrency,
		MinBackoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

func openRabbitMQ(t *testing.T) (url string, publish func(t *testing.T, ids ...string)) {
	url = testserver.RabbitMQ(t)
	conn, err := amqp091.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	_, err = channel.QueueDeclare("payments", true, false, false, false, amqp091.Table{amqp091.QueueTypeArg: "quorum"})
	if err := errors.Join(err, channel.Confirm(false)); err != nil {
		t.Fatal(err)
	}
	return url, func(t *testing.T, ids ...string) {
		for _, id := range ids {
			confirm, err := channel.PublishWithDeferredConfirm("", "payments", true, false,
				amqp091.Publishing{MessageId: id, Body: []byte(id), DeliveryMode: amqp091.Persistent})
			if err != nil {
				t.Fatal(err)
			}
			if ok, err := confirm.WaitContext(t.Context()); !ok || err != nil {
				t.Fatalf("not confirmed: %v", err)
			}
		}
	}
}

func consumeNATS(ctx context.Context, c brokenConsumer, process inbox.ProcessFunc) error {
	conn, err := nats.Connect(c.URL, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	consumer, err := natsinbox.New(natsinbox.Config{
		JetStream: js, Stream: "PAYMENTS", Durable: "balances", Process: process, WithoutID: process, Concurrency: c.Concurrency,
		ID: natsinbox.Header("Event-Id"), MinBackoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	return consumer.Run(ctx)
}

func openNATS(t *testing.T) (url string, publish func(t *testing.T, ids ...string)) {
	url = testserver.NATS(t).URL()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "PAYMENTS", Subjects: []string{"payments"}}); err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateConsumer(t.Context(), "PAYMENTS", jetstream.ConsumerConfig{
		Durable: "balances", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 300 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return url, func(t *testing.T, ids ...string) {
		for _, id := range ids {
			m := nats.NewMsg("payments")
			m.Header.Set("Event-Id", id)
			m.Data = []byte(id)
			if _, err := js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// consumeWatermill is delivered the same messages in each life, in memory: the second when
// the first is acknowledged. Side by side the second would be in hand with the one that
// kills, in life after life, and be suspected and parked with it.
func consumeWatermill(ctx context.Context, _ brokenConsumer, process inbox.ProcessFunc) error {
	handler, err := watermillinbox.Handler(process, watermillinbox.Config{Deliveries: watermillinbox.Suspect})
	if err != nil {
		return err
	}
	pubsub := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddConsumerHandler("credit", "payments", pubsub, func(m *message.Message) error {
		err := handler(m)
		if err != nil {
			<-time.After(20 * time.Millisecond) // in place of Watermill's Retry
		}
		return err
	})
	published := make(chan error, 1)
	go func() {
		<-router.Running()
		for _, id := range []string{poison, "m"} {
			if err := pubsub.Publish("payments", message.NewMessage(id, []byte(id))); err != nil {
				published <- err
				return
			}
		}
		published <- nil
	}()
	if err := router.Run(ctx); err != nil {
		return err
	}
	return errors.Join(pubsub.Close(), <-published)
}

// life is one process of a consumer.
type life struct {
	cmd   *exec.Cmd
	lines chan string // closed with its end
}

func (c brokenConsumer) live(t *testing.T) life {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	l := life{exec.Command(os.Args[0], "-test.run=^TestBrokenConsumer$"), make(chan string, 1<<12)}
	l.cmd.Env = append(os.Environ(), brokenEnv+"="+string(text))
	l.cmd.Stderr = os.Stderr
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(l.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			l.lines <- s.Text()
		}
	}()
	return l
}

// end kills the process, if it lives, and waits until it is gone.
func (l life) end() {
	_ = l.cmd.Process.Kill()
	for range l.lines {
	}
	_ = l.cmd.Wait()
}

// effectsTable makes a database with a store's tables and one for effects.
func effectsTable(t *testing.T) (dsn string, pool *pgxpool.Pool, store *pgstore.Store) {
	t.Helper()
	dsn = testserver.Postgres(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if store, err = pgstore.New(pool, pgstore.Config{}); err != nil {
		t.Fatal(err)
	}
	_, err = pool.Exec(t.Context(), "CREATE TABLE effects (id text NOT NULL)")
	if err := errors.Join(err, store.Migrate(t.Context())); err != nil {
		t.Fatal(err)
	}
	return dsn, pool, store
}

// wantEffects wants one effect of each id, and no other.
func wantEffects(t *testing.T, pool *pgxpool.Pool, ids []string) {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT id, count(*) FROM effects GROUP BY id")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	var id string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&id, &n}, func() error { found[id] = n; return nil }); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if found[id] != 1 {
			t.Errorf("%s took effect %d times", id, found[id])
		}
	}
	if len(found) != len(ids) {
		t.Errorf("%d ids took effect, want %d", len(found), len(ids))
	}
}

// I1, I2, B113: a consumer of each broker, over PostgreSQL, that is killed at any moment; what
// is published twice and delivered in several lives takes effect once an id.
func TestBrokerConsumerIsKilled(t *testing.T) {
	t.Parallel()
	for name, broker := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, pool, _ := effectsTable(t)
			url, publish := broker.open(t)
			rounds := soaked(2, 20)
			ids := make([]string, 50*rounds) // more than the lives before the last can handle
			for i := range ids {
				ids[i] = fmt.Sprintf("m-%03d", i)
			}
			publish(t, ids...)
			publish(t, ids[:20]...)
			c := brokenConsumer{Broker: name, URL: url, Store: dsn, MaxTries: 99, Concurrency: 3}
			for range rounds {
				l := c.live(t)
				for range 1 + rand.IntN(25) { // lines: the process is killed behind any verdict
					<-l.lines
				}
				<-time.After(rand.N(15 * time.Millisecond)) // and within one
				l.end()
			}
			l := c.live(t)
			defer l.end()
			for n := 0; n < len(ids); {
				if _, ok := <-l.lines; !ok {
					t.Fatal("the last consumer has ended by itself")
				}
				if err := pool.QueryRow(t.Context(), "SELECT count(DISTINCT id) FROM effects").Scan(&n); err != nil {
					t.Fatal(err)
				}
			}
			l.end()
			wantEffects(t, pool, ids)
		})
	}
}

// soaked is how often something is done, and how often in a soak.
func soaked(n, soak int) int {
	if os.Getenv("ONLYONCE_SOAK") != "" {
		return soak
	}
	return n
}

// I2, D6: a message that ends its process each time is parked in the end, on every broker, and
// what comes behind it is handled.
func TestPoisonThatKills(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"kafka", "rabbitmq", "nats", "watermill"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, pool, store := effectsTable(t)
			c := brokenConsumer{Broker: name, Store: dsn, MaxTries: 2, Concurrency: 1}
			if broker, ok := brokers[name]; ok {
				url, publish := broker.open(t)
				publish(t, poison, "m")
				c.URL = url
			}
			found := map[string]bool{}
			done := func() bool { return found["parked "+poison] && (found["handled m"] || found["duplicate m"]) }
			for lives := 0; !done(); lives++ {
				if lives == 6 {
					t.Fatalf("%d processes have died of it, and it is not parked: %v", lives, found)
				}
				l := c.live(t)
				for line := range l.lines { // until it dies
					if found[line] = true; done() || found["parked m"] {
						break
					}
				}
				l.end()
				if found["parked m"] {
					t.Fatal("what did nobody any harm is parked with the poison")
				}
			}
			e, err := inbox.Show(t.Context(), store, "balances", poison)
			if err != nil || !e.Kept || string(e.Message.Payload) != poison {
				t.Errorf("parked: %+v, %v", e, err)
			}
			wantEffects(t, pool, []string{"m"})
		})
	}
}
