package onlyonce

import (
	"context"
	"fmt"
	"slices"
)

// stepID names a step within a run.
type stepID struct {
	name       string
	occurrence int
}

func (id stepID) String() string {
	if id.occurrence == 0 {
		return fmt.Sprintf("%q", id.name)
	}
	return fmt.Sprintf("%q (use %d)", id.name, id.occurrence+1)
}

// stepLog is what is recorded of an attempt's steps, and how far the handler has
// come through it. A handler that is run again has to ask for the recorded steps
// in their order, or it is another one than that which recorded them, and
// whatever it does next would be a guess. Steps of which nothing is left
// (not_applied) may be left out.
type stepLog struct {
	// byID is nil until the steps are loaded.
	byID map[stepID]*StepRecord
	// ahead are the recorded steps that the handler has not asked for yet.
	ahead []stepID
	// seen counts how often each name was used in this run.
	seen map[string]int
	// running: a step is under way.
	running bool
	// changed says why the handler no longer fits; empty: it does.
	changed string
	// uncertain: a step in the store may have been committed, or not.
	uncertain bool
}

// next takes the turn of the next step with this name.
func (l *stepLog) next(name string) (stepID, *StepRecord) {
	id := stepID{name: name, occurrence: l.seen[name]}
	l.seen[name]++
	prior := l.byID[id]
	for len(l.ahead) > 0 && l.changed == "" {
		first := l.ahead[0]
		switch {
		case first == id:
			l.ahead = l.ahead[1:]
			return id, prior
		case l.byID[first].State != StepNotApplied:
			l.changed = fmt.Sprintf("step %v is recorded next, and step %v was asked for", first, id)
			return id, prior
		}
		l.ahead = l.ahead[1:]
	}
	return id, prior
}

// leftOut is the first recorded step with an effect that the handler has not
// asked for yet; false if there is none.
func (l *stepLog) leftOut() (stepID, bool) {
	for _, id := range l.ahead {
		if l.byID[id].State != StepNotApplied {
			return id, true
		}
	}
	return stepID{}, false
}

// open is a begun step before the one that is asked for; false if there is none.
func (l *stepLog) open(id stepID) (stepID, bool) {
	for other, s := range l.byID {
		if other != id && s.State == StepBegun && !slices.Contains(l.ahead, other) {
			return other, true
		}
	}
	return stepID{}, false
}

// has tells whether a step is in one of the states.
func (l *stepLog) has(state StepState) bool {
	for _, s := range l.byID {
		if s.State == state {
			return true
		}
	}
	return false
}

// enter takes the step's turn and finds what is recorded of it. leave ends it.
func (a *Attempt) enter(name string) (stepID, *StepRecord, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.inTx:
		return stepID{}, nil, &Error{Code: CodeInTx, Op: "begin step " + name, Hint: "make the call before the transaction"}
	case a.mode != modeSteps:
		return stepID{}, nil, configError("step "+name, "needs a handler that is run by Engine.Steps")
	case a.log.running:
		return stepID{}, nil, configError("step "+name, "runs beside another step: the steps of a run come one after the other")
	}
	id, prior := a.log.next(name)
	if a.log.changed != "" {
		return id, nil, a.stepsChanged()
	}
	if open, ok := a.log.open(id); ok {
		return id, nil, &Error{
			Code: CodeOutcomeUnknown, Op: "begin step " + name, Operation: a.owner.Key.Operation(),
			Hint: fmt.Sprintf("what became of step %v is not known: return its error, nothing may be done behind it", open),
		}
	}
	a.log.running = true
	return id, prior, nil
}

// wentOn is the first recorded effect behind the step that is under way; false if
// there is none.
func (a *Attempt) wentOn() (stepID, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.log.leftOut()
}

func (a *Attempt) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log.running = false
}

// changedTo notes that a recorded step no longer fits the code: nobody but a
// person, or the code that recorded it, can go on from there.
func (a *Attempt) changedTo(what string) *Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log.changed = what
	return a.stepsChanged()
}

// stepsChanged is what a handler gets that no longer fits. a.mu is held.
func (a *Attempt) stepsChanged() *Error {
	return &Error{
		Code: CodeStepChanged, Op: "resume steps", Operation: a.owner.Key.Operation(),
		Hint: a.log.changed + "; deploy the code that recorded the steps, or settle the key by hand",
	}
}

// answering is the last check before a run's answer is stored: every recorded
// effect has had its part in it.
func (a *Attempt) answering() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id, left := a.log.leftOut(); left && a.log.changed == "" {
		a.log.changed = fmt.Sprintf("step %v is recorded, and the handler has answered without it", id)
	}
	switch {
	case a.log.changed != "":
		return a.stepsChanged()
	case a.log.uncertain:
		return &Error{Code: CodeOutcomeUnknown, Op: "answer", Operation: a.owner.Key.Operation(), Hint: reasonUncertainStep}
	}
	return nil
}

// reasonUncertainStep is why an answer is not taken from a run whose step in the
// store may have been committed: the next run finds out.
const reasonUncertainStep = "whether a step in the store was committed is not known"

// doubtCommit notes that a step in the store may stand.
func (a *Attempt) doubtCommit() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log.uncertain = true
}

func (a *Attempt) note(id stepID, s *StepRecord) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log.byID[id] = s
}

// result is what a step of the store has recorded; false if it has not run.
func (a *Attempt) result(id stepID) ([]byte, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.log.byID[id]
	if s == nil {
		return nil, false
	}
	return s.Result, true
}

// recorded is what is known of a step that has begun.
func (a *Attempt) recorded(id stepID) *StepRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := *a.log.byID[id]
	return &s
}

func (a *Attempt) ended(id stepID, state StepState, result []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log.byID[id].State, a.log.byID[id].Result = state, result
}

// loadSteps reads what earlier attempts of the same life have recorded.
func (a *Attempt) loadSteps(ctx context.Context) error {
	store, ok := StepsOf(a.e.store)
	if a.mode != modeSteps || !ok || !a.resumed {
		a.log.byID = map[stepID]*StepRecord{}
		return nil
	}
	var steps []StepRecord
	_, err := a.e.repeat(ctx, func(ctx context.Context) error {
		var err error
		a.read = now()
		steps, err = store.Steps(ctx, a.owner.Key)
		return err
	})
	if err != nil {
		return unavailable("read steps", err)
	}
	a.log.byID = map[stepID]*StepRecord{}
	for i := range steps {
		id := stepID{steps[i].Name, steps[i].Occurrence}
		a.log.byID[id] = &steps[i]
		a.log.ahead = append(a.log.ahead, id)
	}
	return nil
}

// unfinished says why the run must not be settled by what its handler says: a
// step has begun and its end is not recorded, or the steps no longer fit. Empty:
// nothing is in the way. Steps that could not be read are taken for unfinished.
func (a *Attempt) unfinished() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.log.changed != "":
		return ReasonChangedSteps + a.log.changed
	case a.log.byID == nil || a.log.has(StepBegun):
		return ReasonUnfinishedStep
	default:
		return ""
	}
}

// finishedSteps tells whether a step of this life is done.
func (a *Attempt) finishedSteps() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.log.has(StepDone)
}
