package amqpinbox

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/internal/consume"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// maxPrefetch is the highest prefetch that AMQP can express.
const maxPrefetch = 1<<16 - 1

// WithoutID is what happens to a message that has no id.
type WithoutID uint8

const (
	// Stop ends Run with an error, and the message stays in the queue: nothing else is
	// consumed until a person has looked. The default.
	Stop WithoutID = iota
	// DeadLetter rejects the message, and the broker moves it to the queue's dead-letter
	// exchange. By choosing it the caller states that the queue has one: the broker
	// does not tell, and without one it drops the message. EventRejected is observed
	// either way.
	DeadLetter
)

// Config configures a Consumer.
type Config struct {
	// URL is the broker's: amqp:// or amqps://, user, password, host and virtual host.
	// Required.
	URL string
	// Connection is how to connect; TLS, heartbeat and properties. The zero value does.
	// Recovery must not be set: this package connects anew by itself.
	Connection amqp091.Config
	// Queue is consumed. It must exist. Required.
	Queue string
	// Process handles a message that has an id, by an inbox. Required. Its context ends
	// when Run's has ended and Drain is over; a lost connection does not end it. A panic of
	// it is the verdict Again.
	Process inbox.ProcessFunc
	// ID is the publisher's id for a message; empty, or a panic: it has none. It must be the same each
	// time the message is sent, and unique in the queue. Default: the property
	// message-id.
	ID func(*amqp091.Delivery) string
	// WithoutID is what happens to a message that has no id. Default Stop.
	WithoutID WithoutID
	// Concurrency is how many messages are handled at once. Default 8. With 1 they are
	// handled in the queue's order, but for those that are tried again.
	Concurrency int
	// Prefetch is how many messages may be in hand: handled, waiting for their turn, or
	// for their next try. At least Concurrency, at most 65535. Default 4 times Concurrency.
	Prefetch int
	// MinBackoff and MaxBackoff bound the pause before a message is tried again, and before
	// the broker is; it doubles with each try and has jitter, and begins anew when a
	// connection has lasted MaxBackoff. An error's RetryAfter takes its place where that is
	// longer, up to MaxBackoff. Defaults 100 ms and 1 minute.
	MinBackoff, MaxBackoff time.Duration
	// Hold is how long a message is tried again in hand before it is given back to the
	// queue, for this or another consumer. It must be well below the broker's
	// consumer_timeout. Default 10 minutes.
	Hold time.Duration
	// Patience is how long the broker may refuse the queue (it does not exist, or may
	// not be read by this user) before Run ends with an error. Default 30 s. A broker that
	// cannot be reached is tried for ever.
	Patience time.Duration
	// Drain is how long messages in hand may take to end when Run's context has; then
	// the context of their handlers ends. Default 20 s.
	Drain time.Duration
	// Observe is told what happens. It must be quick and safe for concurrent use. Default:
	// nobody is told.
	Observe func(Event)
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.ID == nil {
		c.ID = MessageID
	}
	if c.Concurrency == 0 {
		c.Concurrency = 8
	}
	if c.Prefetch == 0 {
		c.Prefetch = min(4*c.Concurrency, maxPrefetch)
	}
	if c.MinBackoff == 0 {
		c.MinBackoff = 100 * time.Millisecond
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = max(time.Minute, c.MinBackoff)
	}
	if c.Hold == 0 {
		c.Hold = 10 * time.Minute
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

// Validate joins all that is wrong with the configuration, naming the fields.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, configError(format, args...))
		}
	}
	if _, err := amqp091.ParseURI(c.URL); err != nil {
		refuse(true, "URL must be the broker's, such as amqp://user:password@host/vhost: %v", withoutURL(err))
	}
	refuse(c.Connection.Recovery != nil, "Connection.Recovery must not be set: a delivery cannot be acknowledged on a recovered channel, "+
		"and this package connects anew by itself")
	refuse(c.Queue == "", "Queue must name an existing queue")
	refuse(c.Process == nil, "Process must be set: a closure over the inbox's Process and the handler")
	refuse(c.WithoutID > DeadLetter, "WithoutID must be Stop or DeadLetter, got %d", c.WithoutID)
	refuse(c.Concurrency < 0, "Concurrency must not be negative, got %d", c.Concurrency)
	refuse(c.Prefetch < c.Concurrency || c.Prefetch > maxPrefetch,
		"Prefetch must be from Concurrency (%d) to %d, got %d", c.Concurrency, maxPrefetch, c.Prefetch)
	refuse(c.MinBackoff < 0, "MinBackoff must not be negative, got %v", c.MinBackoff)
	refuse(c.MaxBackoff < c.MinBackoff, "MaxBackoff (%v) must not be less than MinBackoff (%v)", c.MaxBackoff, c.MinBackoff)
	refuse(c.Hold < 0, "Hold must not be negative, got %v", c.Hold)
	refuse(c.Patience < 0, "Patience must not be negative, got %v", c.Patience)
	refuse(c.Drain < 0, "Drain must not be negative, got %v", c.Drain)
	return errors.Join(errs...)
}

// withoutURL is what is wrong with a URL without the URL, which bears a password.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

func (c Config) backoff() consume.Backoff {
	return consume.Backoff{Min: c.MinBackoff, Max: c.MaxBackoff}
}

func configError(format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "configure amqpinbox", Hint: fmt.Sprintf(format, args...)}
}
