package cli

import (
	"context"
	"fmt"

	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// migrateCmd is about the tables of the keys and of the payments service.
type migrateCmd struct {
	Up    migrateUpCmd    `cmd:"" help:"Bring the tables up to date; serve does it by itself."`
	Print migratePrintCmd `cmd:"" help:"Print the statements, for people with a tool of their own."`
}

type migrateUpCmd struct{ storeFlag }

// Run migrates.
func (c *migrateUpCmd) Run(ctx context.Context, std Streams) error {
	return c.open(ctx, func(d *db.Database) error {
		if err := d.Migrate(ctx); err != nil {
			return err
		}
		fmt.Fprintln(std.Out, "the tables are up to date")
		return nil
	})
}

type migratePrintCmd struct{ storeFlag }

// Run prints. It opens nothing.
func (c *migratePrintCmd) Run(std Streams) error {
	return db.PrintMigrations(std.Out, c.Store)
}
