package cli

import (
	"fmt"

	"github.com/onlyonce-go/onlyonce/apps/payments"
)

// merchantsCmd is about merchants.
type merchantsCmd struct {
	Key merchantsKeyCmd `cmd:"" help:"Make an API key for a merchant."`
}

// merchantsKeyCmd makes an API key. It stores nothing: the hash goes into the
// service's configuration, the key to the merchant.
type merchantsKeyCmd struct {
	Name string `arg:"" help:"The merchant's name."`
	JSON bool   `name:"json" env:"-" help:"Print JSON."`
}

// Run makes and prints a key.
func (c *merchantsKeyCmd) Run(std Streams) error {
	key, stored := payments.NewAPIKey()
	if _, err := payments.ParseMerchants(map[string][]string{c.Name: {stored}}); err != nil {
		return &usageError{err.Error(), "choose a name like acme or acme-test"}
	}
	if c.JSON {
		return printJSON(std.Out, map[string]string{"merchant": c.Name, "key": key, "hash": stored})
	}
	fmt.Fprintf(std.Out, "# for the merchant; it is not shown again:\n%s\n# for the service's --config FILE (a merchant may have several keys):\nmerchants:\n  %s:\n    - %s\n", key, c.Name, stored)
	return nil
}
