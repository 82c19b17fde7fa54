package cli

import (
	"context"
	"fmt"

	"github.com/onlyonce-go/onlyonce/apps/internal/reconcile"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// reconcileListCmd lists what is open.
type reconcileListCmd struct {
	storeFlag
	Limit int  `default:"1000" env:"-" help:"How many at most; 0 lists all."`
	JSON  bool `name:"json" env:"-" help:"Print JSON."`
}

// Run lists. Whether there are findings makes no difference to its exit code.
func (c *reconcileListCmd) Run(ctx context.Context, std Streams) error {
	if c.Limit < 0 {
		return &usageError{"--limit must not be negative", "0 lists all"}
	}
	return c.with(ctx, func(d *db.Database) error {
		if err := d.CheckVersion(ctx); err != nil {
			return err
		}
		findings, err := some(c.Limit, func(fn func(reconcile.Finding) error) error { return reconcile.ListOpen(ctx, d, fn) })
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(std.Out, map[string]any{"findings": findings})
		}
		if len(findings) == 0 {
			fmt.Fprintln(std.Out, "no open findings")
		}
		return printFindings(std.Out, findings, true)
	})
}

// reconcileAcceptCmd closes a finding.
type reconcileAcceptCmd struct {
	storeFlag
	ID     int64  `arg:"" help:"The finding's number, from: onlyonce reconcile list."`
	Reason string `required:"" env:"-" help:"Why it is right as it is. Kept for good."`
	Actor  string `env:"ONLYONCE_ACTOR,USER" help:"Who says so. Default: the user of this session."`
	JSON   bool   `name:"json" env:"-" help:"Print the finding as JSON."`
}

// Help says what accepting does, and what it does not.
func (c *reconcileAcceptCmd) Help() string {
	return `Accepting changes no key and no book. The finding counts no longer, also when later reports show it again, unless its amounts look otherwise then.`
}

// Run accepts.
func (c *reconcileAcceptCmd) Run(ctx context.Context, std Streams) error {
	if c.Actor == "" || c.Reason == "" {
		return &usageError{"--actor and --reason must not be empty", "say who accepts the finding, and why: --actor NAME --reason TEXT"}
	}
	return c.with(ctx, func(d *db.Database) error {
		if err := d.CheckVersion(ctx); err != nil {
			return err
		}
		f, err := reconcile.Accept(ctx, d, c.ID, c.Actor+": "+c.Reason)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(std.Out, f)
		}
		fmt.Fprintf(std.Out, "finding %d (%s) is accepted\n", f.ID, f.Kind)
		return nil
	})
}
