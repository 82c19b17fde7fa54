package memstore

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// keptStep is a StepRecord with the times its ages are computed from.
type keptStep struct {
	onlyonce.StepRecord
	origin               int64
	begun, sent, changed time.Time
}

// holder is the record if the owner holds it in progress.
func (s *Store) holder(o onlyonce.Owner) *onlyonce.Record {
	rec := s.owned(o)
	if rec == nil || rec.State != onlyonce.InProgress {
		return nil
	}
	return &rec.Record
}

func (s *Store) findStep(key onlyonce.Key, origin int64, name string, occurrence int) *keptStep {
	for _, st := range s.steps[key.Digest()] {
		if st.origin == origin && st.Name == name && st.Occurrence == occurrence {
			return st
		}
	}
	return nil
}

// BeginStep records that a send is about to happen.
func (s *Store) BeginStep(ctx context.Context, owner onlyonce.Owner, intent onlyonce.Intent) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.holder(owner)
	if rec == nil {
		return false, nil
	}
	now := s.now()
	intent.Request = bytes.Clone(intent.Request)
	st := s.findStep(owner.Key, rec.Origin, intent.Name, intent.Occurrence)
	switch {
	case st == nil:
		st = &keptStep{origin: rec.Origin, begun: now}
		s.steps[owner.Key.Digest()] = append(s.steps[owner.Key.Digest()], st)
	case st.State == onlyonce.StepBegun && intent.Epoch == st.Epoch:
		within := max(intent.SendWithin, st.sent.Add(st.SendWithin).Sub(now))
		intent = st.Intent
		intent.SendWithin = within
	case st.State == onlyonce.StepNotApplied && intent.Epoch > st.Epoch:
		st.begun, st.Sends = now, 0
	default:
		return false, nil
	}
	st.Intent, st.State, st.Result = intent, onlyonce.StepBegun, nil
	st.Sends++
	st.sent, st.changed = now, now
	return true, nil
}

// EndStep records how a begun step ended. Repeating it is harmless.
func (s *Store) EndStep(ctx context.Context, owner onlyonce.Owner, end onlyonce.StepEnd) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.holder(owner)
	if rec == nil {
		return false, nil
	}
	st := s.findStep(owner.Key, rec.Origin, end.Name, end.Occurrence)
	if st == nil || (st.State != onlyonce.StepBegun && st.State != end.State) {
		return false, nil
	}
	if st.State == onlyonce.StepBegun {
		st.State, st.Result, st.changed = end.State, append([]byte{}, end.Result...), s.now()
	}
	return true, nil
}

// Steps lists the steps of the key's present life.
func (s *Store) Steps(ctx context.Context, key onlyonce.Key) ([]onlyonce.StepRecord, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[key.Digest()]
	if rec == nil {
		return nil, nil
	}
	now := s.now()
	var out []onlyonce.StepRecord
	for _, st := range s.steps[key.Digest()] {
		if st.origin != rec.Origin {
			continue
		}
		r := st.StepRecord
		r.Request, r.Result = bytes.Clone(r.Request), bytes.Clone(r.Result)
		r.Age, r.Idle = now.Sub(st.begun), now.Sub(st.sent)
		out = append(out, r)
	}
	return out, nil
}

// hasStep tells whether a step of the record's life is begun or done.
func (s *Store) hasStep(rec *onlyonce.Record) bool {
	return slices.ContainsFunc(s.steps[rec.Key.Digest()], func(st *keptStep) bool {
		return st.origin == rec.Origin && st.State != onlyonce.StepNotApplied
	})
}

// hasCall tells whether a step of the record's life outside the store is begun or
// done.
func (s *Store) hasCall(rec *onlyonce.Record) bool {
	return slices.ContainsFunc(s.steps[rec.Key.Digest()], func(st *keptStep) bool {
		return st.origin == rec.Origin && st.State != onlyonce.StepNotApplied && st.Provider != onlyonce.ProviderStore
	})
}

// StepTx runs fn and records its result as one step.
func (s *Store) StepTx(ctx context.Context, owner onlyonce.Owner, step onlyonce.TxStep, fn onlyonce.TxStepFunc[*Tx]) ([]byte, bool, error) {
	result, done, held, err := s.stepDone(ctx, owner, step)
	if done || !held || err != nil {
		return result, held, err
	}
	tx := &Tx{store: s}
	result, err = fn(ctx, tx)
	if err != nil {
		return nil, true, err
	}
	if err := ctx.Err(); err != nil {
		return nil, true, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.holder(owner)
	if rec == nil || s.findStep(owner.Key, rec.Origin, step.Name, step.Occurrence) != nil {
		return nil, false, nil
	}
	if err := tx.commit(); err != nil {
		return nil, true, err
	}
	s.addDone(rec, step, result)
	return bytes.Clone(result), true, nil
}

// stepDone looks whether fn must not run: the step is done, or the owner has
// lost the key.
func (s *Store) stepDone(ctx context.Context, owner onlyonce.Owner, step onlyonce.TxStep) (result []byte, done, held bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.holder(owner)
	if rec == nil {
		return nil, false, false, nil
	}
	st := s.findStep(owner.Key, rec.Origin, step.Name, step.Occurrence)
	if st == nil {
		return nil, false, true, nil
	}
	held = st.Provider == onlyonce.ProviderStore && st.State == onlyonce.StepDone
	return bytes.Clone(st.Result), held, held, nil
}

func (s *Store) addDone(rec *onlyonce.Record, step onlyonce.TxStep, result []byte) {
	now := s.now()
	d := rec.Key.Digest()
	s.steps[d] = append(s.steps[d], &keptStep{
		origin: rec.Origin, begun: now, sent: now, changed: now,
		StepRecord: onlyonce.StepRecord{
			Intent: onlyonce.Intent{Name: step.Name, Occurrence: step.Occurrence, Provider: onlyonce.ProviderStore},
			State:  onlyonce.StepDone, Result: append([]byte{}, result...), Sends: 1,
		},
	})
}
