package canon

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// scalar appends the canonical text of a JSON scalar under the marks on it.
func (s *scratch) scalar(dst, raw []byte, marks uint8) []byte {
	switch c := raw[0]; {
	case c == '"':
		if marks&(markDecimal|markUpper) != 0 {
			return s.marked(dst, s.unquote(raw), marks)
		}
		return s.string(dst, raw)
	case c == '-' || '0' <= c && c <= '9':
		return appendNumber(dst, raw)
	default:
		return append(dst, raw...)
	}
}

// marked appends the canonical text of a string in a decimal or an upper-case
// field. The text is changed in place.
func (s *scratch) marked(dst, text []byte, marks uint8) []byte {
	if marks&markDecimal != 0 && isNumber(text) {
		return appendNumber(dst, text)
	}
	if marks&markUpper != 0 {
		// Not bytes.ToUpper: it also changes letters outside ASCII, and makes
		// I of the Turkish ı, which is another letter.
		for i, c := range text {
			if 'a' <= c && c <= 'z' {
				text[i] = c - 'a' + 'A'
			}
		}
	}
	return quote(dst, text)
}

// string appends a valid JSON string with minimal escapes. Without a backslash
// it has none to change.
func (s *scratch) string(dst, raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return append(dst, raw...)
	}
	return quote(dst, s.unquote(raw))
}

// unquote is the text of a valid JSON string. It is good until the next call.
func (s *scratch) unquote(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		s.tmp = append(s.tmp[:0], raw[1:len(raw)-1]...)
		return s.tmp
	}
	// No error: the decoder has validated it.
	s.tmp, _ = jsontext.AppendUnquote(s.tmp[:0], raw)
	return s.tmp
}
