package inbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Recoverer runs parked messages again for which a person has asked (Retry), from what
// is kept of them: run it beside the consumer, by its Run. A success completes the
// message; a failure parks it again, and so does a crash. Of several processes one runs
// a message. Every and Recovered may be set; nothing runs before Run or Once is called.
func (i *TxInbox[Tx]) Recoverer(handler TxHandlerFunc[Tx]) onlyonce.Recoverer {
	return i.recoverer(func(msg Message) onlyonce.HandlerFunc { return i.finishing(msg, handler) })
}

// Recoverer is TxInbox.Recoverer for a handler with steps: it goes on behind those that
// are done.
func (i *Inbox) Recoverer(handler HandlerFunc) onlyonce.Recoverer {
	return i.recoverer(func(msg Message) onlyonce.HandlerFunc { return i.running(msg, handler) })
}

// redriveEvery is between looks for messages that are to be run again.
const redriveEvery = 5 * time.Second

func (c *core) recoverer(handler func(Message) onlyonce.HandlerFunc) onlyonce.Recoverer {
	return onlyonce.Recoverer{
		Engine: c.engine, Every: redriveEvery,
		Grace:    1,             // nobody else comes first
		Attempts: math.MaxInt32, // a message that waits for a person gets turns in which nothing runs
		Resume: map[string]onlyonce.ResumeFunc{c.op.Name: func(ctx context.Context, due onlyonce.Due) (onlyonce.Result, error) {
			return c.turn(ctx, due, handler)
		}},
	}
}

// turn runs a kept message, if it may be.
func (c *core) turn(ctx context.Context, due onlyonce.Due, handler func(Message) onlyonce.HandlerFunc) (onlyonce.Result, error) {
	k, err := decode(due.Keep)
	if err != nil {
		return onlyonce.Result{}, &onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "run message again", Operation: due.Record.Key.Operation(), Err: err,
			Hint: "a newer program has kept it: run that one, or drop the message",
		}
	}
	next, err := c.next(ctx, due.Record, k)
	if err != nil {
		return onlyonce.Result{}, err
	}
	switch next {
	case runAgain:
		return c.runKept(ctx, rerun{due: due, kept: k}, handler(k.message()))
	case parkAgain:
		return c.runKept(ctx, rerun{due: due, kept: k}, func(context.Context) (onlyonce.Answer, error) {
			return onlyonce.Answer{}, errNoEnd
		})
	default:
		return onlyonce.Result{}, &onlyonce.Error{
			Code: onlyonce.CodeOutcomeUnknown, Op: "run message again", Operation: due.Record.Key.Operation(), Err: errLeft,
			Hint: "ask for another try, or drop it",
		}
	}
}

// errLeft: nothing was run in a message's turn.
var errLeft = errors.New("it is parked, and nobody has asked for another try since")

// step is what to do with a kept message whose turn has come.
type step uint8

const (
	leaveParked step = iota
	runAgain
	parkAgain // it was being run, or parked, and that has not come to an end
)

// next decides about a kept message.
func (c *core) next(ctx context.Context, rec onlyonce.Record, k kept) (step, error) {
	waits := k.Waits && rec.Attempts < c.cfg.MaxTries
	switch {
	case rec.State == onlyonce.InProgress && waits:
		return runAgain, nil
	case rec.State == onlyonce.InProgress:
		return parkAgain, nil
	case k.Other:
		return leaveParked, nil
	case rec.State == onlyonce.FailedRetryable || waits:
		return runAgain, nil // a person has settled its steps; or it is its turn
	}
	asked, err := retryAsked(ctx, c.engine.Store(), rec)
	if err != nil || !asked {
		return leaveParked, err
	}
	return runAgain, nil
}

// rerun is a run of a kept message.
type rerun struct {
	due  onlyonce.Due
	kept kept
}

// runKept runs a handler under the message's key, which is held until it succeeds.
func (c *core) runKept(ctx context.Context, r rerun, handler onlyonce.HandlerFunc) (onlyonce.Result, error) {
	tries := r.due.Record.Attempts + 1
	req := onlyonce.Request{
		Key: r.due.Record.Key, Canonical: payload(r.kept.Payload), Keep: r.due.Keep, Resolve: true,
		Hold: func(err error) string { return c.heldReason(r.kept, tries, err) },
	}
	return c.guard(ctx, c.op, req, handler)
}

// heldReason is why a kept message is in doubt.
func (c *core) heldReason(k kept, tries int, err error) string {
	cause := short(err.Error(), maxReasonError)
	switch {
	case k.Other:
		return reasonOther
	case k.Waits && tries < c.cfg.MaxTries:
		return fmt.Sprintf(waitingReason+"after try %d of %d: %s", tries, c.cfg.MaxTries, cause)
	case k.Waits && tries == c.cfg.MaxTries:
		return fmt.Sprintf("parked after %d tries: %s", tries, cause)
	default:
		return "parked again: " + cause // parking has claimed it too, so claims are no tries
	}
}

// waitingReason begins why a message is in doubt that will be tried again.
const waitingReason = "waits "

// reasonOther is why a message is in doubt that came with another payload.
const reasonOther = "parked: its id was used for another payload"
