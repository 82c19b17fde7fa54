package pgstore

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
)

// BeginStep commits an intent, if the owner holds the key in progress. Repeated
// after ErrUncertain it may count one send too many, which is harmless.
func (s *Store) BeginStep(ctx context.Context, owner onlyonce.Owner, in onlyonce.Intent) (bool, error) {
	st := s.owned(s.sql.beginStep, owner, in.Name, in.Occurrence, in.Provider, in.Epoch,
		in.DerivedKey, in.Reference, notNil(in.Request), in.SendWithin.Microseconds(), s.now())
	err := s.write(ctx, "begin step", st)
	return st.found, err
}

// EndStep records how a begun step ended. Repeated, the first end stands.
func (s *Store) EndStep(ctx context.Context, owner onlyonce.Owner, end onlyonce.StepEnd) (bool, error) {
	var state int16
	switch end.State {
	case onlyonce.StepDone:
		state = stepDone
	case onlyonce.StepNotApplied:
		state = stepNotApplied
	case onlyonce.StepBegun:
		fallthrough
	default:
		return false, configError("StepEnd.State must be done or not_applied, got %q", end.State)
	}
	st := s.owned(s.sql.endStep, owner, end.Name, end.Occurrence, state, notNil(end.Result), s.now())
	err := s.write(ctx, "end step", st)
	return st.found, err
}

// Steps lists the steps of the key's present life, in order of beginning.
func (s *Store) Steps(ctx context.Context, key onlyonce.Key) ([]onlyonce.StepRecord, error) {
	d := key.Digest()
	return collect(ctx, s, query{"read steps", s.sql.steps, []any{d[:], key.Scope, key.Value, s.now()}}, scanStep)
}

func scanStep(row pgx.CollectableRow) (onlyonce.StepRecord, error) {
	var r onlyonce.StepRecord
	var within int64
	var state int16
	var begun, sent, now time.Time
	err := row.Scan(&r.Name, &r.Occurrence, &r.Provider, &r.Epoch, &r.DerivedKey, &r.Reference, &r.Request, &within,
		&state, &r.Result, &r.Sends, &begun, &sent, &now)
	if err != nil {
		return r, err
	}
	r.SendWithin, r.Age, r.Idle = duration(within), now.Sub(begun), now.Sub(sent)
	switch state {
	case stepBegun:
		r.State = onlyonce.StepBegun
	case stepDone:
		r.State = onlyonce.StepDone
	case stepNotApplied:
		r.State = onlyonce.StepNotApplied
	default:
		return r, fmt.Errorf("decode step: state %d is none", state)
	}
	return r, nil
}

// query is a statement that reads any number of rows.
type query struct {
	op   string
	sql  text
	args []any
}

// collect runs a query.
func collect[T any](ctx context.Context, s *Store, q query, scan pgx.RowToFunc[T]) ([]T, error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, classify(q.op, err, undone)
	}
	defer conn.Release()
	f, err := s.learn(ctx, conn)
	if err != nil {
		return nil, classify(q.op, err, undone)
	}
	rows, err := conn.Query(ctx, q.sql.in(f.form), q.args...)
	if err != nil {
		s.outdated(err)
		return nil, classify(q.op, err, undone)
	}
	out, err := pgx.CollectRows(rows, scan)
	if len(out) == 0 {
		out = nil
	}
	return out, classify(q.op, err, undone)
}
