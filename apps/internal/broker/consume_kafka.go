package broker

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce/adapters/kafkainbox"
)

// kafkaRebalance is how long the group waits for a member that was killed while
// partitions change hands. kafkaDrain, how long handlers may take then, is well below it:
// they are transactions.
const (
	kafkaRebalance = 9 * time.Second
	kafkaDrain     = 2 * time.Second
)

// consumeKafka consumes the topic as a member of the group NAME.CONSUMER.
func (c Consumer) consumeKafka(ctx context.Context, a Address) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(a.seeds...), kgo.ClientID("onlyonce-" + c.Name),
		kgo.SessionTimeout(a.session), kgo.HeartbeatInterval(a.session / 5), kgo.RebalanceTimeout(kafkaRebalance),
	}
	consumer, err := kafkainbox.New(kafkainbox.Config{
		Group: a.name + "." + c.Name, Topics: []string{a.name}, Options: options, Concurrency: c.Concurrency,
		// An event has an id. What has none is parked by the inbox: it cannot be read.
		Process: c.Process, WithoutID: c.Process, Drain: kafkaDrain,
		Observe: func(e kafkainbox.Event) { c.observeKafka(ctx, e) },
	})
	if err != nil {
		return err
	}
	if !c.awaitTopic(ctx, a, options) {
		return nil
	}
	return consumer.Run(ctx)
}

// awaitTopic makes the topic where there is none; false: ctx ended first.
func (c Consumer) awaitTopic(ctx context.Context, a Address, options []kgo.Opt) bool {
	for try := 0; ; try++ {
		client, err := kgo.NewClient(options...)
		if err == nil {
			err = ensureTopic(ctx, client, a.name)
			client.Close()
		}
		if err == nil {
			return true
		}
		if !pause(ctx, try) {
			return false
		}
		c.trouble(ctx, "Kafka's topic cannot be made", err)
	}
}

func (c Consumer) observeKafka(ctx context.Context, e kafkainbox.Event) {
	switch e.Kind {
	case kafkainbox.EventProcessed:
		c.processed(ctx, e.MessageID, e.Verdict, e.Err)
	case kafkainbox.EventCommitFailed:
		c.trouble(ctx, "Kafka has not taken offsets", e.Err)
	case kafkainbox.EventFetchFailed:
		c.trouble(ctx, "Kafka could not be read", e.Err)
	case kafkainbox.EventLost:
		c.warn(ctx, "Kafka has taken a partition away; what was handled of it lately comes again, as duplicates", with(e.Err, partitionOf(e))...)
	case kafkainbox.EventAbandoned:
		c.warn(ctx, "a partition was given up while one of its events was being handled", with(e.Err, partitionOf(e))...)
	case kafkainbox.EventAssigned, kafkainbox.EventGivenUp:
	}
}

func partitionOf(e kafkainbox.Event) slog.Attr { return slog.Int("partition", int(e.Partition)) }

// pause waits before a further try, up to half a minute; false: ctx ended first.
func pause(ctx context.Context, try int) bool {
	most := min(500*time.Millisecond<<min(try, 6), 30*time.Second)
	t := time.NewTimer(most/2 + rand.N(most/2))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
