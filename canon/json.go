package canon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

var (
	errDuplicate = errors.New("object has a duplicate member name")
	errTrailing  = errors.New("text after the value")
	errBodySize  = errors.New("body is too large to be compared by meaning")
	errGrowth    = errors.New("defaults make the body too large")
)

// JSON is the canonical text of a JSON body under a policy, or under none if c
// is nil: members in byte order, no white space, minimal escapes, one spelling
// for each number. Two bodies have the same text exactly when they mean the
// same. The error tells why a body cannot be put into canonical form without
// loss; a request with such a body is compared by its bytes.
//
// The text of a body is its own canonical text under no policy. JSON is safe
// for concurrent use, takes time near linear in the body, and keeps nothing of
// it.
func JSON(body []byte, c *Compiled) ([]byte, error) {
	c = c.orZero()
	s := c.take()
	defer c.give(s)
	if err := s.parse(body); err != nil {
		return nil, fmt.Errorf("canonicalise JSON: %w", err)
	}
	return s.emit(make([]byte, 0, len(s.text))), nil
}

// scratch is what one canonicalisation works with. The body is first read into
// text, which is canonical but for the order of things; what must be ordered is
// kept in lists, and emit writes the text out in order. So every byte is moved
// twice, however deep the body is.
type scratch struct {
	c    *Compiled
	text []byte
	// limit is how long the text may grow by defaults.
	limit int

	frames  []frame
	places  []*place // those of the open containers, a range for each frame
	members []span
	lists   []unordered
	// listed are the members of lists.
	listed []span
	tmp    []byte
	fields fieldList
	// readers are not in use.
	readers []*reader
}

// span is a member of an object in text, or an item of a set, whose name is
// then empty: text[name:value] is the name with its colon.
type span struct{ name, value, end uint32 }

// dropped tells whether the member does not count. Its name stays in the text,
// for the sake of duplicates.
func (m span) dropped() bool { return m.end < m.value }

// unordered is an object or a set in text whose members are not in order.
type unordered struct {
	open, end uint32 // in text
	from, to  uint32 // in listed
}

// frame is an open container, or the document around the topmost value.
type frame struct {
	kind   byte // '{', '[' or 0 for the document
	marks  uint8
	within bool // everything in it counts
	sort   bool // its members are not in order

	open    int // in text
	count   int // values that count, so far
	index   int // values so far
	members int // its first member in members
	places  int // its first place in places
	inner   int // the first place of the value being read

	name, value   int // where the value being read begins in text, with and without its name
	lists, listed int // how many lists there were before it
}

// parse reads a body into text.
func (s *scratch) parse(body []byte) error {
	if len(body) > maxBody {
		return errBodySize
	}
	s.reset()
	s.text = room(s.text, len(body)+64)
	s.limit = min(maxGrowth*len(body)+1<<16, 1<<31)
	s.frames = append(s.frames, frame{within: !s.c.fields})
	if s.c.pointers {
		s.places = append(s.places, s.c.root)
	}
	r := s.open(body)
	defer s.close(r)
	if err := s.read(&r.dec); err != nil {
		return err
	}
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.Join(errTrailing, err)
	}
	return nil
}

// read reads one value into the frame on top.
func (s *scratch) read(dec *jsontext.Decoder) error {
	base := len(s.frames)
	for {
		switch kind := dec.PeekKind(); kind {
		case '{', '[':
			if _, err := dec.ReadToken(); err != nil {
				return err
			}
			s.begin()
			s.push(byte(kind))
			continue
		case '}', ']':
			if _, err := dec.ReadToken(); err != nil {
				return err
			}
			if err := s.pop(); err != nil {
				return err
			}
		default:
			raw, err := dec.ReadValue()
			if err != nil {
				return err
			}
			s.text = room(s.text, len(raw)+maxPlain+4)
			if f := s.top(); f.kind == '{' && f.name < 0 {
				s.name(raw)
				continue
			}
			s.begin()
			s.text = s.scalar(s.text, raw, marksOf(s.places[s.top().inner:]))
		}
		s.end()
		if len(s.frames) == base {
			return nil
		}
	}
}

func (s *scratch) top() *frame { return &s.frames[len(s.frames)-1] }

// name begins a member.
func (s *scratch) name(quoted []byte) {
	f := s.top()
	f.inner = len(s.places)
	if f.index > 0 {
		s.text = append(s.text, ',')
	}
	f.name = len(s.text)
	s.text = append(s.string(s.text, quoted), ':')
	f.value = len(s.text)
	if parents := s.places[f.places:f.inner]; len(parents) > 0 {
		s.places = member(s.places, parents, s.unquote(quoted))
	}
}

// begin begins a value: the next item of an array, the value of a member whose
// name has been read, or the document.
func (s *scratch) begin() {
	f := s.top()
	switch f.kind {
	case '[':
		f.inner = len(s.places)
		s.places = item(s.places, s.places[f.places:f.inner], f.index)
		f.name = len(s.text)
		if f.count > 0 {
			s.text = append(s.text, ',')
		}
		f.value = len(s.text)
	case 0:
		f.inner = f.places
	}
	f.lists, f.listed = len(s.lists), len(s.listed)
}

// end ends a value, and undoes it if it does not count.
func (s *scratch) end() {
	f := s.top()
	counts, _ := s.c.counts(marksOf(s.places[f.inner:]), f.within)
	if !counts {
		s.lists, s.listed = s.lists[:f.lists], s.listed[:f.listed]
		if f.kind == '[' {
			s.text = s.text[:f.name]
		} else {
			s.text = s.text[:f.value]
		}
	}
	switch {
	case f.kind == '{':
		m := span{uint32(f.name), uint32(f.value), uint32(len(s.text))}
		if !counts {
			m.end, f.sort = 0, true
		} else if len(s.members) > f.members && !f.sort {
			f.sort = s.compare(s.members[len(s.members)-1], m) >= 0
		}
		s.members = append(room(s.members, 1), m)
		f.name = -1
	case f.marks&markSet != 0 && counts:
		s.members = append(room(s.members, 1), span{uint32(f.value), uint32(f.value), uint32(len(s.text))})
	}
	f.index++
	if counts {
		f.count++
	}
	if f.kind != 0 {
		s.places = s.places[:f.inner]
	}
}

// push opens a container.
func (s *scratch) push(kind byte) {
	f := s.top()
	marks := marksOf(s.places[f.inner:])
	_, within := s.c.counts(marks, f.within)
	s.frames = append(room(s.frames, 1), frame{
		kind: kind, marks: marks, within: within,
		open: len(s.text), name: -1, members: len(s.members), places: f.inner,
	})
	s.text = append(s.text, kind)
}

// pop closes a container.
func (s *scratch) pop() error {
	f := s.top()
	set := f.kind == '[' && f.marks&markSet != 0
	if f.kind == '{' {
		if err := s.order(f); err != nil {
			return err
		}
		if err := s.addDefaults(); err != nil {
			return err
		}
		f = s.top()
	}
	s.text = append(s.text, f.kind+2) // the closing bracket in ASCII
	if f.sort || set && f.count > 1 {
		from := len(s.listed)
		s.listed = append(room(s.listed, len(s.members)-f.members), s.members[f.members:]...)
		s.lists = append(room(s.lists, 1), unordered{
			open: uint32(f.open), end: uint32(len(s.text)),
			from: uint32(from), to: uint32(len(s.listed)),
		})
	}
	s.members = s.members[:f.members]
	s.frames = s.frames[:len(s.frames)-1]
	return nil
}

// order sorts the members of an object and refuses duplicate names.
func (s *scratch) order(f *frame) error {
	if !f.sort {
		return nil
	}
	members := s.members[f.members:]
	slices.SortFunc(members, s.compare)
	for i := 1; i < len(members); i++ {
		if s.compare(members[i-1], members[i]) == 0 {
			return errDuplicate
		}
	}
	return nil
}

// compare orders members by the bytes of their quoted names. Any order does
// that is one for the names' meaning, and the text is canonical already.
func (s *scratch) compare(a, b span) int {
	return bytes.Compare(s.text[a.name:a.value], s.text[b.name:b.value])
}
