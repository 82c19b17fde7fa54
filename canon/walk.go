package canon

import (
	"bytes"
	"strconv"
)

// maxPartDepth is how deep parts are told apart. It bounds the work on a body
// that is one long chain of containers.
const maxPartDepth = 32

// document is a tree in the text of a form: its body or its query.
type document struct {
	kind byte
	text []byte // canonical JSON
	c    *Compiled
}

// node is a value in a document.
type node struct {
	extent
	places []*place
	within bool // everything in it counts, see frame
	depth  int
	// name is that of a member, and index that of an item, as it was in the
	// request before ignored items were left out.
	name  []byte
	index int
}

// token is the step to the value, as in a JSON Pointer but not escaped.
func (n node) token(open byte) string {
	if open == '[' {
		return strconv.Itoa(n.index)
	}
	return string(n.name)
}

// root is the whole document.
func (d document) root() node {
	n := node{extent: extent{0, len(d.text)}, within: !d.c.fields}
	if d.kind != kindQuery {
		n.places = []*place{d.c.root}
	}
	return n
}

// container is the opening bracket of a value that can be told apart into its
// members or items, else 0.
func (d document) container(n node) byte {
	marks := marksOf(n.places)
	open := d.text[n.from]
	depth := 1
	if d.kind == kindJSON {
		depth = maxPartDepth
	}
	switch {
	case open != '{' && open != '[', n.depth >= depth:
		return 0
	case marks&markWhole != 0, open == '[' && marks&markSet != 0:
		// The items of a set have no names, for their order means nothing.
		return 0
	}
	return open
}

// children calls yield for each member or item of a container, in the order of
// the text, until it returns false.
func (d document) children(n node, yield func(node) bool) {
	_, within := d.c.counts(marksOf(n.places), n.within)
	object := d.text[n.from] == '{'
	at := n.from + 1
	for index := 0; at < n.to-1; index++ {
		child := node{within: within, depth: n.depth + 1}
		if object {
			end := skipString(d.text, at)
			child.name = memberName(d.text[at:end])
			child.places = member(nil, n.places, child.name)
			at = end + 1
		} else {
			index = d.skipIgnored(n, within, index)
			child.places = item(nil, n.places, index)
			child.index = index
		}
		child.from, child.to = at, skipValue(d.text, at)
		if !yield(child) {
			return
		}
		at = child.to + 1
	}
}

// memberName is the text of a quoted name, a part of it where that will do.
func memberName(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	return unquoted(quoted)
}

// skipIgnored is the index in the request of the next item in the text.
func (d document) skipIgnored(n node, within bool, index int) int {
	if len(n.places) == 0 && within {
		return index
	}
	for {
		places := item(nil, n.places, index)
		if counts, _ := d.c.counts(marksOf(places), within); counts {
			return index
		}
		index++
	}
}

// skipString is the end of the JSON string that begins at an offset of a valid
// text.
func skipString(text []byte, at int) int {
	for at++; ; at++ {
		switch text[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
}

// skipValue is the end of the value that begins at an offset of a valid text
// without white space.
func skipValue(text []byte, at int) int {
	depth := 0
	for at < len(text) {
		switch text[at] {
		case '"':
			at = skipString(text, at)
		case '{', '[':
			depth++
			at++
		case '}', ']':
			depth--
			at++
		case ',', ':':
			at++
			continue // not the end of a value
		default:
			at = skipPlain(text, at)
		}
		if depth == 0 {
			break
		}
	}
	return at
}

// skipPlain is the end of a number or a literal.
func skipPlain(text []byte, at int) int {
	for at < len(text) && text[at] != ',' && text[at] != '}' && text[at] != ']' {
		at++
	}
	return at
}
