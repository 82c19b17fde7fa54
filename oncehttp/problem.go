package oncehttp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// RetryWith says with which key a refused request may be sent again.
type RetryWith string

// The values of RetryWith.
const (
	// SameKey: the same request, under the same key.
	SameKey RetryWith = "same_key"
	// NewKey: a corrected request, or another one, under a key of its own.
	NewKey RetryWith = "new_key"
	// NoRetry: sending it again does not help.
	NoRetry RetryWith = "none"
)

// Problem is an error as callers get it: problem details of RFC 9457, with the
// members of this protocol and a service's own. It is used for the guard's own
// refusals and may be used for a service's.
//
// As an error returned by CheckSyntax or Decode it is the answer. Elsewhere a
// handler returns Answer, which is then stored like any other answer.
type Problem struct { //nolint:errname // it is an answer first, and an error where one is asked for
	// Status is the HTTP status: 400 to 599.
	Status int
	// Type is the URI of the problem's documentation; empty: "about:blank".
	Type string
	// Title is the same for every problem of one type; empty: the status's text.
	Title string
	// Detail is about this one problem, and for people. It must not hold
	// secrets or the text of internal errors.
	Detail string
	// Code is the member "error", for programs; empty: absent.
	Code string
	// RetryWith gives the members "retryable" and "retry_with" and the header
	// X-Should-Retry; empty: absent.
	RetryWith RetryWith
	// RetryAfter is sent as whole seconds, rounded up; 0: not sent.
	RetryAfter time.Duration
	// Operation is a reference that is safe to log; empty: absent.
	Operation string
	// Extra holds further members. It cannot replace the ones above.
	Extra map[string]any
}

// Error is the code and the detail, so that a Problem can be returned as an
// error.
func (p *Problem) Error() string {
	return fmt.Sprintf("answer %d %s: %s", p.Status, p.Code, p.Detail)
}

// Answer is the problem as a handler's answer. Retry-After goes to the first
// caller only. Once the answer is stored it is final, and X-Should-Retry is
// "false", for the first caller and in replays.
func (p *Problem) Answer() onlyonce.Answer {
	h := http.Header{}
	p.setHeaders(h)
	return onlyonce.Answer{Status: p.Status, Header: h, Body: p.Body()}
}

// Write sends the problem.
func (p *Problem) Write(w http.ResponseWriter) {
	h := w.Header()
	for _, name := range []string{"Content-Encoding", "Content-Language", "Etag", "Last-Modified"} {
		h.Del(name)
	}
	p.setHeaders(h)
	body := p.Body()
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	w.Write(body) //nolint:errcheck // the caller is gone; there is nobody to tell
}

func (p *Problem) setHeaders(h http.Header) {
	h.Set("Content-Type", "application/problem+json")
	if p.RetryWith != "" {
		h.Set(HeaderShouldRetry, strconv.FormatBool(p.RetryWith == SameKey))
	}
	if p.RetryAfter > 0 {
		h.Set("Retry-After", wholeSeconds(p.RetryAfter))
	}
}

// wholeSeconds rounds up, so that nobody comes too early.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// Body is the problem as JSON. The same problem gives the same bytes.
func (p *Problem) Body() []byte {
	var b members
	typ, title := p.Type, p.Title
	if typ == "" {
		typ = "about:blank"
	}
	if title == "" {
		title = http.StatusText(p.Status)
	}
	b.add("type", typ)
	b.add("title", title)
	b.add("status", p.Status)
	b.addText("detail", p.Detail)
	b.addText("error", p.Code)
	if p.RetryWith != "" {
		b.add("retryable", p.RetryWith == SameKey)
		b.add("retry_with", p.RetryWith)
	}
	b.addText("operation", p.Operation)
	for _, name := range slices.Sorted(maps.Keys(p.Extra)) {
		if !slices.Contains(b.names, name) {
			b.add(name, p.Extra[name])
		}
	}
	return b.object()
}

// members is a JSON object in the making.
type members struct {
	names  []string
	values [][]byte
}

func (m *members) addText(name, value string) {
	if value != "" {
		m.add(name, value)
	}
}

func (m *members) add(name string, value any) {
	text, err := marshal(value)
	if err != nil {
		// A value that JSON does not have must not cost the caller the rest.
		text, _ = marshal(fmt.Sprint(value))
	}
	m.names = append(m.names, name)
	m.values = append(m.values, text)
}

func (m *members) object() []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range m.names {
		if i > 0 {
			b.WriteByte(',')
		}
		text, _ := marshal(name)
		b.Write(text)
		b.WriteByte(':')
		b.Write(m.values[i])
	}
	b.WriteByte('}')
	return b.Bytes()
}

// marshal gives JSON without HTML escapes and without a newline at its end.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
