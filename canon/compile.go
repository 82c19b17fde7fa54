package canon

import (
	"fmt"
	"maps"
	"slices"
	"sync"
)

// The marks that a policy puts on a place in a body.
const (
	markIgnore  = 1 << iota // does not count
	markField               // counts with everything in it
	markBelow               // a field is somewhere in it
	markDecimal             // may be a number in a string
	markUpper               // compared in upper case
	markSet                 // an array whose order does not count
	markWhole               // one part: something sensitive is in it
)

// place is a node in the tree of a policy's pointers.
type place struct {
	marks    uint8
	defaults []defaultValue
	members  map[string]*place // by token, as an object member
	items    map[int]*place    // by token, as an array index
	each     *place            // the token *
}

// defaultValue is a member that is added when it is missing.
type defaultValue struct {
	name string // quoted
	raw  []byte // canonical JSON
}

// Compiled is a policy ready for use. It is safe for concurrent use. The nil
// Compiled is the zero policy.
type Compiled struct {
	root     *place
	headers  []string
	fields   bool // only chosen fields count
	pointers bool // there are pointers at all
	scratch  sync.Pool
}

// Compile prepares a policy. The error is that of [Policy.Validate]. The result
// keeps nothing of p.
func Compile(p Policy) (*Compiled, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("compile policy: %w", err)
	}
	c := &Compiled{
		root:    &place{},
		headers: p.headerNames(),
		fields:  len(p.Fields) > 0,
	}
	c.mark(p.Ignore, markIgnore)
	c.mark(p.Fields, markField)
	c.mark(p.Decimal, markDecimal)
	c.mark(p.Upper, markUpper)
	c.mark(p.Sets, markSet)
	for _, pointer := range p.Fields {
		for _, at := range c.path(pointer) {
			at.marks |= markBelow
		}
	}
	for _, pointer := range p.Sensitive {
		path := c.path(pointer)
		path[len(path)-2].marks |= markWhole
	}
	for _, pointer := range slices.Sorted(maps.Keys(p.Defaults)) {
		path := c.path(pointer)
		tokens, _ := parsePointer(pointer)
		parent := path[len(path)-2]
		parent.defaults = append(parent.defaults, defaultValue{
			name: string(quote(nil, tokens[len(tokens)-1])),
			raw:  canonicalDefault(p.Defaults[pointer]),
		})
	}
	c.pointers = c.root.marks != 0 || c.root.defaults != nil || c.root.members != nil
	return c, nil
}

// mark puts a mark on the places of pointers.
func (c *Compiled) mark(pointers []string, mark uint8) {
	for _, pointer := range pointers {
		path := c.path(pointer)
		path[len(path)-1].marks |= mark
	}
}

// path is the places from the root to a pointer, made where they are missing.
func (c *Compiled) path(pointer string) []*place {
	path := []*place{c.root}
	tokens, _ := parsePointer(pointer) // validated
	for _, t := range tokens {
		path = append(path, path[len(path)-1].child(t))
	}
	return path
}

// child is the place of a token, made if it is missing. One token can be both
// a member and an array index; both lead to the same place.
func (p *place) child(token string) *place {
	if at := p.members[token]; at != nil {
		return at
	}
	at := &place{}
	if p.members == nil {
		p.members = map[string]*place{}
	}
	p.members[token] = at
	if i, ok := arrayIndex(token); ok {
		if p.items == nil {
			p.items = map[int]*place{}
		}
		p.items[i] = at
	}
	if token == "*" {
		p.each = at
	}
	return at
}

// member appends the places of an object member, given those of the object. An
// index and a * can lead to one item, so that it has several.
func member(dst, parents []*place, name []byte) []*place {
	for _, p := range parents {
		if at := p.members[string(name)]; at != nil {
			dst = append(dst, at)
		}
	}
	return dst
}

// item appends the places of an array item, given those of the array.
func item(dst, parents []*place, index int) []*place {
	for _, p := range parents {
		if at := p.items[index]; at != nil {
			dst = append(dst, at)
		}
		if p.each != nil {
			dst = append(dst, p.each)
		}
	}
	return dst
}

// marksOf joins the marks of places.
func marksOf(places []*place) uint8 {
	var marks uint8
	for _, p := range places {
		marks |= p.marks
	}
	return marks
}

// counts tells whether a value counts, and whether everything in it does too,
// given its marks and whether it is within a chosen field.
func (c *Compiled) counts(marks uint8, within bool) (counts, whole bool) {
	whole = within || !c.fields || marks&markField != 0
	return marks&markIgnore == 0 && (whole || marks&markBelow != 0), whole
}
