package inbox_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("the account is closed")

// world is a process with an inbox of either kind on a memory store, which fails when
// the process is dead.
type world struct {
	mem    *memstore.Store
	engine *onlyonce.TxEngine[*memstore.Tx]
	cfg    inbox.Config
	fault  atomic.Pointer[storefault.Fault]
	// decide is told of each call before it is made; nil: nobody is.
	decide func(m storefault.Method)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	mem, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	return worldOn(t, mem)
}

// worldOn is another process on the same store.
func worldOn(t *testing.T, mem *memstore.Store) *world {
	t.Helper()
	w := &world{mem: mem, cfg: inbox.Config{Consumer: "balances", MaxTries: 3}}
	inject := func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
		if w.decide != nil {
			w.decide(m)
		}
		if f := w.fault.Load(); f != nil {
			return *f
		}
		return storefault.Fault{}
	}
	var err error
	w.engine, err = onlyonce.NewTx(storefault.NewTx(mem, inject), onlyonce.Config{SettleTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.end(t, time.Minute) })
	return w
}

// end closes the engine; what it has not settled in time is left as by a crash.
func (w *world) end(t *testing.T, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within)
	defer cancel()
	_ = w.engine.Close(ctx)
}

// down makes all calls to the store fail from now on: for the store, the process is dead.
func (w *world) down() { w.fault.Store(&storefault.Fault{Before: storefault.ErrDown}) }

func (w *world) up() { w.fault.Store(nil) }

// processor is an inbox of either kind, whose handler counts in a transaction or, with
// steps, as a call.
type processor struct {
	t       *testing.T // of each
	w       *world
	process func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error)
	// recoverer runs parked messages again.
	recoverer onlyonce.Recoverer
	webhook   func(cfg inbox.WebhookConfig) (*inbox.Webhook, error)
	*effects
}

// effects are what handlers did, by payload.
type effects struct {
	mu   sync.Mutex
	seen []string
	runs int
	// before runs in each handler before its effect.
	before func(msg inbox.Message) error
	// after runs behind its effect, which an error undoes where it can be undone.
	after func(msg inbox.Message) error
}

func (e *effects) run(msg inbox.Message) error {
	e.mu.Lock()
	e.runs++
	e.mu.Unlock()
	if e.before != nil {
		return e.before(msg)
	}
	return nil
}

func (e *effects) end(msg inbox.Message) error {
	if e.after != nil {
		return e.after(msg)
	}
	return nil
}

func (e *effects) add(msg inbox.Message) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, string(msg.Payload))
}

// fail lets the next n runs fail.
func (e *effects) fail(n int) {
	var runs atomic.Int32
	e.before = func(inbox.Message) error {
		if int(runs.Add(1)) <= n {
			return errBroken
		}
		return nil
	}
}

func (e *effects) want(t *testing.T, want ...string) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Equal(e.seen, want) {
		t.Errorf("effects %q, want %q", e.seen, want)
	}
}

func (e *effects) wantRuns(t *testing.T, want int) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.runs != want {
		t.Errorf("the handler ran %d times, want %d", e.runs, want)
	}
}

// transactional is a TxInbox of the process.
func (w *world) transactional(t *testing.T, e *effects) processor {
	t.Helper()
	in, err := inbox.NewTx(w.engine, w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	handler := func(_ context.Context, tx *memstore.Tx, msg inbox.Message) error {
		if err := e.run(msg); err != nil {
			return err
		}
		tx.OnCommit(func() { e.add(msg) })
		return e.end(msg)
	}
	return processor{
		w: w, effects: e, recoverer: in.Recoverer(handler),
		process: func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
			return in.Process(ctx, msg, handler)
		},
		webhook: func(cfg inbox.WebhookConfig) (*inbox.Webhook, error) { return in.Webhook(cfg, handler) },
	}
}

// leased is an Inbox of the process.
func (w *world) leased(t *testing.T, e *effects) processor {
	t.Helper()
	in, err := inbox.New(w.engine.Engine, w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	handler := func(ctx context.Context, msg inbox.Message) error {
		if err := e.run(msg); err != nil {
			return err
		}
		_, err := onlyonce.Call(ctx, onlyonce.Effect{
			Name: "notify", Provider: "mailer", Request: msg.Payload, Memory: time.Hour,
			Send: func(context.Context, onlyonce.Sending) ([]byte, error) { e.add(msg); return []byte("sent"), nil },
		})
		if err != nil {
			return err
		}
		return e.end(msg)
	}
	return processor{
		w: w, effects: e, recoverer: in.Recoverer(handler),
		process: func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
			return in.Process(ctx, msg, handler)
		},
		webhook: func(cfg inbox.WebhookConfig) (*inbox.Webhook, error) { return in.Webhook(cfg, handler) },
	}
}

type makeFunc func(*world, *testing.T, *effects) processor

// kinds are the two kinds of inbox.
func kinds() map[string]makeFunc {
	return map[string]makeFunc{"transactional": (*world).transactional, "leased": (*world).leased}
}

func message(id, payload string) inbox.Message {
	return inbox.Message{ID: id, Payload: []byte(payload), Attributes: map[string]string{"topic": "charges"}}
}

// redelivered is a message as its source delivers it the n-th time.
func redelivered(id, payload string, n int) inbox.Message {
	msg := message(id, payload)
	msg.Deliveries = n
	return msg
}

// want processes a message and checks the verdict; the error must come with Again.
func (p processor) wantVerdict(t *testing.T, msg inbox.Message, want inbox.Verdict) *onlyonce.Error {
	t.Helper()
	got, err := p.process(t.Context(), msg)
	if got != want {
		t.Fatalf("verdict on %s is %v (%v), want %v", msg.ID, got, err, want)
	}
	if err == nil && want == inbox.Again {
		t.Fatal("Again without an error")
	}
	if err != nil && (want == inbox.Handled || want == inbox.Duplicate) {
		t.Fatalf("%v with the error %v", want, err)
	}
	e, ok := errors.AsType[*onlyonce.Error](err)
	if err != nil && !ok {
		t.Fatalf("the error is no *onlyonce.Error: %v", err)
	}
	return e
}

// park lets a message fail until it is parked.
func (p processor) park(t *testing.T, msg inbox.Message) inbox.Entry {
	t.Helper()
	p.before = func(inbox.Message) error { return errBroken }
	defer func() { p.before = nil }()
	for range p.w.cfg.MaxTries - 1 {
		p.wantVerdict(t, msg, inbox.Again)
	}
	if err := p.wantVerdict(t, msg, inbox.Parked); !errors.Is(err, errBroken) {
		t.Errorf("parked for %v", err)
	}
	return p.show(t, msg.ID)
}

func (p processor) show(t *testing.T, id string) inbox.Entry {
	t.Helper()
	e, err := inbox.Show(t.Context(), p.w.mem, p.w.cfg.Consumer, id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (p processor) act(id string) inbox.Act {
	return inbox.Act{Consumer: p.w.cfg.Consumer, ID: id, Actor: "ana", Reason: "the account is open again"}
}

// retry asks for another try, and gives it.
func (p processor) retry(t *testing.T, id string) onlyonce.RecoverySum {
	t.Helper()
	if _, err := inbox.Retry(t.Context(), p.w.mem, p.act(id)); err != nil {
		t.Fatal(err)
	}
	return p.look(t)
}

func (p processor) look(t *testing.T) onlyonce.RecoverySum {
	t.Helper()
	sum, err := p.recoverer.Once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func wantCode(t *testing.T, err error, code onlyonce.Code) {
	t.Helper()
	if onlyonce.CodeOf(err) != code {
		t.Errorf("got error %v, want code %s", err, code)
	}
}

// sum is the canonical form of a payload, as an inbox has it.
type sum string

func (sum) Version() int { return 1 }

func (s sum) Form(int, []byte) (onlyonce.Form, error) { return sumForm(sha256.Sum256([]byte(s))), nil }

type sumForm [32]byte

func (f sumForm) Sum() [32]byte { return f }

func (sumForm) Parts() []onlyonce.Part { return nil }

func (sumForm) Differs([]string, func(int, [32]byte) bool) []string { return nil }

// pass lets time pass in a bubble of synctest.
func pass(d time.Duration) { time.Sleep(d) } // in a bubble of synctest, whose clock it is

// sweep does one batch of housekeeping.
func sweep(t *testing.T, mem *memstore.Store) {
	t.Helper()
	if _, err := mem.Sweep(t.Context(), onlyonce.SweepRequest{Limit: 10}); err != nil {
		t.Fatal(err)
	}
}
