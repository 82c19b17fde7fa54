package natsinbox

import (
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/adapters/internal/consume"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// Attributes of a message beside its headers, which they win over.
const (
	AttributeSubject  = "nats.subject"
	AttributeStream   = "nats.stream"
	AttributeSequence = "nats.sequence"
	// AttributeTime is when the stream took the message, in RFC 3339.
	AttributeTime = "nats.time"
)

// Header takes the id from a header of the message. A header that is missing or empty, or
// there twice with different values, is no id. Names are compared as they are.
func Header(name string) func(jetstream.Msg) string {
	return func(m jetstream.Msg) string {
		values := m.Headers()[name]
		for _, v := range values {
			if v != values[0] {
				return ""
			}
		}
		if len(values) == 0 {
			return ""
		}
		return values[0]
	}
}

// Position is the id of a message that has none of its publisher: where it lies, and since
// when. A stream that is deleted and made anew counts from one again; the time tells
// its messages from those before.
func Position(m jetstream.Msg) string {
	meta, err := m.Metadata()
	if err != nil {
		return ""
	}
	return "position/" + meta.Stream + "/" + strconv.FormatUint(meta.Sequence.Stream, 10) + "/" + strconv.FormatInt(meta.Timestamp.UnixNano(), 10)
}

// message is a delivery as the inbox takes it, and who is to handle it.
func (c Config) message(m jetstream.Msg, meta *jetstream.MsgMetadata) (inbox.ProcessFunc, inbox.Message) {
	msg := inbox.Message{ID: consume.ID(c.ID, m), Payload: m.Data(), Attributes: attributes(m, meta), Deliveries: int(meta.NumDelivered)}
	if msg.ID == "" {
		msg.ID = Position(m)
		return c.WithoutID, msg
	}
	return c.Process, msg
}

// attributes are the headers, several values of one joined by commas, and where the
// message lies.
func attributes(m jetstream.Msg, meta *jetstream.MsgMetadata) map[string]string {
	a := make(map[string]string, len(m.Headers())+4)
	for name, values := range m.Headers() {
		a[name] = strings.Join(values, ", ")
	}
	a[AttributeSubject] = m.Subject()
	a[AttributeStream] = meta.Stream
	a[AttributeSequence] = strconv.FormatUint(meta.Sequence.Stream, 10)
	a[AttributeTime] = meta.Timestamp.UTC().Format(time.RFC3339Nano)
	return a
}
