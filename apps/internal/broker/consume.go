package broker

import (
	"context"
	"log/slog"

	"github.com/onlyonce-go/onlyonce/inbox"
)

// Consumer takes events from a broker.
type Consumer struct {
	// Name is the consumer's: of its queue, its durable consumer or its group. Processes of
	// one name share the events. Required.
	Name string
	// Process handles a delivery by an inbox. Required.
	Process inbox.ProcessFunc
	// Concurrency is how many events are handled at once. Required.
	Concurrency int
	// Logger is told of events that fail or are parked, and of the broker's troubles.
	// Required.
	Logger *slog.Logger
}

// Consume takes events until ctx ends; then it lets those under way end, and returns
// nil. It makes what it needs there: a queue, a stream and a durable consumer, or a
// topic. While the broker cannot be reached it tries again, and says so.
func Consume(ctx context.Context, a Address, c Consumer) error {
	switch a.kind {
	case rabbitMQ:
		return c.consumeAMQP(ctx, a)
	case jetStream:
		return c.consumeNATS(ctx, a)
	default:
		return c.consumeKafka(ctx, a)
	}
}

// processed logs what became of a delivery, where that is worth a line.
func (c Consumer) processed(ctx context.Context, id string, verdict inbox.Verdict, err error) {
	level, text := slog.LevelDebug, "event "+verdict.String()
	switch {
	case verdict == inbox.Parked && err != nil:
		level, text = slog.LevelError, "event parked: it waits for a person (onlyonce inbox list)"
	case err != nil:
		level, text = slog.LevelWarn, "event failed; it comes again"
	}
	c.Logger.LogAttrs(ctx, level, text, with(err, slog.String("event", id))...)
}

// trouble logs what is wrong with the broker, and is mended by trying again.
func (c Consumer) trouble(ctx context.Context, what string, err error) {
	c.warn(ctx, what+"; it is tried again", with(err)...)
}

// unsettled logs that the broker does not know what became of an event.
func (c Consumer) unsettled(ctx context.Context, id string, err error) {
	c.warn(ctx, "the broker was not told what became of an event; it comes again, as a duplicate if it was handled", with(err, slog.String("event", id))...)
}

func (c Consumer) warn(ctx context.Context, text string, attrs ...slog.Attr) {
	c.Logger.LogAttrs(ctx, slog.LevelWarn, "events: "+text, attrs...)
}

// with adds the error, if there is one.
func with(err error, attrs ...slog.Attr) []slog.Attr {
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	return attrs
}
