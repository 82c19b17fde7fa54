package broker

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments/event"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// Publisher publishes messages, one call at a time; calls wait for each other. Close it
// in the end.
type Publisher interface {
	// Publish sends the messages in their order, and returns nil when the broker has
	// confirmed that it keeps each of them. After an error, or when ctx has ended, any of
	// them may have arrived, or none. It connects when it is first called, and again
	// after an error, and makes what the messages need there: an exchange, a stream or a
	// topic.
	Publish(ctx context.Context, msgs []inbox.Message) error
	// Close ends the connection.
	Close() error
}

// NewPublisher makes a Publisher. It connects to nothing.
func NewPublisher(a Address) Publisher {
	switch a.kind {
	case rabbitMQ:
		return &amqpPublisher{address: a}
	case jetStream:
		return &natsPublisher{address: a}
	default:
		return &kafkaPublisher{address: a}
	}
}

// keep is how long a stream or a topic that is made here keeps events, taken or not. An
// inbox remembers them for twice as long: who reads them again from the beginning finds
// them handled.
const keep = 7 * 24 * time.Hour

// kindOf is what a message is routed by.
func kindOf(msg inbox.Message) string {
	if kind := msg.Attributes[event.KindAttribute]; kind != "" {
		return kind
	}
	return "other"
}
