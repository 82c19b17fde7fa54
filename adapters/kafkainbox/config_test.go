package kafkainbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/kafkainbox"
	"github.com/onlyonce-go/onlyonce/inbox"
)

func never(context.Context, inbox.Message) (inbox.Verdict, error) {
	return inbox.Again, errors.New("nothing is to be handled")
}

func goodConfig() kafkainbox.Config {
	return kafkainbox.Config{
		Group: "g", Topics: []string{"t"}, Options: []kgo.Opt{kgo.SeedBrokers("127.0.0.1:1")}, Process: never, WithoutID: never,
	}
}

// What would break the promise is refused, and the error names what to change.
func TestConfigRefused(t *testing.T) {
	t.Parallel()
	callback := func(context.Context, *kgo.Client, map[string][]int32) {}
	with := func(o kgo.Opt) func(*kafkainbox.Config) {
		return func(c *kafkainbox.Config) { c.Options = append(c.Options, o) }
	}
	for name, tt := range map[string]struct {
		spoil func(*kafkainbox.Config)
		names string
	}{
		"no group":          {func(c *kafkainbox.Config) { c.Group = "" }, "Group"},
		"no topic":          {func(c *kafkainbox.Config) { c.Topics = nil }, "Topics"},
		"no process":        {func(c *kafkainbox.Config) { c.Process = nil }, "Process"},
		"no choice":         {func(c *kafkainbox.Config) { c.WithoutID = nil }, "WithoutID"},
		"topics without ID": {func(c *kafkainbox.Config) { c.Topics = []string{"a", "b"} }, "TopicHeader"},
		"concurrency":       {func(c *kafkainbox.Config) { c.Concurrency = -1 }, "Concurrency"},
		"queue":             {func(c *kafkainbox.Config) { c.Queue = -1 }, "Queue"},
		"commit interval":   {func(c *kafkainbox.Config) { c.CommitInterval = -1 }, "CommitInterval"},
		"min backoff":       {func(c *kafkainbox.Config) { c.MinBackoff = -1 }, "MinBackoff"},
		"max backoff":       {func(c *kafkainbox.Config) { c.MinBackoff, c.MaxBackoff = 2, 1 }, "MaxBackoff"},
		"drain":             {func(c *kafkainbox.Config) { c.Drain = -1 }, "Drain"},
		"no broker":         {with(kgo.SeedBrokers()), "seed brokers"},
		"marks":             {with(kgo.AutoCommitMarks()), "commits"},
		"greedy":            {with(kgo.GreedyAutoCommit()), "commits"},
		"revoked":           {with(kgo.OnPartitionsRevoked(callback)), "callbacks"},
		"lost":              {with(kgo.OnPartitionsLost(callback)), "callbacks"},
		"assigned":          {with(kgo.OnPartitionsAssigned(callback)), "callbacks"},
		"share group":       {with(kgo.ShareGroup("s")), "ShareGroup"},
		"partitions":        {with(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset()}})), "Topics"},
	} {
		cfg := goodConfig()
		tt.spoil(&cfg)
		_, err := kafkainbox.New(cfg)
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), tt.names) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Options that only a client tells of are refused by Run, before anything is consumed.
func TestRunRefuses(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		option kgo.Opt
		names  string
	}{
		"pattern":   {kgo.ConsumeRegex(), "ConsumeRegex"},
		"start":     {kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd()), "ConsumeStartOffset"},
		"reset":     {kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), "ConsumeResetOffset"},
		"near end":  {kgo.ConsumeStartOffset(kgo.NewOffset().AtEnd().Relative(-3)), "ConsumeStartOffset"},
		"rebalance": {kgo.RebalanceTimeout(10 * time.Second), "Drain"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := goodConfig()
			cfg.Options = append(cfg.Options, tt.option)
			c, err := kafkainbox.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			err = c.Run(t.Context())
			if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), tt.names) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c := goodConfig().WithDefaults()
	if c.Concurrency != 8 || c.Queue != 1000 || c.CommitInterval != time.Second || c.Drain != 20*time.Second ||
		c.MinBackoff != 100*time.Millisecond || c.MaxBackoff != time.Minute {
		t.Errorf("%+v", c)
	}
	if id := c.ID(&kgo.Record{Headers: headers("message-id", "1")}); id != "1" {
		t.Errorf("id %q", id)
	}
	c.Observe(kafkainbox.Event{})
}
