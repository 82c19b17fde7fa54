package canon

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"unicode/utf8"
)

var errForm = errors.New("form cannot be decoded")

// fieldList is the fields of a form, a query or a multipart body: in text, each
// has its quoted name and the JSON text of its value.
type fieldList struct {
	text []byte
	list []field
}

// field is one of them: text[name:value] and text[value:end].
type field = span

// reset forgets the fields and makes room for n.
func (l *fieldList) reset(n int) {
	l.text = l.text[:0]
	l.list = slices.Grow(l.list[:0], n)
}

// parseForm reads URL-encoded pairs into the list. The policy applies to the
// fields of a form, and not to those of a query.
func (s *scratch) parseForm(body []byte, policy bool) error {
	if len(body) > maxBody {
		return errBodySize
	}
	n := 0
	for pair := range bytes.SplitSeq(body, []byte("&")) {
		if len(pair) > 0 {
			n++
		}
	}
	s.fields.reset(n)
	for pair := range bytes.SplitSeq(body, []byte("&")) {
		if len(pair) == 0 {
			continue
		}
		name, value, _ := bytes.Cut(pair, []byte("="))
		if err := s.addPair(name, value, policy); err != nil {
			return err
		}
	}
	return nil
}

// addPair adds a pair, given its URL encoding.
func (s *scratch) addPair(name, value []byte, policy bool) (err error) {
	if s.tmp, err = unescape(s.tmp[:0], name); err != nil {
		return err
	}
	var marks uint8
	if policy {
		var counts bool
		if marks, counts = s.fieldMarks(s.tmp); !counts {
			_, err = unescape(s.tmp[:0], value)
			return err
		}
	}
	s.beginField(s.tmp)
	if s.tmp, err = unescape(s.tmp[:0], value); err != nil {
		return err
	}
	s.fields.text = s.marked(s.fields.text, s.tmp, marks)
	s.endField()
	return nil
}

// beginField begins a field, after which its value is appended to the text.
func (s *scratch) beginField(name []byte) {
	l := &s.fields
	at := len(l.text)
	l.text = quote(l.text, name)
	l.list = append(l.list, field{name: uint32(at), value: uint32(len(l.text))})
}

func (s *scratch) endField() {
	l := &s.fields
	l.list[len(l.list)-1].end = uint32(len(l.text))
}

// fieldMarks are the marks on a field, and whether it counts.
func (s *scratch) fieldMarks(name []byte) (uint8, bool) {
	var marks uint8
	if at := s.c.root.members[string(name)]; at != nil {
		marks = at.marks
	}
	counts, _ := s.c.counts(marks, s.c.root.marks&markField != 0)
	return marks, counts
}

// sortFields orders the fields by name, those of one name as they came.
func (s *scratch) sortFields() {
	l := &s.fields
	slices.SortFunc(l.list, func(a, b field) int {
		if c := bytes.Compare(l.text[a.name:a.value], l.text[b.name:b.value]); c != 0 {
			return c
		}
		return cmp.Compare(a.name, b.name)
	})
}

// emitFields appends the fields as a JSON object of arrays.
func (s *scratch) emitFields(dst []byte, policy bool) []byte {
	l := &s.fields
	s.sortFields()
	dst = append(dst, '{')
	for i := 0; i < len(l.list); {
		name := l.text[l.list[i].name:l.list[i].value]
		n := 1
		for i+n < len(l.list) && bytes.Equal(name, l.text[l.list[i+n].name:l.list[i+n].value]) {
			n++
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, name...), ':')
		dst = s.emitValues(dst, l.list[i:i+n], policy && s.isSet(name))
		i += n
	}
	return append(dst, '}')
}

// isSet tells whether the order of equally named fields does not count.
func (s *scratch) isSet(quoted []byte) bool {
	marks, _ := s.fieldMarks(s.unquote(quoted))
	return marks&markSet != 0
}

// emitValues appends the values of one name as a JSON array.
func (s *scratch) emitValues(dst []byte, group []field, set bool) []byte {
	text := s.fields.text
	if set {
		slices.SortFunc(group, func(a, b field) int {
			return bytes.Compare(text[a.value:a.end], text[b.value:b.end])
		})
	}
	for i, f := range group {
		dst = append(dst, "[,"[min(i, 1)])
		dst = append(dst, text[f.value:f.end]...)
	}
	return append(dst, ']')
}

// unescape appends the text of a URL-encoded name or value. What is not UTF-8
// then has no canonical form, and is an error.
func unescape(dst, src []byte) ([]byte, error) {
	start := len(dst)
	for i := 0; i < len(src); i++ {
		switch c := src[i]; c {
		case '+':
			dst = append(dst, ' ')
		case '%':
			if i+2 >= len(src) {
				return dst, errForm
			}
			hi, lo := hexDigit(src[i+1]), hexDigit(src[i+2])
			if hi > 15 || lo > 15 {
				return dst, errForm
			}
			dst = append(dst, hi<<4|lo)
			i += 2
		default:
			dst = append(dst, c)
		}
	}
	if !utf8.Valid(dst[start:]) {
		return dst, errForm
	}
	return dst, nil
}

// hexDigit is the value of a hexadecimal digit, or over 15.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return (c | 0x20) - 'a' + 10
	default:
		return 16
	}
}
