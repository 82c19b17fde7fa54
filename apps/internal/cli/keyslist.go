package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/onlyonce-go/onlyonce"
)

// keysListCmd lists keys, without their answers.
type keysListCmd struct {
	keysFlag
	State string `enum:",in_progress,completed,failed_retryable,in_doubt" default:"" help:"Only keys in this state: in_progress, completed, failed_retryable or in_doubt."`
	Scope string `help:"Only keys of this scope: in the payments service, the merchant."`
	Limit int    `default:"1000" help:"How many at most; 0 lists all."`
	JSON  bool   `name:"json" env:"-" help:"Print JSON."`
}

// Run lists.
func (c *keysListCmd) Run(ctx context.Context, std Streams) error {
	if c.Limit < 0 {
		return &usageError{"--limit must not be negative", "0 lists all"}
	}
	keys, more := []keyView{}, false
	err := c.look(ctx, func(o opened) error {
		ops, err := o.operators()
		if err == nil {
			keys, more, err = c.list(ctx, ops)
		}
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.Out, map[string]any{"keys": keys, "more": more})
	}
	if len(keys) == 0 {
		fmt.Fprintln(std.Out, "no keys")
		return nil
	}
	w := tabwriter.NewWriter(std.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SCOPE\tKEY\tOPERATION\tNAME\tSTATE\tRESOURCE\tATTEMPTS\tCREATED\tREASON")
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", k.Scope, k.Key, k.Operation, k.Name, k.State, k.Resource, k.Attempts, k.CreatedAt.Format("2006-01-02T15:04:05Z"), k.Reason)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if more {
		fmt.Fprintf(std.Out, "and more; --limit 0 lists all\n")
	}
	return nil
}

// listPage is how many keys are read at a time: with their answers, which may be large.
const listPage = 100

func (c *keysListCmd) list(ctx context.Context, ops onlyonce.OperatorStore) (keys []keyView, more bool, err error) {
	keys = []keyView{}
	filter := onlyonce.ListFilter{State: onlyonce.State(c.State), Scope: c.Scope, Limit: listPage}
	if c.Limit > 0 {
		filter.Limit = min(c.Limit+1, listPage)
	}
	for {
		page, err := ops.List(ctx, filter)
		if err != nil {
			return nil, false, fmt.Errorf("list keys: %w", err)
		}
		for _, r := range page.Records {
			if c.Limit > 0 && len(keys) == c.Limit {
				return keys, true, nil
			}
			v := viewOf(r)
			v.Answer = nil
			keys = append(keys, v)
		}
		if page.Next == "" {
			return keys, false, nil
		}
		filter.After = page.Next
	}
}
