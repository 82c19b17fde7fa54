package canon

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// addFieldDefaults adds the fields that are missing from a form or a multipart
// body. add adds one, given its name and its text, under the marks on it.
func (s *scratch) addFieldDefaults(add func(name, text []byte, marks uint8)) {
	defaults := s.c.root.defaults
	if len(defaults) == 0 {
		return
	}
	s.sortFields()
	known := s.fields.list
	for _, d := range defaults {
		_, there := slices.BinarySearchFunc(known, d.name, func(f field, name string) int {
			return bytes.Compare(s.fields.text[f.name:f.value], []byte(name))
		})
		name := unquoted([]byte(d.name))
		marks, counts := s.fieldMarks(name)
		if there || !counts {
			continue
		}
		for _, text := range d.texts() {
			add(name, text, marks)
		}
	}
}

// texts is a default as field values: its text if it is a scalar, one for each
// scalar item if it is an array. An object has no form as a field.
func (d defaultValue) texts() [][]byte {
	switch d.raw[0] {
	case '{':
		return nil
	case '[':
	default:
		return [][]byte{scalarText(d.raw)}
	}
	var texts [][]byte
	dec := jsontext.NewDecoder(bytes.NewBuffer(d.raw))
	if _, err := dec.ReadToken(); err != nil {
		return nil
	}
	for dec.PeekKind() != ']' {
		raw, err := dec.ReadValue()
		if err != nil || raw[0] == '{' || raw[0] == '[' {
			return nil
		}
		texts = append(texts, scalarText(raw))
	}
	return texts
}

// scalarText is a JSON scalar as the text of a field.
func scalarText(raw []byte) []byte {
	if raw[0] == '"' {
		return unquoted(raw)
	}
	return slices.Clone(raw)
}

// unquoted is the text of a valid JSON string.
func unquoted(raw []byte) []byte {
	// No error: it has been validated.
	text, _ := jsontext.AppendUnquote(nil, raw)
	return text
}
