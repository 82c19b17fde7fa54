package tests_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments/balances"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// events is a broker with consumers that keep balances in one store.
type events struct {
	broker string // its URL
	store  string
	// concurrency is that of each consumer: one where the store writes one at a time.
	concurrency string
	// left is how many messages the broker has that no consumer has settled.
	left      func(ctx context.Context) (int64, error)
	consumers []*process
	db        *db.Database
	kills     int
}

// eventsCell is a broker and a kind of store that events are tested on.
type eventsCell struct{ broker, store string }

// eventsCells are every broker, each with one of the stores.
func eventsCells() []eventsCell {
	return []eventsCell{{"rabbitmq", "postgres"}, {"nats", "sqlite"}, {"kafka", "postgres"}}
}

// eachEvents runs a test on some of the cells.
func eachEvents(t *testing.T, cells []eventsCell, test func(t *testing.T, e *events)) {
	t.Helper()
	for _, cell := range cells {
		t.Run(cell.broker+" "+cell.store, func(t *testing.T) {
			t.Parallel()
			test(t, newEvents(t, cell))
		})
	}
}

// newEvents starts the broker. Consumers are started by the test.
func newEvents(t *testing.T, cell eventsCell) *events {
	t.Helper()
	e := &events{broker: apptest.Brokers()[cell.broker](t)}
	e.store, e.concurrency = emptyStore(t, cell.store), "8"
	if cell.store == "sqlite" {
		e.concurrency = "1"
	}
	e.db = openStore(t, e.store)
	e.left = map[string]func(*testing.T, string) func(context.Context) (int64, error){
		"rabbitmq": leftOfRabbitMQ, "nats": leftOfNATS, "kafka": leftOfKafka,
	}[cell.broker](t, e.broker)
	return e
}

// openStore opens a store, and closes it with the test.
func openStore(t *testing.T, url string) *db.Database {
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
	return d
}

// emptyStore is one of the kinds that the service runs on.
func emptyStore(t *testing.T, kind string) string {
	t.Helper()
	if kind == "sqlite" {
		return "sqlite:" + filepath.Join(t.TempDir(), "events.db")
	}
	return testserver.Postgres(t)
}

// leftOfRabbitMQ counts what lies in the queue, and not what consumers have in hand.
func leftOfRabbitMQ(t *testing.T, text string) func(context.Context) (int64, error) {
	t.Helper()
	conn, err := amqp.Dial(text)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func(context.Context) (int64, error) {
		channel, err := conn.Channel() // which an error ends
		if err != nil {
			return 0, err
		}
		queue, err := channel.QueueDeclarePassive("payments.events.balances", true, false, false, false, nil)
		return int64(queue.Messages), errors.Join(err, channel.Close())
	}
}

// leftOfNATS has the stream forget ids at once: what is published again is then
// delivered again, which by default it would be only after two minutes.
func leftOfNATS(t *testing.T, text string) func(context.Context) (int64, error) {
	t.Helper()
	conn, err := nats.Connect(text)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "payments-events", Subjects: []string{"payments.events.>"}, Duplicates: 100 * time.Millisecond,
	}); err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context) (int64, error) {
		consumer, err := js.Consumer(ctx, "payments-events", balances.Consumer)
		if err != nil {
			return 0, err
		}
		info, err := consumer.Info(ctx)
		if err != nil {
			return 0, err
		}
		return int64(info.NumPending) + int64(info.NumAckPending), nil
	}
}

// leftOfKafka is the lag of the group's commits.
func leftOfKafka(t *testing.T, text string) func(context.Context) (int64, error) {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(u.Host, ",")...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	group := u.Query().Get("name") + "." + balances.Consumer
	return func(ctx context.Context) (int64, error) {
		lags, err := kadm.NewClient(client).Lag(ctx, group)
		if err == nil {
			err = lags.Error()
		}
		if err != nil {
			return 0, err
		}
		return lags[group].Lag.Total(), nil
	}
}

// consume starts one more consumer.
func (e *events) consume(t *testing.T) *process {
	t.Helper()
	p := &process{log: &lockedLog{}, done: make(chan struct{})}
	p.cmd = exec.Command(program(t), "balances", "consume", "--events", e.broker, "--store", e.store,
		"--lease", "10s", "--concurrency", e.concurrency)
	p.cmd.Stderr = p.log
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := make(chan string, 1)
	go func() {
		defer close(p.done)
		r := bufio.NewReader(stdout)
		line, _ := r.ReadString('\n')
		first <- line
		_, _ = io.Copy(p.log, r)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("a consumer wrote:\n%s", tail(p.log.String()))
		}
	})
	if line := <-first; !strings.HasPrefix(line, "onlyonce balances: consuming from ") {
		<-p.done
		t.Fatalf("the consumer said %q first:\n%s", line, p.log)
	}
	return p
}

// fill starts consumers until there are so many.
func (e *events) fill(t *testing.T, consumers int) {
	t.Helper()
	for len(e.consumers) < consumers {
		e.consumers = append(e.consumers, e.consume(t))
	}
}

// restart kills consumer i and starts another one in its place.
func (e *events) restart(t *testing.T, i int) {
	t.Helper()
	e.consumers[i].kill()
	e.kills++
	e.consumers[i] = e.consume(t)
}

// handled is how many events have a mark.
func (e *events) handled(t *testing.T) int {
	t.Helper()
	var n int
	if err := e.db.Read(t.Context(), func(ctx context.Context, tx db.Tx) error {
		return tx.QueryRow(ctx, "SELECT count(*) FROM onlyonce_keys WHERE scope = ?", "inbox:"+balances.Consumer).Scan(&n)
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// await waits until something is so, which is asked again and again.
func (e *events) await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for !is() {
		for _, c := range e.consumers {
			select {
			case <-c.done:
				t.Fatalf("a consumer has ended by itself:\n%s", tail(c.log.String()))
			default:
			}
		}
		pause(t.Context(), 100*time.Millisecond)
		if t.Context().Err() != nil {
			t.Fatalf("never: %s", what)
		}
	}
}

// finish waits until the broker has nothing left, duplicates included, and ends the
// consumers in order: what they had in hand is settled then, or is left.
func (e *events) finish(t *testing.T, consumers int) {
	t.Helper()
	none := func() bool {
		n, err := e.left(t.Context())
		return err == nil && n == 0
	}
	for {
		e.fill(t, consumers)
		e.await(t, "the broker has nothing left", none)
		for _, c := range e.consumers {
			if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			<-c.done
			if code := c.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("a consumer that was told to stop ended with %d:\n%s", code, tail(c.log.String()))
			}
		}
		e.consumers = nil
		if none() || t.Context().Err() != nil {
			return
		}
	}
}

// judge compares the balances, as the program prints them, and the marks: one an event,
// all of them handled.
func (e *events) judge(t *testing.T, want []balances.Balance, marks int) {
	t.Helper()
	out, errs, code := run(t, "balances", "show", "--store", e.store, "--json")
	var got struct {
		Balances []balances.Balance `json:"balances"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("balances show: exit %d, %v: %s", code, err, errs)
	}
	if diff := cmp.Diff(want, got.Balances); diff != "" {
		t.Errorf("balances are not exact:\n%s", diff)
	}
	if n := e.handled(t); n != marks {
		t.Errorf("the inbox has %d marks of %d events", n, marks)
	}
	for _, state := range []onlyonce.State{onlyonce.InProgress, onlyonce.FailedRetryable, onlyonce.InDoubt} {
		page, err := e.db.Keys().List(t.Context(), onlyonce.ListFilter{State: state, Scope: "inbox:" + balances.Consumer, Limit: 3})
		if err != nil || len(page.Records) > 0 {
			t.Errorf("events that are %s: %v, %v", state, page.Records, err)
		}
	}
}

// messagesOf is how many messages the long form sends, or the short one.
func messagesOf(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("ONLYONCE_TEST_MESSAGES"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("ONLYONCE_TEST_MESSAGES: %q is not how many", text)
		}
		return n
	}
	if os.Getenv("ONLYONCE_SOAK") != "" {
		return 100_000
	}
	return 1_000
}

// amountIn is a balance, for messages of tests.
func amountIn(b balances.Balance) string {
	return fmt.Sprintf("%s %s", b.Merchant, b.Currency)
}
