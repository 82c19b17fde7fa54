package oncegrpc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// DefaultMaxAnswer is the largest answer that is stored unless a ServerMethod says otherwise,
// in bytes.
const DefaultMaxAnswer = 1 << 20

// ServerMethod is one operation and how it is protected. The zero value of every field is the
// careful choice.
type ServerMethod struct {
	// Op is the operation as the engine knows it. An empty Name becomes the method's
	// full name. Op.Policy must be empty: it is made of Policy.
	onlyonce.Op
	// Key says whether calls must bear a key: oncehttp.Required (default), Optional or
	// Off.
	Key oncehttp.KeyMode
	// Mode is how the handler is run. Default [Wrapped].
	Mode Mode
	// KeyField is the path of a field of the request that carries the key too, or
	// instead, such as request_id (rule K6). It must be a text that is not repeated.
	// Empty: none does.
	KeyField string
	// Policy is the fingerprint policy. The zero Policy compares the method and the
	// whole message. Paths lead to fields by their names in the .proto file, as
	// client_ts, item.price or items.*.seen; JSON Pointers are taken as well. What is
	// in a map has no paths. "$unknown" stands for the fields that this process does not
	// know, which count. Policy.Headers are names of metadata.
	Policy canon.Policy
	// MaxAnswer is the largest answer that is stored, in bytes. A larger one is sent to
	// the first caller whole, and completes the key without its message: a retry gets
	// its status, or DataLoss if that was OK, with the reason ANSWER_NOT_RETAINED.
	// Default 1 MiB.
	MaxAnswer int
	// KeepHeaders and KeepTrailers are the metadata of answers that is stored and
	// replayed. Other metadata goes to the first caller only (rule O8). What is of one
	// answer or caller only is refused. Default: none.
	KeepHeaders, KeepTrailers []string
	// Resource names what a call works on, such as the order it pays; nil or an empty
	// name: nothing. While one key's attempt is live or in doubt, every other key of the
	// scope gets Aborted, RESOURCE_BUSY, for the same resource (rule C12).
	Resource func(req proto.Message) string
	// CheckSyntax refuses requests by pure syntax, before the key is used; nil: none.
	// It must not read state nor change the request. An error with a status is answered
	// as it is, any other with InvalidArgument. A retry of a request that was once
	// accepted is answered from its record (rule O1).
	CheckSyntax func(ctx context.Context, req proto.Message) error
	// Authorize tells whether today's caller may see a stored answer, and in what a
	// request differs from the recorded one (rule S5); nil: everyone in the scope may.
	// An error with a status is answered as it is, any other with PermissionDenied.
	Authorize func(ctx context.Context, record onlyonce.Record) error
}

// WithDefaults returns a copy with the defaults filled in, but for Name.
func (m ServerMethod) WithDefaults() ServerMethod {
	if m.Mode == nil {
		m.Mode = Wrapped()
	}
	if m.MaxAnswer == 0 {
		m.MaxAnswer = DefaultMaxAnswer
	}
	return m
}

// named is the method with its operation named.
func (m ServerMethod) named(full string) ServerMethod {
	if m.Name == "" {
		m.Name = full
	}
	return m
}

// Validate joins all that is wrong with the method, naming the fields.
func (m ServerMethod) Validate() error {
	var errs []error
	errs = append(errs, m.named("/a/method").Op.Validate())
	if len(m.Op.Policy) > 0 {
		errs = append(errs, badSetting("ServerMethod.Op.Policy", "must be empty: set ServerMethod.Policy"))
	}
	if err := m.pointers().Validate(); err != nil {
		errs = append(errs, badSetting("ServerMethod.Policy", err.Error()))
	}
	if m.Key > oncehttp.Off {
		errs = append(errs, badSetting("ServerMethod.Key", fmt.Sprintf("must be Required, Optional or Off, got %d", m.Key)))
	}
	if m.MaxAnswer < 0 {
		errs = append(errs, badSetting("ServerMethod.MaxAnswer", fmt.Sprintf("must not be negative, got %d", m.MaxAnswer)))
	}
	for _, name := range append(append([]string{}, m.KeepHeaders...), m.KeepTrailers...) {
		if !keepable(name) {
			errs = append(errs, badSetting("ServerMethod.KeepHeaders, KeepTrailers", fmt.Sprintf("%q is never stored, or no name of metadata", name)))
		}
	}
	return errors.Join(errs...)
}

// pointers is the policy as package canon takes it. Whether its paths lead to fields is
// not known before there is a message.
func (m ServerMethod) pointers() canon.Policy {
	p := m.Policy
	for _, list := range []*[]string{&p.Fields, &p.Ignore, &p.Decimal, &p.Upper, &p.Sets, &p.Sensitive} {
		pointers := make([]string, len(*list))
		for i, path := range *list {
			pointers[i] = pointer(path)
		}
		*list = pointers
	}
	p.Defaults = nil // checked when the plan is made
	return p
}

// keepable tells whether metadata of a name may be stored: what speaks of one exchange,
// connection or caller would be wrong in a replay (rule O8).
func keepable(name string) bool {
	if name != strings.ToLower(name) || !plainName(strings.TrimSuffix(name, binarySuffix)) {
		return false
	}
	switch name {
	case "connection", "date", "set-cookie", "www-authenticate", "server-timing", "te", "trailer", "user-agent",
		"traceparent", "tracestate", "x-request-id", shouldRetry, stripeShouldRetry, retryAfterName:
		return false
	}
	for _, prefix := range []string{"access-control-", "ratelimit", "x-ratelimit-", "proxy-", "idempotency-", "idempotent-"} {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	return true
}

// method is a ServerMethod of a server.
type method struct {
	ServerMethod
	full string
	last atomic.Pointer[plan]
}

// planFor is how requests of a type are compared. A method has one type.
func (m *method) planFor(desc protoreflect.MessageDescriptor) (*plan, error) {
	if p := m.last.Load(); p != nil && p.desc == desc {
		return p, nil
	}
	p, err := newPlan(desc, m.Policy)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.full, err)
	}
	if m.KeyField != "" {
		if _, err := keyField(desc, m.KeyField); err != nil {
			return nil, fmt.Errorf("%s: %w", m.full, err)
		}
	}
	m.last.Store(p)
	return p, nil
}

// keyField is the way to the field that carries the key.
func keyField(desc protoreflect.MessageDescriptor, path string) ([]protoreflect.FieldDescriptor, error) {
	var way []protoreflect.FieldDescriptor
	at := desc
	for name := range strings.SplitSeq(path, ".") {
		if at == nil {
			return nil, badSetting("ServerMethod.KeyField", path+" leads through a field that is no message")
		}
		field := at.Fields().ByTextName(name)
		if field == nil || field.Cardinality() == protoreflect.Repeated {
			return nil, badSetting("ServerMethod.KeyField", fmt.Sprintf("%s: %s has no field %q that is not repeated", path, at.FullName(), name))
		}
		way = append(way, field)
		at = field.Message()
	}
	if way[len(way)-1].Kind() != protoreflect.StringKind {
		return nil, badSetting("ServerMethod.KeyField", path+" is no text")
	}
	return way, nil
}

// Mode is how a handler is run under its key. Modes are made by this package's functions
// only.
type Mode interface {
	check(e *onlyonce.Engine, m ServerMethod) error
	run(ctx context.Context, e *onlyonce.Engine, j job) (onlyonce.Result, error)
}

// job is what is to be run.
type job struct {
	op     onlyonce.Op
	req    onlyonce.Request
	handle onlyonce.HandlerFunc
}

// Wrapped protects any handler: it runs at most once for each key, unless it is proved
// that an earlier run had no effect. What a crash, a failure or a panic leaves behind is
// held in doubt unless the method's Op says otherwise (On5xx, AfterCrash, Recover).
func Wrapped() Mode { return wrapMode{} }

type wrapMode struct{}

func (wrapMode) check(e *onlyonce.Engine, m ServerMethod) error { return checkResource(e, m) }

func (wrapMode) run(ctx context.Context, e *onlyonce.Engine, j job) (onlyonce.Result, error) {
	return e.Wrap(ctx, j.op, j.req, j.handle)
}

// InSteps is for handlers whose effects go through onlyonce.Step, onlyonce.Call and
// [Finish], so that a retry resumes behind the last finished one. The key must be
// Required.
func InSteps() Mode { return stepsMode{} }

type stepsMode struct{}

func (stepsMode) check(e *onlyonce.Engine, m ServerMethod) error {
	if _, ok := onlyonce.StepsOf(e.Store()); !ok {
		return badSetting("engine", "has a store that keeps no steps: "+e.Store().Features().Name)
	}
	return errors.Join(checkRequired(m), checkResource(e, m))
}

func (stepsMode) run(ctx context.Context, e *onlyonce.Engine, j job) (onlyonce.Result, error) {
	return e.Steps(ctx, j.op, j.req, j.handle)
}

// checkRequired is for modes that cannot run a handler without a key.
func checkRequired(m ServerMethod) error {
	if m.Key == oncehttp.Optional {
		return badSetting("ServerMethod.Key", "must be Required: the operation cannot run without a key")
	}
	return nil
}

func checkResource(e *onlyonce.Engine, m ServerMethod) error {
	if m.Resource != nil && !e.Store().Features().Resources {
		return badSetting("ServerMethod.Resource", "needs a store that guards resources: "+e.Store().Features().Name+" does not")
	}
	return nil
}
