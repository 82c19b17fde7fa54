package canon

import (
	"bytes"
	"slices"
)

// addDefaults adds the members that the object on top lacks. Its members are in
// order, and are so again afterwards. An added value is read like any other, so
// that the rest of the policy applies to it, also the defaults within it.
func (s *scratch) addDefaults() error {
	f := s.top()
	from, to := f.places, len(s.places)
	known := len(s.members)
	for i := from; i < to; i++ {
		for _, d := range s.places[i].defaults {
			if s.has(s.top().members, known, d.name) {
				continue
			}
			if len(s.text)+len(d.name)+len(d.raw) > s.limit {
				return errGrowth
			}
			s.name([]byte(d.name))
			if err := s.add(d.raw); err != nil {
				return err
			}
			s.top().sort = true
		}
	}
	if len(s.members) == known {
		return nil
	}
	return s.order(s.top())
}

// has tells whether the object whose members start at from has a member. Those
// up to known are in order, those after it have just been added.
func (s *scratch) has(from, known int, name string) bool {
	compare := func(m span, name string) int {
		return bytes.Compare(s.text[m.name:m.value-1], []byte(name))
	}
	if _, ok := slices.BinarySearchFunc(s.members[from:known], name, compare); ok {
		return true
	}
	return slices.ContainsFunc(s.members[known:], func(m span) bool { return compare(m, name) == 0 })
}

// add reads the value of a default.
func (s *scratch) add(raw []byte) error {
	if raw[0] == '{' || raw[0] == '[' {
		r := s.open(raw)
		defer s.close(r)
		return s.read(&r.dec)
	}
	s.begin()
	s.text = s.scalar(s.text, raw, marksOf(s.places[s.top().inner:]))
	s.end()
	return nil
}
