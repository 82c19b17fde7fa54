package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// sweepCmd does the housekeeping of keys once; serve does it by itself.
type sweepCmd struct {
	storeFlag
	Grace time.Duration `default:"5m" help:"How long a lease must have been over before an attempt that nobody retries is decided."`
	JSON  bool          `name:"json" env:"-" help:"Print JSON."`
}

// Run sweeps.
func (c *sweepCmd) Run(ctx context.Context, std Streams) error {
	var r onlyonce.SweepResult
	err := c.with(ctx, func(d *db.Database) error {
		var err error
		r, err = onlyonce.Sweeper{Store: d.Keys(), Grace: c.Grace}.Once(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	if c.JSON {
		return printJSON(std.Out, map[string]any{"busy": r.Busy, "deleted": r.Deleted, "freed": r.Freed, "parked": r.Parked, "steps": r.Steps})
	}
	if r.Busy {
		fmt.Fprintln(std.Out, "another sweeper is at work")
		return nil
	}
	fmt.Fprintf(std.Out, "%d expired keys deleted, %d abandoned attempts freed, %d put in doubt, %d old steps deleted\n", r.Deleted, r.Freed, r.Parked, r.Steps)
	return nil
}
