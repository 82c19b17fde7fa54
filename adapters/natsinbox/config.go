package natsinbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/consume"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// Config configures a Consumer.
type Config struct {
	// JetStream is where the stream is. Required. Its connection stays the caller's: Run
	// does not close it, and ends with an error when it is closed.
	JetStream jetstream.JetStream
	// Stream and Durable name the stream and its consumer, which must exist. Required.
	Stream, Durable string
	// Process handles a message that has an id, by an inbox. Required. Its context ends
	// when Run's has ended and Drain is over; a lost connection does not end it. A panic of
	// it is the verdict Again.
	Process inbox.ProcessFunc
	// WithoutID handles a message that has no id. Required. The message it is given has its
	// position as id: the same on each redelivery, another for each time that the publisher
	// sends it. Process, where duplicates of the publisher are harmless; the inbox with a
	// handler that always fails, to have such messages parked for a person.
	WithoutID inbox.ProcessFunc
	// ID is the publisher's id for a message; empty, or a panic: it has none. It must be the same each
	// time the message is sent, and unique in the stream. Default: Header of Nats-Msg-Id.
	ID func(jetstream.Msg) string
	// LeastMaxDeliver allows a consumer whose MaxDeliver is at least this. It must be
	// above the inbox's MaxTries, by as much as an outage of the store may use up. Default
	// 0: only a consumer without a limit.
	LeastMaxDeliver int
	// Concurrency is how many messages are handled at once. Default 8. One consumer of
	// several processes shares its messages out among them.
	Concurrency int
	// Prefetch is how many messages may be in hand: handled, or waiting for their turn. At
	// least Concurrency. Default 2 times Concurrency.
	Prefetch int
	// MinBackoff and MaxBackoff bound the delay with which a message is given back, and the
	// pause before the server is tried again; it doubles with each delivery or failure and
	// has jitter, and begins anew when the server was heard for MaxBackoff. An error's
	// RetryAfter takes its place where that is longer, up to MaxBackoff. Defaults 100 ms and
	// 1 minute.
	MinBackoff, MaxBackoff time.Duration
	// Patience is how long stream or consumer may be missing before Run ends with an
	// error. Default 30 s. A server that cannot be reached is tried for ever.
	Patience time.Duration
	// Drain is how long messages that are handled may take to end when Run's context
	// has; then the context of their handlers ends. Default 20 s.
	Drain time.Duration
	// Observe is told what happens. It must be quick and safe for concurrent use. Default:
	// nobody is told.
	Observe func(Event)
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.ID == nil {
		c.ID = Header(jetstream.MsgIDHeader)
	}
	if c.Concurrency == 0 {
		c.Concurrency = 8
	}
	if c.Prefetch == 0 {
		c.Prefetch = 2 * c.Concurrency
	}
	if c.MinBackoff == 0 {
		c.MinBackoff = 100 * time.Millisecond
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = max(time.Minute, c.MinBackoff)
	}
	if c.Patience == 0 {
		c.Patience = 30 * time.Second
	}
	if c.Drain == 0 {
		c.Drain = 20 * time.Second
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields. The
// consumer itself is checked by Run.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, configError(format, args...))
		}
	}
	refuse(c.JetStream == nil, "JetStream must be set: jetstream.New of a connection")
	refuse(c.Stream == "", "Stream must name an existing stream")
	refuse(c.Durable == "", "Durable must name an existing consumer of the stream")
	refuse(c.Process == nil, "Process must be set: a closure over the inbox's Process and the handler")
	refuse(c.WithoutID == nil, "WithoutID must be set: it decides about messages without an id. "+
		"The inbox with a handler that fails parks them; Process handles them by their position")
	refuse(c.LeastMaxDeliver < 0, "LeastMaxDeliver must not be negative, got %d", c.LeastMaxDeliver)
	refuse(c.Concurrency < 0, "Concurrency must not be negative, got %d", c.Concurrency)
	refuse(c.Prefetch < c.Concurrency, "Prefetch must be at least Concurrency (%d), got %d", c.Concurrency, c.Prefetch)
	refuse(c.MinBackoff < 0, "MinBackoff must not be negative, got %v", c.MinBackoff)
	refuse(c.MaxBackoff < c.MinBackoff, "MaxBackoff (%v) must not be less than MinBackoff (%v)", c.MaxBackoff, c.MinBackoff)
	refuse(c.Patience < 0, "Patience must not be negative, got %v", c.Patience)
	refuse(c.Drain < 0, "Drain must not be negative, got %v", c.Drain)
	return errors.Join(errs...)
}

// refuseConsumer refuses a consumer that would lose messages, or takes them for received.
func (c Config) refuseConsumer(have jetstream.ConsumerConfig) error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, configError("consumer %q of stream %q "+format, append([]any{c.Durable, c.Stream}, args...)...))
		}
	}
	refuse(have.Durable == "", "must be durable: any other goes with its server, or when nobody pulls, and forgets what was received")
	refuse(have.AckPolicy != jetstream.AckExplicitPolicy, "must have AckPolicy explicit, has %v: "+
		"any other takes messages for received that were not handled", have.AckPolicy)
	refuse(have.HeadersOnly, "must not be HeadersOnly: without the payload another one under the same id passes for a duplicate")
	switch limited := have.MaxDeliver > 0; {
	case limited && c.LeastMaxDeliver == 0:
		refuse(true, "must not have a MaxDeliver, has %d: JetStream drops a message that was delivered that often, in an outage of "+
			"the store too. Remove it, or set Config.LeastMaxDeliver", have.MaxDeliver)
	default:
		refuse(limited && have.MaxDeliver < c.LeastMaxDeliver, "has a MaxDeliver of %d, less than Config.LeastMaxDeliver (%d)",
			have.MaxDeliver, c.LeastMaxDeliver)
	}
	return errors.Join(errs...)
}

func (c Config) backoff() consume.Backoff {
	return consume.Backoff{Min: c.MinBackoff, Max: c.MaxBackoff}
}

func configError(format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "configure natsinbox", Hint: fmt.Sprintf(format, args...)}
}
