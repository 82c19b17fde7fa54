package canon

import (
	"unicode"
	"unicode/utf8"
)

const (
	// maxName is how long a name of a field is at most, in bytes.
	maxName = 96
	// maxDigits is how many digits it has at most, and maxBareDigits where it has no
	// letter. The shortest card numbers, account numbers and codes that are sent by
	// telephone have more.
	maxDigits, maxBareDigits = 4, 2
)

// plausible tells whether a name is one that a field is likely to have. What a
// client calls a name may be a value: a JSON text that was sent as a form is one
// field whose name is all of it, a card number in a query without a name is one,
// and so are the keys of a map by e-mail address. Such names must not be shown and
// not be kept in clear; what they are in is named instead. Nothing but the names of
// parts depends on it.
//
// A name is short, of letters and few digits with the punctuation of names and of
// paths of names ($type, items[0].name, soap:Body). The empty name tells nothing.
func plausible(name []byte) bool {
	if len(name) > maxName || !utf8.Valid(name) {
		return false
	}
	letters, digits := 0, 0
	for i, r := range string(name) {
		switch {
		case unicode.IsDigit(r):
			digits++
		case unicode.IsLetter(r), unicode.IsMark(r):
			letters++
		case r == '@' && i > 0:
			return false // an e-mail address
		case !nameMark(r):
			return false
		}
	}
	return digits <= maxBareDigits || letters > 0 && digits <= maxDigits
}

// nameMark tells whether a name of a field may have this punctuation.
func nameMark(r rune) bool {
	switch r {
	case '_', '-', '.', ':', '$', '@', '/', '~', '[', ']':
		return true
	default:
		return false
	}
}

// bare tells whether a form is a single field without a value that no policy knows:
// a text that was sent as a form without being one. Then the name is the value.
func (d document) bare(n node) bool {
	if d.kind != kindForm || n.depth > 0 || d.text[n.from+1] != '"' {
		return false
	}
	end := skipString(d.text, n.from+1)
	return string(d.text[end:n.to]) == `:[""]}` && len(member(nil, n.places, memberName(d.text[n.from+1:end]))) == 0
}
