package tests_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// consumerEnv holds the configuration of a test binary that is to be a consumer: it is
// delivered one message, and is killed at one point of it.
const consumerEnv = "ONLYONCE_TEST_CONSUMER"

// consumerConfig is what a consumer is told.
type consumerConfig struct {
	File       string
	Leased     bool
	Deliveries int
	Lease      time.Duration
	// Webhook has it serve a webhook, until it is killed.
	Webhook bool
	// At is where it kills itself, or where a webhook stands still; nowhere if At is zero.
	At point
}

const (
	handle = "handle" // the handler, before and after its effect
	ack    = "ack"
)

// consumeOne is the consumer's main. It says the verdict when it has acked.
func consumeOne(text string) error {
	var cfg consumerConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	ctx := context.Background()
	store, err := sqlitestore.Open(ctx, cfg.File, sqlitestore.Config{})
	if err != nil {
		return err
	}
	s := &signals{at: cfg.At, sig: syscall.SIGKILL, goOn: make(chan byte)}
	engine, err := onlyonce.NewTx(storefault.NewTx[*sql.Tx](store, s.store), onlyonce.Config{})
	if err != nil {
		return err
	}
	if cfg.Webhook {
		s.sig = 0 // which is none
		return serveHook(engine, cfg, s)
	}
	verdict, err := consumeWith(ctx, engine, cfg, s)
	for onlyonce.CodeOf(err) == onlyonce.CodeInProgress { // until the lease of the killed one is over
		<-time.After(100 * time.Millisecond)
		verdict, err = consumeWith(ctx, engine, cfg, s)
	}
	if !verdict.Ack() {
		return fmt.Errorf("%v: %w", verdict, err)
	}
	s.reach(ack, false)
	fmt.Println(verdict)
	return errors.Join(engine.Close(ctx), store.Close())
}

// consumeWith handles the message with either kind of inbox: a name is written, as the
// last step of the leased one.
func consumeWith(ctx context.Context, engine *onlyonce.TxEngine[*sql.Tx], cfg consumerConfig, s *signals) (inbox.Verdict, error) {
	msg := inbox.Message{ID: "m1", Payload: []byte("5 EUR"), Deliveries: cfg.Deliveries}
	config := inbox.Config{Consumer: "balances", Lease: cfg.Lease}
	if !cfg.Leased {
		in, err := inbox.NewTx(engine, config)
		if err != nil {
			return inbox.Again, err
		}
		return in.Process(ctx, msg, s.write)
	}
	in, err := inbox.New(engine.Engine, config)
	if err != nil {
		return inbox.Again, err
	}
	return in.Process(ctx, msg, func(ctx context.Context, _ inbox.Message) error {
		_, err := engine.Finish(ctx, func(ctx context.Context, tx *sql.Tx) (onlyonce.Answer, error) {
			return onlyonce.Answer{Status: 204}, s.write(ctx, tx, msg)
		})
		return err
	})
}

// write is the handler in either, and has a point on each side of its effect.
func (s *signals) write(ctx context.Context, tx *sql.Tx, _ inbox.Message) error {
	s.reach(handle, false)
	_, err := tx.ExecContext(ctx, "INSERT INTO names VALUES ('5 EUR')")
	s.reach(handle, true)
	return err
}

// serveHook serves a webhook, and says first where.
func serveHook(engine *onlyonce.TxEngine[*sql.Tx], cfg consumerConfig, s *signals) error {
	in, err := inbox.NewTx(engine, inbox.Config{Consumer: "balances", Lease: cfg.Lease})
	if err != nil {
		return err
	}
	verify, err := inbox.StripeSignature(inbox.StripeConfig{Secrets: []string{webhookSecret}})
	if err != nil {
		return err
	}
	id, err := inbox.IDFromJSON("/id")
	if err != nil {
		return err
	}
	hook, err := in.Webhook(inbox.WebhookConfig{Verify: verify, EventID: id}, s.write)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /hook", hook)
	mux.HandleFunc("GET /reached", func(w http.ResponseWriter, _ *http.Request) {
		if !s.once.Load() {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	return (&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}).Serve(listener)
}

// consumeAt runs a consumer to its end, and gives what it said; nothing if it was killed.
func consumeAt(t *testing.T, cfg consumerConfig) string {
	t.Helper()
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), consumerEnv+"="+string(text))
	out, err := cmd.CombinedOutput()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL && len(out) == 0 {
		return ""
	}
	if err != nil {
		t.Fatalf("%+v: %v\n%s", cfg, err, out)
	}
	return strings.TrimSpace(string(out))
}

// I1, I2: a consumer that is really killed: between receive and commit the message is
// applied once, by a redelivery; between commit and ack the redelivery is skipped. By
// each way into the transaction.
func TestKilledConsumer(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name       string
		leased     bool
		deliveries int
		claims     point // the first write
		commit     string
	}{
		{"transactional", false, 1, point{}, string(storefault.Atomic)},
		{"redelivered", false, 2, point{string(storefault.Claim), true}, string(storefault.Finish)},
		{"leased", true, 1, point{string(storefault.Claim), true}, string(storefault.Finish)},
	} {
		for _, at := range []point{way.claims, {way.commit, false}, {handle, false}, {handle, true}, {way.commit, true}, {ack, false}} {
			if at == (point{}) {
				continue
			}
			t.Run(way.name+" "+at.String(), func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "once.db")
				blankSQLite(t, file)
				cfg := consumerConfig{File: file, Leased: way.leased, Deliveries: way.deliveries, Lease: 3 * time.Second, At: at}
				if said := consumeAt(t, cfg); said != "" {
					t.Fatalf("it was not killed, and said %q", said)
				}
				committed := at == point{way.commit, true} || at == point{ack, false}
				want := inbox.Handled.String()
				if committed {
					want = inbox.Duplicate.String()
				}
				cfg.At, cfg.Lease, cfg.Deliveries = point{}, 0, way.deliveries+1
				if said := consumeAt(t, cfg); said != want {
					t.Errorf("the redelivery is %q, want %s", said, want)
				}
				if n := namesIn(t, file); n != 1 {
					t.Errorf("%d effects", n)
				}
			})
		}
	}
}

// A webhook that has answered 200 is killed before its handler has begun, while it runs,
// or when it has committed: the next process handles the event once, and nobody but the
// store has told it of it. (I2; B113)
func TestKilledWebhook(t *testing.T) {
	t.Parallel()
	for _, at := range []point{{string(storefault.Finish), false}, {handle, false}, {handle, true}, {string(storefault.Finish), true}} {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "once.db")
			blankSQLite(t, file)
			client := newClient(t)
			first := startHook(t, consumerConfig{File: file, Webhook: true, Lease: 2 * time.Second, At: at})
			sendEvent(t, client, first.URL)
			for a, err := get(t.Context(), client, first.URL+"/reached"); a.status != http.StatusOK; a, err = get(t.Context(), client, first.URL+"/reached") {
				if err != nil {
					t.Fatal(err)
				}
				pause(t.Context(), 20*time.Millisecond)
			}
			first.kill()
			committed := at == point{string(storefault.Finish), true}
			if n := namesIn(t, file); n != map[bool]int{true: 1}[committed] {
				t.Fatalf("%d effects are left of the process that was killed", n)
			}
			next := startHook(t, consumerConfig{File: file, Webhook: true})
			for namesIn(t, file) == 0 {
				pause(t.Context(), 100*time.Millisecond)
			}
			sendEvent(t, client, next.URL)
			next.kill()
			if n := namesIn(t, file); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// startHook starts a webhook, which is killed with the test.
func startHook(t *testing.T, cfg consumerConfig) *process {
	t.Helper()
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(os.Args[0]), log: &lockedLog{}, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), consumerEnv+"="+string(text))
	p.cmd.Stderr = p.log
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(p.kill)
	if p.URL = strings.TrimSpace(line); err != nil {
		<-p.done
		t.Fatalf("a webhook does not say where it is: %v\n%s", err, p.log)
	}
	return p
}

// sendEvent sends the event to a webhook, which has to take it.
func sendEvent(t *testing.T, client *http.Client, url string) {
	t.Helper()
	a, err := do(client, stripeRequest(t.Context(), t, url+"/hook", `{"id":"evt_1"}`))
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("the webhook answers %d %s, %v", a.status, a.body, err)
	}
}

func namesIn(t *testing.T, file string) int {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), file, sqlitestore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return countNames(t, s.Reader(), "5 EUR")
}
