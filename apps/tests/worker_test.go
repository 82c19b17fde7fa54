package tests_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/provider"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// workerEnv holds the configuration of a test binary that is to be a worker: the
// payments service, with a signal to itself at one point of its first operation.
const workerEnv = "ONLYONCE_TEST_WORKER"

// workerConfig is what a worker is told.
type workerConfig struct {
	Store, Processor string
	Traits           provider.Traits
	Lease            time.Duration
	// At is where the worker sends itself Signal; nowhere if At is zero.
	At     point
	Signal syscall.Signal
	// Recover runs the recoverer, with this grace; 0: only retries resume.
	Recover time.Duration
}

// point is a moment of an operation: before or after a call of the store or of
// the provider.
type point struct {
	Call  string
	After bool
}

func (p point) String() string {
	when := "before"
	if p.After {
		when = "after"
	}
	return when + " " + p.Call
}

// send is the call of the provider, beside the store's methods.
const send = "send"

// signals sends the worker its signal once, when the point is reached.
type signals struct {
	at   point
	sig  syscall.Signal
	once atomic.Bool
	// goOn yields when the test has woken the worker.
	goOn chan byte
}

func (s *signals) reach(call string, after bool) {
	if s.at != (point{call, after}) || !s.once.CompareAndSwap(false, true) {
		return
	}
	if err := syscall.Kill(os.Getpid(), s.sig); err != nil {
		panic(err)
	}
	// Not a step further: the signal stops other threads a moment before or after
	// this one, and SIGKILL is not answered at all.
	<-s.goOn
}

// store is the fault injector: before a call, and after it and before its reply.
func (s *signals) store(m storefault.Method, _ onlyonce.Key) storefault.Fault {
	return storefault.Fault{
		Hold:      func(context.Context) { s.reach(string(m), false) },
		HoldReply: func(context.Context) { s.reach(string(m), true) },
	}
}

// signalled is a provider whose charge is a point.
type signalled struct {
	provider.Provider
	s *signals
}

// Charge passes the call on.
func (p signalled) Charge(ctx context.Context, s onlyonce.Sending) (provider.Outcome, error) {
	p.s.reach(send, false)
	out, err := p.Provider.Charge(ctx, s)
	p.s.reach(send, true)
	return out, err
}

// work is the worker's main: it serves until it is killed or its input ends.
func work(text string) error {
	var cfg workerConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	ctx := context.Background()
	database, err := db.Open(ctx, cfg.Store)
	if err != nil {
		return err
	}
	s := &signals{at: cfg.At, sig: cfg.Signal, goOn: make(chan byte)}
	service, err := payments.New(ctx, payments.Config{
		DB:       database.WithKeys(func(k db.Keys) db.Keys { return storefault.NewTx[db.Tx](k, s.store) }),
		Provider: signalled{&processor.Provider{Client: &processor.Client{BaseURL: cfg.Processor, Timeout: 5 * time.Second}, Promises: cfg.Traits}, s},
		Lease:    cfg.Lease, RecoverGrace: cfg.Recover,
	})
	if err != nil {
		return err
	}
	if cfg.Recover > 0 {
		go service.Run(ctx)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("listening on http://" + listener.Addr().String())
	go func() {
		defer listener.Close()
		for b := make([]byte, 1); ; s.goOn <- b[0] {
			if _, err := os.Stdin.Read(b); err != nil {
				return // the test has ended
			}
		}
	}()
	if err := http.Serve(listener, service); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return errors.Join(service.Close(ctx), database.Close())
}

// worker is a running worker.
type worker struct {
	url string
	cmd *exec.Cmd
	log *lockedLog
	// ended is closed when the process is gone.
	ended chan struct{}
	stdin io.Writer
}

// startWorker runs this test binary as a worker. It is killed with the test.
func startWorker(t *testing.T, cfg workerConfig) *worker {
	t.Helper()
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{cmd: exec.Command(os.Args[0]), log: &lockedLog{}, ended: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	w.cmd.Stderr = w.log
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first := make(chan string, 1)
	go func() {
		defer close(w.ended)
		r := bufio.NewReader(stdout)
		line, _ := r.ReadString('\n')
		first <- line
		_, _ = io.Copy(w.log, r)
		_ = w.cmd.Wait()
	}()
	t.Cleanup(func() {
		w.kill()
		if t.Failed() {
			t.Logf("worker at %v wrote:\n%s", cfg.At, tail(w.log.String()))
		}
	})
	var ok bool
	if _, w.url, ok = strings.Cut(strings.TrimSpace(<-first), "listening on "); !ok {
		<-w.ended
		t.Fatalf("the worker did not start:\n%s", w.log)
	}
	return w
}

func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	<-w.ended
}

// stopped waits until the worker has stopped itself.
func (w *worker) stopped(ctx context.Context, t *testing.T) {
	t.Helper()
	for ctx.Err() == nil {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", w.cmd.Process.Pid))
		if err != nil {
			t.Fatalf("the worker is gone: %v\n%s", err, w.log)
		}
		if _, rest, ok := strings.Cut(string(text), ") "); ok && strings.HasPrefix(rest, "T") {
			return
		}
		pause(ctx, 5*time.Millisecond)
	}
	t.Fatal("the worker did not reach its point")
}

// wake lets a stopped worker go on.
func (w *worker) wake(t *testing.T) {
	t.Helper()
	if err := w.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := w.stdin.Write([]byte("!")); err != nil {
		t.Fatal(err)
	}
}
