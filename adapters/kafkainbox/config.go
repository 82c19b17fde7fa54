package kafkainbox

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/consume"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// Config configures a Consumer.
type Config struct {
	// Group is the consumer group. Required.
	Group string
	// Topics are consumed, all partitions of them that the group assigns. Required.
	Topics []string
	// Options say where the brokers are (kgo.SeedBrokers) and how to talk to them.
	// Group and topics belong above. Commits and the callbacks of partitions are this
	// package's own: options that set them are refused, and so are a pattern of topics
	// and a start or reset at the end of a partition, which skips records that nobody
	// has handled. Only committed transactions are read, unless an option says otherwise.
	Options []kgo.Opt
	// Process handles a record that has an id, by an inbox. Required. Its context
	// is cancelled when its partition is given up and Drain is over. A panic of it is the
	// verdict Again.
	Process inbox.ProcessFunc
	// WithoutID handles a record that has no id. Required. The message it is given has
	// the record's position as id (topic, partition and offset): the same on each
	// redelivery, another for each time that the producer sends it. Process, where
	// duplicates of the producer are harmless; the inbox with a handler that always fails,
	// to have such records parked for a person.
	WithoutID inbox.ProcessFunc
	// ID is the producer's id for a record; empty, or a panic: it has none. It must be the same each
	// time the record is sent, and unique among all topics of the consumer. Default
	// Header("message-id") with one topic; required with more, because only the caller
	// knows whether ids are unique across them.
	ID func(*kgo.Record) string
	// Concurrency is how many records are handled at once, each of another partition.
	// Default 8.
	Concurrency int
	// Queue is how many records of a partition may wait in memory before no more are
	// fetched. What one fetch brings is kept whole. Default 1000.
	Queue int
	// CommitInterval is the least time between two commits of offsets. Longer means fewer
	// writes to Kafka and more duplicates after a crash. Default 1 s.
	CommitInterval time.Duration
	// MinBackoff and MaxBackoff bound the pause before a record is tried again; it doubles
	// with each try and has jitter. An error's RetryAfter takes its place where that is
	// longer, up to MaxBackoff. Defaults 100 ms and 1 minute.
	MinBackoff, MaxBackoff time.Duration
	// Drain is how long records in hand may take to end when their partitions are given up
	// or Run ends; then their contexts are cancelled, and they are abandoned a second
	// later. The group waits that long, so it must be well below kgo.RebalanceTimeout (60 s
	// by default). Default 20 s.
	Drain time.Duration
	// Observe is told what happens. It must be quick and safe for concurrent use. Default:
	// nobody is told.
	Observe func(Event)
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.ID == nil && len(c.Topics) == 1 {
		c.ID = Header(DefaultHeader)
	}
	if c.Concurrency == 0 {
		c.Concurrency = 8
	}
	if c.Queue == 0 {
		c.Queue = 1000
	}
	if c.CommitInterval == 0 {
		c.CommitInterval = time.Second
	}
	if c.MinBackoff == 0 {
		c.MinBackoff = 100 * time.Millisecond
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = max(time.Minute, c.MinBackoff)
	}
	if c.Drain == 0 {
		c.Drain = 20 * time.Second
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields. What can
// be known of Options only from a client is checked by Run.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, configError(format, args...))
		}
	}
	refuse(c.Group == "", "Group must name the consumer group")
	refuse(len(c.Topics) == 0, "Topics must name at least one topic")
	refuse(c.Process == nil, "Process must be set: a closure over the inbox's Process and the handler")
	refuse(c.WithoutID == nil, "WithoutID must be set: it decides about records without an id. "+
		"The inbox with a handler that fails parks them; Process handles them by their position")
	refuse(c.ID == nil && len(c.Topics) > 1, "ID must be set with more than one topic: "+
		"Header if ids are unique across the topics, TopicHeader if only within each")
	refuse(c.Concurrency < 0, "Concurrency must not be negative, got %d", c.Concurrency)
	refuse(c.Queue < 0, "Queue must not be negative, got %d", c.Queue)
	refuse(c.CommitInterval < 0, "CommitInterval must not be negative, got %v", c.CommitInterval)
	refuse(c.MinBackoff < 0, "MinBackoff must not be negative, got %v", c.MinBackoff)
	refuse(c.MaxBackoff < c.MinBackoff, "MaxBackoff (%v) must not be less than MinBackoff (%v)", c.MaxBackoff, c.MinBackoff)
	refuse(c.Drain < 0, "Drain must not be negative, got %v", c.Drain)
	return errors.Join(append(errs, c.validateOptions())...)
}

// validateOptions refuses what franz-go itself can be made to refuse: without a group it
// takes none of the options about commits and callbacks.
func (c Config) validateOptions() error {
	if err := kgo.ValidateOpts(append(slices.Clip(c.Options), kgo.ConsumerGroup(""))...); err != nil {
		return configError("Options: %v. Leave group, commits and the callbacks of partitions to this package", err)
	}
	if err := kgo.ValidateOpts(append(slices.Clip(c.Options), kgo.ConsumerGroup("group"))...); err != nil {
		return configError("Options: %v. Leave group and partitions to Group and Topics", err)
	}
	return nil
}

// refuseClient refuses the options that only a client tells of. The client has
// committed nothing yet.
func (c Config) refuseClient(client *kgo.Client) error {
	atEnd := func(option any) bool {
		offset, _ := client.OptValue(option).(kgo.Offset)
		return offset.EpochOffset().Offset == kgo.NewOffset().AtEnd().EpochOffset().Offset // also relative to it
	}
	var errs []error
	if client.OptValue(kgo.ConsumeRegex) == true {
		errs = append(errs, configError("Options: ConsumeRegex must not be set: name the Topics, whose ids are known to be unique"))
	}
	if atEnd(kgo.ConsumeStartOffset) || atEnd(kgo.ConsumeResetOffset) {
		errs = append(errs, configError("Options: ConsumeStartOffset and ConsumeResetOffset must not be at the end: records that "+
			"arrive before the first commit would be lost with a crash. Commit the offset to begin at with an admin client, once"))
	}
	if rebalance, ok := client.OptValue(kgo.RebalanceTimeout).(time.Duration); ok && c.Drain+abandonAfter+commitTimeout > rebalance {
		errs = append(errs, configError("Drain (%v), and %v for the commit after it, must be below RebalanceTimeout (%v)",
			c.Drain, abandonAfter+commitTimeout, rebalance))
	}
	return errors.Join(errs...)
}

func (c Config) backoff() consume.Backoff {
	return consume.Backoff{Min: c.MinBackoff, Max: c.MaxBackoff}
}

func configError(format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "configure kafkainbox", Hint: fmt.Sprintf(format, args...)}
}
