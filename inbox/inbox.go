package inbox

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
)

// HandlerFunc handles a message in steps: what it does to the world goes through
// onlyonce.Call, whose derived keys come of consumer, message id and step, and what it
// writes through onlyonce.StepTx or, as the last step, onlyonce.TxEngine.Finish.
type HandlerFunc func(ctx context.Context, msg Message) error

// Inbox handles messages whose handlers call others: the claim is committed before the
// handler runs, and a redelivery goes on behind the finished steps. It is safe for
// concurrent use, by any number of processes.
type Inbox struct {
	core
}

// New makes the inbox of one consumer. The engine's store must keep steps, requests and
// an audit; else CodeConfig. The caller closes the engine.
func New(engine *onlyonce.Engine, cfg Config) (*Inbox, error) {
	c, err := newCore(engine, cfg)
	if err != nil {
		return nil, err
	}
	if f := engine.Store().Features(); !f.Steps {
		return nil, configError("engine", "needs a store that keeps steps: %s does not", f.Name)
	}
	if err := c.op.Validate(); err != nil {
		return nil, err
	}
	c.guard, c.resumes = engine.Steps, true
	return &Inbox{core: c}, nil
}

// Process handles one delivery and says what became of it, as TxInbox.Process does.
// While another delivery owns the message, or has crashed and its lease runs, the
// verdict is Again. A failed handler leaves its finished steps, and the next try goes
// on behind them; a step whose outcome is not known is asked for by the next try. All
// tries count, crashes too.
//
// What the handler does beside its steps it may do again.
func (i *Inbox) Process(ctx context.Context, msg Message, handler HandlerFunc) (Verdict, error) {
	d, err := i.delivery(msg)
	if err != nil {
		return Again, err
	}
	if msg.Deliveries != 1 {
		if verdict, done, err := d.wornOut(ctx); done {
			return verdict, err
		}
	}
	res, err := i.engine.Steps(ctx, i.op, d.request(), i.running(msg, handler))
	return d.verdict(ctx, res, err)
}

func (i *Inbox) running(msg Message, handler HandlerFunc) onlyonce.HandlerFunc {
	return func(ctx context.Context) (onlyonce.Answer, error) {
		return handled(), handler(ctx, msg.own())
	}
}
