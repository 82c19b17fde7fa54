package canon

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"

	"github.com/onlyonce-go/onlyonce"
)

const (
	// maxParts is how many parts a form has at most.
	maxParts = 64
	// maxPartBytes is how long the names of the parts may be, with partBytes
	// for the hash of each.
	maxPartBytes = 2048
	partBytes    = 8
)

// leafPart marks a part of a document (a body or a query) that is a leaf.
//
// The name of a part begins with its kind. In a document the second byte is this
// mark or, for a container without members, its opening bracket; then follows
// the path, a JSON Pointer in which an array index comes after [ instead of a
// solidus. So a name tells the types of the containers that it is in, which
// nothing else in a record does.
const leafPart = '='

// Parts is what counts, by name: the method, the path, the content type, the
// headers, the fields of the query and the leaves of the body. There are at most
// 64 parts, and their names with 8 bytes each take at most 2,048 bytes; above
// that, containers with many members stand for what is in them, and so do the
// parents of sensitive fields and of members whose names are no names of fields
// but, likely, values in their place. Names are for [Form.Differs] only and hold
// no values. Each call makes the parts anew, in the same order.
func (f *Form) Parts() []onlyonce.Part {
	b := partBuilder{
		f:     f,
		docs:  make([]document, 0, 2),
		parts: make([]onlyonce.Part, 0, 16),
		ends:  make([]extent, 0, 16),
		names: make([]byte, 0, 256),
		queue: make([]pending, 0, 16),
		buf:   make([]byte, 0, 256),
	}
	b.add(kindMethod, "", f.method)
	b.add(kindPath, "", f.path)
	b.add(kindType, "", f.media)
	for _, h := range f.headerParts() {
		b.add(kindHeader, h.name, h.extent)
	}
	if f.rawQuery {
		b.add(kindQuery, rawQuery, f.query)
	} else {
		b.docs = append(b.docs, f.queryDocument())
	}
	if f.kind == kindBytes {
		b.add(kindBytes, "", f.body)
	} else {
		b.docs = append(b.docs, f.bodyDocument())
	}
	b.addDocuments()
	return b.named()
}

// rawQuery follows the kind in the name of a query that is compared as it is.
const rawQuery = "B"

func (f *Form) span(e extent) []byte { return f.text[e.from:e.to] }

func (f *Form) bodyDocument() document {
	return document{kind: f.kind, text: f.span(f.body), c: f.c}
}

func (f *Form) queryDocument() document {
	return document{kind: kindQuery, text: f.span(f.query), c: f.c}
}

// headerPart is a header that is a part of its own.
type headerPart struct {
	extent
	name string
}

// headerParts are the headers as parts: each for itself, or, where the policy
// names so many that little room is left, one for all, without a name.
func (f *Form) headerParts() []headerPart {
	size := 0
	parts := make([]headerPart, len(f.headers))
	for i, e := range f.headers {
		size += 1 + len(f.c.headers[i]) + partBytes
		parts[i] = headerPart{e, f.c.headers[i]}
	}
	if len(parts) > maxParts/2 || size > maxPartBytes/2 {
		return []headerPart{{extent: extent{f.headers[0].from, f.headers[len(parts)-1].to}}}
	}
	return parts
}

// appendPart appends what the digest of a part is over. The name is in it, so
// that equal values in two places do not look equal.
func appendPart[T ~[]byte | ~string](dst []byte, name T, value []byte) []byte {
	dst = append(dst, "part\x01"...)
	dst[len(dst)-1] = Version
	dst = binary.AppendUvarint(dst, uint64(len(name)))
	dst = append(dst, name...)
	return append(dst, value...)
}

// maxCopied is how long a value is copied to be digested with its name.
const maxCopied = 1024

// partSum is the digest of a part. It uses buf, and returns it for another.
func partSum[T ~[]byte | ~string](buf []byte, name T, value []byte) ([]byte, [sha256.Size]byte) {
	if len(value) <= maxCopied {
		buf = appendPart(buf[:0], name, value)
		return buf, sha256.Sum256(buf)
	}
	buf = appendPart(buf[:0], name, nil)
	h := sha256.New()
	h.Write(buf)
	h.Write(value)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return buf, sum
}

// partBuilder collects parts.
type partBuilder struct {
	f     *Form
	docs  []document
	parts []onlyonce.Part
	names []byte   // of parts, and of values that may be some
	ends  []extent // where the name of each part is in names
	queue []pending
	count int // parts, and values that are one each until told apart
	size  int // what they take
	buf   []byte
}

// pending is a value that may be told apart.
type pending struct {
	node
	doc  int    // in docs
	name extent // in names
}

// partSize is what a part takes in a record.
func partSize(name extent) int { return name.to - name.from + partBytes }

// add adds a part that is not in a document.
func (b *partBuilder) add(kind byte, name string, value extent) {
	from := len(b.names)
	b.names = append(append(b.names, kind), name...)
	e := extent{from, len(b.names)}
	b.count, b.size = b.count+1, b.size+partSize(e)
	b.addPart(e, b.f.span(value))
}

// addPart adds a part, given its name in names.
func (b *partBuilder) addPart(name extent, value []byte) {
	var p onlyonce.Part
	b.buf, p.Sum = partSum(b.buf, b.names[name.from:name.to], value)
	b.parts = append(b.parts, p)
	b.ends = append(b.ends, name)
}

// named is the parts with their names, which share one string.
func (b *partBuilder) named() []onlyonce.Part {
	names := string(b.names)
	for i, e := range b.ends {
		b.parts[i].Name = names[e.from:e.to]
	}
	return b.parts
}

// addDocuments adds the parts of the documents, level by level, as finely as
// there is room for.
func (b *partBuilder) addDocuments() {
	for i, d := range b.docs {
		from := len(b.names)
		b.names = append(b.names, d.kind, leafPart)
		b.push(pending{node: d.root(), doc: i, name: extent{from, len(b.names)}})
	}
	for i := 0; i < len(b.queue); i++ {
		p := b.queue[i]
		d := b.docs[p.doc]
		open := d.container(p.node)
		children := len(b.queue)
		switch {
		case open == 0 || !b.expand(p, open):
		case len(b.queue) == children:
			b.names[p.name.from+1] = open
		default:
			continue
		}
		b.addPart(p.name, d.text[p.from:p.to])
	}
}

// push appends a value to the queue.
func (b *partBuilder) push(p pending) {
	b.queue = append(b.queue, p)
	b.count, b.size = b.count+1, b.size+partSize(p.name)
}

// expand puts the members or items of a container in its place, and tells
// whether they may be named and there is room for them.
func (b *partBuilder) expand(p pending, open byte) bool {
	queued, named, count, size := len(b.queue), len(b.names), b.count, b.size
	fits := !b.docs[p.doc].bare(p.node)
	b.docs[p.doc].children(p.node, func(n node) bool {
		if fits = fits && plausible(n.name); !fits {
			return false
		}
		from := len(b.names)
		b.names = append(b.names, b.names[p.name.from:p.name.to]...)
		b.names = n.appendSegment(b.names, open)
		b.push(pending{node: n, doc: p.doc, name: extent{from, len(b.names)}})
		fits = b.count-1 <= maxParts && b.size-partSize(p.name) <= maxPartBytes
		return fits
	})
	if !fits {
		b.queue, b.names, b.count, b.size = b.queue[:queued], b.names[:named], count, size
		return false
	}
	if len(b.queue) > queued {
		b.count, b.size = b.count-1, b.size-partSize(p.name)
	}
	return true
}

// appendSegment appends the step to a member or an item in the path of a part.
func (n node) appendSegment(dst []byte, open byte) []byte {
	if open == '[' {
		return strconv.AppendInt(append(dst, '['), int64(n.index), 10)
	}
	dst = append(dst, '/')
	for _, c := range n.name {
		switch c {
		case '~':
			dst = append(dst, "~0"...)
		case '/':
			dst = append(dst, "~1"...)
		case '[':
			dst = append(dst, "~2"...)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
