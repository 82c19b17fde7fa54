package watermillinbox

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// Middleware puts an inbox before Watermill handlers. The process function ends in [Next]
// or [NextTx], which calls the handler:
//
//	func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
//		return box.Process(ctx, msg, watermillinbox.Next)
//	}
//
// With an Inbox the handler calls others in steps, by the context of its message; with a
// TxInbox and NextTx it writes in the transaction that TxFrom gives it. It is safe for
// concurrent use.
//
// Two handlers of one topic are two consumers, each of which is to have every message: with
// one inbox, the second would find duplicates. So one middleware refuses a second handler
// of a topic, by an error at its first message: give each handler a middleware of its own,
// with Handler.AddMiddleware. Handlers that share a topic's messages among them may
// have middlewares with one process function.
func Middleware(process inbox.ProcessFunc, cfg Config) (message.HandlerMiddleware, error) {
	if process == nil {
		return nil, configError("process must be set: a closure over the inbox's Process and Next")
	}
	a := adapter{process, cfg.WithDefaults()}
	var consumers consumers
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(m *message.Message) ([]*message.Message, error) {
			if err := consumers.check(m.Context()); err != nil {
				return nil, err
			}
			n := &next{handler: h, lose: a.cfg.LoseProduced}
			verdict, err := a.deliver(context.WithValue(m.Context(), nextKey{}, n), m)
			if verdict != inbox.Handled {
				return nil, err // a run that has failed may still be at it
			}
			return n.produced, nil
		}
	}, nil
}

// consumers are the handlers behind one middleware, by the topic they consume.
type consumers struct{ byTopic sync.Map }

// check refuses a second handler of a topic. Outside of a router there are no names.
func (c *consumers) check(ctx context.Context) error {
	topic, handler := message.SubscribeTopicFromCtx(ctx), message.HandlerNameFromCtx(ctx)
	if handler == "" {
		return nil
	}
	if first, _ := c.byTopic.LoadOrStore(topic, handler); first != handler {
		return configError("handlers %q and %q consume topic %q behind one middleware, so that the second would find only duplicates: "+
			"give each a middleware of its own, with an inbox of its own if both are to have every message", first, handler, topic)
	}
	return nil
}

// next is the handler behind the middleware, for one delivery.
type next struct {
	handler message.HandlerFunc
	lose    bool
	// produced is what the last run returned. The inbox runs the handler again only when
	// the run before was rolled back.
	produced []*message.Message
}

type nextKey struct{}

// Next calls the handler behind Middleware, as the handler of an [inbox.Inbox]. The
// handler's message has ctx, which steps need, as its context.
func Next(ctx context.Context, _ inbox.Message) error {
	n, _ := ctx.Value(nextKey{}).(*next)
	m := MessageFrom(ctx)
	if n == nil || m == nil {
		return configError("Next and NextTx are for process functions of Middleware")
	}
	m = m.Copy()
	m.SetContext(ctx)
	n.produced = nil
	produced, err := n.handler(m)
	if err != nil {
		return err
	}
	if len(produced) > 0 && !n.lose {
		return errProduced()
	}
	n.produced = produced
	return nil
}

// NextTx calls the handler behind Middleware, as the handler of an [inbox.TxInbox]. TxFrom
// gives it the transaction.
func NextTx[Tx any](ctx context.Context, tx Tx, msg inbox.Message) error {
	return Next(context.WithValue(ctx, txKey[Tx]{}, tx), msg)
}

type txKey[Tx any] struct{}

// TxFrom is the inbox's transaction, by the context of the message that a handler behind
// NextTx was given. It must not be kept, committed or rolled back.
func TxFrom[Tx any](ctx context.Context) (Tx, bool) {
	tx, ok := ctx.Value(txKey[Tx]{}).(Tx)
	return tx, ok
}

// errProduced refuses what would be lost with a crash.
func errProduced() error {
	return &onlyonce.Error{
		Code: onlyonce.CodeConfig, Op: "handle message", Err: errors.New("the handler returned messages to publish"),
		Hint: "a crash after the inbox's commit would lose them: write them to an outbox in the same transaction, or set Config.LoseProduced",
	}
}
