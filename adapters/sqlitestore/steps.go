package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// BeginStep records that a send is about to happen. It is on the disk when it
// returns true. Another send of the same epoch keeps the intent recorded first.
func (s *Store) BeginStep(ctx context.Context, owner onlyonce.Owner, intent onlyonce.Intent) (bool, error) {
	var held bool
	err := s.write(ctx, "begin step", func(ctx context.Context, q querier) error {
		n, err := exec(ctx, q, beginStep, ownerArgs(owner,
			intent.Name, intent.Occurrence, intent.Provider, intent.Epoch, intent.DerivedKey, intent.Reference,
			blob(intent.Request), micros(max(0, intent.SendWithin)), s.now().UnixMicro())...)
		held = n == 1
		return err
	})
	return held && err == nil, err
}

// EndStep records how a begun step ended. Repeating it is harmless; a step
// that has ended otherwise is left alone and false is returned.
func (s *Store) EndStep(ctx context.Context, owner onlyonce.Owner, end onlyonce.StepEnd) (bool, error) {
	if end.State != onlyonce.StepDone && end.State != onlyonce.StepNotApplied {
		return false, configError("StepEnd.State", "must be %s or %s, got %q", onlyonce.StepDone, onlyonce.StepNotApplied, end.State)
	}
	var held bool
	err := s.write(ctx, "end step", func(ctx context.Context, q querier) error {
		n, err := exec(ctx, q, endStep, ownerArgs(owner,
			end.Name, end.Occurrence, end.State, blob(end.Result), s.now().UnixMicro())...)
		if err != nil {
			return err
		}
		held = n == 1
		if held {
			return nil
		}
		var state onlyonce.StepState
		err = q.QueryRowContext(ctx, stepState, ownerArgs(owner, end.Name, end.Occurrence)...).Scan(&state)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		held = state == end.State
		return err
	})
	return held && err == nil, err
}

// Steps lists the steps of the key's present life, in order of beginning. It
// takes no lock.
func (s *Store) Steps(ctx context.Context, key onlyonce.Key) ([]onlyonce.StepRecord, error) {
	digest := key.Digest()
	rows, err := s.readPool().QueryContext(ctx, selectSteps, digest[:], key.Scope, key.Value)
	if err != nil {
		return nil, s.fail("read steps", err)
	}
	defer rows.Close()
	now := s.now()
	var steps []onlyonce.StepRecord
	for rows.Next() {
		step, err := scanStep(rows, now)
		if err != nil {
			return nil, s.fail("read steps", err)
		}
		steps = append(steps, step)
	}
	if err := rows.Err(); err != nil {
		return nil, s.fail("read steps", err)
	}
	return steps, nil
}

func scanStep(row scanner, now time.Time) (onlyonce.StepRecord, error) {
	var st onlyonce.StepRecord
	var within, begun, sent int64
	err := row.Scan(&st.Name, &st.Occurrence, &st.Provider, &st.Epoch, &st.DerivedKey, &st.Reference, &st.Request,
		&within, &st.State, &st.Result, &st.Sends, &begun, &sent)
	if err != nil {
		return onlyonce.StepRecord{}, err
	}
	st.Request = blob(st.Request)
	if st.State != onlyonce.StepBegun {
		st.Result = blob(st.Result)
	}
	st.SendWithin = fromMicros(within)
	st.Age, st.Idle = now.Sub(time.UnixMicro(begun)), now.Sub(time.UnixMicro(sent))
	return st, nil
}
