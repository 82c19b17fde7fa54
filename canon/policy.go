package canon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Policy says what counts in the requests of one operation. The zero Policy
// compares everything and no header: method, path, query, content type, body.
//
// Pointers are JSON Pointers (RFC 6901) into the body; the token * stands for
// every item of an array (in an object it is the member of that name). They
// reach the fields of a form and the parts of a multipart body as /name. They
// are applied in this order: Defaults, Fields or Ignore, Decimal, Upper, Sets.
// What no pointer reaches counts as it stands.
type Policy struct {
	// Fields are the only values that count, with everything in them. The
	// objects and arrays on the way to a field count by being there, and a
	// scalar in their place counts by its value. Empty means that all count.
	// Fields and Ignore exclude each other.
	Fields []string `json:"fields,omitempty"`
	// Ignore are the values that do not count.
	Ignore []string `json:"ignore,omitempty"`
	// Defaults are values that a missing member stands for, by pointer: a body
	// without the member is the same as one that says so explicitly. A default
	// applies only where its parent is present, and never to an explicit null.
	// It may be any JSON value but null. In a form or a multipart body a
	// default is its text, or one field for each item of an array.
	Defaults map[string]jsontext.Value `json:"defaults,omitempty"`
	// Decimal are values that may come as a number or as a string that holds
	// one: 10, "10.0" and "10.00" are the same, "50.001" and "50.00" are not.
	// A string that is not exactly a JSON number is compared as it stands.
	Decimal []string `json:"decimal,omitempty"`
	// Upper are strings whose ASCII letters are compared in upper case.
	Upper []string `json:"upper,omitempty"`
	// Sets are arrays whose order does not count, while the number of equal
	// items does. In a form it is the order of equally named fields.
	Sets []string `json:"sets,omitempty"`
	// Headers are the request headers that count, by name. Credentials are
	// refused: a rotated token must not make another request.
	Headers []string `json:"headers,omitempty"`
	// Sensitive are values that are never named when requests differ: their
	// parent is named instead, and kept as one part.
	Sensitive []string `json:"sensitive,omitempty"`
}

// Validate tells what is wrong with the policy: every fault, joined, each with
// the field and the pointer it is about. It is nil for a policy that [Compile]
// takes. Validate is safe for concurrent use as long as nobody changes p.
func (p Policy) Validate() error {
	var errs []error
	for _, l := range p.lists() {
		for _, pointer := range *l.values {
			if err := checkPointer(l.name, pointer); err != nil {
				errs = append(errs, fmt.Errorf("%s: %q: %w", l.name, pointer, err))
			}
		}
	}
	if len(p.Fields) > 0 && len(p.Ignore) > 0 {
		errs = append(errs, errors.New("fields, ignore: exclude each other: choose the fields that count or those that do not"))
	}
	for _, pointer := range slices.Sorted(maps.Keys(p.Defaults)) {
		if err := checkDefault(pointer, p.Defaults[pointer]); err != nil {
			errs = append(errs, fmt.Errorf("defaults: %q: %w", pointer, err))
		}
	}
	for _, name := range p.Headers {
		if err := checkHeader(name); err != nil {
			errs = append(errs, fmt.Errorf("headers: %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// ID is a short name for the policy: 16 hexadecimal digits of the SHA-256 of
// [Policy.Marshal]. Policies that say the same have the same ID; the zero
// policy has one like every other. ID is safe for concurrent use as long as
// nobody changes p.
func (p Policy) ID() string {
	sum := sha256.Sum256(p.Marshal())
	return hex.EncodeToString(sum[:8])
}

// list is one field of a policy that holds pointers.
type list struct {
	name   string
	values *[]string
}

// lists are the fields that hold pointers, in the order of the text.
func (p *Policy) lists() []list {
	return []list{
		{"fields", &p.Fields},
		{"ignore", &p.Ignore},
		{"decimal", &p.Decimal},
		{"upper", &p.Upper},
		{"sets", &p.Sets},
		{"sensitive", &p.Sensitive},
	}
}

func checkPointer(field, pointer string) error {
	if _, err := parsePointer(pointer); err != nil {
		return err
	}
	if pointer != "" {
		return nil
	}
	switch field {
	case "ignore":
		return errors.New("the whole body cannot be ignored")
	case "sensitive":
		return errors.New("the whole body has no parent to be named instead")
	}
	return nil
}

func checkDefault(pointer string, value jsontext.Value) error {
	tokens, err := parsePointer(pointer)
	if err != nil {
		return err
	}
	if len(tokens) == 0 {
		return errors.New("the whole body cannot have a default")
	}
	if tokens[len(tokens)-1] == "*" {
		return errors.New("an array item cannot have a default, only a member can")
	}
	text, err := JSON(value, nil)
	if err != nil {
		return fmt.Errorf("default is not JSON: %w", err)
	}
	if string(text) == "null" {
		return errors.New("default is null, which would make an explicit null count as absent")
	}
	return nil
}

func checkHeader(name string) error {
	if name == "" {
		return errors.New("header name is empty")
	}
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return errors.New("header name has a character that no header name may have")
		}
	}
	switch http.CanonicalHeaderKey(name) {
	case "Authorization", "Proxy-Authorization", "Cookie":
		return errors.New("credentials cannot count: a rotated one would make another request")
	}
	return nil
}
