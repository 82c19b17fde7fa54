package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/onlyonce-go/onlyonce/apps/payments/balances"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
)

// balancesCmd is about merchants' balances, which are kept from the service's events.
type balancesCmd struct {
	Consume balancesConsumeCmd `cmd:"" help:"Consume the service's events, and keep balances from them."`
	Show    balancesShowCmd    `cmd:"" help:"Print the balances."`
}

// balancesShowCmd prints balances.
type balancesShowCmd struct {
	storeFlag
	Merchant string `placeholder:"NAME" help:"Only those of this merchant."`
	JSON     bool   `name:"json" env:"-" help:"Print JSON."`
}

// Help is printed under the command's usage.
func (*balancesShowCmd) Help() string {
	return `A balance is what a merchant was charged less what was refunded, in minor units of its currency (1500 EUR are 15.00),
as far as events have come. No store is made or changed.`
}

// Run prints.
func (c *balancesShowCmd) Run(ctx context.Context, std Streams) error {
	var all []balances.Balance
	err := c.with(ctx, func(d *db.Database) (err error) {
		there, err := balances.Kept(ctx, d)
		switch {
		case err != nil:
			return err
		case !there:
			return &usageError{"balances show: no balances are kept in this store", "name the store of `onlyonce balances consume`, which makes them: --store URL"}
		}
		all, err = balances.List(ctx, d, c.Merchant)
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.Out, map[string]any{"balances": append([]balances.Balance{}, all...)})
	}
	return printBalances(std.Out, all)
}

func printBalances(w io.Writer, all []balances.Balance) error {
	if len(all) == 0 {
		fmt.Fprintln(w, "no balances")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MERCHANT\tCURRENCY\tAMOUNT")
	for _, b := range all {
		fmt.Fprintf(t, "%s\t%s\t%d\n", b.Merchant, b.Currency, b.Amount)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
