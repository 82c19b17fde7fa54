package inbox

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
)

// TxHandlerFunc handles a message inside the transaction in which it is recorded. It
// must not commit, must not keep tx, and must not call anything outside the database:
// a call would be made again by the next try. It may run more than once; only one run
// is committed.
type TxHandlerFunc[Tx any] func(ctx context.Context, tx Tx, msg Message) error

// TxInbox handles messages whose effects all live in the store's own database: id,
// effect and mark are one transaction. It is safe for concurrent use, by any number of
// processes.
type TxInbox[Tx any] struct {
	core
	tx *onlyonce.TxEngine[Tx]
}

// NewTx makes the inbox of one consumer. The engine's store must keep requests and an
// audit besides its transactions; else CodeConfig. The caller closes the engine.
func NewTx[Tx any](engine *onlyonce.TxEngine[Tx], cfg Config) (*TxInbox[Tx], error) {
	if engine == nil {
		return nil, configError("engine", "must not be nil")
	}
	c, err := newCore(engine.Engine, cfg)
	if err != nil {
		return nil, err
	}
	if c.op.Deadline == 0 {
		lease := c.op.WithDefaults().Lease
		c.op.Deadline = lease / 3
	}
	if err := c.op.ValidateAtomic(); err != nil {
		return nil, err
	}
	c.guard = engine.Wrap
	return &TxInbox[Tx]{core: c, tx: engine}, nil
}

// Process handles one delivery and says what became of it; the source may forget the
// message when Verdict.Ack is true, and not before.
//
// A message that has not been handled runs: its effect and its mark are committed
// together, or nothing is. A handler that fails (by an error, a panic) is rolled back,
// and its tries are counted in the store; so are crashes, where the source says that it
// delivers again: then the claim is committed before the handler runs, and a redelivery
// behind a crash is told Again until the lease is over. After Config.MaxTries the
// message is parked with its payload.
//
// The error is nil unless the verdict is Again, or Parked by this very delivery. It is
// an *onlyonce.Error, whose RetryAfter says when to deliver again:
//
//   - CodeHandlerFailed: the handler failed, nothing is left of it;
//   - CodeInProgress: another delivery is being handled;
//   - CodeStoreUnavailable: nothing was run that is not recorded;
//   - CodeKeyReused, with Parked: the id was used for another payload;
//   - CodeOutcomeUnknown, with Parked: the handler has ended its transaction;
//   - CodeKeyRequired: the message has no ID. It never will: fix the source.
func (i *TxInbox[Tx]) Process(ctx context.Context, msg Message, handler TxHandlerFunc[Tx]) (Verdict, error) {
	d, err := i.delivery(msg)
	if err != nil {
		return Again, err
	}
	if msg.Deliveries > 1 {
		return i.suspicious(ctx, d, handler)
	}
	res, err := i.tx.Atomic(ctx, i.op, d.request(), func(ctx context.Context, tx Tx) (onlyonce.Answer, error) {
		return handled(), handler(ctx, tx, msg.own())
	})
	return d.verdict(ctx, res, err)
}

// suspicious handles a message that was delivered before: it may have ended a process,
// which a transaction leaves no trace of. So it is claimed first, and each claim counts.
func (i *TxInbox[Tx]) suspicious(ctx context.Context, d delivery, handler TxHandlerFunc[Tx]) (Verdict, error) {
	if verdict, done, err := d.wornOut(ctx); done {
		return verdict, err
	}
	res, err := i.engine.Wrap(ctx, i.op, d.request(), i.finishing(d.msg, handler))
	return d.verdict(ctx, res, err)
}

// finishing runs the handler in the transaction that completes the message's key.
func (i *TxInbox[Tx]) finishing(msg Message, handler TxHandlerFunc[Tx]) onlyonce.HandlerFunc {
	return func(ctx context.Context) (onlyonce.Answer, error) {
		return i.tx.Finish(ctx, func(ctx context.Context, tx Tx) (onlyonce.Answer, error) {
			return handled(), handler(ctx, tx, msg.own())
		})
	}
}
