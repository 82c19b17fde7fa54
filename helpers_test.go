package onlyonce_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// text is a request that is just a text. Its policies: "lower" folds case,
// anything else does not.
type text string

func (t text) Version() int { return 1 }

func (t text) Form(version int, policy []byte) (onlyonce.Form, error) {
	if version != 1 {
		return nil, errors.New("unknown version")
	}
	if string(policy) == "lower" {
		return textForm(strings.ToLower(string(t))), nil
	}
	return textForm(t), nil
}

type textForm string

func (f textForm) Sum() [32]byte          { return sha256.Sum256([]byte(f)) }
func (f textForm) Parts() []onlyonce.Part { return []onlyonce.Part{{Name: "body", Sum: f.Sum()}} }
func (f textForm) Differs(_ []string, same func(int, [32]byte) bool) []string {
	if same(0, f.Sum()) {
		return nil
	}
	return []string{"body"}
}

// world is an engine on a memory store that fails on a script.
type world struct {
	*onlyonce.TxEngine[*memstore.Tx]
	mem    *memstore.Store
	events *events
}

type faults = map[storefault.Method][]storefault.Fault

func newWorld(t *testing.T, script faults) *world {
	t.Helper()
	return newWorldWith(t, storefault.Script(script), onlyonce.Config{})
}

func newWorldWith(t *testing.T, inject storefault.Injector, cfg onlyonce.Config) *world {
	t.Helper()
	mem, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	return worldOn(t, mem, inject, cfg)
}

// worldOn is another process on the same store.
func worldOn(t *testing.T, mem *memstore.Store, inject storefault.Injector, cfg onlyonce.Config) *world {
	t.Helper()
	seen := &events{}
	cfg.Observer = seen
	e, err := onlyonce.NewTx(storefault.NewTx(mem, inject), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// 50 tries behind a request may take 5 s each.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Errorf("close engine: %v", err)
		}
	})
	return &world{TxEngine: e, mem: mem, events: seen}
}

func noFaults(storefault.Method, onlyonce.Key) storefault.Fault { return storefault.Fault{} }

// events remembers what an engine said.
type events struct {
	mu   sync.Mutex
	seen []onlyonce.Event
}

func (e *events) Observe(_ context.Context, ev onlyonce.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, ev)
}

func (e *events) count(kind onlyonce.EventKind) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, ev := range e.seen {
		if ev.Kind == kind {
			n++
		}
	}
	return n
}

func charge() onlyonce.Op { return onlyonce.Op{Name: "POST /charges"} }

func keyed(value, body string) onlyonce.Request {
	return onlyonce.Request{Key: onlyonce.Key{Scope: "acct", Value: value}, Canonical: text(body)}
}

// effect counts how often it happened and answers 201 with a body that says
// which run it was.
type effect struct{ n atomic.Int32 }

func (e *effect) handler(context.Context) (onlyonce.Answer, error) {
	return answer(201, "run "+string('0'+rune(e.n.Add(1)))), nil
}

func (e *effect) want(t *testing.T, n int) {
	t.Helper()
	if got := int(e.n.Load()); got != n {
		t.Errorf("%d effects, want %d", got, n)
	}
}

func answer(status int, body string) onlyonce.Answer {
	return onlyonce.Answer{Status: status, Header: map[string][]string{"Content-Type": {"text/plain"}}, Body: []byte(body)}
}

func responds(status int, body string) onlyonce.HandlerFunc {
	return func(context.Context) (onlyonce.Answer, error) { return answer(status, body), nil }
}

func never(t *testing.T) onlyonce.HandlerFunc {
	t.Helper()
	return func(context.Context) (onlyonce.Answer, error) {
		t.Error("the handler ran")
		return answer(500, ""), nil
	}
}

// wantResult checks an answer and how it came about.
func wantResult(t *testing.T, res onlyonce.Result, err error, status onlyonce.Status, body string) {
	t.Helper()
	if err != nil {
		t.Fatalf("got %v, want %s %q", err, status, body)
	}
	if res.Status != status || string(res.Answer.Body) != body {
		t.Fatalf("got %s %q, want %s %q", res.Status, res.Answer.Body, status, body)
	}
}

func wantCode(t *testing.T, err error, code onlyonce.Code) *onlyonce.Error {
	t.Helper()
	e, ok := errors.AsType[*onlyonce.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("got error %v, want code %s", err, code)
	}
	return e
}

func (w *world) state(t *testing.T, key string) onlyonce.State {
	t.Helper()
	rec, _, err := w.mem.Get(t.Context(), onlyonce.Key{Scope: "acct", Value: key})
	if err != nil {
		t.Fatal(err)
	}
	return rec.State
}

func (w *world) wantState(t *testing.T, key string, want onlyonce.State) {
	t.Helper()
	if got := w.state(t, key); got != want {
		t.Errorf("key %s is %q, want %q", key, got, want)
	}
}

// dying is a process on the same store that is killed before it can settle
// anything: no write that ends an attempt arrives any more.
func (w *world) dying(t *testing.T) *world {
	t.Helper()
	lost := []storefault.Method{storefault.Renew, storefault.Complete, storefault.Release, storefault.Park, storefault.EndStep, storefault.Finish}
	inject := func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
		if slices.Contains(lost, m) {
			return storefault.Fault{Before: storefault.ErrDown}
		}
		return storefault.Fault{}
	}
	e, err := onlyonce.NewTx(storefault.NewTx(w.mem, inject), onlyonce.Config{SettleTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	dying := &world{TxEngine: e, mem: w.mem}
	t.Cleanup(dying.die)
	return dying
}

// die ends what a dying process still tries: what it has not stored dies with it.
func (w *world) die() {
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	_ = w.Close(dead)
}

// crash runs an operation in a process that dies in the middle of it.
func (w *world) crash(t *testing.T, op onlyonce.Op, req onlyonce.Request, handler onlyonce.HandlerFunc) {
	t.Helper()
	dying := w.dying(t)
	defer dying.die()
	if _, err := dying.Wrap(t.Context(), op, req, handler); err == nil {
		t.Fatal("the dying process answered")
	}
}

// crashSteps is crash for an operation of steps.
func (w *world) crashSteps(t *testing.T, op onlyonce.Op, req onlyonce.Request, handler onlyonce.HandlerFunc) {
	t.Helper()
	dying := w.dying(t)
	defer dying.die()
	if _, err := dying.Steps(t.Context(), op, req, handler); err == nil {
		t.Fatal("the dying process answered")
	}
}

// step writes a row as a step, whose result it names.
func (l *ledger) step(result string) func(context.Context, tx) (string, error) {
	return func(_ context.Context, tx tx) (string, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.runs++
		tx.OnCommit(func() { l.rows++ })
		return result, nil
	}
}
