package canon

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
)

// Names of what differs that are not fields of something.
const (
	bodyName   = "body"
	queryName  = "query"
	headerName = "header"
)

// Differs names what differs between this form and one that was recorded under
// the same policy, of which only the names of its parts survive and same, which
// tells whether the i-th of them had a digest. The names are sorted: method,
// path, content-type, header:NAME, query:NAME, JSON Pointers, and body for a body
// that was compared by its bytes or is of another type altogether. A container
// that is missing or of another type is named itself, and so is one in which too
// much differs to be listed, or which has members whose names may be values. When
// nothing can be named it is the body, unless every part is the same. No name
// holds a value. Differs is safe for concurrent
// use if same is.
func (f *Form) Differs(recorded []string, same func(i int, sum [32]byte) bool) []string {
	d := differ{f: f, same: same, scalars: map[string]int{}}
	d.read(recorded)
	d.scalar(string(kindMethod), "method", f.method)
	d.scalar(string(kindPath), "path", f.path)
	d.scalar(string(kindType), "content-type", f.media)
	retyped := len(d.names) > 0 && slices.Contains(d.names, "content-type")
	for _, h := range f.headerParts() {
		name := headerName
		if h.name != "" {
			name += ":" + h.name
		}
		d.scalar(string(kindHeader)+h.name, name, h.extent)
	}
	d.query()
	d.body(retyped)
	if len(d.names) == 0 && d.partial {
		d.names = append(d.names, bodyName)
	}
	slices.Sort(d.names)
	return slices.Compact(d.names)
}

// differ compares a form with recorded parts.
type differ struct {
	f       *Form
	same    func(i int, sum [32]byte) bool
	scalars map[string]int // recorded parts that are not in a document, by name
	docs    [256]*recordedNode
	names   []string
	partial bool // something could not be compared
	buf     []byte
}

// read sorts out the names of recorded parts.
func (d *differ) read(recorded []string) {
	for i, name := range recorded {
		if len(name) < 2 || strings.IndexByte("QJFM", name[0]) < 0 || strings.IndexByte("={[", name[1]) < 0 {
			d.scalars[name] = i
			continue
		}
		if d.docs[name[0]] == nil {
			d.docs[name[0]] = &recordedNode{}
		}
		if !d.docs[name[0]].insert(name[2:], name[1], i) {
			d.partial = true
		}
	}
}

// scalar compares a part that is not in a document.
func (d *differ) scalar(part, name string, e extent) {
	i, ok := d.scalars[part]
	if !ok {
		d.partial = true
		return
	}
	var sum [sha256.Size]byte
	if d.buf, sum = partSum(d.buf, part, d.f.span(e)); !d.same(i, sum) {
		d.names = append(d.names, name)
	}
}

// query compares the query.
func (d *differ) query() {
	raw := string(kindQuery) + rawQuery
	_, wasRaw := d.scalars[raw]
	was := d.docs[kindQuery]
	switch {
	case wasRaw && d.f.rawQuery:
		d.scalar(raw, queryName, d.f.query)
	case wasRaw || d.f.rawQuery && was != nil:
		d.names = append(d.names, queryName)
	case was == nil:
		d.partial = true
	default:
		t := treeDiffer{document: d.f.queryDocument(), same: d.same}
		t.compare(t.root(), was, t.rootPath())
		for _, p := range t.found {
			d.names = append(d.names, queryFieldName(p))
		}
	}
}

// queryFieldName is the name of a field of the query, given its pointer.
func queryFieldName(pointer string) string {
	if pointer == "" {
		return queryName
	}
	// No error: the pointer was made from a name.
	name, _ := unescapeToken(pointer[1:])
	return queryName + ":" + name
}

// body compares the body. Bodies of two content types cannot be compared, and
// the content type has been named then.
func (d *differ) body(retyped bool) {
	was := d.docs[d.f.kind]
	switch {
	case d.f.kind == kindBytes && d.hasScalar(string(kindBytes)):
		d.scalar(string(kindBytes), bodyName, d.f.body)
	case was == nil || d.f.kind == kindBytes:
		if !retyped {
			d.names = append(d.names, bodyName)
		}
	default:
		t := treeDiffer{document: d.f.bodyDocument(), same: d.same}
		t.compare(t.root(), was, t.rootPath())
		for _, p := range t.found {
			if p == "" {
				p = bodyName
			}
			d.names = append(d.names, p)
		}
	}
}

func (d *differ) hasScalar(part string) bool {
	_, ok := d.scalars[part]
	return ok
}

// path is where a value is: as a JSON Pointer, and as the name of a part.
type path struct{ pointer, part string }

// rootPath is the path of a whole document.
func (d document) rootPath() path { return path{part: string(d.kind) + string(leafPart)} }

// step is the path of a member or an item.
func (p path) step(n node, open byte) path {
	return path{
		pointer: p.pointer + pointerStep(n.token(open)),
		part:    string(n.appendSegment([]byte(p.part), open)),
	}
}

// pointerStep is one step of a JSON Pointer.
func pointerStep(token string) string {
	return string(appendToken([]byte{'/'}, token))
}

// treeDiffer compares a document with its recorded parts.
type treeDiffer struct {
	document
	same  func(i int, sum [32]byte) bool
	found []string // pointers
	size  int
	buf   []byte
}

// compare finds what differs in a value.
func (t *treeDiffer) compare(n node, was *recordedNode, at path) {
	if was.leaf {
		var sum [sha256.Size]byte
		if t.buf, sum = partSum(t.buf, at.part, t.text[n.from:n.to]); !t.same(was.part, sum) {
			t.add(at.pointer)
		}
		return
	}
	open := t.container(n)
	if open == 0 || open != was.open {
		t.add(at.pointer)
		return
	}
	before, size := len(t.found), t.size
	fits := func() bool { return len(t.found)-before <= maxParts && t.size-size <= maxPartBytes }
	hidden := t.bare(n)
	missing := maps.Clone(was.children)
	t.children(n, func(child node) bool {
		hidden = hidden || !plausible(child.name)
		token := child.token(open)
		delete(missing, token)
		switch then := was.children[token]; {
		case then != nil:
			t.compare(child, then, at.step(child, open))
		case hidden:
			t.add(at.pointer) // and nothing else will be named of this container
		default:
			t.add(at.pointer + pointerStep(token))
		}
		return fits()
	})
	for _, token := range slices.Sorted(maps.Keys(missing)) {
		// Records of earlier versions have names of every kind.
		hidden = hidden || open == '{' && !plausible([]byte(token))
		t.add(at.pointer + pointerStep(token))
	}
	if !fits() || hidden && len(t.found) > before {
		t.found, t.size = t.found[:before], size
		t.add(at.pointer)
	}
}

func (t *treeDiffer) add(pointer string) {
	t.found = append(t.found, pointer)
	t.size += len(pointer) + partBytes
}
