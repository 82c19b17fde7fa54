package redisstore

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Config configures a Store. The zero value is the careful choice.
type Config struct {
	// Prefix begins the name of every key, so that several services can share
	// a server: at most 64 letters, digits and ":", "_", "-", ".". Default
	// "onlyonce:".
	Prefix string
	// WaitReplicas is how many replicas must have a write before it counts as
	// confirmed. A write that too few confirm in time is ErrUncertain: it
	// stands, may be lost in a failover, and is to be repeated. This makes a
	// loss rarer and does not rule it out. Default 0: none.
	WaitReplicas int
	// WaitTimeout is how long to wait for them. It must be shorter than the
	// client's read timeout. Default 1 s.
	WaitTimeout time.Duration
	// StepRetention is how long the server keeps the steps of a key that is
	// settled, at the least. It should not be shorter than the Sweeper's.
	// Default onlyonce.FreedStepRetention.
	StepRetention time.Duration
	// SweepKeys is how many keys one Sweep looks at, about. Default 50,000, which
	// keeps a server busy for about a second, spread over the sweep: ten million
	// keys are walked in about four hours by a sweep a minute, faster where there is
	// something to do.
	SweepKeys int
	// AssumeNoEviction skips the check that no server evicts keys, for servers
	// that refuse INFO and CONFIG GET. Whoever sets it has made sure that
	// maxmemory-policy is noeviction: otherwise keys run again without a trace.
	AssumeNoEviction bool
	// Logger is told, when the store is opened, what Notes says. Default: nobody
	// is.
	Logger *slog.Logger
	// Now replaces the servers' clock. For tests only.
	Now func() time.Time
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = "onlyonce:"
	}
	if c.WaitTimeout == 0 {
		c.WaitTimeout = time.Second
	}
	if c.StepRetention == 0 {
		c.StepRetention = onlyonce.FreedStepRetention
	}
	if c.SweepKeys == 0 {
		c.SweepKeys = 50_000
	}
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields.
func (c Config) Validate() error {
	var errs []error
	if c.Prefix != "" && !regexp.MustCompile(`^[A-Za-z0-9:_.-]{1,64}$`).MatchString(c.Prefix) {
		// No braces, which would put all keys in one slot; nothing that SCAN
		// would take for a pattern.
		errs = append(errs, configError("Prefix must be at most 64 letters, digits and : _ - . characters, got %q", c.Prefix))
	}
	if c.WaitReplicas < 0 {
		errs = append(errs, configError("WaitReplicas must not be negative, got %d", c.WaitReplicas))
	}
	if c.WaitTimeout < 0 || (c.WaitTimeout > 0 && c.WaitTimeout < time.Millisecond) {
		errs = append(errs, configError("WaitTimeout must be at least a millisecond, got %v", c.WaitTimeout))
	}
	if c.StepRetention < 0 || c.StepRetention > maxDuration {
		errs = append(errs, configError("StepRetention must be positive and at most %v, got %v", maxDuration, c.StepRetention))
	}
	if c.SweepKeys < 0 {
		errs = append(errs, configError("SweepKeys must not be negative, got %d", c.SweepKeys))
	}
	return errors.Join(errs...)
}

func configError(format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "configure redisstore", Hint: fmt.Sprintf(format, args...)}
}
