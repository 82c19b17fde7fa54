package broker

import (
	"testing"

	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// A connection that breaks is made anew: what was to be published fails at most once.
func TestAMQPConnectsAnew(t *testing.T) {
	t.Parallel()
	a, err := Parse(testserver.RabbitMQ(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := declareQueue(t.Context(), a, "q"); err != nil {
		t.Fatal(err)
	}
	p := &amqpPublisher{address: a}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	msgs := []inbox.Message{{ID: "1", Payload: []byte("{}")}}
	for _, ruin := range []func(){
		func() {},
		func() { _ = p.socket.Close() },
		func() { _ = p.channel.Close() },
		func() { _ = p.conn.Close() },
		func() { _ = p.channel.ExchangeDelete(a.name, false, false) }, // which ends the channel at the next message
	} {
		ruin()
		err := p.Publish(t.Context(), msgs)
		if err != nil {
			if err := declareQueue(t.Context(), a, "q"); err != nil { // binds it to the exchange again
				t.Fatal(err)
			}
			err = p.Publish(t.Context(), msgs)
		}
		if err != nil {
			t.Error(err)
		}
	}
}
