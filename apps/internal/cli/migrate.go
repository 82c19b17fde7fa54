package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// migrateCmd is about the tables of the keys and of the payments service.
type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Bring the tables up to date; serve does it by itself."`
	Status migrateStatusCmd `cmd:"" help:"List the migrations, applied and pending. Exit code 1 when one is pending."`
	Print  migratePrintCmd  `cmd:"" help:"Print the statements, for people with a tool of their own."`
}

// tablesFlags say which tables are meant: by default all that serve needs, where the
// store is one that serve can use; of other stores the keys alone.
type tablesFlags struct {
	keysFlag
	KeysOnly bool `help:"The tables of keys alone, for stores that the payments service does not use."`
}

// payments tells whether the tables of the payments service are meant too.
func (f tablesFlags) payments() bool {
	return !f.KeysOnly && servable(f.Store)
}

type migrateUpCmd struct {
	tablesFlags
	Wait span `default:"10m" help:"How long to wait for another process that has a SQLite file locked; it may be migrating it."`
}

// Validate refuses what makes no sense.
func (c *migrateUpCmd) Validate() error {
	if c.Wait < 0 {
		return fmt.Errorf("--wait must not be negative, got %s", c.Wait)
	}
	return nil
}

// Run migrates. Several processes may do it at once.
func (c *migrateUpCmd) Run(ctx context.Context, std Streams) error {
	waits, cancel := context.WithTimeout(ctx, time.Duration(c.Wait))
	defer cancel()
	for said := false; ; said = true {
		err := c.up(ctx)
		switch {
		case err == nil:
			fmt.Fprintf(std.Out, "the tables of %s are up to date\n", c.tables())
			return nil
		case !keystore.Locked(err) || waits.Err() != nil:
			return fmt.Errorf("migrate: %w", err)
		case !said:
			fmt.Fprintln(std.Err, "onlyonce: another process has the store locked; waiting for it")
		}
	}
}

// up migrates, once. A store that is locked is waited for by the store itself, for
// some seconds.
func (c *migrateUpCmd) up(ctx context.Context) error {
	if !c.payments() {
		return keystore.Migrate(ctx, c.Store)
	}
	return storeFlag{Store: c.Store}.open(ctx, func(d *db.Database) error { return d.Migrate(ctx) })
}

// tables says which ones are meant.
func (f tablesFlags) tables() string {
	if f.payments() {
		return "keys and of the payments service"
	}
	return "keys"
}

type migratePrintCmd struct{ tablesFlags }

// Run prints. It opens nothing.
func (c *migratePrintCmd) Run(std Streams) error {
	if !c.payments() {
		return keystore.Print(std.Out, c.Store)
	}
	return db.PrintMigrations(std.Out, c.Store)
}
