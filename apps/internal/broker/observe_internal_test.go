package broker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce/adapters/amqpinbox"
	"github.com/onlyonce-go/onlyonce/adapters/kafkainbox"
	"github.com/onlyonce-go/onlyonce/adapters/natsinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// What an operator has to know is a line in the log, with the error where there is one;
// what is in order is none.
func TestObserved(t *testing.T) {
	t.Parallel()
	failure := errors.New("the channel is gone")
	for name, c := range map[string]struct {
		observe func(c Consumer)
		want    []string
	}{
		"amqp unsettled": {
			func(c Consumer) {
				c.observeAMQP(t.Context(), amqpinbox.Event{Kind: amqpinbox.EventUnsettled, MessageID: "m1", Err: failure})
			},
			[]string{"level=WARN", "was not told", "comes again", "event=m1", failure.Error()},
		},
		"amqp rejected": {
			func(c Consumer) { c.observeAMQP(t.Context(), amqpinbox.Event{Kind: amqpinbox.EventRejected}) },
			[]string{"level=WARN", "is rejected", "dead letters"},
		},
		"amqp lost": {
			func(c Consumer) { c.observeAMQP(t.Context(), amqpinbox.Event{Kind: amqpinbox.EventLost, Err: failure}) },
			[]string{"RabbitMQ was lost; it is tried again", failure.Error()},
		},
		"nats unsettled": {
			func(c Consumer) {
				c.observeNATS(t.Context(), natsinbox.Event{Kind: natsinbox.EventUnsettled, MessageID: "m1", Err: failure})
			},
			[]string{"level=WARN", "was not told", "comes again", "event=m1", failure.Error()},
		},
		"nats lost": {
			func(c Consumer) { c.observeNATS(t.Context(), natsinbox.Event{Kind: natsinbox.EventLost, Err: failure}) },
			[]string{"NATS was lost; it is tried again", failure.Error()},
		},
		"kafka lost": {
			func(c Consumer) {
				c.observeKafka(t.Context(), kafkainbox.Event{Kind: kafkainbox.EventLost, Partition: 3})
			},
			[]string{"partition away", "duplicates", "partition=3"},
		},
		"kafka abandoned": {
			func(c Consumer) {
				c.observeKafka(t.Context(), kafkainbox.Event{Kind: kafkainbox.EventAbandoned, Partition: 3})
			},
			[]string{"given up", "partition=3"},
		},
		"kafka commit": {
			func(c Consumer) {
				c.observeKafka(t.Context(), kafkainbox.Event{Kind: kafkainbox.EventCommitFailed, Err: failure})
			},
			[]string{"offsets; it is tried again", failure.Error()},
		},
		"kafka fetch": {
			func(c Consumer) {
				c.observeKafka(t.Context(), kafkainbox.Event{Kind: kafkainbox.EventFetchFailed, Err: failure})
			},
			[]string{"could not be read; it is tried again", failure.Error()},
		},
		"parked": {
			func(c Consumer) {
				c.observeAMQP(t.Context(), amqpinbox.Event{Kind: amqpinbox.EventProcessed, MessageID: "m1", Verdict: inbox.Parked, Err: failure})
			},
			[]string{"level=ERROR", "onlyonce inbox list", "event=m1", failure.Error()},
		},
		"in order": {
			func(c Consumer) {
				c.observeAMQP(t.Context(), amqpinbox.Event{Kind: amqpinbox.EventConsuming})
				c.observeNATS(t.Context(), natsinbox.Event{Kind: natsinbox.EventProcessed, MessageID: "m1", Verdict: inbox.Handled})
				c.observeKafka(t.Context(), kafkainbox.Event{Kind: kafkainbox.EventGivenUp})
			}, nil,
		},
	} {
		log := &seen{}
		c.observe(Consumer{Name: "c", Logger: slog.New(slog.NewTextHandler(log, nil))})
		text := log.String()
		if strings.Contains(text, "nil") || strings.Contains(text, "error=") != strings.Contains(strings.Join(c.want, ""), failure.Error()) {
			t.Errorf("%s: an error that is none, or none that is one: %s", name, text)
		}
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in %s", name, want, text)
			}
		}
		if c.want == nil && text != "" {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// seen is a log that several goroutines write, and that tells of a text in it.
type seen struct {
	mu   sync.Mutex
	text bytes.Buffer
	want string
	come chan struct{}
}

func (s *seen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.come != nil && bytes.Contains(p, []byte(s.want)) {
		close(s.come)
		s.come = nil
	}
	return s.text.Write(p)
}

func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// A message without an id is told of, and lies where the log says.
func TestAMQPRejected(t *testing.T) {
	t.Parallel()
	a, err := Parse(testserver.RabbitMQ(t))
	if err != nil {
		t.Fatal(err)
	}
	log := &seen{want: "dead letters", come: make(chan struct{})}
	rejected := log.come
	c := Consumer{Name: "c", Concurrency: 1, Logger: slog.New(slog.NewTextHandler(log, nil)), Process: refuseAll}
	if err := declareQueue(t.Context(), a, a.name+".c"); err != nil {
		t.Fatal(err)
	}
	conn, _, err := dialAMQP(t.Context(), a.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	if err == nil {
		err = channel.PublishWithContext(t.Context(), a.name, "other", true, false, amqp.Publishing{Body: []byte("{}")})
	}
	if err != nil {
		t.Fatal(err)
	}
	dead, err := channel.Consume(a.name+".c.dead", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := Consume(ctx, a, c); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	<-rejected
	if letter := <-dead; string(letter.Body) != "{}" {
		t.Errorf("the dead letter is %q", letter.Body)
	}
	if text := log.String(); strings.Contains(text, "tried again") || strings.Contains(text, "nil") {
		t.Errorf("the log says %s", text)
	}
}

// refuseAll is an inbox that nothing is to come to.
func refuseAll(_ context.Context, msg inbox.Message) (inbox.Verdict, error) {
	return inbox.Again, errors.New("a message came: " + msg.ID)
}
