package natsinbox

import (
	"time"

	"github.com/onlyonce-go/onlyonce/inbox"
)

// EventKind names something that happened to a Consumer.
type EventKind string

// The events.
const (
	// EventConsuming: the consumer was found and messages are pulled from it.
	EventConsuming EventKind = "consuming"
	// EventProcessed: a delivery has its verdict. Err says why, unless it was handled or is
	// a duplicate.
	EventProcessed EventKind = "processed"
	// EventUnsettled: the server was not told, or has not confirmed, what became of a
	// message. If it does not know, the message comes again after AckWait, if it was handled
	// as a duplicate.
	EventUnsettled EventKind = "unsettled"
	// EventLost: messages could not be pulled, or the consumer not be found. It is tried
	// again after Wait.
	EventLost EventKind = "lost"
)

// Event is one thing that happened.
type Event struct {
	Kind EventKind
	// MessageID and Deliveries say which message, where it is about one.
	MessageID  string
	Deliveries int
	// Verdict is set with EventProcessed.
	Verdict inbox.Verdict
	// Wait is the delay before the message comes again, with the verdict Again, or the
	// pause before the server is tried again.
	Wait time.Duration
	// Err is why, where something failed.
	Err error
}
