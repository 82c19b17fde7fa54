package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	Wait           span `default:"10m" help:"How long to wait for another process that has a SQLite file locked; it may be migrating it."`
	PartitionEvery span `default:"0s" help:"PostgreSQL alone: have answers and kept requests in partitions by the time when they expire, of so long a period each, like 24h. Tables in use are switched over. 0: leave them as they are."`
	PartitionAhead int  `default:"7" help:"How many periods ahead there are partitions, 1 to 100: --partition-every times this should be the retention or more."`
}

// Validate refuses what makes no sense.
func (c *migrateUpCmd) Validate() error {
	if c.Wait < 0 {
		return fmt.Errorf("--wait must not be negative, got %s", c.Wait)
	}
	if c.PartitionEvery < 0 || c.PartitionAhead < 1 || c.PartitionAhead > 100 {
		return errors.New("--partition-every must not be negative, and --partition-ahead must be from 1 to 100")
	}
	if scheme := keystore.Scheme(c.Store); c.PartitionEvery > 0 && scheme != "postgres" && scheme != "postgresql" {
		return fmt.Errorf("--partition-every is for postgres:// alone, not for a store of the kind %s: leave it out", scheme)
	}
	return nil
}

// Run migrates. Several processes may do it at once.
func (c *migrateUpCmd) Run(ctx context.Context, std Streams) error {
	waits, cancel := context.WithTimeout(ctx, time.Duration(c.Wait))
	defer cancel()
	for said := false; ; said = true {
		made, err := c.up(ctx)
		if err == nil && c.PartitionEvery > 0 {
			err = keystore.Partition(ctx, c.Store, keystore.Partitions{Every: time.Duration(c.PartitionEvery), Ahead: c.PartitionAhead})
		}
		switch {
		case err == nil:
			c.print(std.Out, made)
			return nil
		case !keystore.Locked(err) || waits.Err() != nil:
			return fmt.Errorf("migrate: %w", err)
		case !said:
			fmt.Fprintln(std.Err, "onlyonce: another process has the store locked; waiting for it")
		}
	}
}

// up migrates, once. A store that is locked is waited for by the store itself, for
// some seconds. made tells that the payments service had no tables before.
func (c *migrateUpCmd) up(ctx context.Context) (made bool, err error) {
	if !c.payments() {
		return false, keystore.Migrate(ctx, c.Store)
	}
	before, err := db.Status(ctx, c.Store)
	if err != nil {
		return false, err
	}
	made = true
	for _, m := range before {
		made = made && !m.Applied
	}
	return made, storeFlag{Store: c.Store}.open(ctx, func(d *db.Database) error { return d.Migrate(ctx) })
}

// print says what there is now.
func (c *migrateUpCmd) print(out io.Writer, made bool) {
	if !keystore.HasTables(c.Store) {
		fmt.Fprintf(out, "a store of the kind %s needs no tables; checked\n", keystore.Scheme(c.Store))
		return
	}
	fmt.Fprintf(out, "the tables of %s are up to date\n", c.tables())
	if c.PartitionEvery > 0 {
		fmt.Fprintf(out, "answers and kept requests are in partitions of %s, %d ahead\n", c.PartitionEvery, c.PartitionAhead)
	}
	if made {
		fmt.Fprintln(out, "the tables of the payments service were made; --keys-only leaves them out")
	}
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
