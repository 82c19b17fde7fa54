package server

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/broker"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/provider"
)

// Config says what to run. The zero value is what a fresh clone runs.
type Config struct {
	// Listen is the address of the API. Default 127.0.0.1:3000; port 0 picks a
	// free one. Another host than loopback needs Merchants.
	Listen string
	// Store is where keys and business rows are: sqlite:PATH or postgres://….
	// Default sqlite:onlyonce.db.
	Store string
	// Processor is the URL of a processor that runs elsewhere. Empty: one runs
	// in this process, on a free port of loopback.
	Processor string
	// ProcessorJournal is the file of the processor in this process. Default: a
	// file beside that of SQLite, else onlyonce-processor.jsonl.
	ProcessorJournal string
	// ProcessorTimeout bounds each call of the processor. Default 10 s.
	ProcessorTimeout time.Duration
	// Promises is what the processor promises: how long it honours keys, whether
	// and when it can be asked. What is not promised is not relied on. Default:
	// what the simulated processor in this process keeps, which keeps what stands
	// here and no more. The name is the service's own.
	Promises *provider.Traits
	// RecoverGrace is how long an operation that nobody retries must have waited
	// before it is resumed. Default: that of the library, 1 min.
	RecoverGrace time.Duration
	// CatchUpTimeout is how long the start waits for operations that a crash has
	// left, before new requests are taken. Default 30 s; what is left then goes on
	// behind the requests.
	CatchUpTimeout time.Duration
	// Lease and Retention are those of keys. Default 30 s and 24 h.
	Lease, Retention time.Duration
	// DrainTimeout bounds how long handlers may take to end once the server is
	// to stop. Default 15 s.
	DrainTimeout time.Duration
	// Events is the URL of the broker that charges and refunds are told to, as package
	// broker has it. Empty: nobody is told, and events wait in their table.
	Events string
	// Merchants may use the API; none: everybody on this machine, as "dev".
	Merchants payments.Merchants
	// Logger is told what happens. Default: nobody is.
	Logger *slog.Logger
}

// Defaults of a Config.
const (
	DefaultListen  = "127.0.0.1:3000"
	DefaultStore   = "sqlite:onlyonce.db"
	DefaultJournal = "onlyonce-processor.jsonl"
	DefaultDrain   = 15 * time.Second
	DefaultCatchUp = 30 * time.Second
	// DefaultMemory is an hour less than the simulated processor remembers keys.
	DefaultMemory = 23 * time.Hour
)

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.Store == "" {
		c.Store = DefaultStore
	}
	if c.ProcessorJournal == "" {
		c.ProcessorJournal = journalBeside(c.Store)
	}
	if c.ProcessorTimeout == 0 {
		c.ProcessorTimeout = processor.DefaultTimeout
	}
	if c.Promises == nil {
		c.Promises = &provider.Traits{Memory: DefaultMemory, Lookup: true}
	}
	if c.CatchUpTimeout == 0 {
		c.CatchUpTimeout = DefaultCatchUp
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrain
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// simulated is a processor that keeps what is promised, and no more: one that
// honours no keys charges a card for each request.
func (c Config) simulated() processor.Config {
	return processor.Config{
		Path: c.ProcessorJournal, IgnoreKeys: c.Promises.Memory == 0, NoLookup: !c.Promises.Lookup, VisibleAfter: c.Promises.Visible,
		KeyMemory: max(c.Promises.Memory, DefaultMemory) + time.Hour,
	}
}

// journalBeside names the processor's file after that of SQLite.
func journalBeside(store string) string {
	path, ok := strings.CutPrefix(store, "sqlite:")
	if !ok {
		return DefaultJournal
	}
	return strings.TrimSuffix(path, filepath.Ext(path)) + "-processor.jsonl"
}

// Error is a setting that cannot be; Hint says what to do.
type Error struct {
	Field, Text, Hint string
	// Taken: the setting is sound, but the address cannot be had just now.
	Taken bool
}

// Error names the setting.
func (e *Error) Error() string { return e.Field + " " + e.Text }

// Validate refuses what would not run, or would not be safe.
func (c Config) Validate() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return &Error{Field: "--listen", Text: fmt.Sprintf("%q is not HOST:PORT", c.Listen), Hint: "write it like 127.0.0.1:3000"}
	}
	if c.Merchants.Empty() && !loopback(host) {
		return &Error{
			Field: "--listen", Text: fmt.Sprintf("%q can be reached from other machines, and no merchants are configured", c.Listen),
			Hint: "without merchants everybody may charge cards: make keys with `onlyonce merchants key NAME`, or listen on 127.0.0.1",
		}
	}
	if c.Processor != "" {
		if u, err := url.Parse(c.Processor); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return &Error{Field: "--processor", Text: fmt.Sprintf("%q is not an http URL", c.Processor), Hint: "write it like http://127.0.0.1:9090"}
		}
	}
	if c.Events != "" {
		if _, err := broker.Parse(c.Events); err != nil {
			return fmt.Errorf("--events: %w", err)
		}
	}
	durations := map[string]time.Duration{
		"--processor-timeout": c.ProcessorTimeout, "--lease": c.Lease, "--retention": c.Retention, "--drain-timeout": c.DrainTimeout,
		"--recover-grace": c.RecoverGrace, "--catch-up-timeout": c.CatchUpTimeout,
	}
	if c.Promises != nil {
		durations["--processor-memory"], durations["--processor-visible"] = c.Promises.Memory, c.Promises.Visible
	}
	for _, name := range slices.Sorted(maps.Keys(durations)) {
		if d := durations[name]; d < 0 {
			return &Error{Field: name, Text: fmt.Sprintf("%v is negative", d), Hint: "write it like 30s"}
		}
	}
	return nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
