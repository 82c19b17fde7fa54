package redisstore

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// BeginStep records that a send is about to happen. Another send of the same
// epoch keeps the intent recorded first. Repeated after a lost reply it counts as
// another send, which errs on the safe side. It is refused while the server's
// memory is full.
func (s *Store) BeginStep(ctx context.Context, owner onlyonce.Owner, in onlyonce.Intent) (bool, error) {
	if err := checkDuration("Intent.SendWithin", in.SendWithin); err != nil {
		return false, err
	}
	return s.write(ctx, s.ownerCall("begin step", s.scripts.beginStep, owner,
		stepID(in.Name, in.Occurrence), in.Epoch, micros(max(0, in.SendWithin)),
		join(in.Provider, in.DerivedKey, in.Reference, string(in.Request))))
}

// EndStep records how a begun step ended, also when the server's memory is full.
// Repeating it is harmless; a step that has ended otherwise is left alone and
// false is returned.
func (s *Store) EndStep(ctx context.Context, owner onlyonce.Owner, end onlyonce.StepEnd) (bool, error) {
	if end.State != onlyonce.StepDone && end.State != onlyonce.StepNotApplied {
		return false, configError("StepEnd.State must be %s or %s, got %q", onlyonce.StepDone, onlyonce.StepNotApplied, end.State)
	}
	return s.write(ctx, s.ownerCall("end step", s.scripts.endStep, owner,
		stepID(end.Name, end.Occurrence), string(end.State), end.Result))
}

// stepID names a step within a life. The name comes last, so it may hold anything.
func stepID(name string, occurrence int) string { return strconv.Itoa(occurrence) + ":" + name }

// Steps lists the steps of the key's present life, in order of beginning.
func (s *Store) Steps(ctx context.Context, key onlyonce.Key) ([]onlyonce.StepRecord, error) {
	r, err := s.run(ctx, call{op: "read steps", script: s.scripts.steps, key: s.recordName(key.Digest()), reads: true})
	if err != nil {
		return nil, err
	}
	d := decode(r.value)
	now := d.time()
	var kept []keptStep
	for range len(d.values) {
		st, err := decodeStep(d.next(), now)
		if err != nil {
			return nil, unreadable("read steps", err)
		}
		kept = append(kept, st)
	}
	if d.err != nil {
		return nil, unreadable("read steps", d.err)
	}
	slices.SortFunc(kept, func(a, b keptStep) int { return cmp.Compare(a.seq, b.seq) })
	var steps []onlyonce.StepRecord
	for _, st := range kept {
		steps = append(steps, st.StepRecord)
	}
	return steps, nil
}

// keptStep is a step and its place in the order of beginning.
type keptStep struct {
	onlyonce.StepRecord
	seq int64
}

// decodeStep reads a step's ID, its numbers, its intent and its result.
func decodeStep(v any, now time.Time) (keptStep, error) {
	var st keptStep
	d := decode(v)
	id, line, kept := d.text(), strings.Split(d.text(), " "), d.text()
	result, ended := d.optional()
	if d.err == nil && len(line) != 8 {
		d.fail("a step has %d numbers in place of 8", len(line))
	}
	if d.err != nil {
		return st, d.err
	}
	_, rest, _ := strings.Cut(id, ":") // the origin of its life
	occurrence, name, _ := strings.Cut(rest, ":")
	st.Name, st.Occurrence = name, int(d.parse(occurrence))
	st.seq, st.Epoch = d.parse(line[0]), int(d.parse(line[1]))
	st.State, st.Sends = onlyonce.StepState(line[2]), int(d.parse(line[3]))
	st.Age, st.Idle = now.Sub(time.UnixMicro(d.parse(line[4]))), now.Sub(time.UnixMicro(d.parse(line[5])))
	st.SendWithin = duration(d.parse(line[6]))
	if ended {
		st.Result = []byte(result)
	}
	parts, err := split(kept, 4)
	if err != nil || d.err != nil {
		return st, cmp.Or(d.err, err)
	}
	st.Provider, st.DerivedKey, st.Reference, st.Request = parts[0], parts[1], parts[2], []byte(parts[3])
	return st, nil
}
