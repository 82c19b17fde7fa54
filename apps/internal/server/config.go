package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
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
	// Lease and Retention are those of keys. Default 30 s and 24 h.
	Lease, Retention time.Duration
	// DrainTimeout bounds how long handlers may take to end once the server is
	// to stop. Default 15 s.
	DrainTimeout time.Duration
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
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrain
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
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
	for name, d := range map[string]time.Duration{
		"--processor-timeout": c.ProcessorTimeout, "--lease": c.Lease, "--retention": c.Retention, "--drain-timeout": c.DrainTimeout,
	} {
		if d < 0 {
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
