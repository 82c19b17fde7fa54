package natsinbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/consume"
)

const (
	// pullWait is how long one pull waits for messages. Meanwhile the server says five times
	// that it still does; where it misses two, it may have forgotten, and is asked anew.
	pullWait = 5 * time.Second
	// ackTimeout is how long an ack may take to be confirmed, and ackTries how often it is
	// sent.
	ackTimeout = 2 * time.Second
	ackTries   = 5
)

// Consumer handles the messages of a JetStream consumer. Safe for concurrent use.
type Consumer struct{ cfg Config }

// New makes a Consumer. It asks the server nothing. A bad configuration is refused with
// an *onlyonce.Error of code CodeConfig.
func New(cfg Config) (*Consumer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Consumer{cfg.WithDefaults()}, nil
}

// Run pulls and handles messages until ctx is done. Then it begins none any more, lets
// those that are being handled end (Config.Drain), acknowledges them, gives the others
// back and returns nil. Any number of calls, in any number of processes, share the
// consumer's messages out.
//
// What fails is tried again and told to Config.Observe. An *onlyonce.Error is returned
//
//   - with CodeConfig, when the consumer must not be as it is, or has been missing for
//     Config.Patience;
//   - with CodeUnreachable, when the connection was closed, by the caller or because its
//     reconnects are used up.
//
// Run does not return before every handler has.
func (c *Consumer) Run(ctx context.Context) error {
	r := &run{
		cfg: c.cfg, room: make(chan struct{}, c.cfg.Prefetch),
		hands: consume.NewHands(ctx, c.cfg.Concurrency, c.cfg.Drain),
	}
	defer r.hands.Close()
	return r.run(ctx)
}

// run is one call of Run.
type run struct {
	cfg   Config
	room  chan struct{} // holds one for each message in hand, or asked for
	hands *consume.Hands

	failures int           // since pulling has gone on for a while
	missing  time.Duration // how long the consumer has been missing
}

// run keeps pulling until ctx is done or it makes no sense any more.
func (r *run) run(ctx context.Context) error {
	for {
		err := r.session(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // a pull that ends with the context is no failure
		}
		if final, ok := errors.AsType[*onlyonce.Error](err); ok {
			return final
		}
		if r.cfg.JetStream.Conn().IsClosed() {
			return r.closed(err)
		}
		r.failures++
		wait := r.cfg.backoff().Pause(r.failures, nil)
		if isMissing(err) {
			if r.missing >= r.cfg.Patience {
				return r.gone(err)
			}
			wait = min(wait, r.cfg.Patience-r.missing)
			r.missing += wait
		}
		r.cfg.Observe(Event{Kind: EventLost, Wait: wait, Err: err})
		if !consume.Sleep(ctx, wait) {
			return nil
		}
	}
}

// isMissing tells whether the server has answered that there is no such consumer.
func isMissing(err error) bool {
	return slices.ContainsFunc([]error{
		jetstream.ErrConsumerNotFound, jetstream.ErrConsumerDoesNotExist, jetstream.ErrStreamNotFound,
	}, func(missing error) bool { return errors.Is(err, missing) })
}

func (r *run) gone(err error) error {
	return &onlyonce.Error{
		Code: onlyonce.CodeConfig, Op: "consume stream", Err: err,
		Hint: fmt.Sprintf("consumer %q of stream %q has been missing for %v: make it, and start again", r.cfg.Durable, r.cfg.Stream, r.cfg.Patience),
	}
}

func (r *run) closed(err error) error {
	return &onlyonce.Error{
		Code: onlyonce.CodeUnreachable, Op: "consume stream", Err: err,
		Hint: "the connection to NATS is closed; connect with nats.MaxReconnects(-1), so that it never gives up",
	}
}

// session finds the consumer, and pulls from it until ctx is done or that fails. Its error
// is an *onlyonce.Error if another try would not help.
func (r *run) session(ctx context.Context) error {
	consumer, err := r.cfg.JetStream.Consumer(ctx, r.cfg.Stream, r.cfg.Durable)
	if errors.Is(err, jetstream.ErrNotPullConsumer) {
		return configError("consumer %q of stream %q must be a pull consumer: without a DeliverSubject", r.cfg.Durable, r.cfg.Stream)
	}
	if err != nil {
		return fmt.Errorf("find consumer %q of stream %q: %w", r.cfg.Durable, r.cfg.Stream, err)
	}
	config := consumer.CachedInfo().Config
	if err := r.cfg.refuseConsumer(config); err != nil {
		return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "consume stream", Hint: "change the consumer, and start again", Err: err}
	}
	r.missing = 0
	r.cfg.Observe(Event{Kind: EventConsuming})
	lasted := time.NewTimer(r.cfg.MaxBackoff)
	defer lasted.Stop()
	err = newSession(r, consumer, config).consume(ctx)
	select {
	case <-lasted.C:
		r.failures = 0
	default:
	}
	return err
}

// heartbeat is how often a message in hand is said to be in progress: often enough that
// one that is lost does no harm.
func heartbeat(c jetstream.ConsumerConfig) time.Duration {
	return max(slices.Min(append(slices.Clone(c.BackOff), c.AckWait))/3, time.Millisecond)
}

// session pulls from a consumer that was found.
type session struct {
	*run
	consumer jetstream.Consumer
	beat     time.Duration // how often a message in hand is said to be in progress
	most     int           // how many messages a pull may ask for
	wait     time.Duration // how long a pull waits for messages
}

// newSession keeps to what the consumer allows its pulls.
func newSession(r *run, consumer jetstream.Consumer, config jetstream.ConsumerConfig) *session {
	s := &session{run: r, consumer: consumer, beat: heartbeat(config), most: r.cfg.Prefetch, wait: pullWait}
	if config.MaxRequestBatch > 0 {
		s.most = min(s.most, config.MaxRequestBatch)
	}
	if config.MaxRequestExpires > 0 {
		s.wait = min(s.wait, config.MaxRequestExpires)
	}
	return s
}

// consume pulls until ctx is done or that fails.
func (s *session) consume(ctx context.Context) error {
	for {
		n := s.takeRoom(ctx)
		if n == 0 {
			return nil
		}
		if err := s.pull(ctx, n); err != nil {
			return fmt.Errorf("pull messages: %w", err)
		}
	}
}

// takeRoom waits for room for one message at least, and takes what a pull may ask for;
// none when ctx is done.
func (s *session) takeRoom(ctx context.Context) (n int) {
	select {
	case s.room <- struct{}{}:
		n = 1
	case <-ctx.Done():
		return 0
	}
	for n < s.most {
		select {
		case s.room <- struct{}{}:
			n++
		default:
			return n
		}
	}
	return n
}

// pull asks for so many messages, for which there is room, and has handled what comes
// while it waits.
func (s *session) pull(ctx context.Context, n int) error {
	defer func() {
		for range n {
			<-s.room
		}
	}()
	waiting, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	batch, err := s.consumer.Fetch(n, jetstream.FetchContext(waiting), jetstream.FetchHeartbeat(s.wait/5))
	if err != nil {
		return err
	}
	for m := range batch.Messages() {
		n-- // its room is taken with it
		s.hands.Go(func() { s.handle(ctx, m) })
	}
	if err := batch.Error(); err != nil && waiting.Err() == nil {
		return err
	}
	return nil
}
