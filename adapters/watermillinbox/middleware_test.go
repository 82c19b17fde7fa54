package watermillinbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/watermillinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// failsFirst writes, and then fails so many times.
func (w *world) failsFirst(times int) message.NoPublishHandlerFunc {
	tries := 0
	return func(m *message.Message) error {
		tx, ok := watermillinbox.TxFrom[*memstore.Tx](m.Context())
		if !ok {
			return errors.New("no transaction")
		}
		w.effect(tx, m.UUID)
		if tries++; tries <= times {
			return errors.New("not now")
		}
		return nil
	}
}

func retry(times int) message.HandlerMiddleware {
	return middleware.Retry{MaxRetries: times, InitialInterval: time.Microsecond}.Middleware
}

// poison is a poison queue and the messages that went there.
func (w *world) poison(accepts func(error) bool) (message.HandlerMiddleware, <-chan *message.Message) {
	w.t.Helper()
	queue, err := w.pubsub.Subscribe(w.t.Context(), "poison")
	if err != nil {
		w.t.Fatal(err)
	}
	got := make(chan *message.Message, 9)
	go func() {
		for m := range queue {
			got <- m.Copy()
			m.Ack()
		}
	}()
	mw, err := middleware.PoisonQueueWithFilter(w.pubsub, "poison", accepts)
	if err != nil {
		w.t.Fatal(err)
	}
	return mw, got
}

// B113: outside of the inbox, Retry repeats whole deliveries, each in a transaction of its
// own, and one effect is left.
func TestRetryOutside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.router.AddMiddleware(retry(5), w.middleware(w.config()))
	w.router.AddConsumerHandler("credit", topic, w.pubsub, w.failsFirst(2))
	w.run()
	w.publish("m", "p")
	w.publish("m", "p")
	w.want("m")
	w.wantVerdicts(inbox.Again, inbox.Again, inbox.Handled, inbox.Duplicate)
}

// Inside, it repeats the handler in one transaction: the wrong order, which the package's
// documentation warns of, has the effects of the failed runs as well.
func TestRetryInsideRepeatsEffects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.router.AddMiddleware(w.middleware(w.config()), retry(5))
	w.router.AddConsumerHandler("credit", topic, w.pubsub, w.failsFirst(2))
	w.run()
	w.publish("m", "p")
	w.want("m", "m", "m")
}

// Outside of the inbox, a poison queue takes a message of which nothing is left; published
// again under its id, it is handled.
func TestPoisonOutside(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	poison, got := w.poison(func(error) bool { return true })
	w.router.AddMiddleware(poison, retry(1), w.middleware(w.config()))
	w.router.AddConsumerHandler("credit", topic, w.pubsub, w.failsFirst(2))
	w.run()
	w.publish("m", "p")
	m := <-got
	w.want()
	w.publish(m.UUID, string(m.Payload))
	w.want("m")
	w.wantVerdicts(inbox.Again, inbox.Again, inbox.Handled)
}

// Inside, it makes a success of the failure: the wrong order commits what the failed run
// wrote, and remembers the message as handled.
func TestPoisonInsideCommitsTheFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	poison, got := w.poison(func(error) bool { return true })
	w.router.AddMiddleware(w.middleware(w.config()), poison)
	w.router.AddConsumerHandler("credit", topic, w.pubsub, w.failsFirst(9))
	w.run()
	w.publish("m", "p")
	<-got
	w.want("m")
	w.wantVerdicts(inbox.Handled)
}

// A poison queue with a filter takes messages that can never be handled, and leaves the
// others to the inbox, which parks them.
func TestPoisonWithFilter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	poison, got := w.poison(func(err error) bool { return onlyonce.CodeOf(err) == onlyonce.CodeKeyRequired })
	w.router.AddMiddleware(poison, w.middleware(w.config()))
	w.router.AddConsumerHandler("credit", topic, w.pubsub, w.failsFirst(9))
	w.run()
	w.publish("", "no id")
	if m := <-got; string(m.Payload) != "no id" {
		t.Errorf("in the poison queue: %q", m.Payload)
	}
	w.publish("m", "p")
	w.want()
	w.wantVerdicts(inbox.Again, inbox.Again, inbox.Again, inbox.Again, inbox.Parked)
	if len(got) > 0 {
		t.Error("a parked message is in the poison queue too")
	}
}

// B114: messages that a handler returns would be lost with a crash: they are refused before
// anything is committed.
func TestProducedAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := message.NewMessage("m", nil)
	_, err := w.middleware(w.config())(func(m *message.Message) ([]*message.Message, error) {
		tx, _ := watermillinbox.TxFrom[*memstore.Tx](m.Context())
		w.effect(tx, m.UUID)
		return []*message.Message{message.NewMessage("out", nil)}, nil
	})(m)
	if err == nil || !strings.Contains(err.Error(), "outbox") {
		t.Errorf("err = %v", err)
	}
	w.want()
	w.wantVerdicts(inbox.Again)
}

// B114: where losing them is accepted, a duplicate publishes nothing, nor does a failed run.
func TestLoseProduced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := w.config()
	cfg.LoseProduced = true
	tries := 0
	h := w.middleware(cfg)(func(m *message.Message) ([]*message.Message, error) {
		out := []*message.Message{message.NewMessage("out", nil)}
		if tries++; tries == 1 {
			return out, errors.New("not now")
		}
		return out, nil
	})
	for i, want := range []int{0, 1, 0} {
		out, err := h(message.NewMessage("m", nil))
		if len(out) != want || (err != nil) != (i == 0) {
			t.Errorf("delivery %d: %d messages, %v", i, len(out), err)
		}
	}
	w.wantVerdicts(inbox.Again, inbox.Handled, inbox.Duplicate)
}

// B113: a handler that acknowledges by itself, before its transaction is committed,
// acknowledges nothing.
func TestHandlersOwnAck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tries := 0
	w.router.AddMiddleware(w.middleware(w.config()))
	w.router.AddConsumerHandler("credit", topic, w.pubsub, func(m *message.Message) error {
		m.Ack()
		if tries++; tries == 1 {
			return errors.New("after the ack")
		}
		return nil
	})
	w.run()
	w.publish("m", "p")
	w.wantVerdicts(inbox.Again, inbox.Handled)
}

// D1, B117: with the leased inbox, a handler's steps have keys that come of the message, the
// same on each delivery, and a finished step is not repeated.
func TestSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box, err := inbox.New(w.engine.Engine, inbox.Config{Consumer: "mailer"})
	if err != nil {
		t.Fatal(err)
	}
	mw, err := watermillinbox.Middleware(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		return box.Process(ctx, msg, watermillinbox.Next)
	}, w.config())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	tries := 0
	w.router.AddMiddleware(mw)
	w.router.AddConsumerHandler("notify", topic, w.pubsub, func(m *message.Message) error {
		_, err := onlyonce.Call(m.Context(), onlyonce.Effect{
			Name: "notify", Provider: "mailer", Request: m.Payload,
			Send: func(_ context.Context, s onlyonce.Sending) ([]byte, error) {
				keys = append(keys, s.Key)
				return []byte("sent"), nil
			},
		})
		if tries++; err == nil && tries == 1 {
			return errors.New("after the call")
		}
		return err
	})
	w.run()
	w.publish("m", "p")
	w.publish("m", "p")
	w.wantVerdicts(inbox.Again, inbox.Handled, inbox.Duplicate)
	if len(keys) != 1 || keys[0] == "" || tries != 2 {
		t.Errorf("%d runs sent %q", tries, keys)
	}
}

// Outside of the middleware, Next has nobody to call, and there is no transaction.
func TestNextElsewhere(t *testing.T) {
	t.Parallel()
	if err := watermillinbox.Next(t.Context(), inbox.Message{}); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("next: %v", err)
	}
	if _, ok := watermillinbox.TxFrom[*memstore.Tx](t.Context()); ok {
		t.Error("a transaction out of nowhere")
	}
}

// I3: two handlers of one topic must not share an inbox: the second is refused, its message
// nacked and not taken for a duplicate.
func TestTwoHandlersOfATopic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	refused := make(chan error, 99)
	see := func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			out, err := h(m)
			if onlyonce.CodeOf(err) == onlyonce.CodeConfig {
				refused <- err
				return out, nil // or it would come again for ever
			}
			return out, err
		}
	}
	w.router.AddMiddleware(see, w.middleware(w.config()))
	w.router.AddConsumerHandler("credit", topic, w.pubsub, w.failsFirst(0))
	w.router.AddConsumerHandler("notify", topic, w.pubsub, w.failsFirst(0))
	w.run()
	w.publish("m", "p")
	if err := <-refused; !strings.Contains(err.Error(), "credit") || !strings.Contains(err.Error(), "notify") {
		t.Error(err)
	}
	w.want("m")
	w.wantVerdicts(inbox.Handled)
}

// I3: with an inbox each, both have the message.
func TestTwoConsumers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other, err := inbox.NewTx(w.engine, inbox.Config{Consumer: "statistics"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := watermillinbox.Middleware(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		return other.Process(ctx, msg, watermillinbox.NextTx[*memstore.Tx])
	}, w.config())
	if err != nil {
		t.Fatal(err)
	}
	w.router.AddConsumerHandler("credit", topic, w.pubsub, w.failsFirst(1)).AddMiddleware(w.middleware(w.config()))
	w.router.AddConsumerHandler("count", topic, w.pubsub, w.failsFirst(1)).AddMiddleware(second)
	w.run()
	w.publish("m", "p")
	w.publish("m", "p")
	w.want("m", "m")
}
