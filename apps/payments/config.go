package payments

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/provider"
)

// DevMerchant is the one merchant of a service without configured merchants.
const DevMerchant = "dev"

// Config says what a Service is made of.
type Config struct {
	// DB holds keys and business rows. Required. New brings its tables up to
	// date; closing it is the caller's.
	DB *db.Database
	// Provider takes the money. Required. Its name is part of derived keys and
	// references, and must stay what it is.
	Provider provider.Provider
	// Merchants may use the service with their API keys. The zero value: one
	// merchant, DevMerchant, without a key. That is for loopback only.
	Merchants Merchants
	// Lease is how long an attempt owns its key without renewing. Default 30 s.
	Lease time.Duration
	// Retention is how long answers are replayed. Default 24 h.
	Retention time.Duration
	// SettleTimeout is how long a request waits for its answer to be stored
	// before its caller gets a 503. Default 10 s.
	SettleTimeout time.Duration
	// RecoverEvery is between two looks for operations that nobody retries, and
	// RecoverGrace how long one must have waited before it is resumed. Defaults
	// 10 s and 1 min, those of onlyonce.Recoverer.
	RecoverEvery, RecoverGrace time.Duration
	// RecoverAttempts is how often that is tried before a person is told. Default
	// 10, as there.
	RecoverAttempts int
	// ReserveFor is how long a checkout whose card was never asked keeps its
	// stock, when nobody goes on with it. Default 15 min.
	ReserveFor time.Duration
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
	if c.ReserveFor == 0 {
		c.ReserveFor = 15 * time.Minute
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
	if c.Provider == nil {
		errs = append(errs, errors.New("config Provider: is required"))
	}
	for name, d := range map[string]time.Duration{
		"RecoverEvery": c.RecoverEvery, "RecoverGrace": c.RecoverGrace, "ReserveFor": c.ReserveFor,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("config %s: %v is negative", name, d))
		}
	}
	if c.RecoverAttempts < 0 {
		errs = append(errs, fmt.Errorf("config RecoverAttempts: %d is negative", c.RecoverAttempts))
	}
	op := onlyonce.Op{Name: "config", Lease: c.Lease, Retention: c.Retention}
	return errors.Join(append(errs, op.Validate())...)
}
