package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce/adapters/kafkainbox"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// contentType is that of all events.
const contentType = "application/json"

// kafkaPublisher publishes to a topic, and waits for all replicas in sync.
type kafkaPublisher struct {
	address Address

	mu     sync.Mutex
	client *kgo.Client // nil: there was none yet
	// topic: it is there.
	topic bool
}

// Publish publishes.
func (p *kafkaPublisher) Publish(ctx context.Context, msgs []inbox.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.connect(ctx); err != nil {
		return fmt.Errorf("connect to Kafka: %w", err)
	}
	records := make([]*kgo.Record, len(msgs))
	for i, msg := range msgs {
		r := &kgo.Record{Topic: p.address.name, Key: []byte(msg.ID), Value: msg.Payload, Headers: []kgo.RecordHeader{
			{Key: kafkainbox.DefaultHeader, Value: []byte(msg.ID)}, {Key: "content-type", Value: []byte(contentType)},
		}}
		for name, value := range msg.Attributes {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		records[i] = r
	}
	if err := p.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("publish to Kafka: %w", err)
	}
	return nil
}

func (p *kafkaPublisher) connect(ctx context.Context) (err error) {
	if p.client == nil {
		p.client, err = kgo.NewClient(
			kgo.SeedBrokers(p.address.seeds...), kgo.ClientID("onlyonce"), kgo.RequiredAcks(kgo.AllISRAcks()),
			// A batch is given up when its time is over; it is published again later, under
			// the same ids.
			kgo.AllowIdempotentProduceCancellation(),
		)
		if err != nil {
			return err
		}
	}
	if !p.topic {
		if err := ensureTopic(ctx, p.client, p.address.name); err != nil {
			return err
		}
		p.topic = true
	}
	return nil
}

// Close ends the connections.
func (p *kafkaPublisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil {
		p.client.Close()
		p.client, p.topic = nil, false
	}
	return nil
}

// ensureTopic makes the topic where there is none, with the partitions and replicas that
// the brokers give one by default.
func ensureTopic(ctx context.Context, client *kgo.Client, name string) error {
	retention := strconv.FormatInt(keep.Milliseconds(), 10)
	_, err := kadm.NewClient(client).CreateTopic(ctx, -1, -1, map[string]*string{"retention.ms": &retention}, name)
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("make topic %s: %w", name, err)
	}
	return nil
}
