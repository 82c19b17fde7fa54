package amqpinbox

import (
	"context"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce/inbox"
)

// hand is a message in hand.
type hand struct {
	delivery *amqp091.Delivery
	msg      inbox.Message
}

// handle tries a message until it may be acknowledged, its session is over, or it was
// held long enough. The caller has taken a place for the first try; none is held
// during a pause.
func (s *session) handle(ctx context.Context, h hand) {
	held := time.NewTimer(s.cfg.Hold)
	defer held.Stop()
	for try := 1; ; try++ {
		verdict, err := s.hands.Process(s.cfg.Process, h.msg)
		e := Event{Kind: EventProcessed, MessageID: h.msg.ID, Deliveries: h.msg.Deliveries, Verdict: verdict, Try: try, Err: err}
		if verdict.Ack() {
			s.settle(h.delivery, e, h.delivery.Ack(false))
			return
		}
		e.Wait = s.cfg.backoff().Pause(try, err)
		s.cfg.Observe(e)
		if !s.pause(ctx, h, held.C, e.Wait) || !s.hands.Place(ctx) {
			return
		}
	}
}

// pause waits for the next try. It returns false where there is none: the message is the
// broker's again, at once or with the end of the channel.
func (s *session) pause(ctx context.Context, h hand, held <-chan time.Time, wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-held:
		s.settle(h.delivery, Event{Kind: EventGivenBack, MessageID: h.msg.ID, Deliveries: h.msg.Deliveries}, h.delivery.Nack(false, true))
		return false
	case <-ctx.Done():
		return false
	}
}

// settle tells of the end of a delivery, and whether the broker could be told.
func (s *session) settle(d *amqp091.Delivery, e Event, err error) {
	s.cfg.Observe(e)
	if err != nil {
		s.cfg.Observe(Event{Kind: EventUnsettled, MessageID: e.MessageID, Deliveries: deliveries(d), Err: err})
	}
}
