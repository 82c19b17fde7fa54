package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/apps/payments"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/provider"
)

// keysRecoverCmd gives an operation a turn.
type keysRecoverCmd struct {
	storeFlag
	Key       string `arg:"" help:"The idempotency key."`
	Scope     string `required:"" help:"Whose key it is: the merchant."`
	Processor string `placeholder:"URL" help:"The card processor that the service uses. Not needed when all its steps are done."`
	// Its promises have no defaults here: a promise that the processor does not keep
	// charges a card twice.
	ProcessorTimeout time.Duration  `default:"10s" help:"How long one call of the processor may take."`
	ProcessorMemory  *time.Duration `help:"What serve is told: how long the processor honours an idempotency key; 0: it honours none. Needed with --processor."`
	ProcessorLookup  *bool          `negatable:"" help:"What serve is told: whether the processor can be asked by our reference. Needed with --processor."`
	ProcessorVisible time.Duration  `default:"0s" help:"What serve is told: how long the processor may take to show what it has done. 0: not finding it proves nothing."`
	JSON             bool           `name:"json" env:"-" help:"Print the key as JSON."`
}

// promises are those of the processor, all of which somebody has to state.
func (c *keysRecoverCmd) promises() (promiseFlags, error) {
	if c.ProcessorMemory == nil || c.ProcessorLookup == nil {
		return promiseFlags{}, &usageError{
			"--processor needs --processor-memory and --processor-lookup or --no-processor-lookup",
			"say what serve is told of the processor, by default --processor-memory 23h --processor-lookup: with another promise a card may be charged twice",
		}
	}
	return promiseFlags{
		ProcessorTimeout: c.ProcessorTimeout, ProcessorMemory: *c.ProcessorMemory, ProcessorLookup: *c.ProcessorLookup, ProcessorVisible: c.ProcessorVisible,
	}, nil
}

// Help says what a turn is.
func (c *keysRecoverCmd) Help() string {
	return `The operation runs again from what is kept of its request, through the same claim as its client's retry: it goes on behind the steps that are done, and
what became of a step that is not is asked of the processor, or the same request is sent again under the same key, as the processor's promises allow. Its
answer is stored for the client's retry. The service does the same by itself, as long as an operation has turns left.

An operation that has called nobody yet is carried out: a card may be charged. Give the processor the same promises as serve has.`
}

// Run recovers.
func (c *keysRecoverCmd) Run(ctx context.Context, std Streams) error {
	key := onlyonce.Key{Scope: c.Scope, Value: c.Key}
	return c.with(ctx, func(d *db.Database) error {
		rec, steps, err := findKey(ctx, d.Keys(), key)
		if err != nil {
			return err
		}
		if rec.State != onlyonce.Completed {
			if c.Processor == "" && needsProcessor(steps) {
				return &usageError{"--processor is required: not all steps of the operation are done", "give the processor's address, which serve prints, and its promises: --processor URL --processor-memory 23h --processor-lookup"}
			}
			if err := c.recover(ctx, d, rec, steps); err != nil {
				return err
			}
		}
		if rec, _, err = findKey(ctx, d.Keys(), key); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(std.Out, viewOf(rec))
		}
		printState(std.Out, rec)
		return nil
	})
}

// recover gives the key its turn, with the processor if there is one.
func (c *keysRecoverCmd) recover(ctx context.Context, d *db.Database, rec onlyonce.Record, steps []onlyonce.StepRecord) error {
	if c.Processor == "" {
		return answerOffline(ctx, d, rec, steps)
	}
	// What another provider was sent would not be recognised, and the key parked.
	if all, _ := calls(steps); len(all) > 0 && all[0].Provider != processor.ProviderName {
		return &usageError{fmt.Sprintf("--processor: step %s has asked %s", all[0].Name, all[0].Provider), "let the service that uses it go on with the operation, or settle the key; without --processor what is done is answered"}
	}
	promises, err := c.promises()
	if err != nil {
		return err
	}
	remote := promises.remote(c.Processor)
	defer remote.Close()
	return recoverKey(ctx, d, rec, remote.Provider())
}

// needsProcessor tells whether running an operation again can call somebody: not
// only when all that it calls is done.
func needsProcessor(steps []onlyonce.StepRecord) bool {
	all, begun := calls(steps)
	return len(all) == 0 || len(begun) > 0
}

// recoverKey gives the key a turn in a service of its own, beside the running one.
func recoverKey(ctx context.Context, d *db.Database, rec onlyonce.Record, p provider.Provider) error {
	// The record keeps its retention, whatever this command's default is.
	s, err := payments.Attach(ctx, payments.Config{DB: d, Provider: p, Retention: rec.Retention, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = s.Recover(ctx, rec.Key)
	return errors.Join(err, s.Close(ctx))
}

// finishSettled lets the service make the answer of a key whose steps are all done
// now. It returns what has to be said where that is for somebody else.
func finishSettled(ctx context.Context, d *db.Database, key onlyonce.Key) (note string, err error) {
	rec, steps, err := findKey(ctx, d.Keys(), key)
	if err != nil {
		return "", err
	}
	if needsProcessor(steps) {
		return "not all of its steps are done: the service's recoverer goes on, or keys recover --processor URL", nil
	}
	err = answerOffline(ctx, d, rec, steps)
	switch onlyonce.CodeOf(err) {
	case onlyonce.CodeNotFound:
		return "its request is not kept: a retry by its client completes it", nil
	case onlyonce.CodeInProgress:
		return "somebody goes on with it just now", nil
	case onlyonce.CodeConfig:
		return fmt.Sprintf("it is completed by the service that serves this store, not from here (%v)", err), nil
	default:
		return "", err
	}
}
