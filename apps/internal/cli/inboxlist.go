package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// inboxListCmd lists messages that are in doubt.
type inboxListCmd struct {
	keysFlag
	Consumer string `help:"Only messages of this consumer."`
	Limit    int    `default:"1000" help:"How many at most; 0 lists all."`
	JSON     bool   `name:"json" env:"-" help:"Print JSON."`
}

// Run lists.
func (c *inboxListCmd) Run(ctx context.Context, std Streams) error {
	if c.Limit < 0 {
		return &usageError{"--limit must not be negative", "0 lists all"}
	}
	messages, more := []messageView{}, false
	err := c.look(ctx, func(o opened) error {
		err := o.inboxes()
		if err == nil {
			messages, more, err = c.list(ctx, o.Store.Store)
		}
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(std.Out, map[string]any{"messages": messages, "more": more})
	}
	if len(messages) == 0 {
		fmt.Fprintln(std.Out, "no messages are parked")
		return nil
	}
	w := tabwriter.NewWriter(std.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CONSUMER\tID\tKEY\tSTATE\tBYTES\tCREATED\tREASON")
	for _, m := range messages {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", m.Consumer, plain(m.ID), m.Key, m.State, m.PayloadBytes, m.CreatedAt.Format("2006-01-02T15:04:05Z"), plain(m.Reason))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if more {
		fmt.Fprintln(std.Out, "and more; --limit 0 lists all")
	}
	return nil
}

func (c *inboxListCmd) list(ctx context.Context, store onlyonce.Store) (messages []messageView, more bool, err error) {
	messages = []messageView{}
	for after := ""; ; {
		page, err := inbox.List(ctx, store, c.Consumer, after)
		if err != nil {
			return nil, false, fmt.Errorf("list messages: %w", err)
		}
		for _, e := range page.Entries {
			if c.Limit > 0 && len(messages) == c.Limit {
				return messages, true, nil
			}
			messages = append(messages, viewOfMessage(e))
		}
		if page.Next == "" {
			return messages, false, nil
		}
		after = page.Next
	}
}
