package watermillinbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/watermillinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const topic = "payments"

// world is a router with a publisher and subscriber in memory, which delivers a nacked
// message again at once, and an inbox with what took effect by it.
type world struct {
	t      *testing.T
	pubsub *gochannel.GoChannel
	router *message.Router
	box    *inbox.TxInbox[*memstore.Tx]
	engine *onlyonce.TxEngine[*memstore.Tx]

	mu       sync.Mutex
	effects  []string
	verdicts []inbox.Verdict
}

func newWorld(t *testing.T) *world {
	t.Helper()
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t}
	w.engine, err = onlyonce.NewTx(store, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w.box, err = inbox.NewTx(w.engine, inbox.Config{Consumer: "balances"})
	if err != nil {
		t.Fatal(err)
	}
	// Publish returns when the message is acknowledged: no test has to wait.
	w.pubsub = gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	w.router, err = message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// run starts the router, and ends it with the test.
func (w *world) run() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.router.Run(ctx) }()
	<-w.router.Running()
	w.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, w.pubsub.Close(), w.engine.Close(context.WithoutCancel(w.t.Context()))); err != nil {
			w.t.Error(err)
		}
	})
}

// publish publishes a message and waits until it is acknowledged.
func (w *world) publish(id, payload string) {
	w.t.Helper()
	if err := w.pubsub.Publish(topic, message.NewMessage(id, []byte(payload))); err != nil {
		w.t.Fatal(err)
	}
}

// effect takes effect with the transaction.
func (w *world) effect(tx *memstore.Tx, name string) {
	tx.OnCommit(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.effects = append(w.effects, name)
	})
}

// want wants these effects, in their order.
func (w *world) want(names ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	wantEqual(w.t, "effects", w.effects, names)
}

// wantVerdicts wants these verdicts, in their order.
func (w *world) wantVerdicts(verdicts ...inbox.Verdict) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	wantEqual(w.t, "verdicts", w.verdicts, verdicts)
}

// config notes verdicts.
func (w *world) config() watermillinbox.Config {
	return watermillinbox.Config{Observe: func(_ inbox.Message, v inbox.Verdict, _ error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.verdicts = append(w.verdicts, v)
	}}
}

// handle adds a handler made of a function in the inbox's transaction.
func (w *world) handle(cfg watermillinbox.Config, handler inbox.TxHandlerFunc[*memstore.Tx]) {
	w.t.Helper()
	h, err := watermillinbox.Handler(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		return w.box.Process(ctx, msg, handler)
	}, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.router.AddConsumerHandler("credit", topic, w.pubsub, h)
}

// middleware is the inbox before handlers of its transaction.
func (w *world) middleware(cfg watermillinbox.Config) message.HandlerMiddleware {
	w.t.Helper()
	mw, err := watermillinbox.Middleware(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		return w.box.Process(ctx, msg, watermillinbox.NextTx[*memstore.Tx])
	}, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return mw
}
