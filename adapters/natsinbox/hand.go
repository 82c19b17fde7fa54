package natsinbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/adapters/internal/consume"
)

// handle is all that happens to a delivery: it waits for its turn, is handled, and the
// server is told what became of it. Until then the server is kept from delivering it
// again.
func (s *session) handle(ctx context.Context, m jetstream.Msg) {
	defer func() { <-s.room }()
	meta, err := m.Metadata()
	if err != nil {
		s.cfg.Observe(Event{Kind: EventUnsettled, Err: fmt.Errorf("read message's metadata: %w", err)})
		return
	}
	process, msg := s.cfg.message(m, meta)
	e := Event{Kind: EventProcessed, MessageID: msg.ID, Deliveries: msg.Deliveries}
	end := s.progress(m)
	defer end()
	if !s.hands.Place(ctx) {
		end()
		s.unsettled(e, m.Nak())
		return
	}
	e.Verdict, e.Err = s.hands.Process(process, msg)
	if e.Verdict.Ack() {
		s.cfg.Observe(e)
		s.unsettled(e, s.ack(m)) //nolint:contextcheck // so does the ack
		return
	}
	e.Wait = s.cfg.backoff().Pause(e.Deliveries, e.Err)
	end() // or a late word of progress could undo the delay
	s.cfg.Observe(e)
	s.unsettled(e, m.NakWithDelay(e.Wait))
}

// ack acknowledges the message, and returns when the server has confirmed it. An ack that
// is not confirmed is sent again: it, or its confirmation, may have gone with a connection.
func (s *session) ack(m jetstream.Msg) error {
	for try := 1; ; try++ {
		err := s.ackOnce(m)
		if err == nil || try == ackTries || !consume.Sleep(s.hands.Context, s.cfg.backoff().Pause(try, nil)) {
			return err
		}
	}
}

func (s *session) ackOnce(m jetstream.Msg) error {
	ctx, cancel := context.WithTimeout(s.hands.Context, ackTimeout)
	defer cancel()
	return m.DoubleAck(ctx)
}

// unsettled tells, if so, that the server may not know what became of a message.
func (s *session) unsettled(e Event, err error) {
	if err != nil {
		s.cfg.Observe(Event{Kind: EventUnsettled, MessageID: e.MessageID, Deliveries: e.Deliveries, Err: err})
	}
}

// progress tells the server again and again that the message is in progress, until the
// function it returns is called, once or more.
func (s *session) progress(m jetstream.Msg) (end func()) {
	done := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		tick := time.NewTicker(s.beat)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = m.InProgress() // what is not heard costs another delivery at most
			case <-done:
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		close(done)
		beating.Wait()
	})
}
