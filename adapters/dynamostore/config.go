package dynamostore

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/onlyonce-go/onlyonce"
)

// DefaultTable is the table's name where none is given.
const DefaultTable = "onlyonce"

// DefaultMaxClockSkew is by how much clocks may differ where nothing is said.
const DefaultMaxClockSkew = 5 * time.Minute

// Config configures a Store. The zero value is the careful choice.
type Config struct {
	// Table is the name of the table. Default DefaultTable. With Open the URL
	// names it.
	Table string
	// Create makes Open create the table where there is none; see Store.Migrate.
	Create bool
	// SweepExpired makes Sweep delete what has expired, by reading through the
	// table a part at a time, which costs read units for all of it. It is for
	// servers without time to live; by default DynamoDB deletes by itself, and
	// Open insists that it is told to.
	SweepExpired bool
	// MaxClockSkew is by how much the clocks of any two processes that use the
	// table may differ. It is added to the age of a step's first send, so that
	// nothing is sent again past what a provider remembers: what remembers its keys
	// for no longer is never sent to again. Default 5 minutes; negative: none,
	// for a single process.
	MaxClockSkew time.Duration
	// Logger is told of items that are damaged, or not of this store's making,
	// which List, Sweep and Due pass over. Default slog.Default().
	Logger *slog.Logger
	// Now is the process's clock, for retention, turns and the age of sends; its
	// monotonic part is what leases and sends are watched by. nil means time.Now. A
	// clock without a monotonic part, as in tests, must never be set back or
	// forward.
	Now func() time.Time
	// Load are options of the SDK for Open, for credentials above all. Without
	// any the SDK's usual chain finds them.
	Load []func(*config.LoadOptions) error
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Table == "" {
		c.Table = DefaultTable
	}
	if c.MaxClockSkew == 0 {
		c.MaxClockSkew = DefaultMaxClockSkew
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate names what is wrong with the configuration.
func (c Config) Validate() error {
	if c.Table != "" && !regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`).MatchString(c.Table) {
		return configError("Table", "must have 3 to 255 letters, digits, or _ . -, got %q", c.Table)
	}
	return nil
}

// source is what a URL says.
type source struct {
	table, region, endpoint string
}

// parseURL reads dynamodb://table?region=…&endpoint=….
func parseURL(text string) (source, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "dynamodb" || u.Host == "" || (u.Path != "" && u.Path != "/") || u.User != nil {
		return source{}, configError("url", "must have the form dynamodb://table?region=eu-central-1; credentials do not belong in it")
	}
	s := source{table: u.Host}
	var errs []error
	for name, values := range u.Query() {
		switch {
		case len(values) != 1:
			errs = append(errs, configError("url", "has the parameter %s %d times", name, len(values)))
		case name == "region":
			s.region = values[0]
		case name == "endpoint":
			s.endpoint = values[0]
		default:
			errs = append(errs, configError("url", "has the unknown parameter %q: use region and endpoint", name))
		}
	}
	if e, err := url.Parse(s.endpoint); s.endpoint != "" && (err != nil || e.Host == "" || (e.Scheme != "http" && e.Scheme != "https")) {
		errs = append(errs, configError("url", "has an endpoint that is not http:// or https://"))
	}
	return s, errors.Join(errs...)
}

func configError(field, format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "check configuration", Hint: field + " " + fmt.Sprintf(format, args...)}
}
