package oncehttp

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
)

// KeyMode says what a route does with requests that bear no key.
type KeyMode uint8

// The modes. The zero value is the careful one.
const (
	// Required: a request without a key is refused (rule K4).
	Required KeyMode = iota
	// Optional: it runs unprotected, and the answer says so.
	Optional
	// Off: keys are ignored, and the answer says so (rule K5).
	Off
)

// String is the mode's name.
func (m KeyMode) String() string {
	switch m {
	case Required:
		return "required"
	case Optional:
		return "optional"
	case Off:
		return "off"
	default:
		return fmt.Sprintf("KeyMode(%d)", uint8(m))
	}
}

// Defaults and limits of a Route, in bytes.
const (
	DefaultMaxBody   = 1 << 20
	DefaultMaxAnswer = 1 << 20
	DefaultMaxSpool  = 64 << 20
)

// Route is one operation and how it is protected. The zero value of every
// field is the careful choice.
type Route struct {
	// Op is the operation as the engine knows it. An empty Name becomes the
	// http.ServeMux pattern that matched the request, with its method in front
	// if it has none; outside a ServeMux it becomes the method. Op.Policy must
	// be empty: it is made of Policy. With Op.MaxWait a caller may wait for the
	// answer of an attempt that is under way: "Prefer: wait=10" (RFC 7240).
	onlyonce.Op
	// Key says whether requests must bear a key. Default Required.
	Key KeyMode
	// Methods are the methods whose keys are honoured. Default POST and PATCH,
	// and the method that Name or the matched pattern begins with: to register
	// a route as "PUT /x" is to opt in (rule K5). GET, HEAD, OPTIONS, CONNECT
	// and TRACE cannot be.
	Methods []string
	// KeyPointer is a JSON Pointer to a string in JSON bodies that carries the
	// key too, or instead (rule K6). Empty: the body carries none.
	KeyPointer string
	// Policy is the fingerprint policy. The zero Policy compares everything.
	Policy canon.Policy
	// MaxBody is the limit of the request's body in bytes, as sent and as
	// decoded. Default: the guard's MaxBody, else 1 MiB.
	MaxBody int64
	// MaxAnswer is the largest body that is stored, in bytes. A larger answer
	// is sent to the first caller whole, and completes the key without its
	// body: a retry gets status, headers and the problem answer_not_retained.
	// Default 1 MiB.
	MaxAnswer int64
	// MaxSpool is the largest body that is buffered, in bytes; a handler's
	// writes beyond it fail, and the first caller too gets answer_not_retained.
	// Default 64 MiB.
	MaxSpool int64
	// KeepHeaders are stored and replayed besides those of rule O8:
	// Content-Type, Content-Language, Location, Content-Location, ETag,
	// Last-Modified, Link. What is of one answer or caller only is refused.
	KeepHeaders []string
	// CheckSyntax refuses requests by pure syntax, before the key is used; nil:
	// none. It must not read state. body has its Content-Encoding undone. A
	// *Problem is answered as it stands, any other error with 400. A retry of
	// a request that was once accepted is answered from its record (rule O1).
	CheckSyntax func(r *http.Request, body []byte) error
	// Authorize tells whether today's caller may see a stored answer, and in
	// what a request differs from the recorded one (rule S5); nil: everyone in
	// the scope may. A *Problem is answered as it stands, any other error with
	// 403.
	Authorize func(r *http.Request, record onlyonce.Record) error
}

// WithDefaults returns a copy with the defaults filled in, but for Name and
// MaxBody, which depend on the request and on the Guard.
func (t Route) WithDefaults() Route {
	if t.Methods == nil {
		t.Methods = []string{http.MethodPost, http.MethodPatch}
		if m := methodOf(t.Name); m != "" && !slices.Contains(t.Methods, m) && honourable(m) {
			t.Methods = append(t.Methods, m)
		}
	}
	if t.MaxAnswer == 0 {
		t.MaxAnswer = DefaultMaxAnswer
	}
	if t.MaxSpool == 0 {
		t.MaxSpool = max(DefaultMaxSpool, t.MaxAnswer)
	}
	return t
}

// Validate joins all that is wrong with the route, naming the fields.
func (t Route) Validate() error {
	var errs []error
	errs = append(errs, named(t.Op).Validate())
	if len(t.Op.Policy) > 0 {
		errs = append(errs, configError("Route.Op.Policy", "must be empty: set Route.Policy"))
	}
	if err := t.Policy.Validate(); err != nil {
		errs = append(errs, configError("Route.Policy", err.Error()))
	}
	if t.Key > Off {
		errs = append(errs, configError("Route.Key", fmt.Sprintf("must be Required, Optional or Off, got %d", t.Key)))
	}
	if t.MaxBody < 0 || t.MaxAnswer < 0 || t.MaxSpool < 0 {
		errs = append(errs, configError("Route.MaxBody, MaxAnswer, MaxSpool", "must not be negative"))
	}
	if t.MaxSpool > 0 && t.MaxSpool < t.MaxAnswer {
		errs = append(errs, configError("Route.MaxSpool", "must not be below MaxAnswer"))
	}
	for _, m := range t.Methods {
		if !honourable(m) {
			errs = append(errs, configError("Route.Methods", fmt.Sprintf("%q honours no keys", m)))
		}
	}
	if t.KeyPointer != "" && !strings.HasPrefix(t.KeyPointer, "/") {
		errs = append(errs, configError("Route.KeyPointer", "must be a JSON Pointer, such as /request_id"))
	}
	if _, err := newKeepSet(t.KeepHeaders); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// named is the operation with a name, as the request may give it one.
func named(op onlyonce.Op) onlyonce.Op {
	if op.Name == "" {
		op.Name = "a name that the request gives"
	}
	return op
}

// honourable tells whether a method may honour keys at all (rule K5).
func honourable(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return false
	}
	return method == strings.ToUpper(method)
}

// methodOf is the method that a name like "PUT /x" begins with; empty if none.
func methodOf(pattern string) string {
	method, path, found := strings.Cut(pattern, " ")
	if !found || !strings.Contains(path, "/") || method != strings.ToUpper(method) {
		return ""
	}
	return method
}

// nameOf is the operation's name of a request on a route without one.
func nameOf(r *http.Request) string {
	switch {
	case r.Pattern == "":
		return r.Method
	case methodOf(r.Pattern) == "":
		return r.Method + " " + r.Pattern
	default:
		return r.Pattern
	}
}
