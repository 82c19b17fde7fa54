package watermillinbox

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// Config says how messages are told apart and what is done beside the inbox. The zero
// value takes the UUID.
type Config struct {
	// ID is the publisher's id for a message; empty, or a panic: it has none. It must be the same on
	// every delivery. Default: the UUID.
	ID func(*message.Message) string
	// WithoutID handles a message without an id; nil as its error acknowledges it. Default:
	// such a message is refused with an error of code CodeKeyRequired, and comes again.
	WithoutID message.NoPublishHandlerFunc
	// Deliveries is how often a message was delivered, this time included, where its
	// subscriber says so; 0: it does not. Default: it does not. See [Suspect].
	Deliveries func(*message.Message) int
	// LoseProduced lets a handler behind Middleware return messages to publish. They are
	// published after the inbox's commit, at most once: a crash in between loses them.
	// Default: they are refused, and the handler has failed.
	LoseProduced bool
	// Observe is told of every delivery: its id, the verdict, and the error where there is
	// one. It must be quick and safe for concurrent use. Default: nobody is told.
	Observe func(msg inbox.Message, verdict inbox.Verdict, err error)
}

// WithDefaults returns a copy with the defaults filled in.
func (c Config) WithDefaults() Config {
	if c.ID == nil {
		c.ID = func(m *message.Message) string { return m.UUID }
	}
	if c.WithoutID == nil {
		c.WithoutID = func(*message.Message) error { return errNoID() }
	}
	if c.Deliveries == nil {
		c.Deliveries = func(*message.Message) int { return 0 }
	}
	if c.Observe == nil {
		c.Observe = func(inbox.Message, inbox.Verdict, error) {}
	}
	return c
}

// Suspect is a Config.Deliveries for subscribers that do not say how often they have
// delivered: it says of every message that it was before. A [inbox.TxInbox] then claims each
// message before its handler runs, at the price of a transaction more, and so counts
// processes that a message ends and parks it in the end.
func Suspect(*message.Message) int { return 2 }

// Metadata takes the id from a message's metadata.
func Metadata(name string) func(*message.Message) string {
	return func(m *message.Message) string { return m.Metadata.Get(name) }
}

func errNoID() error {
	return &onlyonce.Error{
		Code: onlyonce.CodeKeyRequired, Op: "take message",
		Hint: "the message has no id, so it cannot be told from its redelivery: have its publisher set one, or set Config.WithoutID",
	}
}

func configError(format string, args ...any) *onlyonce.Error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "configure watermillinbox", Hint: fmt.Sprintf(format, args...)}
}
