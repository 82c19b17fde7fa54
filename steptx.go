package onlyonce

import (
	"context"
	"encoding/json"
	"fmt"
)

// Step runs fn as a named step: to success at most once over all attempts;
// its result, as JSON, is what later attempts get. fn has nothing to check and
// nobody remembers its key, so a crash inside it leaves the key in doubt; what
// can be asked or re-sent belongs in Call.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error)) (T, error) {
	var value T
	raw, err := Call(ctx, Effect{Name: name, Provider: "step", Send: func(ctx context.Context, _ Sending) ([]byte, error) {
		v, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(v)
	}})
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return value, &Error{Code: CodeStepChanged, Op: "replay step " + name, Hint: "its recorded result no longer fits the type", Err: err}
	}
	return value, nil
}

// StepTx runs fn as a named step whose effect is in the store's own database:
// what it writes and its result, as JSON, are committed together, so that there
// is nothing to be in doubt about. It runs to success at most once over all
// attempts; an error rolls it back, and nothing is recorded. A crash leaves all
// of it or nothing. fn must not commit, must not keep tx, and must call nothing
// outside the database; it may run more than once, of which one is committed.
//
// It needs a handler run by Engine.Steps of the same engine. When another
// attempt owns the key, everything is rolled back and ErrLeaseLost is returned.
func StepTx[Tx, T any](ctx context.Context, e *TxEngine[Tx], name string, fn func(ctx context.Context, tx Tx) (T, error)) (T, error) {
	var value T
	a := AttemptFrom(ctx)
	if a == nil || a.e != e.Engine {
		return value, configError("StepTx", "needs a handler that this engine runs by Steps")
	}
	if err := validStepName(name); err != nil {
		return value, err
	}
	id, prior, err := a.enter(name)
	if err != nil {
		return value, err
	}
	defer a.leave()
	if prior != nil && prior.Provider != ProviderStore {
		return value, a.changedTo(fmt.Sprintf("step %v writes to the store, the recorded one called %s", id, prior.Provider))
	}
	raw, recorded := a.result(id)
	if !recorded {
		raw, err = a.runTxStep(ctx, id, func(ctx context.Context) ([]byte, bool, error) {
			return e.tx.StepTx(ctx, a.owner, TxStep{Name: id.name, Occurrence: id.occurrence}, func(ctx context.Context, tx Tx) ([]byte, error) {
				v, err := fn(ctx, tx)
				if err != nil {
					return nil, err
				}
				return json.Marshal(v)
			})
		})
	}
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return value, &Error{Code: CodeStepChanged, Op: "replay step " + name, Hint: "its recorded result no longer fits the type", Err: err}
	}
	return value, nil
}

// runTxStep runs the step's transaction and notes its result.
func (a *Attempt) runTxStep(ctx context.Context, id stepID, commit func(ctx context.Context) (result []byte, held bool, err error)) ([]byte, error) {
	if !a.enterTx() {
		return nil, &Error{Code: CodeInTx, Op: "run step " + id.name, Operation: a.Operation(), Hint: "a transaction of this attempt is open already"}
	}
	defer a.leaveTx()
	var result []byte
	var held bool
	uncertain, err := a.e.repeat(ctx, func(ctx context.Context) error {
		var err error
		result, held, err = commit(ctx)
		return err
	})
	switch {
	case err != nil && uncertain:
		// It may stand. Whoever comes next finds out; nothing left the store.
		a.doubtCommit()
		return nil, unavailable("commit step "+id.name, err)
	case err != nil:
		return nil, err
	case !held:
		return nil, &Error{Code: CodeLeaseLost, Op: "run step " + id.name, Operation: a.Operation(), Hint: "another attempt owns the key; everything was rolled back"}
	}
	a.note(id, &StepRecord{
		Intent: Intent{Name: id.name, Occurrence: id.occurrence, Provider: ProviderStore},
		State:  StepDone, Result: result,
	})
	return result, nil
}
