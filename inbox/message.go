package inbox

import (
	"bytes"
	"context"
	"maps"
)

// Message is one message as its source delivers it.
type Message struct {
	// ID is the source's or the publisher's name for the message, the same on every
	// delivery. Required. IDs that are no idempotency key (longer than 255 bytes, or not
	// printable ASCII) are told apart by their SHA-256.
	ID string
	// Payload is compared, byte for byte, with what was handled under the id before.
	Payload []byte
	// Attributes are what came beside the payload: headers, a topic. They are kept with
	// a parked message and are not compared.
	Attributes map[string]string
	// Deliveries is how often the source says it has delivered the message, this time
	// included; 0: it does not say. It counts crashes, which leave no trace here.
	Deliveries int
}

// own is the message for one run of a handler, which may change it: the next run, and what
// is parked, must have what came.
func (m Message) own() Message {
	m.Payload, m.Attributes = bytes.Clone(m.Payload), maps.Clone(m.Attributes)
	return m
}

// Verdict is what became of a delivery.
type Verdict uint8

// The verdicts.
const (
	// Again: nothing is recorded of this delivery; it must come again. The error says
	// why, and the *onlyonce.Error's RetryAfter when.
	Again Verdict = iota
	// Handled: the handler has run, and its effect is committed.
	Handled
	// Duplicate: it was handled before; nothing has run.
	Duplicate
	// Parked: it is kept for a person, now or from before; nothing more comes of it by
	// itself.
	Parked
)

// Ack tells whether the source may forget the message.
func (v Verdict) Ack() bool { return v == Handled || v == Duplicate || v == Parked }

// String is the verdict's name.
func (v Verdict) String() string {
	names := [...]string{"again", "handled", "duplicate", "parked"}
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown"
}

// ProcessFunc handles one delivery by an inbox. It is what the adapters of brokers
// call: a closure over [TxInbox.Process] or [Inbox.Process] and the handler.
//
// The error is nil unless the verdict is Again, or Parked by this very delivery; then it
// is why.
type ProcessFunc func(ctx context.Context, msg Message) (Verdict, error)
