package kafkainbox

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce/adapters/internal/consume"
)

// Consumer consumes topics as members of a group. Safe for concurrent use.
type Consumer struct{ cfg Config }

// New makes a Consumer. It connects to nothing. A bad configuration is refused with an
// *onlyonce.Error of code CodeConfig.
func New(cfg Config) (*Consumer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Consumer{cfg.WithDefaults()}, nil
}

// Run joins the group as a member and handles records until ctx is done. Then it begins no
// record any more, lets those in hand end (Config.Drain), commits, leaves the group and
// returns nil. Each call is a member of its own.
//
// It returns an error only for a configuration that cannot work: everything else is
// tried again and told to Config.Observe. It does not return before every handler has: one
// that ignores its context holds up Run, but not the group. Leaving takes 10 s at most: a
// broker that does not answer is left without a word.
func (c *Consumer) Run(ctx context.Context) error {
	for {
		again, err := c.member(ctx)
		if !again || !consume.Sleep(ctx, c.cfg.backoff().Pause(1, nil)) {
			return err
		}
	}
}

// member is one member of the group. It ends with ctx, or because another is to take its
// place.
func (c *Consumer) member(ctx context.Context) (again bool, err error) {
	s := newSession(ctx, c.cfg)
	defer s.cut()
	client, err := kgo.NewClient(s.options()...)
	if err != nil {
		return false, configError("Options: %v", err)
	}
	if err := c.cfg.refuseClient(client); err != nil {
		client.Close()
		return false, err
	}
	return s.consume(client), nil
}

// options are the caller's between what they may and what they may not change.
func (s *session) options() []kgo.Opt {
	options := []kgo.Opt{kgo.FetchIsolationLevel(kgo.ReadCommitted())}
	options = append(options, s.cfg.Options...)
	return append(options,
		// The client outlives the context of Run, to commit and to leave.
		kgo.WithContext(s.line),
		kgo.ConsumerGroup(s.cfg.Group),
		kgo.ConsumeTopics(s.cfg.Topics...),
		kgo.DisableAutoCommit(),
		// Partitions change hands between two polls and never between a poll and the
		// moment its records are queued: else records of an assignment that has ended
		// would be taken for the partition's next ones.
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(s.assigned),
		kgo.OnPartitionsRevoked(s.revoked),
		kgo.OnPartitionsLost(s.lost),
	)
}
