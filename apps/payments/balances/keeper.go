package balances

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// MaxTries is how often an event is tried before it is parked. A process that dies over
// an event, and a database that hangs, count as a try, and a good event may have some of
// those.
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
	// Logger is told of housekeeping that fails. Default: nobody is.
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

// Run deletes the marks of events that no broker delivers again, until ctx ends. Any
// number of processes may run it on one database. The caller owns the goroutine.
func (k *Keeper) Run(ctx context.Context) {
	onlyonce.Sweeper{Store: k.cfg.DB.Keys(), Swept: func(_ onlyonce.SweepResult, err error) {
		if err != nil && ctx.Err() == nil {
			k.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "sweep failed", slog.String("error", err.Error()))
		}
	}}.Run(ctx)
}

// Close waits for what is being stored, until ctx ends.
func (k *Keeper) Close(ctx context.Context) error {
	if err := k.engine.Close(ctx); err != nil {
		return fmt.Errorf("close keeper of balances: %w", err)
	}
	return nil
}
