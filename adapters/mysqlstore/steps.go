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
// recorded first. In a Galera cluster it is a transaction of five round trips or more.
func (s *Store) BeginStep(ctx context.Context, owner onlyonce.Owner, in onlyonce.Intent) (bool, error) {
	var sent send
	held, err := s.recordStep(ctx, "begin step", owner, func(q querier) (held bool, err error) {
		if held, err = s.beginStep(ctx, q, owner, in); err == nil && held && s.watch != nil {
			sent, err = readSend(ctx, q, owner, in)
		}
		return held, err
	})
	if held {
		s.idle(sent)
	}
	return held, err
}

// beginStep writes a send.
func (s *Store) beginStep(ctx context.Context, q querier, owner onlyonce.Owner, in onlyonce.Intent) (bool, error) {
	within := micros(max(0, in.SendWithin))
	request := blob(in.Request)
	provider, derived, reference := bytesOf(in.Provider), bytesOf(in.DerivedKey), bytesOf(in.Reference)
	name, d := bytesOf(in.Name), owner.Key.Digest()
	n, err := count(ctx, q, s.sql(insertStep), ownerArgs(owner,
		name, in.Occurrence, provider, in.Epoch, derived, reference, request, within, stepBegun, nil)...)
	if !duplicate(err) {
		return n == 1, err
	}
	query, before := s.sql(sendAgain), []any{within}
	if s.watch != nil {
		last, err := readSend(ctx, q, owner, in)
		if err != nil {
			return false, err
		}
		query, before = s.sql(sendAgainSeen), append(before, s.idle(last).Microseconds())
	}
	again, err := told(ctx, q, query, ownerArgs(owner, append(before, d[:], name, in.Occurrence, in.Epoch)...)...)
	if again != 0 || err != nil {
		return again != 0, err
	}
	anew, err := told(ctx, q, s.sql(sendAnew), ownerArgs(owner,
		provider, derived, reference, request, within, in.Epoch, d[:], name, in.Occurrence, in.Epoch)...)
	return anew != 0, err
}

// recordStep runs what records a step for the owner of a key in progress. Its
// statements lock the key's row, which keeps off whoever takes it over or frees it. In
// a Galera cluster no lock is seen on another node: there they are one transaction
// with a change of that row, so that of two that meet one fails at its commit.
func (s *Store) recordStep(ctx context.Context, op string, owner onlyonce.Owner, fn func(q querier) (bool, error)) (held bool, err error) {
	if s.watch == nil {
		err = s.single(ctx, op, committing, func(q querier) (err error) {
			held, err = fn(q)
			return err
		})
		return held && err == nil, err
	}
	var renewal int64
	err = s.inTx(ctx, op, func(q querier) (err error) {
		if renewal, err = s.touch(ctx, q, owner); err != nil || renewal == 0 {
			held = false
			return err
		}
		held, err = fn(q)
		return err
	})
	if err == nil && renewal != 0 {
		s.touched(owner, renewal)
	}
	return held && err == nil, err
}

// touch changes the row of the owner's key in progress, in a Galera cluster; 0: it is
// not the owner's. It counts as a renewal.
func (s *Store) touch(ctx context.Context, q querier, owner onlyonce.Owner) (renewal int64, err error) {
	if s.watch == nil {
		return 1, nil
	}
	return told(ctx, q, touchKey, ownerArgs(owner)...)
}

// touched has this Store watch the lease from a change of its own.
func (s *Store) touched(owner onlyonce.Owner, renewal int64) {
	s.note(&keyRow{Record: onlyonce.Record{Fence: owner.Fence}, digest: owner.Key.Digest(), renewal: renewal})
}

// EndStep records how a begun step ended. Repeating it is harmless; a step that has
// ended otherwise is left alone and false is returned.
func (s *Store) EndStep(ctx context.Context, owner onlyonce.Owner, end onlyonce.StepEnd) (bool, error) {
	if end.State != onlyonce.StepDone && end.State != onlyonce.StepNotApplied {
		return false, configError("StepEnd.State must be %s or %s, got %q", onlyonce.StepDone, onlyonce.StepNotApplied, end.State)
	}
	state, name, d := stepDone, bytesOf(end.Name), owner.Key.Digest()
	if end.State == onlyonce.StepNotApplied {
		state = stepNotApplied
	}
	return s.recordStep(ctx, "end step", owner, func(q querier) (bool, error) {
		n, err := told(ctx, q, s.sql(endStep), ownerArgs(owner, state, blob(end.Result), d[:], name, end.Occurrence)...)
		if n != 0 || err != nil {
			return n != 0, err
		}
		at, err := readStep(ctx, q, owner, onlyonce.TxStep{Name: end.Name, Occurrence: end.Occurrence})
		return at.held && at.state == state, err
	})
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
// lock. In a Galera cluster, whose nodes have clocks of their own, Idle is how long this
// Store has known of the last send, and Age is Config.MaxClockSkew more than the clocks
// say.
func (s *Store) Steps(ctx context.Context, key onlyonce.Key) (steps []onlyonce.StepRecord, err error) {
	d := key.Digest()
	err = s.single(ctx, "read steps", undone, func(q querier) error {
		steps = nil
		return each(ctx, q, query{s.sql(selectSteps), []any{d[:], bytesOf(key.Scope), bytesOf(key.Value)}}, func(row scanner) error {
			step, origin, err := scanStep(row)
			if err == nil && s.watch != nil {
				step.Idle = s.idle(send{d, step.Name, step.Occurrence, origin, step.Epoch, step.Sends})
				step.Age = max(step.Idle, step.Age+max(0, s.cfg.MaxClockSkew))
			}
			steps = append(steps, step)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return steps, nil
}

// scanStep reads a step and the origin of its life.
func scanStep(row scanner) (st onlyonce.StepRecord, origin int64, err error) {
	var state int
	var within, begun, sent, now int64
	err = row.Scan(&st.Name, &st.Occurrence, &st.Provider, &st.Epoch, &st.DerivedKey, &st.Reference, &st.Request,
		&within, &state, &st.Result, &st.Sends, &begun, &sent, &now, &origin)
	if err != nil {
		return onlyonce.StepRecord{}, 0, err
	}
	st.State = [...]onlyonce.StepState{"", onlyonce.StepBegun, onlyonce.StepDone, onlyonce.StepNotApplied}[state]
	st.SendWithin = duration(within)
	st.Age, st.Idle = time.Duration(now-begun)*time.Microsecond, time.Duration(now-sent)*time.Microsecond
	return st, origin, nil
}
