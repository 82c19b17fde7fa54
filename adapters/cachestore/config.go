package cachestore

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
)

// Config configures a Store. The zero value caches in this process alone.
type Config struct {
	// MaxBytes is about how much memory the answers cached in this process may
	// take. Default 64 MiB.
	MaxBytes int64
	// MaxEntry is the size in bytes of the largest record that is cached, in
	// either tier. Default 256 KiB, or MaxBytes if that is less.
	MaxEntry int64
	// Margin is how long before its expiry an answer is no longer given from the
	// cache. It covers clocks of different speed, and the skew of clocks where a
	// store has several (Features.Observes). Default a five-hundredth of MaxAge,
	// which is as much as two clocks drift apart, at 500 parts in a million each
	// way, while an answer is in one tier after the other; 5 s at the least.
	Margin time.Duration
	// MaxAge is how long an answer is given from the cache before the store is
	// asked again, in each of the tiers. It bounds what the cache can miss that
	// is done to the database behind its back. Default 1 h.
	MaxAge time.Duration
	// ReadBack reads the record after each completion through this handle, so
	// that the first retry is a hit already. It costs one more round trip to the
	// store, and one to the shared tier, for every completed key. A failure of it
	// costs nothing else.
	ReadBack bool
	// Shared caches in Redis as well; nil does not.
	Shared *Shared
	// Now is this process's clock; nil means time.Now, whose times have a
	// monotonic reading. For tests.
	Now func() time.Time
}

// Shared is the tier that processes share.
type Shared struct {
	// Redis says where it is: one server, a cluster, or Sentinels.
	// Required. Time limits and retries are set as a cache needs them: no retries,
	// and no call longer than Timeout. DialTimeout, if unset, is 1 s; calls do not
	// wait for it.
	Redis *redis.UniversalOptions
	// Timeout bounds each call to Redis. Default 50 ms.
	Timeout time.Duration
	// Namespace begins the names of all values. Default "onlyonce".
	Namespace string
	// Secret authenticates the values; at least 16 bytes, the same in all
	// processes of one database and in no others. Default: made by whoever is
	// first, in the settings of the store; required where the store keeps none.
	Secret []byte
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.MaxBytes == 0 {
		c.MaxBytes = 64 << 20
	}
	if c.MaxEntry == 0 {
		c.MaxEntry = min(256<<10, c.MaxBytes)
	}
	if c.MaxAge == 0 {
		c.MaxAge = time.Hour
	}
	if c.Margin == 0 {
		c.Margin = max(5*time.Second, c.MaxAge/500)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Shared != nil {
		s := *c.Shared
		if s.Timeout == 0 {
			s.Timeout = 50 * time.Millisecond
		}
		if s.Namespace == "" {
			s.Namespace = "onlyonce"
		}
		c.Shared = &s
	}
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	if c.MaxBytes < 0 {
		errs = append(errs, configError("MaxBytes must not be negative, got %d", c.MaxBytes))
	}
	if c.MaxEntry < 0 || c.MaxEntry > c.MaxBytes {
		errs = append(errs, configError("MaxEntry must be between 0 and MaxBytes (%d), got %d", c.MaxBytes, c.MaxEntry))
	}
	if c.Margin < 0 {
		errs = append(errs, configError("Margin must not be negative, got %v", c.Margin))
	}
	if c.MaxAge < 0 {
		errs = append(errs, configError("MaxAge must not be negative, got %v", c.MaxAge))
	}
	if c.Shared != nil {
		errs = append(errs, c.Shared.validate())
	}
	return errors.Join(errs...)
}

func (s Shared) validate() error {
	var errs []error
	if s.Redis == nil || len(s.Redis.Addrs) == 0 {
		errs = append(errs, configError("Shared.Redis.Addrs must name a server"))
	}
	if s.Timeout < time.Millisecond {
		errs = append(errs, configError("Shared.Timeout must be at least a millisecond, got %v", s.Timeout))
	}
	if s.Secret != nil && len(s.Secret) < minSecret {
		errs = append(errs, configError("Shared.Secret must have at least %d bytes, got %d", minSecret, len(s.Secret)))
	}
	return errors.Join(errs...)
}

// validateFor refuses what the store beneath cannot do.
func (c Config) validateFor(store onlyonce.Store) error {
	if store == nil {
		return configError("the store to stand before is nil: the cache is no store by itself")
	}
	err := c.Validate()
	if c.Shared == nil || c.Shared.Secret != nil {
		return err
	}
	if _, ok := onlyonce.SettingsOf(store); !ok {
		return errors.Join(err, configError("Shared.Secret is required: the %s store keeps no settings to make one in", store.Features().Name))
	}
	return err
}

func configError(format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "configure cachestore", Hint: fmt.Sprintf(format, args...)}
}
