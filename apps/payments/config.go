package payments

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// DevMerchant is the one merchant of a service without configured merchants.
const DevMerchant = "dev"

// Config says what a Service is made of.
type Config struct {
	// DB holds keys and business rows. Required. New brings its tables up to
	// date; closing it is the caller's.
	DB *db.Database
	// Processor takes the money. Required.
	Processor *processor.Client
	// Merchants may use the service with their API keys. The zero value: one
	// merchant, DevMerchant, without a key. That is for loopback only.
	Merchants Merchants
	// Lease is how long an attempt owns its key without renewing. Default 30 s.
	Lease time.Duration
	// Retention is how long answers are replayed. Default 24 h.
	Retention time.Duration
	// ProcessorMemory is how long the processor answers a repeated key with the
	// first result; after it nothing is sent again. Default 23 h, an hour less
	// than the simulated processor remembers.
	ProcessorMemory time.Duration
	// SettleTimeout is how long a request waits for its answer to be stored
	// before its caller gets a 503. Default 10 s.
	SettleTimeout time.Duration
	// Logger is told of refusals, replays and doubts. Default: nobody is.
	Logger *slog.Logger
	// Now is the clock of business rows. Default time.Now.
	Now func() time.Time
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Lease == 0 {
		c.Lease = onlyonce.DefaultLease
	}
	if c.Retention == 0 {
		c.Retention = onlyonce.DefaultRetention
	}
	if c.ProcessorMemory == 0 {
		c.ProcessorMemory = 23 * time.Hour
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields.
func (c Config) Validate() error {
	var errs []error
	if c.DB == nil {
		errs = append(errs, errors.New("config DB: is required"))
	}
	if c.Processor == nil {
		errs = append(errs, errors.New("config Processor: is required"))
	}
	if c.ProcessorMemory < 0 {
		errs = append(errs, fmt.Errorf("config ProcessorMemory: %v is negative", c.ProcessorMemory))
	}
	op := onlyonce.Op{Name: "config", Lease: c.Lease, Retention: c.Retention}
	return errors.Join(append(errs, op.Validate())...)
}
