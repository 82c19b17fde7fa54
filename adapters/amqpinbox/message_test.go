package amqpinbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce/adapters/amqpinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// What comes beside the payload is kept with the message, and the id may be a header.
func TestMessage(t *testing.T) {
	t.Parallel()
	q := newQueue(t, testserver.RabbitMQ(t), classic())
	at := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	q.publish(amqp091.Publishing{
		Body: []byte("\x00payload"), ContentType: "application/json", Type: "charge.created", CorrelationId: "c-1", Timestamp: at,
		Headers: amqp091.Table{
			"event-id": "e-1", "bytes": []byte("b"), "number": int32(7), "yes": true, "when": at, "amqp.queue": "forged",
		},
	})
	got := make(chan inbox.Message, 1)
	cfg := q.config(func(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
		got <- msg
		return inbox.Handled, nil
	})
	cfg.ID = amqpinbox.Header("event-id")
	c := run(t, cfg)
	c.events.Wait(t, 1, acked)
	c.stop()
	want := inbox.Message{
		ID: "e-1", Payload: []byte("\x00payload"), Deliveries: 1,
		Attributes: map[string]string{
			"event-id": "e-1", "bytes": "b", "number": "7", "yes": "true", "when": "2024-05-06T07:08:09Z",
			amqpinbox.AttributeQueue: "payments", amqpinbox.AttributeExchange: "", amqpinbox.AttributeRoutingKey: "payments",
			amqpinbox.AttributeContentType: "application/json", amqpinbox.AttributeType: "charge.created",
			amqpinbox.AttributeCorrelation: "c-1", amqpinbox.AttributeTime: "2024-05-06T07:08:09Z",
		},
	}
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Error(diff)
	}
}

func TestHeader(t *testing.T) {
	t.Parallel()
	id := amqpinbox.Header("id")
	for _, c := range []struct {
		headers amqp091.Table
		want    string
	}{
		{amqp091.Table{"id": "m"}, "m"},
		{amqp091.Table{"id": []byte("m")}, "m"},
		{amqp091.Table{"id": int64(1)}, ""}, // 1 and "1" would be one message
		{amqp091.Table{"other": "m"}, ""},
		{nil, ""},
	} {
		if got := id(&amqp091.Delivery{Headers: c.headers, MessageId: "property"}); got != c.want {
			t.Errorf("%v: %q, want %q", c.headers, got, c.want)
		}
	}
}
