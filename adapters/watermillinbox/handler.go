package watermillinbox

import (
	"context"
	"errors"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onlyonce-go/onlyonce/adapters/internal/consume"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// Handler makes a Watermill handler of an inbox's process function, for
// Router.AddConsumerHandler. The process function reaches Watermill's own message by
// [MessageFrom]. It is safe for concurrent use.
func Handler(process inbox.ProcessFunc, cfg Config) (message.NoPublishHandlerFunc, error) {
	if process == nil {
		return nil, configError("process must be set: a closure over the inbox's Process and the handler")
	}
	a := adapter{process, cfg.WithDefaults()}
	return func(m *message.Message) error {
		_, err := a.deliver(m.Context(), m)
		return err
	}, nil
}

// adapter stands between a delivery of Watermill's and an inbox.
type adapter struct {
	process inbox.ProcessFunc
	cfg     Config
}

// deliver handles one delivery; a nil error acknowledges it.
func (a adapter) deliver(ctx context.Context, m *message.Message) (inbox.Verdict, error) {
	id := consume.ID(a.cfg.ID, m)
	if id == "" {
		return inbox.Again, a.cfg.WithoutID(m)
	}
	msg := inbox.Message{
		ID: id, Payload: m.Payload, Attributes: maps.Clone(map[string]string(m.Metadata)), Deliveries: a.cfg.Deliveries(m),
	}
	verdict, err := a.process(context.WithValue(ctx, messageKey{}, m.Copy()), msg)
	a.cfg.Observe(msg, verdict, err)
	switch {
	case verdict.Ack():
		return verdict, nil
	case err == nil:
		return verdict, errAgain
	default:
		return verdict, err
	}
}

// errAgain is the error of a process function that gave none.
var errAgain = errors.New("message must come again")

type messageKey struct{}

// MessageFrom is Watermill's message of the delivery that ctx belongs to, in a process
// function or in what an inbox runs; nil elsewhere. It is a copy: to acknowledge it does
// nothing.
func MessageFrom(ctx context.Context) *message.Message {
	m, _ := ctx.Value(messageKey{}).(*message.Message)
	return m
}
