package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/onlyonce-go/onlyonce/inbox"
)

// inboxShowCmd shows everything that is known of one message.
type inboxShowCmd struct {
	messageFlag
	Payload bool `env:"-" xor:"form" help:"Print the payload, byte for byte, and nothing else."`
	JSON    bool `name:"json" env:"-" xor:"form" help:"Print JSON."`
}

// Run shows.
func (c *inboxShowCmd) Run(ctx context.Context, std Streams) error {
	e, err := c.find(ctx)
	if err != nil {
		return err
	}
	switch {
	case c.Payload && !e.Kept:
		return &usageError{"nothing is kept of the message", "a payload is kept only while the message is parked or waits; without --payload the rest is shown"}
	case c.Payload:
		if _, err := std.Out.Write(e.Message.Payload); err != nil {
			return fmt.Errorf("print: %w", err)
		}
		return nil
	case c.JSON:
		return printJSON(std.Out, viewOfMessage(e))
	default:
		return viewOfMessage(e).print(std.Out)
	}
}

// find reads the message, which must be there.
func (m messageFlag) find(ctx context.Context) (e inbox.Entry, err error) {
	err = m.look(ctx, func(o opened) error {
		err := o.inboxes()
		if err == nil {
			e, err = inbox.Show(ctx, o.Store.Store, m.Consumer, m.ID)
		}
		return err
	})
	return e, err
}

func (v messageView) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name string, value any) { fmt.Fprintf(w, "%s:\t%v\n", name, value) }
	line("consumer", v.Consumer)
	if v.ID != "" {
		line("id", plain(v.ID))
	}
	line("key", v.Key)
	line("operation", v.Operation)
	line("state", v.State)
	if v.Reason != "" {
		line("reason", plain(v.Reason))
	}
	if v.Error != "" {
		line("first error", plain(v.Error))
	}
	for _, name := range slices.Sorted(maps.Keys(v.Attributes)) {
		line("attribute "+plain(name), plain(v.Attributes[name]))
	}
	if v.Kept {
		line("payload", fmt.Sprintf("%d bytes, sha-256 %s", v.PayloadBytes, v.PayloadSHA256))
	} else {
		line("payload", "not kept")
	}
	line("created", v.CreatedAt.Format(time.RFC3339))
	if v.CompletedAt != nil {
		line("completed", v.CompletedAt.Format(time.RFC3339))
	}
	if v.ExpiresAt != nil {
		line("expires", v.ExpiresAt.Format(time.RFC3339))
	}
	for _, a := range v.Audit {
		line("audit "+a.At.Format(time.RFC3339), fmt.Sprintf("%s by %s: %s", a.Action, a.Actor, a.Reason))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	if what := v.next(); what != "" {
		fmt.Fprintf(out, "\nwhat can be done: %s\n", what)
	}
	return nil
}

// next is what a person can do about the message.
func (v messageView) next() string {
	switch v.State {
	case "parked":
		if v.OtherPayload {
			return "another payload was used under its id, so it is never handled: look into how that came about, then inbox drop"
		}
		return "inbox retry, when what it failed at is mended; or inbox drop"
	case "waiting":
		return "nothing: it is tried again by itself. inbox retry makes that at once, inbox drop prevents it"
	case "retrying":
		return "nothing: its consumer tries it within seconds, where one runs"
	case "in doubt":
		return "nothing, while its source delivers it again; keys show says more"
	}
	return ""
}
