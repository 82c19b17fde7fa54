package canon

import (
	"bytes"
	"strconv"
)

const (
	// maxExponent is how many digits an exponent may have for its number to be
	// compared by value. A longer one is compared by its bytes.
	maxExponent = 18
	// maxPlain is how many digits an integer is written out to; beyond that
	// its trailing zeros become an exponent, so that 1e9 in a hostile body
	// does not grow into a billion zeros.
	maxPlain = 15
	// maxLeading is how many zeros are written between the point and the first
	// digit of a small fraction.
	maxLeading = 4
)

// decimal is a number as digits times a power of ten. The digits are head
// followed by tail, without zeros at either end; zero has no digits.
type decimal struct {
	negative   bool
	head, tail []byte
	exponent   int64
}

// appendNumber appends the canonical text of a JSON number: one text for each
// value, never by way of a float.
func appendNumber(dst, raw []byte) []byte {
	if plainInteger(raw) {
		return append(dst, raw...)
	}
	d, ok := parseDecimal(raw)
	if !ok {
		return append(dst, raw...)
	}
	return d.append(dst)
}

// plainInteger tells whether a JSON number is an integer that is its own
// canonical text.
func plainInteger(raw []byte) bool {
	for i, c := range raw {
		if (c < '0' || c > '9') && (i > 0 || c != '-') {
			return false
		}
	}
	last := raw[len(raw)-1]
	if raw[0] == '-' {
		return last != '0' || len(raw) > 2 && len(raw)-1 <= maxPlain
	}
	return last != '0' || len(raw) <= maxPlain
}

// parseDecimal reads a valid JSON number. It fails for an exponent that is too
// long to be computed with.
func parseDecimal(raw []byte) (decimal, bool) {
	var d decimal
	if raw[0] == '-' {
		d.negative, raw = true, raw[1:]
	}
	if i := bytes.IndexAny(raw, "eE"); i >= 0 {
		digits := bytes.TrimLeft(raw[i+1:], "+-")
		if len(digits) > maxExponent {
			return decimal{}, false
		}
		e, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil {
			return decimal{}, false
		}
		if raw[i+1] == '-' {
			e = -e
		}
		d.exponent, raw = e, raw[:i]
	}
	d.head = raw
	if i := bytes.IndexByte(raw, '.'); i >= 0 {
		d.head, d.tail = raw[:i], raw[i+1:]
		d.exponent -= int64(len(d.tail))
	}
	return d.trim(), true
}

// trim drops the zeros at both ends.
func (d decimal) trim() decimal {
	d.head = bytes.TrimLeft(d.head, "0")
	if len(d.head) == 0 {
		d.tail = bytes.TrimLeft(d.tail, "0")
	}
	n := len(d.head) + len(d.tail)
	d.tail = bytes.TrimRight(d.tail, "0")
	if len(d.tail) == 0 {
		d.head = bytes.TrimRight(d.head, "0")
	}
	d.exponent += int64(n - len(d.head) - len(d.tail))
	return d
}

// append writes the number: as an integer or a fraction where that is short,
// else as an integer with an exponent.
func (d decimal) append(dst []byte) []byte {
	n := int64(len(d.head) + len(d.tail))
	if n == 0 {
		return append(dst, '0')
	}
	if d.negative {
		dst = append(dst, '-')
	}
	point := n + d.exponent // digits before the decimal point
	switch {
	case d.exponent == 0 || d.exponent > 0 && point <= maxPlain:
		return appendZeros(d.digits(dst, 0, n), d.exponent)
	case d.exponent < 0 && point > 0:
		dst = append(d.digits(dst, 0, point), '.')
		return d.digits(dst, point, n)
	case d.exponent < 0 && point >= -maxLeading:
		dst = appendZeros(append(dst, "0."...), -point)
		return d.digits(dst, 0, n)
	default:
		dst = append(d.digits(dst, 0, n), 'e')
		return strconv.AppendInt(dst, d.exponent, 10)
	}
}

// digits appends the digits from one position up to another.
func (d decimal) digits(dst []byte, from, to int64) []byte {
	h := int64(len(d.head))
	if from < h {
		dst = append(dst, d.head[from:min(to, h)]...)
	}
	if to > h {
		dst = append(dst, d.tail[max(from-h, 0):to-h]...)
	}
	return dst
}

func appendZeros(dst []byte, n int64) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}

// isNumber tells whether text is exactly a JSON number: no plus sign, spaces,
// leading zeros or bare points.
func isNumber(text []byte) bool {
	text = bytes.TrimPrefix(text, []byte("-"))
	n := countDigits(text)
	if n == 0 || n > 1 && text[0] == '0' {
		return false
	}
	text = text[n:]
	if len(text) > 0 && text[0] == '.' {
		n = countDigits(text[1:])
		if n == 0 {
			return false
		}
		text = text[1+n:]
	}
	if len(text) > 0 && (text[0] == 'e' || text[0] == 'E') {
		text = text[1:]
		if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
			text = text[1:]
		}
		n = countDigits(text)
		if n == 0 {
			return false
		}
		text = text[n:]
	}
	return len(text) == 0
}

func countDigits(text []byte) int {
	for i, c := range text {
		if c < '0' || c > '9' {
			return i
		}
	}
	return len(text)
}
