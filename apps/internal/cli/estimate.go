package cli

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/internal/keystore"
)

// estimateCmd says how much room keys will take, and how long a store takes for them.
type estimateCmd struct {
	PerDay    count    `required:"" placeholder:"N" help:"Operations a day: 2000000 or 2_000_000."`
	Retention span     `default:"24h" help:"How long answers are kept: 24h, 7d, 2w."`
	Row       byteSize `default:"1KB" help:"What an answer takes, body and headers: 500 (bytes), 1KB (1000 bytes), 64KiB (65536), 1.5MB."`
	Store     string   `placeholder:"URL" help:"A store to measure: what a key takes there, read from its own tables if they have 1,000 keys or more. Nothing is written without --sample or --latency."`
	Sample    bool     `env:"-" help:"Write keys of --row bytes to a place of their own beside the store (a schema in PostgreSQL, a file for SQLite), measure them, and remove the place."`
	Latency   bool     `env:"-" help:"Measure claim, completion and replay on the store itself, with keys of the scope onlyonce.estimate, which expire at once and are swept."`
	Keys      int      `default:"2000" help:"How many keys --latency writes and --sample measures; --sample writes half as many more before them."`
	JSON      bool     `name:"json" env:"-" help:"Print JSON."`
}

// Help is printed under the command's usage.
func (*estimateCmd) Help() string {
	return `Without --store the figures are what we have measured on each kind of store. KB, MB and GB are 1000, 1000² and 1000³
bytes; KiB and so on are 1024. Not counted: steps of operations, which are kept for 90 days, the log of the database,
what is expired and not swept yet, and your own tables.`
}

// Limits of what can be asked.
const (
	maxPerDay    = 1_000_000_000_000
	maxRow       = 1_000_000_000
	maxRetention = 100 * 365 * day
	minKeys      = 100
	maxKeys      = 1_000_000
)

// Validate refuses what makes no sense.
func (c *estimateCmd) Validate() error {
	switch {
	case c.PerDay == 0: // or not given
		return fmt.Errorf("--per-day is required: --per-day must be between 1 and %s", count(maxPerDay))
	case c.PerDay < 1 || c.PerDay > maxPerDay:
		return fmt.Errorf("--per-day must be between 1 and %s, got %s", count(maxPerDay), c.PerDay)
	case time.Duration(c.Retention) < time.Second || time.Duration(c.Retention) > maxRetention:
		return fmt.Errorf("--retention must be between 1s and %s, got %s", span(maxRetention), c.Retention)
	case c.Row < 1 || c.Row > maxRow:
		return fmt.Errorf("--row must be between 1 byte and %s, got %d bytes", byteSize(maxRow), c.Row)
	case c.Keys < minKeys || c.Keys > maxKeys:
		return fmt.Errorf("--keys must be between %d and %s, got %d", minKeys, count(maxKeys), c.Keys)
	case c.Store == "" && (c.Sample || c.Latency):
		return errors.New("--sample and --latency measure a store: name it with --store URL")
	}
	if _, err := c.load(); err != nil {
		return err
	}
	return nil
}

// load is how much there will be to keep.
type load struct {
	Rows  int64 // at a time
	Bytes int64 // of answers alone
}

// load computes it: rows = per day × days, rounded up.
func (c *estimateCmd) load() (load, error) {
	rows := new(big.Int).Mul(big.NewInt(int64(c.PerDay)), big.NewInt(int64(c.Retention)))
	rows.Add(rows, big.NewInt(int64(day)-1))
	rows.Div(rows, big.NewInt(int64(day)))
	size := new(big.Int).Mul(rows, big.NewInt(int64(c.Row)))
	if !rows.IsInt64() || !size.IsInt64() {
		return load{}, fmt.Errorf("%s a day of %s for %s are more bytes than can be counted", c.PerDay, c.Row, c.Retention)
	}
	return load{rows.Int64(), size.Int64()}, nil
}

// Run estimates.
func (c *estimateCmd) Run(ctx context.Context, std Streams) error {
	l, err := c.load()
	if err != nil {
		return err
	}
	e := estimate{cmd: c, load: l, prints: typical(int64(c.Row))}
	if c.Store != "" {
		if err := c.measure(ctx, std, &e); err != nil {
			return fmt.Errorf("estimate: %w", err)
		}
	}
	if c.JSON {
		return printJSON(std.Out, e.view())
	}
	return e.print(std.Out)
}

// measure asks the store that is named.
func (c *estimateCmd) measure(ctx context.Context, std Streams, e *estimate) error {
	if c.Sample {
		print, err := c.sample(ctx, std)
		if err != nil {
			return err
		}
		e.prints = []footprint{print}
	}
	if c.Sample && !c.Latency {
		return nil
	}
	return keysFlag{Store: c.Store}.with(ctx, func(s *keystore.Store) error {
		if !c.Sample {
			if err := e.live(ctx, s); err != nil {
				return err
			}
		}
		if !c.Latency {
			return nil
		}
		l, err := c.latencies(ctx, std, s)
		e.latency = l
		return err
	})
}
