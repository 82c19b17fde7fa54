package canon

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
)

// Request is what is compared of a request.
type Request struct {
	// Method is the request method, compared as it stands.
	Method string
	// Path is the resolved path as it was sent (escaped), compared as it stands.
	Path string
	// Query is the raw query, without the question mark.
	Query string
	// Header is the request header. Only Content-Type counts, and the headers
	// that the policy names.
	Header http.Header
	// Body is the body with its content encoding undone, see [Decode].
	Body []byte
}

// extent is a part of a form's text.
type extent struct{ from, to int }

// Form is a request in canonical form. It is read-only and safe for concurrent
// use. It holds the values of the request and belongs into no record: only its
// digests do, under a keyed hash.
type Form struct {
	c    *Compiled
	sum  [sha256.Size]byte
	text []byte // all that sum is over
	kind byte   // of the body

	method, path, media extent
	headers             []extent
	query, body         extent
	rawQuery            bool
}

// Sum is the digest of everything that counts. Two requests under the same
// policy have the same digest exactly when they are the same request.
func (f *Form) Sum() [32]byte { return f.sum }

// Form puts a request into canonical form. It always succeeds: what cannot be
// canonicalised is compared by its bytes. It keeps nothing of the request, takes
// time near linear in its size, and is safe for concurrent use.
func (c *Compiled) Form(r Request) *Form {
	c = c.orZero()
	s := c.take()
	defer c.give(s)
	m := parseMedia(r.Header)
	f := &Form{c: c, kind: s.readBody(r.Body, m)}
	size := len(r.Method) + len(r.Path) + len(m.text) + 3*len(r.Query) + 64
	switch f.kind {
	case kindJSON:
		size += len(s.text)
	case kindForm, kindMultipart:
		size += len(s.fields.text) + 4*len(s.fields.list)
	}
	f.text = append(make([]byte, 0, size), "onlyonce request\x01"...)
	f.text[len(f.text)-1] = Version
	f.method = f.add(r.Method)
	f.path = f.add(r.Path)
	f.media = f.add(m.text)
	f.addHeaders(r.Header)
	f.addBody(s, r)
	f.sum = sha256.Sum256(f.text)
	return f
}

// readBody reads a body into the scratch and tells how it is compared.
func (s *scratch) readBody(body []byte, m media) byte {
	var err error
	switch m.kind {
	case kindJSON:
		err = s.parse(body)
	case kindForm:
		if err = s.parseForm(body, true); err == nil {
			s.addFieldDefaults(func(name, text []byte, marks uint8) {
				s.beginField(name)
				s.fields.text = s.marked(s.fields.text, text, marks)
				s.endField()
			})
		}
	case kindMultipart:
		if err = s.parseMultipart(body, m.boundary); err == nil {
			s.addFieldDefaults(func(name, text []byte, marks uint8) {
				s.addContent(part{name: string(name)}, text, marks)
			})
		}
	}
	if err != nil {
		return kindBytes
	}
	return m.kind
}

// add appends a field of the text with its length before it, so that no two
// requests share a text.
func (f *Form) add(value string) extent {
	f.text = binary.AppendUvarint(f.text, uint64(len(value)))
	from := len(f.text)
	f.text = append(f.text, value...)
	return extent{from, len(f.text)}
}

// addHeaders appends the headers that count, each with its lines.
func (f *Form) addHeaders(h http.Header) {
	f.text = binary.AppendUvarint(f.text, uint64(len(f.c.headers)))
	for _, name := range f.c.headers {
		f.add(name)
		from := len(f.text)
		f.text = binary.AppendUvarint(f.text, uint64(len(h[name])))
		for _, line := range h[name] {
			f.add(line)
		}
		f.headers = append(f.headers, extent{from, len(f.text)})
	}
}

// addBody appends the body, or its digest, and the query.
func (f *Form) addBody(s *scratch, r Request) {
	f.text = append(f.text, f.kind)
	from := len(f.text)
	switch f.kind {
	case kindJSON:
		f.text = s.emit(f.text)
	case kindForm, kindMultipart:
		f.text = s.emitFields(f.text, true)
	default:
		sum := sha256.Sum256(r.Body)
		f.text = append(f.text, sum[:]...)
	}
	f.body = extent{from, len(f.text)}
	f.addQuery(s, r.Query)
}

// addQuery appends the query. The body before it needs no length, for it is one
// digest or one JSON value, and none goes on with the letter that begins this.
func (f *Form) addQuery(s *scratch, query string) {
	f.text = append(f.text, kindQuery)
	from := len(f.text)
	switch {
	case query == "":
		f.text = append(f.text, "{}"...)
	case s.parseForm([]byte(query), false) == nil:
		f.text = s.emitFields(f.text, false)
	default:
		f.text[from-1] = kindBytes
		f.text = append(f.text, query...)
		f.rawQuery = true
	}
	f.query = extent{from, len(f.text)}
}
