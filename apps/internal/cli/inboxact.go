package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// inboxRetryCmd asks for another try.
type inboxRetryCmd struct {
	actFlag
	Reason string `env:"-" help:"Why it will go better now. Kept for good."`
}

// Help says what becomes of the mark.
func (*inboxRetryCmd) Help() string {
	return `The command only leaves a mark: the consumer itself tries the message, within seconds where one runs, and from what is kept of it. A success is the end of
it; a failure parks it again, with the new error, and needs another retry.`
}

// Run asks.
func (c *inboxRetryCmd) Run(ctx context.Context, std Streams) error {
	act, err := c.act(c.Reason)
	if err != nil {
		return err
	}
	return c.print(std, "its consumer will try it again", func() (e inbox.Entry, err error) {
		err = c.look(ctx, func(o opened) error {
			err := o.inboxes()
			if err == nil {
				e, err = inbox.Retry(ctx, o.Store.Store, act)
			}
			return err
		})
		return e, err
	})
}

// inboxDropCmd gives a message up.
type inboxDropCmd struct {
	actFlag
	Reason string `required:"" env:"-" help:"Why it is not to be handled. Kept for good."`
}

// Help says what is lost.
func (*inboxDropCmd) Help() string {
	return `A message that is dropped counts as handled: when it comes again it is a duplicate. What was kept of it is deleted; inbox show ID --payload prints it before.`
}

// Run drops.
func (c *inboxDropCmd) Run(ctx context.Context, std Streams) error {
	act, err := c.act(c.Reason)
	if err != nil {
		return err
	}
	return c.print(std, "it is not handled any more", func() (e inbox.Entry, err error) {
		err = c.look(ctx, func(o opened) error {
			err := o.inboxes()
			if err == nil {
				e, err = drop(ctx, o.Store.Store, act)
			}
			return err
		})
		return e, err
	})
}

func drop(ctx context.Context, store onlyonce.Store, act inbox.Act) (inbox.Entry, error) {
	engine, err := onlyonce.New(store, onlyonce.Config{})
	if err != nil {
		return inbox.Entry{}, fmt.Errorf("drop message: %w", err)
	}
	e, err := inbox.Drop(ctx, engine, act)
	return e, errors.Join(err, engine.Close(ctx))
}

// print does what is asked for and says so.
func (a actFlag) print(std Streams, done string, do func() (inbox.Entry, error)) error {
	e, err := do()
	if err != nil {
		return err
	}
	v := viewOfMessage(e)
	if a.JSON {
		return printJSON(std.Out, v)
	}
	fmt.Fprintf(std.Out, "%s is %s: %s\n", v.Operation, v.State, done)
	return nil
}
