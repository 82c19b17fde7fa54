package amqpinbox

import (
	"time"

	"github.com/onlyonce-go/onlyonce/inbox"
)

// EventKind names something that happened to a Consumer.
type EventKind string

// The events.
const (
	// EventConsuming: the broker delivers the queue's messages to this consumer.
	EventConsuming EventKind = "consuming"
	// EventProcessed: a try has its verdict. Err says why, unless the message was handled
	// or is a duplicate.
	EventProcessed EventKind = "processed"
	// EventGivenBack: a message was tried in hand for Config.Hold and is in the queue again.
	EventGivenBack EventKind = "given_back"
	// EventRejected: a message without an id was rejected, for the queue's dead-letter
	// exchange.
	EventRejected EventKind = "rejected"
	// EventUnsettled: an ack, or what else ends a delivery, could not be sent, because
	// its channel is gone. The message comes again, if it was handled as a duplicate.
	EventUnsettled EventKind = "unsettled"
	// EventLost: there was no connection, or it or its channel broke, or the broker ended
	// the consumer. It is tried again after Wait.
	EventLost EventKind = "lost"
)

// Event is one thing that happened.
type Event struct {
	Kind EventKind
	// MessageID and Deliveries say which message, where it is about one.
	MessageID  string
	Deliveries int
	// Verdict and Try (from 1, in hand) are set with EventProcessed.
	Verdict inbox.Verdict
	Try     int
	// Wait is the pause before the next try: of the message, with the verdict Again, or
	// of the broker.
	Wait time.Duration
	// Err is why, where something failed.
	Err error
}
