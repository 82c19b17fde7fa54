package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// step is what the item of a key has of a step of its life, in order of beginning.
type step struct {
	Name       string `dynamodbav:"name"`
	Occurrence int    `dynamodbav:"occurrence"`
	Provider   string `dynamodbav:"provider"`
	Epoch      int    `dynamodbav:"epoch"`
	DerivedKey string `dynamodbav:"derived_key"`
	Reference  string `dynamodbav:"reference"`
	Request    *value `dynamodbav:"request,omitempty"`
	Within     int64  `dynamodbav:"within"`
	State      string `dynamodbav:"state"`
	Result     *value `dynamodbav:"result,omitempty"`
	Sends      int    `dynamodbav:"sends"`
	Begun      int64  `dynamodbav:"begun"`
	Sent       int64  `dynamodbav:"sent"`
	Changed    int64  `dynamodbav:"changed"`
}

// counts tells whether the step had an effect, or may have had one.
func (s step) counts() bool { return s.State != string(onlyonce.StepNotApplied) }

func (s step) state() onlyonce.StepState { return onlyonce.StepState(s.State) }

// findStep is the place of a step in its life; -1 if it never began.
func (r row) findStep(name string, occurrence int) int {
	return slices.IndexFunc(r.steps, func(s step) bool { return s.Name == name && s.Occurrence == occurrence })
}

const (
	// roomForSteps is how much of an item's 400 KB the steps may take, so that
	// what is left is enough for results and the answer.
	roomForSteps = 256 << 10
	// stepOverhead is what the names and numbers of a step take, and a result.
	stepOverhead = 300 + inlineStep
)

// room is how much the steps take at most.
func (r row) room() int {
	total := 0
	for _, s := range r.steps {
		total += stepOverhead + len(s.Name) + len(s.Provider) + len(s.DerivedKey) + len(s.Reference)
		if s.Request != nil {
			total += len(s.Request.Data)
		}
	}
	return total
}

func noRoom(op string) error {
	return &onlyonce.Error{
		Code: onlyonce.CodeStoreUnavailable, Op: op,
		Hint: "the operation has as many steps as one item of DynamoDB can hold: split it",
	}
}

// BeginStep records that a send is about to happen, in the item of its key: one read
// and one conditional write. The intent is durable when it returns true. A life that
// has no room for another step is told so by CodeStoreUnavailable, before anything is
// sent.
func (s *Store) BeginStep(ctx context.Context, owner onlyonce.Owner, intent onlyonce.Intent) (bool, error) {
	if err := checkText("Intent", intent.Name, intent.Provider, intent.DerivedKey, intent.Reference); err != nil {
		return false, err
	}
	const op = "begin step"
	var begun, used bool
	var request *value
	err := s.change(ctx, op, owner.Key, func(ctx context.Context, old row) (*write, error) {
		begun, used = false, false
		next, fresh, ok := s.begin(old, owner, intent)
		if !ok {
			return nil, nil
		}
		if fresh {
			if request == nil && intent.Request != nil {
				var err error
				if request, err = s.store(ctx, placement{key: owner.Key, inline: inlineStep}, intent.Request); err != nil {
					return nil, err
				}
			}
			next.steps[next.findStep(intent.Name, intent.Occurrence)].Request = request
			if next.room() > roomForSteps {
				return nil, noRoom(op)
			}
		}
		begun, used = true, fresh
		return &write{next: next}, nil
	})
	if !used || (err != nil && !errors.Is(err, onlyonce.ErrUncertain)) {
		s.drop(ctx, owner.Key, request)
	}
	return begun && err == nil, err
}

// begin is the row with one more send; fresh: it is the first of its epoch, so that
// the intent is recorded.
func (s *Store) begin(old row, owner onlyonce.Owner, intent onlyonce.Intent) (next row, fresh, ok bool) {
	if !old.holdsInProgress(owner) {
		return old, false, false
	}
	now, within := microsOf(s.now()), micros(intent.SendWithin)
	next = old
	next.steps = slices.Clone(old.steps)
	first := step{
		Name: intent.Name, Occurrence: intent.Occurrence, Provider: intent.Provider, Epoch: intent.Epoch,
		DerivedKey: intent.DerivedKey, Reference: intent.Reference, Within: within,
		State: string(onlyonce.StepBegun), Sends: 1, Begun: now, Sent: now, Changed: now,
	}
	at := old.findStep(intent.Name, intent.Occurrence)
	if at < 0 {
		next.steps = append(next.steps, first)
		return next, true, true
	}
	st := &next.steps[at]
	switch {
	case st.state() == onlyonce.StepBegun && intent.Epoch == st.Epoch:
		left := st.Within - s.idle(old, *st).Microseconds()
		st.Within = max(within, left) // an earlier send may still leave
		st.Sends++
		st.Sent, st.Changed = now, now
		return next, false, true
	case st.state() == onlyonce.StepNotApplied && intent.Epoch > st.Epoch:
		*st = first
		return next, true, true
	default:
		return old, false, false
	}
}

// EndStep records how a begun step ended. Repeating it is harmless: what was recorded
// first stands.
func (s *Store) EndStep(ctx context.Context, owner onlyonce.Owner, end onlyonce.StepEnd) (bool, error) {
	var held, used bool
	var result *value
	err := s.change(ctx, "end step", owner.Key, func(ctx context.Context, old row) (*write, error) {
		held, used = false, false
		at := old.findStep(end.Name, end.Occurrence)
		if !old.holdsInProgress(owner) || at < 0 {
			return nil, nil
		}
		if st := old.steps[at]; st.state() != onlyonce.StepBegun {
			held = st.state() == end.State
			return nil, nil
		}
		if result == nil {
			var err error
			if result, err = s.store(ctx, placement{key: owner.Key, inline: inlineStep}, end.Result); err != nil {
				return nil, err
			}
		}
		held, used = true, true
		next := old
		next.steps = slices.Clone(old.steps)
		st := &next.steps[at]
		st.State, st.Result, st.Changed = string(end.State), result, microsOf(s.now())
		return &write{next: next}, nil
	})
	if !used || (err != nil && !errors.Is(err, onlyonce.ErrUncertain)) {
		s.drop(ctx, owner.Key, result)
	}
	return held && err == nil, err
}

// Steps lists the steps of the key's present life, in order of beginning, with strong
// consistency. Idle is how long this handle has known of the last send; Age is by the
// clocks of processes, and Config.MaxClockSkew more. Of a completed key Idle is by these
// clocks, and as much less.
func (s *Store) Steps(ctx context.Context, key onlyonce.Key) ([]onlyonce.StepRecord, error) {
	const op = "read steps"
	r, err := s.load(ctx, op, key)
	if err != nil {
		return nil, err
	}
	now := s.now()
	var records []onlyonce.StepRecord
	for _, st := range r.steps {
		idle := s.idle(r, st)
		rec := onlyonce.StepRecord{
			Intent: onlyonce.Intent{
				Name: st.Name, Occurrence: st.Occurrence, Provider: st.Provider, Epoch: st.Epoch,
				DerivedKey: st.DerivedKey, Reference: st.Reference, SendWithin: fromMicros(st.Within),
			},
			State: st.state(), Sends: st.Sends, Age: s.age(st, idle, now), Idle: idle,
		}
		if rec.Request, err = s.fetch(ctx, key, st.Request); err == nil {
			rec.Result, err = s.fetch(ctx, key, st.Result)
		}
		if errors.Is(err, errPartMissing) {
			err = cmp.Or(s.incomplete(ctx, op, r), error(&onlyonce.Error{Code: onlyonce.CodeConflict, Op: op, Hint: "the key's life has just changed", Err: err}))
		}
		if err != nil {
			return nil, err
		}
		records = append(records, rec)
	}
	return records, nil
}

// trace says which effect the steps of the row's life may have had; empty: it is
// proved that they had none.
func (r row) trace() string {
	trace := ""
	for _, st := range r.steps {
		switch st.state() {
		case onlyonce.StepNotApplied:
		case onlyonce.StepBegun:
			return onlyonce.ReasonUnfinishedStep
		default:
			trace = onlyonce.ReasonUnansweredStep
		}
	}
	return trace
}

// stepsUntil is when the last of the steps may go, if they are kept for as long as
// given after their last change.
func stepsUntil(steps []step, keep time.Duration) time.Time {
	var last int64
	for _, st := range steps {
		last = max(last, st.Changed)
	}
	return timeOf(last).Add(keep)
}
