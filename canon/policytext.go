package canon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// ParsePolicy reads the text of a policy, a JSON object, and validates it. A
// member that is not known, a duplicate member and a value of the wrong type
// are refused. Null and absent are the same. ParsePolicy is safe for concurrent
// use and does not keep text.
func ParsePolicy(text []byte) (Policy, error) {
	var p Policy
	r := policyReader{jsontext.NewDecoder(bytes.NewBuffer(text))}
	err := r.object(func(name string) error { return r.field(&p, name) })
	if err == nil {
		if _, err = r.dec.ReadToken(); errors.Is(err, io.EOF) {
			err = p.Validate()
		} else if err == nil {
			err = errors.New("text after the policy")
		}
	}
	if err != nil {
		return Policy{}, fmt.Errorf("parse policy: %w", err)
	}
	return p, nil
}

// policyReader reads the text of a policy.
type policyReader struct{ dec *jsontext.Decoder }

// field reads the member of one name.
func (r policyReader) field(p *Policy, name string) error {
	for _, l := range append(p.lists(), list{"headers", &p.Headers}) {
		if l.name == name {
			return r.strings(name, l.values)
		}
	}
	if name != "defaults" {
		return fmt.Errorf("member %q is not known", name)
	}
	if r.dec.PeekKind() == 'n' {
		return r.dec.SkipValue()
	}
	p.Defaults = map[string]jsontext.Value{}
	return r.object(func(pointer string) error {
		value, err := r.dec.ReadValue()
		p.Defaults[pointer] = value.Clone()
		return err
	})
}

// object reads an object and calls member after each name.
func (r policyReader) object(member func(name string) error) error {
	t, err := r.dec.ReadToken()
	if err != nil {
		return err
	}
	if t.Kind() != '{' {
		return fmt.Errorf("want an object at %q", r.dec.StackPointer())
	}
	for r.dec.PeekKind() != '}' {
		if t, err = r.dec.ReadToken(); err != nil {
			return err
		}
		if err := member(t.String()); err != nil {
			return err
		}
	}
	_, err = r.dec.ReadToken()
	return err
}

// strings reads an array of strings, or null.
func (r policyReader) strings(name string, values *[]string) error {
	t, err := r.dec.ReadToken()
	if err != nil || t.Kind() == 'n' {
		return err
	}
	if t.Kind() != '[' {
		return fmt.Errorf("%s: want an array of strings", name)
	}
	for r.dec.PeekKind() != ']' {
		if t, err = r.dec.ReadToken(); err != nil {
			return err
		}
		if t.Kind() != '"' {
			return fmt.Errorf("%s: want an array of strings", name)
		}
		*values = append(*values, t.String())
	}
	_, err = r.dec.ReadToken()
	return err
}

// Marshal is the text of the policy, which [ParsePolicy] reads. The same policy
// gives the same bytes: lists are sorted and without duplicates, header names
// in canonical case, defaults in canonical form, empty fields left out. Marshal
// does not validate; it is safe for concurrent use as long as nobody changes p.
func (p Policy) Marshal() []byte {
	dst := []byte("{")
	member := func(name string) {
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(dst, `"`+name+`":`...)
	}
	for _, l := range p.lists() {
		if len(*l.values) > 0 {
			member(l.name)
			dst = appendStrings(dst, sorted(*l.values))
		}
	}
	if names := p.headerNames(); len(names) > 0 {
		member("headers")
		dst = appendStrings(dst, names)
	}
	if len(p.Defaults) > 0 {
		member("defaults")
		for i, pointer := range slices.Sorted(maps.Keys(p.Defaults)) {
			dst = append(dst, "{,"[min(i, 1)])
			dst = append(quote(dst, pointer), ':')
			dst = append(dst, canonicalDefault(p.Defaults[pointer])...)
		}
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// headerNames are the headers that count, in canonical case.
func (p Policy) headerNames() []string {
	names := make([]string, len(p.Headers))
	for i, name := range p.Headers {
		names[i] = http.CanonicalHeaderKey(name)
	}
	return sorted(names)
}

// canonicalDefault is the canonical text of a default, so that a policy applies
// in the same way before and after it has been stored. A value that is not JSON
// becomes a string, to be refused by nobody but told apart.
func canonicalDefault(value jsontext.Value) []byte {
	text, err := JSON(value, nil)
	if err != nil {
		return quote(nil, value)
	}
	return text
}

func sorted(values []string) []string {
	values = slices.Clone(values)
	slices.Sort(values)
	return slices.Compact(values)
}

func appendStrings(dst []byte, values []string) []byte {
	for i, v := range values {
		dst = append(dst, "[,"[min(i, 1)])
		dst = quote(dst, v)
	}
	return append(dst, ']')
}

// quote appends text as a JSON string; invalid UTF-8 is replaced.
func quote[T ~[]byte | ~string](dst []byte, text T) []byte {
	// The error only tells that UTF-8 was replaced.
	dst, _ = jsontext.AppendQuote(dst, text)
	return dst
}
