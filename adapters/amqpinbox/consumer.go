package amqpinbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/consume"
)

// Consumer consumes a queue. Safe for concurrent use.
type Consumer struct{ cfg Config }

// New makes a Consumer. It connects to nothing. A bad configuration is refused with an
// *onlyonce.Error of code CodeConfig.
func New(cfg Config) (*Consumer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Consumer{cfg.WithDefaults()}, nil
}

// Run consumes the queue until ctx is done. Then it begins no message any more, lets
// those that are being handled end (Config.Drain) and acknowledges them, closes its
// connection, by which the broker gets back the others, and returns nil. Each call is a
// consumer of its own.
//
// A connection that is lost, or cannot be made, is tried again for ever, and told to
// Config.Observe. An *onlyonce.Error is returned
//
//   - with CodeConfig, when the broker has refused the queue for Config.Patience: it does
//     not exist, was deleted, or may not be read;
//   - with CodeKeyRequired, when a message has no id, and Config.WithoutID is Stop.
//
// Run does not return before every handler has.
func (c *Consumer) Run(ctx context.Context) error {
	r := &run{cfg: c.cfg, hands: consume.NewHands(ctx, c.cfg.Concurrency, c.cfg.Drain)}
	defer r.hands.Close()
	return r.run(ctx)
}

// run is one call of Run: connections, one after the other, and the messages in hand,
// which may outlive the connection that they came by.
type run struct {
	cfg   Config
	hands *consume.Hands

	failures int           // since a connection has lasted
	refused  time.Duration // how long the broker has refused the queue
}

// run keeps the queue consumed until ctx is done or it makes no sense any more.
func (r *run) run(ctx context.Context) error {
	for {
		err := r.session(ctx)
		if final, ok := errors.AsType[*onlyonce.Error](err); ok {
			return final
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the connection of a consumer that ends may break
		}
		r.failures++
		wait := r.cfg.backoff().Pause(r.failures, nil)
		if isRefusal(err) {
			if r.refused >= r.cfg.Patience {
				return r.refusal(err)
			}
			wait = min(wait, r.cfg.Patience-r.refused)
			r.refused += wait
		}
		r.cfg.Observe(Event{Kind: EventLost, Wait: wait, Err: err})
		if !consume.Sleep(ctx, wait) {
			return nil
		}
	}
}

// isRefusal tells whether the broker has answered that it will not, in contrast to
// having been unable to.
func isRefusal(err error) bool {
	e, ok := errors.AsType[*amqp091.Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case amqp091.AccessRefused, amqp091.NotFound, amqp091.ResourceLocked, amqp091.NotAllowed, amqp091.NotImplemented:
		return true
	default:
		return false
	}
}

func (r *run) refusal(err error) error {
	return &onlyonce.Error{
		Code: onlyonce.CodeConfig, Op: "consume queue", Err: err,
		Hint: fmt.Sprintf("the broker has refused queue %q for %v: declare it, or give the user the right to read it, and start again",
			r.cfg.Queue, r.cfg.Patience),
	}
}
