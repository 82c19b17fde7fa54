package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
	"github.com/onlyonce-go/onlyonce/apps/internal/server"
	"github.com/onlyonce-go/onlyonce/apps/payments"
)

// serveCmd runs the payments service until it is told to stop.
type serveCmd struct {
	promiseFlags
	Listen           string          `default:"127.0.0.1:3000" placeholder:"HOST:PORT" help:"Address of the API; port 0 picks a free one."`
	Store            string          `default:"sqlite:onlyonce.db" placeholder:"URL" help:"Where keys and payments are kept: sqlite:PATH or postgres://…"`
	Config           kong.ConfigFlag `placeholder:"FILE" help:"YAML file with these flags, without --, and merchants."`
	Processor        string          `placeholder:"URL" help:"A card processor that runs elsewhere. Default: a simulated one in this process."`
	ProcessorJournal string          `placeholder:"FILE" help:"File of the simulated processor. Default: beside the SQLite file."`
	Lease            time.Duration   `default:"30s" help:"How long an attempt owns its key without renewing."`
	Retention        time.Duration   `default:"24h" help:"How long answers are replayed."`
	RecoverGrace     time.Duration   `default:"1m" help:"How long an operation that nobody retries must have waited before the service resumes it."`
	CatchUpTimeout   time.Duration   `default:"30s" help:"How long the start waits for operations that a crash has left, before requests are taken."`
	DrainTimeout     time.Duration   `default:"15s" help:"How long requests under way may take once the service is to stop."`
	Events           string          `placeholder:"URL" help:"A broker that charges and refunds are told to: amqp://…, nats://… or kafka://HOST:9092,HOST:9092; ?name=NAME where it is not to be payments.events. Default: none; events wait in the store."`
	Merchant         []string        `placeholder:"NAME=HASH" help:"A merchant and the hash of an API key, from: onlyonce merchants key NAME. Repeatable. Default: one merchant, dev, without a key, on loopback only."`
	LogFormat        string          `default:"text" enum:"text,json" help:"Format of the log on standard error: text or json."`
	LogLevel         slog.Level      `default:"INFO" help:"Least level that is logged: DEBUG, INFO, WARN or ERROR."`
}

// Run serves until ctx ends.
func (c *serveCmd) Run(ctx context.Context, std Streams) error {
	merchants, err := c.merchants()
	if err != nil {
		return &usageError{err.Error(), "make one with: onlyonce merchants key NAME"}
	}
	if scheme := keystore.Scheme(c.Store); keystore.Known(c.Store) && !servable(c.Store) && scheme != "memory" {
		return &usageError{
			"serve: the payments service cannot keep its books in a store of the kind " + scheme,
			"the payments service needs sqlite:PATH or postgres://… without schema; other stores are for keys of your own service",
		}
	}
	promises := c.promises()
	s, err := server.Start(ctx, server.Config{
		Listen: c.Listen, Store: c.Store, Processor: c.Processor, ProcessorJournal: c.ProcessorJournal,
		ProcessorTimeout: c.ProcessorTimeout, Promises: &promises, RecoverGrace: c.RecoverGrace, CatchUpTimeout: c.CatchUpTimeout,
		Lease: c.Lease, Retention: c.Retention, DrainTimeout: c.DrainTimeout,
		Events: c.Events, Merchants: merchants, Logger: newLogger(std.Err, c.LogFormat, c.LogLevel),
	})
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	c.greet(std.Out, s)
	select {
	case <-ctx.Done():
		fmt.Fprintln(std.Err, "onlyonce: stopping; requests under way are finished first")
	case err = <-s.Failed():
		err = fmt.Errorf("serve: %w", err)
	}
	if stopErr := s.Close(ctx); stopErr != nil {
		err = errors.Join(err, fmt.Errorf("stop: %w", stopErr))
	}
	return err
}

func (c *serveCmd) merchants() (payments.Merchants, error) {
	stored := map[string][]string{}
	for _, text := range c.Merchant {
		name, hash, ok := strings.Cut(text, "=")
		if !ok {
			return payments.Merchants{}, fmt.Errorf("--merchant %q is not NAME=sha256:HEX", text)
		}
		stored[name] = append(stored[name], hash)
	}
	return payments.ParseMerchants(stored)
}

// greet says where the service is. Its first line is what scripts wait for.
func (c *serveCmd) greet(w io.Writer, s *server.Server) {
	fmt.Fprintf(w, "onlyonce: listening on %s\n", s.URL)
	fmt.Fprintf(w, "onlyonce: the card processor is at %s (counts at /v1/stats)\n", s.ProcessorURL)
	auth := ""
	if len(c.Merchant) > 0 {
		auth = " -H 'Authorization: Bearer sk_…'"
	}
	curl := func(amount int) string {
		return fmt.Sprintf("curl -i %s/charges%s -H 'Content-Type: application/json' -H 'Idempotency-Key: demo-1' -d '{\"amount\":%d,\"currency\":\"ARS\",\"source\":\"tok_visa\"}'", s.URL, auth, amount)
	}
	fmt.Fprintf(w, "\n# charge a card:\n%s\n# the same again, as after a lost answer; the card is not charged again:\n%s\n# another amount under the same key is refused, 422:\n%s\n",
		curl(1500), curl(1500), curl(2000))
}

func newLogger(w io.Writer, format string, level slog.Level) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// served tells a listener that was closed from one that failed.
func served(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
