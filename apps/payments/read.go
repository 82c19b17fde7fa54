package payments

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/onlyonce-go/onlyonce/apps/payments/money"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// object reads the members of a JSON object one by one and notes the first
// thing that is wrong with them.
type object struct {
	at      string // where it stands in the body: "" or "lines/0/"
	members map[string]jsontext.Value
	names   []string
	fault   *oncehttp.Problem
}

// readBody reads a request's body as one JSON object and nothing else.
func readBody(r *http.Request, body []byte) (*object, *oncehttp.Problem) {
	sent := r.Header.Get("Content-Type")
	kind, params, err := mime.ParseMediaType(sent)
	if sent == "" {
		kind, err = "application/json", nil
	}
	if err != nil || (kind != "application/json" && !strings.HasSuffix(kind, "+json")) {
		return nil, problem(codeMediaType, "The body must be JSON: Content-Type: application/json.")
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") {
		return nil, problem(codeMediaType, "The body must be in UTF-8.")
	}
	return readObject("", body)
}

func readObject(at string, text []byte) (*object, *oncehttp.Problem) {
	o := &object{at: at, members: map[string]jsontext.Value{}}
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	if dec.PeekKind() != '{' {
		if !jsontext.Value(text).IsValid() {
			return nil, fieldProblem(fieldOr(at), "is not valid JSON")
		}
		return nil, fieldProblem(fieldOr(at), "must be a JSON object")
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, badSyntax(at, err)
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, badSyntax(at, err)
		}
		key := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, badSyntax(at, err)
		}
		o.members[key] = value.Clone()
		o.names = append(o.names, key)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, badSyntax(at, err)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, fieldProblem("body", "must be one JSON object with nothing behind it")
	}
	return o, nil
}

// badSyntax names the place where a text stops being JSON.
func badSyntax(at string, err error) *oncehttp.Problem {
	field := "body"
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if pointer := strings.TrimPrefix(string(s.JSONPointer), "/"); at+pointer != "" {
			field = at + pointer
		}
		if errors.Is(s, jsontext.ErrDuplicateName) {
			return fieldProblem(field, "stands there more than once")
		}
	}
	return fieldProblem(field, "is not valid JSON")
}

func (o *object) fail(name, format string, args ...any) {
	if o.fault == nil {
		o.fault = fieldProblem(o.at+name, fmt.Sprintf(format, args...))
	}
}

// take hands a member out; what nobody takes is unknown.
func (o *object) take(name string) (jsontext.Value, bool) {
	v, ok := o.members[name]
	delete(o.members, name)
	return v, ok
}

// done returns what is wrong, unknown members included.
func (o *object) done() error {
	for _, name := range o.names {
		if _, left := o.members[name]; left {
			o.fail(name, "is not a member that this operation knows")
		}
	}
	if o.fault != nil {
		return o.fault
	}
	return nil
}

// integer reads a whole number, written as one: 1500, not 1500.0 or "1500".
func (o *object) integer(name string, least, most int64) int64 {
	v, ok := o.take(name)
	if !ok {
		o.fail(name, "is required")
		return 0
	}
	if v.Kind() != '0' || bytes.ContainsAny(v, ".eE") {
		o.fail(name, "must be a whole number, written without quotes, point and exponent")
		return 0
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < least || n > most {
		o.fail(name, "must be from %d to %d", least, most)
		return 0
	}
	return n
}

// amount reads an amount in minor units.
func (o *object) amount() int64 { return o.integer("amount", 1, processor.MaxAmount) }

func (o *object) currency() money.Currency {
	code := o.text("currency", 1, 3)
	c, err := money.ParseCurrency(code)
	if err != nil {
		o.fail("currency", "must be an upper-case ISO 4217 code, such as ARS")
	}
	return c
}

// text reads a string of so many characters; with least 0 it may be absent.
func (o *object) text(name string, least, most int) string {
	v, ok := o.take(name)
	if !ok {
		if least > 0 {
			o.fail(name, "is required")
		}
		return ""
	}
	s, ok := unquote(v)
	switch n := utf8.RuneCountInString(s); {
	case !ok:
		o.fail(name, "must be a string")
	case n < least || n > most:
		o.fail(name, "must have %d to %d characters", least, most)
	case strings.ContainsRune(s, 0):
		o.fail(name, "must not hold the character U+0000")
	}
	return s
}

func unquote(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	s, err := jsontext.AppendUnquote(nil, v)
	return string(s), err == nil
}

// The limits of metadata.
const (
	maxMetadata      = 50
	maxMetadataName  = 40
	maxMetadataValue = 500
)

// metadata reads an object of strings; absent is empty.
func (o *object) metadata() map[string]string {
	data := map[string]string{}
	v, ok := o.take("metadata")
	if !ok {
		return data
	}
	if v.Kind() != '{' {
		o.fail("metadata", "must be an object of strings")
		return data
	}
	m, fault := readObject(o.at+"metadata/", v)
	if fault != nil {
		o.fail("metadata", "must be an object of strings")
		return data
	}
	if len(m.names) > maxMetadata {
		o.fail("metadata", "must have at most %d members", maxMetadata)
	}
	for _, name := range m.names {
		if n := utf8.RuneCountInString(name); n < 1 || n > maxMetadataName || strings.ContainsRune(name, 0) {
			o.fail("metadata", "must have names of 1 to %d characters", maxMetadataName)
		}
		data[name] = m.text(name, 0, maxMetadataValue)
	}
	if o.fault == nil {
		o.fault = m.fault
	}
	return data
}

// list reads an array of objects.
func (o *object) list(name string, most int) []*object {
	v, ok := o.take(name)
	if !ok {
		o.fail(name, "is required")
		return nil
	}
	dec := jsontext.NewDecoder(bytes.NewReader(v))
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '[' {
		o.fail(name, "must be an array")
		return nil
	}
	var items []*object
	for dec.PeekKind() != ']' {
		text, err := dec.ReadValue()
		if err != nil || len(items) == most {
			o.fail(name, "must have 1 to %d items", most)
			return nil
		}
		item, fault := readObject(fmt.Sprintf("%s%s/%d/", o.at, name, len(items)), text.Clone())
		if fault != nil && o.fault == nil {
			o.fault = fault
		}
		if fault != nil {
			return nil
		}
		items = append(items, item)
	}
	if len(items) == 0 {
		o.fail(name, "must have 1 to %d items", most)
	}
	return items
}

// fieldOr names an object in a fault: its place, or the body.
func fieldOr(at string) string {
	if at == "" {
		return "body"
	}
	return strings.TrimSuffix(at, "/")
}
