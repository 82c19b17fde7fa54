package canon

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// maxKept bounds what a scratch keeps between uses, in bytes or entries, so that
// one large body does not hold memory for good.
const maxKept = 64 << 10

// orZero is c, or the zero policy.
func (c *Compiled) orZero() *Compiled {
	if c == nil {
		return &Compiled{root: &place{}}
	}
	return c
}

// take is a scratch for one canonicalisation.
func (c *Compiled) take() *scratch {
	if s, ok := c.scratch.Get().(*scratch); ok {
		return s
	}
	return &scratch{c: c}
}

// give returns a scratch, without the body it was used on.
func (c *Compiled) give(s *scratch) {
	if cap(s.text)+cap(s.frames)+cap(s.members)+cap(s.listed)+cap(s.lists) > maxKept ||
		cap(s.tmp)+cap(s.fields.text)+cap(s.fields.list) > maxKept {
		return
	}
	c.scratch.Put(s)
}

// reset forgets what an earlier canonicalisation left.
func (s *scratch) reset() {
	s.text, s.frames, s.places = s.text[:0], s.frames[:0], s.places[:0]
	s.members, s.lists, s.listed = s.members[:0], s.lists[:0], s.listed[:0]
}

// room makes room for n more elements. Where it must grow it doubles, so that
// all growth together takes little more than what is needed in the end; append
// takes smaller steps.
func room[E any](s []E, n int) []E {
	if cap(s)-len(s) >= n {
		return s
	}
	grown := make([]E, len(s), cap(s)+max(n, cap(s)))
	copy(grown, s)
	return grown
}

// reader reads the tokens of a text.
type reader struct {
	dec jsontext.Decoder
	buf bytes.Buffer
}

// open is a reader of a text. It leaves duplicate names to its caller.
func (s *scratch) open(text []byte) *reader {
	var r *reader
	if n := len(s.readers); n > 0 {
		r, s.readers = s.readers[n-1], s.readers[:n-1]
	} else {
		r = new(reader)
	}
	r.buf = *bytes.NewBuffer(text)
	r.dec.Reset(&r.buf, jsontext.AllowDuplicateNames(true))
	return r
}

// close keeps a reader for another text, and forgets the one it has read.
func (s *scratch) close(r *reader) {
	r.buf = bytes.Buffer{}
	r.dec.Reset(&r.buf)
	s.readers = append(s.readers, r)
}
