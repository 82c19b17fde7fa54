package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/broker"
	"github.com/onlyonce-go/onlyonce/apps/payments/balances"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// balancesConsumeCmd keeps balances until it is told to stop.
type balancesConsumeCmd struct {
	Events      string        `required:"" placeholder:"URL" help:"The broker that serve publishes to: amqp://…, nats://… or kafka://HOST:9092,HOST:9092; ?name=NAME where it is not payments.events."`
	Store       string        `default:"sqlite:onlyonce.db" placeholder:"URL" help:"Where balances are kept, and the marks of events: sqlite:PATH or postgres://… It may be that of serve."`
	Lease       time.Duration `default:"30s" help:"How long the crash of a process keeps an event waiting that was delivered before."`
	Concurrency int           `default:"8" help:"How many events are handled at once. More than 1 helps with PostgreSQL; SQLite writes one at a time."`
	LogFormat   string        `default:"text" enum:"text,json" help:"Format of the log on standard error: text or json."`
	LogLevel    slog.Level    `default:"INFO" help:"Least level that is logged: DEBUG, INFO, WARN or ERROR."`
}

// Help is printed under the command's usage.
func (*balancesConsumeCmd) Help() string {
	return `Each event is added to its merchant's balance once, however often the broker delivers it and whatever is killed
meanwhile: its mark and its amount are one transaction, and the broker is told afterwards. Any number of processes may run
on one store; they share the events. An event that fails ten times is parked and waits for a person; onlyonce inbox retry
has a process that runs try it once more. SIGINT and SIGTERM end it after the events under way.`
}

// Run consumes until ctx ends.
func (c *balancesConsumeCmd) Run(ctx context.Context, std Streams) (err error) {
	address, err := broker.Parse(c.Events)
	if err != nil {
		return fmt.Errorf("--events: %w", err)
	}
	if c.Lease < 0 {
		return &usageError{fmt.Sprintf("--lease %v is negative", c.Lease), "write it like 30s"}
	}
	if c.Concurrency < 1 {
		return &usageError{fmt.Sprintf("--concurrency %d is not at least 1", c.Concurrency), "leave it out, or write it like 8"}
	}
	return storeFlag{c.Store}.open(ctx, func(d *db.Database) error {
		logger := newLogger(std.Err, c.LogFormat, c.LogLevel)
		keeper, err := balances.NewKeeper(ctx, balances.Config{DB: d, Lease: c.Lease, Logger: logger})
		if err != nil {
			return err
		}
		fmt.Fprintf(std.Out, "onlyonce balances: consuming from %s\n", address)
		house, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { keeper.Run(house) })
		err = broker.Consume(ctx, address, broker.Consumer{
			Name: balances.Consumer, Process: keeper.Process, Concurrency: c.Concurrency, Logger: logger,
		})
		stop()
		running.Wait()
		if err != nil {
			err = fmt.Errorf("balances consume: %w", err)
		}
		return errors.Join(err, keeper.Close(context.WithoutCancel(ctx)))
	})
}
