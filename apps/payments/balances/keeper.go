package balances

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// MaxTries is how often an event is tried before it is parked. A process that dies over
// an event counts as a try, and so may a database that hangs at the commit; a good event
// may have some of those.
const MaxTries = 10

// maxPause bounds the pause before an event is tried again: in Kafka those behind it
// wait as long.
const maxPause = 10 * time.Second

// Config says what a Keeper works on.
type Config struct {
	// DB has the balances, and the keys by which events are told apart. Required. It may
	// be the service's own. Closing it is the caller's.
	DB *db.Database
	// Lease is how long the crash of a process keeps an event waiting that it was handling
	// not for the first time. Default 30 s.
	Lease time.Duration
	// Logger is told of housekeeping that fails, and of what became of events that were
	// parked. Default: nobody is.
	Logger *slog.Logger
}

// Keeper keeps the balances. It is safe for concurrent use, and so are any number of
// them, in any number of processes, on one database.
type Keeper struct {
	cfg    Config
	engine *onlyonce.TxEngine[db.Tx]
	inbox  *inbox.TxInbox[db.Tx]
}

// NewKeeper makes a Keeper, and the table of balances where there is none. Close it when
// nothing is processed any more.
func NewKeeper(ctx context.Context, cfg Config) (*Keeper, error) {
	if cfg.DB == nil {
		return nil, &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "new keeper of balances", Hint: "config DB: is required"}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := Prepare(ctx, cfg.DB); err != nil {
		return nil, err
	}
	engine, err := onlyonce.NewTx[db.Tx](cfg.DB.Keys(), onlyonce.Config{})
	if err != nil {
		return nil, fmt.Errorf("new keeper of balances: %w", err)
	}
	box, err := inbox.NewTx(engine, inbox.Config{Consumer: Consumer, Lease: cfg.Lease, MaxTries: MaxTries, MaxPause: maxPause})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("new keeper of balances: %w", err), engine.Close(ctx))
	}
	return &Keeper{cfg: cfg, engine: engine, inbox: box}, nil
}

// Process handles one delivery: the event's amount and the event's mark are committed
// together, or neither is. It is what brokers' consumers call.
func (k *Keeper) Process(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
	return k.inbox.Process(ctx, msg, Apply)
}

// Run keeps house until ctx ends, and returns when what it has begun has ended: it
// deletes the marks of events that no broker delivers again, and tries parked events
// again, for which somebody has asked (onlyonce inbox retry). Any number of processes may
// run it on one database. The caller owns the goroutine.
func (k *Keeper) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { k.sweep(ctx) })
	running.Go(func() { k.retry(ctx) })
	running.Wait()
}

// sweep deletes marks that are no longer needed.
func (k *Keeper) sweep(ctx context.Context) {
	onlyonce.Sweeper{Store: k.cfg.DB.Keys(), Swept: func(_ onlyonce.SweepResult, err error) {
		if err != nil && ctx.Err() == nil {
			k.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "sweep failed", slog.String("error", err.Error()))
		}
	}}.Run(ctx)
}

// retry looks for parked events that are to be tried again.
func (k *Keeper) retry(ctx context.Context) {
	r := k.inbox.Recoverer(Apply)
	r.Recovered = k.retried
	r.Run(ctx, func(err error) {
		k.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "parked events were not looked at; it is tried again", slog.String("error", err.Error()))
	})
}

// retried logs the turn of a parked event, if anything was tried in it.
func (k *Keeper) retried(ctx context.Context, turn onlyonce.Recovery) {
	level, text := slog.LevelWarn, "parked event could not be tried; it is looked at again"
	switch code := onlyonce.CodeOf(turn.Err); {
	case turn.Err == nil && turn.Result.State == onlyonce.Completed:
		level, text = slog.LevelInfo, "parked event handled: its retry has succeeded"
	case turn.Result.State == onlyonce.InDoubt:
		level, text = slog.LevelError, "event parked again: it waits for a person (onlyonce inbox list)"
	case code == onlyonce.CodeOutcomeUnknown || code == onlyonce.CodeInProgress:
		return // nobody has asked for a try, or somebody else makes it
	}
	attrs := []slog.Attr{slog.String("event", turn.Due.Record.Key.Value)}
	if turn.Err != nil {
		attrs = append(attrs, slog.String("error", turn.Err.Error()))
	}
	k.cfg.Logger.LogAttrs(ctx, level, text, attrs...)
}

// Close waits for what is being stored, until ctx ends.
func (k *Keeper) Close(ctx context.Context) error {
	if err := k.engine.Close(ctx); err != nil {
		return fmt.Errorf("close keeper of balances: %w", err)
	}
	return nil
}
