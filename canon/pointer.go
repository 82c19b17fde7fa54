package canon

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxPointer bounds the length of a pointer in a policy, in bytes.
const maxPointer = 1024

// parsePointer splits a JSON Pointer (RFC 6901) into its unescaped tokens. The
// token * is left as it is: it stands for every item of an array.
func parsePointer(p string) ([]string, error) {
	if len(p) > maxPointer {
		return nil, errors.New("pointer is longer than " + strconv.Itoa(maxPointer) + " bytes")
	}
	if !utf8.ValidString(p) {
		return nil, errors.New("pointer is not UTF-8")
	}
	if p == "" {
		return nil, nil
	}
	if p[0] != '/' {
		return nil, errors.New("pointer does not start with /")
	}
	tokens := strings.Split(p[1:], "/")
	for i, t := range tokens {
		u, err := unescapeToken(t)
		if err != nil {
			return nil, err
		}
		tokens[i] = u
	}
	return tokens, nil
}

// unescapeToken undoes the escapes of one pointer token.
func unescapeToken(t string) (string, error) {
	if !strings.Contains(t, "~") {
		return t, nil
	}
	for i := range len(t) {
		if t[i] == '~' && (i+1 == len(t) || t[i+1] != '0' && t[i+1] != '1') {
			return "", errors.New("pointer has a ~ that is neither ~0 nor ~1")
		}
	}
	// ~1 goes first: ~01 is the text ~1 and not a solidus.
	return strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~"), nil
}

// appendToken appends the escaped pointer token for a member name.
func appendToken(dst []byte, name string) []byte {
	for i := range len(name) {
		switch name[i] {
		case '~':
			dst = append(dst, "~0"...)
		case '/':
			dst = append(dst, "~1"...)
		default:
			dst = append(dst, name[i])
		}
	}
	return dst
}

// arrayIndex reads a pointer token as an array index. Leading zeros and signs
// make no index, as RFC 6901 has it.
func arrayIndex(token string) (int, bool) {
	if token == "" || len(token) > 9 || len(token) > 1 && token[0] == '0' {
		return 0, false
	}
	n := 0
	for i := range len(token) {
		if token[i] < '0' || token[i] > '9' {
			return 0, false
		}
		n = n*10 + int(token[i]-'0')
	}
	return n, true
}
