package kafkainbox

import (
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce/adapters/internal/consume"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// DefaultHeader is the header that bears a record's id by default.
const DefaultHeader = "message-id"

// Attributes of a message beside the record's headers, which they win over.
const (
	AttributeTopic     = "kafka.topic"
	AttributePartition = "kafka.partition"
	AttributeOffset    = "kafka.offset"
	// AttributeKey is the record's key, where it has one.
	AttributeKey = "kafka.key"
	// AttributeTime is the record's time stamp, in RFC 3339.
	AttributeTime = "kafka.time"
	// AttributeTombstone is "true" where the record has no value; an empty one is a value.
	AttributeTombstone = "kafka.tombstone"
)

// Header takes the id from a header of the record. A header that is missing or empty, or
// there twice with different values, is no id.
func Header(name string) func(*kgo.Record) string {
	return func(r *kgo.Record) string {
		var id string
		for _, h := range r.Headers {
			if h.Key != name {
				continue
			}
			if id != "" && id != string(h.Value) {
				return ""
			}
			id = string(h.Value)
		}
		return id
	}
}

// TopicHeader is Header for ids that are unique only within their topic. A message that is
// sent to two topics is then two messages.
func TopicHeader(name string) func(*kgo.Record) string {
	header := Header(name)
	return func(r *kgo.Record) string {
		id := header(r)
		if id == "" {
			return ""
		}
		// A topic's name has no slash, so the join is unambiguous.
		return r.Topic + "/" + id
	}
}

// Position is the id of a record that has none of its producer: where it lies.
func Position(r *kgo.Record) string {
	return "position/" + r.Topic + "/" + strconv.Itoa(int(r.Partition)) + "/" + strconv.FormatInt(r.Offset, 10)
}

// message is a record as the inbox takes it, and who is to handle it.
func (c Config) message(r *kgo.Record) (inbox.ProcessFunc, inbox.Message) {
	msg := inbox.Message{ID: consume.ID(c.ID, r), Payload: r.Value, Attributes: attributes(r)}
	if msg.ID == "" {
		msg.ID = Position(r)
		return c.WithoutID, msg
	}
	return c.Process, msg
}

// attributes are the headers, the last of each name, and where the record lies.
func attributes(r *kgo.Record) map[string]string {
	a := make(map[string]string, len(r.Headers)+5)
	for _, h := range r.Headers {
		a[h.Key] = string(h.Value)
	}
	a[AttributeTopic] = r.Topic
	a[AttributePartition] = strconv.Itoa(int(r.Partition))
	a[AttributeOffset] = strconv.FormatInt(r.Offset, 10)
	a[AttributeTime] = r.Timestamp.UTC().Format(time.RFC3339Nano)
	if r.Key != nil {
		a[AttributeKey] = string(r.Key)
	}
	if r.Value == nil {
		a[AttributeTombstone] = "true"
	}
	return a
}
