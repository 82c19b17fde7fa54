package inbox

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce"
)

// Defaults of a Config.
const (
	DefaultMaxTries  = 5
	DefaultRetention = 14 * 24 * time.Hour
	DefaultPause     = time.Second
	DefaultMaxPause  = time.Minute
)

// Config is what an inbox has to know of its consumer.
type Config struct {
	// Consumer names who handles the messages: a service, or a subscription of it. It
	// is part of every message's identity, so that two consumers of one message do not
	// disturb each other, and it must never change. Required: at most 200 bytes.
	Consumer string
	// MaxTries is how often a message is tried before it is parked. Default 5. What the
	// source itself allows must be more: a message that the source gives up first is
	// never parked.
	MaxTries int
	// Retention is how long a handled message is remembered. Default 14 days. It must be
	// longer than the longest time after which the source may deliver again: the
	// retention of a topic that may be read from its beginning, the days for which a
	// sender of webhooks goes on trying. A message that comes later is handled again.
	Retention time.Duration
	// Lease is how long a crash keeps a redelivery waiting. Default 30 s.
	Lease time.Duration
	// Deadline bounds one run of the handler. Default 2 min; in a TxInbox at most, and
	// by default, a third of a lease.
	Deadline time.Duration
	// Pause is what the source is asked to wait after a message's first failure, twice
	// as long after the second, and so on up to MaxPause. Defaults 1 s and 1 min.
	Pause, MaxPause time.Duration
}

// maxConsumer is the longest name of a consumer, in bytes: with what stands before it,
// it is a scope and an operation's name.
const maxConsumer = 200

// WithDefaults returns a copy with the defaults filled in. Lease and Deadline are left
// to the engine's own.
func (c Config) WithDefaults() Config {
	if c.MaxTries == 0 {
		c.MaxTries = DefaultMaxTries
	}
	if c.Retention == 0 {
		c.Retention = DefaultRetention
	}
	if c.Pause == 0 {
		c.Pause = DefaultPause
	}
	if c.MaxPause == 0 {
		c.MaxPause = max(DefaultMaxPause, c.Pause)
	}
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields.
func (c Config) Validate() error {
	var errs []error
	if !validConsumer(c.Consumer) {
		errs = append(errs, configError("Config.Consumer", "must name the consumer with 1 to %d printable characters", maxConsumer))
	}
	if c.MaxTries < 0 {
		errs = append(errs, configError("Config.MaxTries", "must not be negative, got %d", c.MaxTries))
	}
	if c.Pause < 0 || c.MaxPause < 0 || (c.MaxPause > 0 && c.MaxPause < c.Pause) {
		errs = append(errs, configError("Config.Pause", "must not be negative nor longer than MaxPause, got %v and %v", c.Pause, c.MaxPause))
	}
	return errors.Join(errs...)
}

func validConsumer(name string) bool {
	control := strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f })
	return name != "" && len(name) <= maxConsumer && utf8.ValidString(name) && !control
}

// op is the operation that handling a message is.
func (c Config) op() onlyonce.Op {
	return onlyonce.Op{
		Name: operationName(c.Consumer), Lease: c.Lease, Deadline: c.Deadline, Retention: c.Retention,
		// For Wrap: an effect comes with its answer or not at all.
		On5xx: onlyonce.ReleaseKey, AfterCrash: onlyonce.Rerun,
	}
}

func configError(field, format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "check inbox configuration", Hint: field + " " + fmt.Sprintf(format, args...)}
}
