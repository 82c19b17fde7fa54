package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// BeginStep records that a send is about to happen: one statement for a new step, two
// or three for one that is there. Another send of the same epoch keeps the intent
// recorded first.
func (s *Store) BeginStep(ctx context.Context, owner onlyonce.Owner, in onlyonce.Intent) (held bool, err error) {
	within := micros(max(0, in.SendWithin))
	request := blob(in.Request)
	provider, derived, reference := bytesOf(in.Provider), bytesOf(in.DerivedKey), bytesOf(in.Reference)
	name, d := bytesOf(in.Name), owner.Key.Digest()
	err = s.single(ctx, "begin step", committing, func(q querier) error {
		n, err := count(ctx, q, s.sql(insertStep), ownerArgs(owner,
			name, in.Occurrence, provider, in.Epoch, derived, reference, request, within, stepBegun, nil)...)
		if held = n == 1; !duplicate(err) {
			return err
		}
		again, err := told(ctx, q, s.sql(sendAgain), ownerArgs(owner, within, d[:], name, in.Occurrence, in.Epoch)...)
		if held = again != 0; held || err != nil {
			return err
		}
		anew, err := told(ctx, q, s.sql(sendAnew), ownerArgs(owner,
			provider, derived, reference, request, within, in.Epoch, d[:], name, in.Occurrence, in.Epoch)...)
		held = anew != 0
		return err
	})
	return held && err == nil, err
}

// EndStep records how a begun step ended. Repeating it is harmless; a step that has
// ended otherwise is left alone and false is returned.
func (s *Store) EndStep(ctx context.Context, owner onlyonce.Owner, end onlyonce.StepEnd) (held bool, err error) {
	if end.State != onlyonce.StepDone && end.State != onlyonce.StepNotApplied {
		return false, configError("StepEnd.State must be %s or %s, got %q", onlyonce.StepDone, onlyonce.StepNotApplied, end.State)
	}
	state, name, d := stepDone, bytesOf(end.Name), owner.Key.Digest()
	if end.State == onlyonce.StepNotApplied {
		state = stepNotApplied
	}
	err = s.single(ctx, "end step", committing, func(q querier) error {
		n, err := told(ctx, q, s.sql(endStep), ownerArgs(owner, state, blob(end.Result), d[:], name, end.Occurrence)...)
		if held = n != 0; held || err != nil {
			return err
		}
		at, err := readStep(ctx, q, owner, onlyonce.TxStep{Name: end.Name, Occurrence: end.Occurrence})
		held = at.held && at.state == state
		return err
	})
	return held && err == nil, err
}

// recorded is what is recorded under a step's name.
type recorded struct {
	// held: the owner holds the key in progress.
	held bool
	// state is 0 when nothing is recorded.
	state    int
	provider string
	result   []byte
}

func readStep(ctx context.Context, q querier, owner onlyonce.Owner, step onlyonce.TxStep) (r recorded, err error) {
	var state sql.NullInt64
	var provider sql.NullString
	err = q.QueryRowContext(ctx, lookStep, ownerArgs(owner, bytesOf(step.Name), step.Occurrence)...).Scan(&state, &provider, &r.result)
	if errors.Is(err, sql.ErrNoRows) {
		return recorded{}, nil
	}
	r.held, r.state, r.provider = err == nil, int(state.Int64), provider.String
	return r, err
}

// Steps lists the steps of the key's present life, in order of beginning. It takes no
// lock.
func (s *Store) Steps(ctx context.Context, key onlyonce.Key) (steps []onlyonce.StepRecord, err error) {
	d := key.Digest()
	err = s.single(ctx, "read steps", undone, func(q querier) error {
		steps = nil
		return each(ctx, q, query{s.sql(selectSteps), []any{d[:], bytesOf(key.Scope), bytesOf(key.Value)}}, func(row scanner) error {
			step, err := scanStep(row)
			steps = append(steps, step)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return steps, nil
}

func scanStep(row scanner) (onlyonce.StepRecord, error) {
	var st onlyonce.StepRecord
	var state int
	var within, begun, sent, now int64
	err := row.Scan(&st.Name, &st.Occurrence, &st.Provider, &st.Epoch, &st.DerivedKey, &st.Reference, &st.Request,
		&within, &state, &st.Result, &st.Sends, &begun, &sent, &now)
	if err != nil {
		return onlyonce.StepRecord{}, err
	}
	st.State = [...]onlyonce.StepState{"", onlyonce.StepBegun, onlyonce.StepDone, onlyonce.StepNotApplied}[state]
	st.SendWithin = duration(within)
	st.Age, st.Idle = time.Duration(now-begun)*time.Microsecond, time.Duration(now-sent)*time.Microsecond
	return st, nil
}
