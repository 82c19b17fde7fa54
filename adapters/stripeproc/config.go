package stripeproc

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/provider"
)

// Defaults of a Config, and the limits that Stripe's documentation sets.
const (
	// DefaultBaseURL is Stripe's API.
	DefaultBaseURL = "https://api.stripe.com"
	// DefaultName is the provider's name, part of derived keys.
	DefaultName = "stripe"
	// DefaultTimeout bounds one HTTP request.
	DefaultTimeout = 30 * time.Second
	// DefaultMemory is Stripe's promise less an hour, for what clocks, queues
	// and slow connections take.
	DefaultMemory = promisedMemory - time.Hour
	// DefaultVisible is longer than the memory on purpose; see Config.Visible.
	DefaultVisible = 24 * time.Hour

	// Keys are kept for at least 24 hours ("Idempotent requests").
	promisedMemory = 24 * time.Hour
	// Search is behind by up to an hour during outages ("Search
	// PaymentIntents" in the API reference).
	documentedLag = time.Hour
)

// Config configures a Provider. Only Key is required; the zero value of every
// other field is the careful choice. Printing or logging a Config does not show
// the key.
type Config struct {
	// Key is the secret or restricted API key ("sk_…", "rk_…"). It needs to
	// write and read PaymentIntents and refunds. It decides the mode: live or
	// test. Rotating it changes nothing else.
	Key string `json:"-"`
	// BaseURL is where the API is, without /v1. Default https://api.stripe.com;
	// http is for loopback addresses only.
	BaseURL string
	// Account is the connected account that is acted for ("acct_…", the header
	// Stripe-Account). Empty: the key's own.
	Account string
	// Name is the provider's name in keys and references. It must never change,
	// and must differ where one service uses several accounts or both modes.
	// Default "stripe".
	Name string
	// OffSession says that the customers are not there when they are charged.
	// Default false: they are, but nobody shows them a bank's page. Either way
	// a card that needs authentication is declined.
	OffSession bool
	// NoSearch is for accounts without the search API (India's). Charges are
	// then not looked up: their doubt ends by sending again, within Memory, or
	// by a person. Refunds are listed, not searched for.
	NoSearch bool
	// Memory is how long a lost charge may be sent again under its key.
	// Default 23 h, at most the 24 h that Stripe promises; negative: nothing is
	// sent twice.
	Memory time.Duration
	// Visible is how long after a send "not found" proves that there was no
	// charge. Default 24 h, at least 1 h; negative: never. Stripe documents that
	// search is behind by up to an hour during outages and promises no bound. Up
	// to Memory the same key is the safer question, so it costs little to
	// wait: only what Stripe answered with a stored error (a 500 without an
	// effect) stays in doubt for longer.
	Visible time.Duration
	// Timeout bounds one HTTP request from dialling to the last byte of the
	// answer; the deadline of the send does too. Default 30 s.
	Timeout time.Duration
	// Transport is what requests go through. Default: one of its own, with
	// net/http's defaults. It must not send anything again by itself.
	Transport http.RoundTripper
}

// WithDefaults returns a copy with the defaults filled in. Transport stays nil:
// New makes one.
func (c Config) WithDefaults() Config {
	if c.BaseURL == "" {
		c.BaseURL = DefaultBaseURL
	}
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.Memory == 0 {
		c.Memory = DefaultMemory
	}
	if c.Visible == 0 {
		c.Visible = DefaultVisible
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	return c
}

// Validate joins all that is wrong with the configuration, naming the fields.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	switch {
	case !headerSafe(c.Key):
		errs = append(errs, configError("Key must be an API key: printable ASCII without spaces"))
	case strings.HasPrefix(c.Key, "pk_"):
		errs = append(errs, configError("Key is a publishable key, which cannot charge; use a secret or restricted one"))
	}
	if c.Account != "" && !headerSafe(c.Account) {
		errs = append(errs, configError("Account must be an id like acct_123, got %q", c.Account))
	}
	if err := checkURL(c.BaseURL); err != nil {
		errs = append(errs, err)
	}
	if !printable(c.Name) || len(c.Name) > 255 {
		errs = append(errs, configError("Name must have 1 to 255 printable ASCII characters, got %q", c.Name))
	}
	if c.Memory > promisedMemory {
		errs = append(errs, configError("Memory must not be over the %v that Stripe promises, got %v", promisedMemory, c.Memory))
	}
	if c.Visible > 0 && c.Visible < documentedLag {
		errs = append(errs, configError("Visible must be at least %v, which search can be behind, got %v", documentedLag, c.Visible))
	}
	if c.Timeout < 0 {
		errs = append(errs, configError("Timeout must not be negative, got %v", c.Timeout))
	}
	return errors.Join(errs...)
}

// checkURL lets a secret key leave in clear text for this machine only.
func checkURL(base string) error {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		// The error would repeat the URL, and what is wrong may be a password.
		return configError("BaseURL is not a URL")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Host == "":
		return configError("BaseURL must be scheme, host and perhaps a path, like %s", DefaultBaseURL)
	case u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	}
	return configError("BaseURL must be https (http only for loopback addresses), got %s", base)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func headerSafe(s string) bool { return printable(s) && !strings.Contains(s, " ") }

func printable(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

func configError(format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "configure stripeproc", Hint: fmt.Sprintf(format, args...)}
}

// String shows the configuration without the key.
func (c Config) String() string {
	return fmt.Sprintf("stripeproc{key %s, %s, account %q, name %q}", redacted(c.Key), c.BaseURL, c.Account, c.Name)
}

// GoString is String, so that %#v does not show the key either.
func (c Config) GoString() string { return c.String() }

// LogValue is the configuration without the key.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("key", redacted(c.Key)), slog.String("base_url", c.BaseURL),
		slog.String("account", c.Account), slog.String("name", c.Name),
	)
}

// redacted keeps what tells a key's kind and mode: "sk_test_…".
func redacted(key string) string {
	kind, rest, ok := strings.Cut(key, "_")
	mode, _, ok2 := strings.Cut(rest, "_")
	if !ok || !ok2 || len(kind)+len(mode) > 8 {
		return "[redacted]"
	}
	return kind + "_" + mode + "_[redacted]"
}

// traits is what the configuration promises of Stripe.
func (c Config) traits() provider.Traits {
	return provider.Traits{Name: c.Name, Memory: max(c.Memory, 0), Lookup: true, Visible: max(c.Visible, 0)}
}
