package amqpinbox

import (
	"fmt"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce/adapters/internal/consume"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// Attributes of a message beside its headers, which they win over. Those that the
// message does not have are left out.
const (
	AttributeQueue       = "amqp.queue"
	AttributeExchange    = "amqp.exchange"
	AttributeRoutingKey  = "amqp.routing_key"
	AttributeContentType = "amqp.content_type"
	AttributeType        = "amqp.type"
	AttributeCorrelation = "amqp.correlation_id"
	// AttributeTime is the publisher's time stamp, in RFC 3339.
	AttributeTime = "amqp.time"
)

// deliveryCount is the header in which a quorum queue says how often it has delivered
// the message before.
const deliveryCount = "x-delivery-count"

// MessageID takes the id from the property message-id.
func MessageID(d *amqp091.Delivery) string { return d.MessageId }

// Header takes the id from a header of the message. One that is not text is no id.
func Header(name string) func(*amqp091.Delivery) string {
	return func(d *amqp091.Delivery) string {
		switch v := d.Headers[name].(type) {
		case string:
			return v
		case []byte:
			return string(v)
		default:
			return ""
		}
	}
}

// message is a delivery as the inbox takes it; without an ID it has none.
func (c Config) message(d *amqp091.Delivery) inbox.Message {
	return inbox.Message{ID: consume.ID(c.ID, d), Payload: d.Body, Attributes: c.attributes(d), Deliveries: deliveries(d)}
}

// deliveries is how often the broker says it has delivered the message. The flag alone
// says at least twice.
func deliveries(d *amqp091.Delivery) int {
	n := 1
	if d.Redelivered {
		n = 2
	}
	if count, ok := d.Headers[deliveryCount].(int64); ok {
		n = max(n, int(count)+1)
	}
	return n
}

// attributes are the headers and what the broker says about the message.
func (c Config) attributes(d *amqp091.Delivery) map[string]string {
	a := make(map[string]string, len(d.Headers)+7)
	for name, value := range d.Headers {
		switch v := value.(type) {
		case []byte:
			a[name] = string(v)
		case time.Time:
			a[name] = v.UTC().Format(time.RFC3339)
		default:
			a[name] = fmt.Sprint(v)
		}
	}
	a[AttributeQueue] = c.Queue
	a[AttributeExchange] = d.Exchange
	a[AttributeRoutingKey] = d.RoutingKey
	for name, value := range map[string]string{
		AttributeContentType: d.ContentType, AttributeType: d.Type, AttributeCorrelation: d.CorrelationId,
	} {
		if value != "" {
			a[name] = value
		}
	}
	if !d.Timestamp.IsZero() {
		a[AttributeTime] = d.Timestamp.UTC().Format(time.RFC3339)
	}
	return a
}
