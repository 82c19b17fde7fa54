package oncehttp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/onlyonce-go/onlyonce"
)

// ParseKey reads an idempotency key from the values of its header, one for
// each field line, and returns the decoded key.
//
// The quoted form is an RFC 9651 String, whose parameters are ignored. The bare
// form is what most clients send: printable ASCII without space, quote,
// backslash, comma and semicolon, and no parenthesis at its start. Both forms
// of one value are the same key; strict takes the quoted form only (rule K1).
// A key has 1 to onlyonce.MaxKeyLength characters.
//
// Everything else is an *onlyonce.Error with CodeKeyInvalid: more than one
// field line, even of equal values, a list, a broken quote (rules K2, K3). No
// values at all are an error with CodeKeyRequired.
func ParseKey(values []string, strict bool) (string, error) {
	key, err := parseKey(values, strict)
	return key.value, err
}

// sentKey is a key as it was sent.
type sentKey struct {
	value  string
	quoted bool
}

// String is the key as a header value, in the form in which it was sent.
func (k sentKey) String() string {
	if !k.quoted {
		return k.value
	}
	s, err := httpsfv.Marshal(httpsfv.NewItem(k.value))
	if err != nil {
		return "" // not reached: a parsed key is printable ASCII
	}
	return s
}

func parseKey(values []string, strict bool) (sentKey, error) {
	switch len(values) {
	case 0:
		return sentKey{}, keyRequired()
	case 1:
	default:
		return sentKey{}, keyInvalid(fmt.Sprintf("the header was sent %d times; send it once", len(values)), nil)
	}
	value := strings.Trim(values[0], " \t")
	key := sentKey{value: value}
	var err error
	switch {
	case strings.HasPrefix(value, `"`):
		key.quoted = true
		key.value, err = parseQuoted(value)
	case strict:
		err = keyInvalid(`this service takes the quoted form only: Idempotency-Key: "…"`, nil)
	default:
		err = checkBare(value)
	}
	if err == nil {
		err = checkKey(key.value)
	}
	if err != nil {
		return sentKey{}, err
	}
	return key, nil
}

func parseQuoted(value string) (string, error) {
	item, err := httpsfv.UnmarshalItem([]string{value})
	if err != nil {
		return "", keyInvalid("it is not one quoted string (RFC 9651)", err)
	}
	s, ok := item.Value.(string)
	if !ok {
		return "", keyInvalid("it is not a string", nil)
	}
	return s, nil
}

// checkBare refuses what could be read as something else than one key. Its
// other characters are checked with those of the decoded key.
func checkBare(value string) error {
	if strings.HasPrefix(value, "(") {
		return keyInvalid("an inner list is not a key", nil)
	}
	if i := strings.IndexAny(value, " \"\\,;"); i >= 0 {
		return keyInvalid(fmt.Sprintf("an unquoted key may not hold %q", value[i]), nil)
	}
	return nil
}

// checkKey checks a decoded key and says what a key may be.
func checkKey(value string) error {
	err := onlyonce.ValidateKeyValue(value)
	if err == nil {
		return nil
	}
	why := err.Error()
	if e, ok := errors.AsType[*onlyonce.Error](err); ok {
		why = e.Hint
	}
	return keyInvalid(why, nil)
}

func keyInvalid(why string, cause error) error {
	return &onlyonce.Error{
		Code: onlyonce.CodeKeyInvalid, Op: "parse key", Err: cause,
		Hint: fmt.Sprintf("%s. A key has 1 to %d characters of printable ASCII.", why, onlyonce.MaxKeyLength),
	}
}

func keyRequired() error {
	return &onlyonce.Error{
		Code: onlyonce.CodeKeyRequired, Op: "parse key",
		Hint: "This operation needs an " + HeaderKey + " header: make one value for each operation, and send the same value with every retry of it.",
	}
}
