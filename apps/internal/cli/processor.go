package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alecthomas/kong"

	"github.com/onlyonce-go/onlyonce/apps/internal/server"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// processorCmd runs the simulated processor as a process of its own, so that
// several services can share it and it survives them.
type processorCmd struct {
	Listen  string          `default:"127.0.0.1:9090" placeholder:"HOST:PORT" help:"Address of the processor; port 0 picks a free one."`
	Journal string          `default:"onlyonce-processor.jsonl" placeholder:"FILE" help:"File that it remembers charges in."`
	Config  kong.ConfigFlag `placeholder:"FILE" help:"YAML file with these flags, without --."`
	Memory  time.Duration   `default:"24h" help:"How long it remembers idempotency keys."`
	// Together with what serve is told of its processor: they must agree.
	IgnoreKeys bool          `help:"Honour no idempotency keys: serve needs --processor-memory=0."`
	NoLookup   bool          `help:"Answer no questions by reference: serve needs --no-processor-lookup."`
	Visible    time.Duration `help:"How old a charge must be before a question by reference finds it: serve needs --processor-visible of at least that."`
	Hang       time.Duration `help:"How long tok_timeout keeps the client waiting. Default: until the client gives up."`
}

// Run serves until ctx ends.
func (c *processorCmd) Run(ctx context.Context, std Streams) error {
	p, err := server.StartProcessor(ctx, c.Listen, processor.Config{
		Path: c.Journal, KeyMemory: c.Memory, Hang: c.Hang, IgnoreKeys: c.IgnoreKeys, NoLookup: c.NoLookup, VisibleAfter: c.Visible,
	})
	if err != nil {
		return fmt.Errorf("processor: %w", err)
	}
	fmt.Fprintf(std.Out, "onlyonce processor: listening on %s\n", p.URL)
	select {
	case <-ctx.Done():
	case err = <-p.Failed():
		err = served(err)
	}
	return errors.Join(err, p.Close(ctx))
}
