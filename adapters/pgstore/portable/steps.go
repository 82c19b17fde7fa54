package portable

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
)

// step is a step's row.
type step struct {
	onlyonce.StepRecord
	ordinal     int64
	begun, sent time.Time
}

// stepStates gives the states of steps their numbers, beginning with 1.
func stepStates() []onlyonce.StepState {
	return []onlyonce.StepState{"", onlyonce.StepBegun, onlyonce.StepDone, onlyonce.StepNotApplied}
}

func stepNumber(state onlyonce.StepState) int64 { return int64(slices.Index(stepStates(), state)) }

// scanStep reads stepColumns.
func scanStep(rows pgx.Rows) (step, error) {
	var s step
	var within, state, begun, sent int64
	err := rows.Scan(&s.Name, &s.Occurrence, &s.ordinal, &s.Provider, &s.Epoch, &s.DerivedKey, &s.Reference, &s.Request, &within,
		&state, &s.Result, &s.Sends, &begun, &sent)
	if err != nil {
		return s, err
	}
	if state < 1 || state >= int64(len(stepStates())) {
		return s, fmt.Errorf("decode step: state %d is none", state)
	}
	s.State, s.SendWithin = stepStates()[state], duration(within)
	s.begun, s.sent = *timeOf(&begun), *timeOf(&sent)
	return s, nil
}

// stepsOf reads the steps of the row's life into steps.
func stepsOf(r *row, steps *[]step) question {
	return question{
		sql: selectSteps, args: []any{r.Key.Scope, r.Key.Value, r.Origin}, first: func() { *steps = nil },
		row: func(rows pgx.Rows) error {
			s, err := scanStep(rows)
			*steps = append(*steps, s)
			return err
		},
	}
}

// steps reads the steps of the row's life. None were begun: it need not ask.
func (t *txn) steps(ctx context.Context, r *row) (steps []step, err error) {
	if r.steps == 0 {
		return nil, nil
	}
	err = t.look(ctx, stepsOf(r, &steps))
	return steps, err
}

// step reads one step of the row's life; nil: nothing is recorded under its name.
func (t *txn) step(ctx context.Context, r *row, name string, occurrence int) (found *step, err error) {
	err = t.look(ctx, question{
		sql: selectStep, args: stepKey(r, name, occurrence),
		row: func(rows pgx.Rows) error {
			s, err := scanStep(rows)
			found = &s
			return err
		},
	})
	return found, err
}

// stepKey is the primary key of a step of the row's life.
func stepKey(r *row, name string, occurrence int, more ...any) []any {
	return append([]any{r.Key.Scope, r.Key.Value, r.Origin, name, int64(occurrence)}, more...)
}

// traces tells whether a step is begun or done, and whether one outside the store is.
func traces(steps []step) (behind, call bool) {
	for _, s := range steps {
		trace := s.State != onlyonce.StepNotApplied
		behind = behind || trace
		call = call || (trace && s.Provider != onlyonce.ProviderStore)
	}
	return behind, call
}

// touch says that a step of the row is about to be written: whoever decides by the
// row and its steps meanwhile, or has decided, meets this write. begun: it is a new
// one.
func (t *txn) touch(ctx context.Context, r *row, begun bool) error {
	next := *r
	if begun {
		next.steps++
	}
	return t.must(ctx, changeKey, r.change(&next, false)...)
}

// add records a new step.
func (t *txn) add(ctx context.Context, r *row, s step) error {
	if err := t.touch(ctx, r, true); err != nil {
		return err
	}
	return t.must(ctx, insertStep, stepKey(r, s.Name, s.Occurrence, r.steps, s.Provider, int64(s.Epoch), s.DerivedKey, s.Reference,
		notNil(s.Request), micros(s.SendWithin), stepNumber(s.State), s.Result, int64(s.Sends), s.begun.UnixMicro(), s.sent.UnixMicro(), t.now().UnixMicro())...)
}

// put records a step that was read in a state.
func (t *txn) put(ctx context.Context, r *row, was onlyonce.StepState, s step) error {
	if err := t.touch(ctx, r, false); err != nil {
		return err
	}
	return t.must(ctx, changeStep, stepKey(r, s.Name, s.Occurrence, stepNumber(was), s.Provider, int64(s.Epoch), s.DerivedKey, s.Reference,
		notNil(s.Request), micros(s.SendWithin), stepNumber(s.State), s.Result, int64(s.Sends), s.begun.UnixMicro(), s.sent.UnixMicro(), t.now().UnixMicro())...)
}

// onStep runs fn on a step of the owner's life, nil if nothing is recorded under its
// name, where the owner holds the key in progress.
func (s *Store) onStep(ctx context.Context, op string, of stepOf, fn func(ctx context.Context, t *txn, r *row, was *step) (bool, error)) (bool, error) {
	var held bool
	err := s.transact(ctx, op, func(ctx context.Context, t *txn) error {
		held = false
		r, err := t.mine(ctx, of.owner)
		if err != nil || r == nil || r.State != onlyonce.InProgress {
			return err
		}
		was, err := t.step(ctx, r, of.name, of.occurrence)
		if err != nil {
			return err
		}
		held, err = fn(ctx, t, r, was)
		return err
	})
	return held && err == nil, err
}

// stepOf names a step of an owner.
type stepOf struct {
	owner      onlyonce.Owner
	name       string
	occurrence int
}

// BeginStep commits an intent, if the owner holds the key in progress. Repeated after
// ErrUncertain it may count one send too many, which is harmless. Six round trips.
func (s *Store) BeginStep(ctx context.Context, owner onlyonce.Owner, in onlyonce.Intent) (bool, error) {
	if err := intentText(in); err != nil {
		return false, err
	}
	var of *row
	var next step
	begun, err := s.onStep(ctx, "begin step", stepOf{owner, in.Name, in.Occurrence}, func(ctx context.Context, t *txn, r *row, was *step) (bool, error) {
		now := t.now()
		of, next = r, step{StepRecord: onlyonce.StepRecord{Intent: in, State: onlyonce.StepBegun, Sends: 1}, begun: now, sent: now}
		switch {
		case was == nil:
			return true, t.add(ctx, r, next)
		case was.State == onlyonce.StepBegun && in.Epoch == was.Epoch:
			// Its intent stays as it was first recorded; of the moments until which
			// something may leave the latest counts.
			next.Intent, next.Sends, next.begun = was.Intent, was.Sends+1, was.begun
			next.SendWithin = max(in.SendWithin, was.SendWithin-s.idle(r, was, now))
		case was.State == onlyonce.StepNotApplied && in.Epoch > was.Epoch:
		default:
			return false, nil
		}
		return true, t.put(ctx, r, was.State, next)
	})
	if begun {
		s.noted(of, &next)
	}
	return begun, err
}

// EndStep records how a begun step ended, if the owner holds the key in progress.
// Repeated, the first end stands. Six round trips.
func (s *Store) EndStep(ctx context.Context, owner onlyonce.Owner, end onlyonce.StepEnd) (bool, error) {
	if end.State != onlyonce.StepDone && end.State != onlyonce.StepNotApplied {
		return false, configError("StepEnd.State must be done or not_applied, got %q", end.State)
	}
	if err := checkText(field{"StepEnd.Name", end.Name}); err != nil {
		return false, err
	}
	var of *row
	var next step
	ended, err := s.onStep(ctx, "end step", stepOf{owner, end.Name, end.Occurrence}, func(ctx context.Context, t *txn, r *row, was *step) (bool, error) {
		if was == nil || was.State != onlyonce.StepBegun {
			of = nil
			return was != nil && was.State == end.State, nil
		}
		of, next = r, *was
		next.State, next.Result = end.State, notNil(end.Result)
		return true, t.put(ctx, r, was.State, next)
	})
	if ended && of != nil {
		s.noted(of, &next)
	}
	return ended, err
}

// Steps lists the steps of the key's present life, in order of beginning. Where leases
// are watched, Idle of a step that is begun is how long this handle has known of its
// last send, and Age is by the clocks of nodes and Config.MaxClockSkew more. Two round
// trips.
func (s *Store) Steps(ctx context.Context, key onlyonce.Key) ([]onlyonce.StepRecord, error) {
	var at sight
	if _, err := s.read(ctx, "read steps", at.readKey(key)); err != nil || at.key == nil {
		return nil, err
	}
	var steps []step
	now, err := s.read(ctx, "read steps", stepsOf(at.key, &steps))
	if err != nil {
		return nil, err
	}
	var out []onlyonce.StepRecord
	for _, st := range steps {
		st.Idle = s.idle(at.key, &st, now)
		st.Age = s.age(&st, now)
		out = append(out, st.StepRecord)
	}
	return out, nil
}
