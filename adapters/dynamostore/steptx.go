package dynamostore

import (
	"context"
	"errors"
	"slices"

	"github.com/onlyonce-go/onlyonce"
)

// StepTx runs fn and records its result as that of a step that is done, in one
// TransactWriteItems; see Atomic for what fn may do. When the step is done already, fn
// does not run, or its writes are dropped, and the recorded result is returned. held
// is false, and nothing is changed, when the owner does not hold the key in progress,
// or when something else is recorded under the step's name. An error of fn comes back
// as it is; a crash leaves all of it or nothing.
func (s *Store) StepTx(ctx context.Context, owner onlyonce.Owner, step onlyonce.TxStep, fn onlyonce.TxStepFunc[*Tx]) (result []byte, held bool, err error) {
	if err := checkText("TxStep", step.Name); err != nil {
		return nil, false, err
	}
	old, err := s.load(ctx, opStepTx, owner.Key)
	if err != nil {
		return nil, false, err
	}
	st := &stepping{store: s, owner: owner, step: step}
	if st.look(old); !st.held || st.done {
		return st.recorded(ctx)
	}
	result, with, err := collect(ctx, s, fn)
	if err != nil {
		return nil, true, err
	}
	if st.result, err = s.store(ctx, placement{key: owner.Key, inline: inlineStep}, result); err != nil {
		return nil, true, err
	}
	err = s.changeFrom(ctx, changing{op: opStepTx, key: owner.Key, old: old, with: with}, st.decide)
	committed := err == nil && st.held && !st.done
	if !committed && !errors.Is(err, onlyonce.ErrUncertain) {
		s.drop(ctx, owner.Key, st.result)
	}
	switch {
	case err != nil:
		return nil, true, err
	case committed:
		return append([]byte{}, result...), true, nil
	default:
		return st.recorded(ctx)
	}
}

const opStepTx = "run step"

// stepping is a step in a transaction on its way.
type stepping struct {
	store  *Store
	owner  onlyonce.Owner
	step   onlyonce.TxStep
	result *value
	// held and done are what the row that was last looked at says: the owner may
	// do the step, or it is done with the result stands.
	held, done bool
	stands     *value
}

func (st *stepping) look(old row) {
	st.held, st.done, st.stands = old.holdsInProgress(st.owner), false, nil
	at := old.findStep(st.step.Name, st.step.Occurrence)
	if !st.held || at < 0 {
		return
	}
	was := old.steps[at]
	st.done = was.Provider == onlyonce.ProviderStore && was.state() == onlyonce.StepDone
	st.held, st.stands = st.done, was.Result
}

// recorded is the result of a step that fn does not decide.
func (st *stepping) recorded(ctx context.Context) ([]byte, bool, error) {
	if !st.done {
		return nil, st.held, nil
	}
	result, err := st.store.fetch(ctx, st.owner.Key, st.stands)
	if errors.Is(err, errPartMissing) {
		err = conflict(opStepTx, err)
	}
	return result, err == nil, err
}

// decide records the step, if the owner may still do it.
func (st *stepping) decide(_ context.Context, old row) (*write, error) {
	if st.look(old); !st.held || st.done {
		return nil, nil
	}
	now := microsOf(st.store.now())
	next := old
	next.steps = append(slices.Clone(old.steps), step{
		Name: st.step.Name, Occurrence: st.step.Occurrence, Provider: onlyonce.ProviderStore,
		State: string(onlyonce.StepDone), Result: st.result, Sends: 1, Begun: now, Sent: now, Changed: now,
	})
	if next.room() > roomForSteps {
		return nil, noRoom(opStepTx)
	}
	return &write{next: next}, nil
}
