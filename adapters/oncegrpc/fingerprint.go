package oncegrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/canon"
)

// formVersion is the version of the canonical form: that of the text that is made of a
// message, and that of package canon, which compares it.
const formVersion = 100 + canon.Version

// plan is how the requests of one method, which are messages of one type, are compared.
type plan struct {
	desc     protoreflect.MessageDescriptor
	compiled *canon.Compiled
	// text is the recorded form of the plan.
	text []byte
}

// recordedPlan is the text of a plan. The schema is in it, so that a record is compared
// under the schema that it was written with: a field that the next deploy knows must not
// make another request of a retry (rule F7).
type recordedPlan struct {
	Message string          `json:"message"`
	Schema  []byte          `json:"schema"`
	Policy  json.RawMessage `json:"policy"`
}

// newPlan makes the plan for requests of a type. The error is an *onlyonce.Error with
// CodeConfig.
func newPlan(desc protoreflect.MessageDescriptor, policy canon.Policy) (*plan, error) {
	policy, err := resolve(policy, desc)
	if err != nil {
		return nil, configError("read policy", err.Error())
	}
	compiled, err := canon.Compile(policy)
	if err != nil {
		return nil, configError("read policy", err.Error())
	}
	schema, err := proto.MarshalOptions{Deterministic: true}.Marshal(schemaOf(desc))
	if err != nil {
		return nil, configError("read schema of "+string(desc.FullName()), err.Error())
	}
	text, err := json.Marshal(recordedPlan{Message: string(desc.FullName()), Schema: schema, Policy: policy.Marshal()})
	if err != nil {
		return nil, configError("read policy", err.Error())
	}
	return &plan{desc: desc, compiled: compiled, text: text}, nil
}

// readPlan reads a recorded plan.
func readPlan(text []byte) (*plan, error) {
	var r recordedPlan
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read recorded policy: %w", err)
	}
	policy, err := canon.ParsePolicy(r.Policy)
	if err != nil {
		return nil, fmt.Errorf("read recorded policy: %w", err)
	}
	compiled, err := canon.Compile(policy)
	if err != nil {
		return nil, fmt.Errorf("read recorded policy: %w", err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(r.Schema, &set); err != nil {
		return nil, fmt.Errorf("read recorded schema: %w", err)
	}
	files, err := protodesc.FileOptions{AllowUnresolvable: true}.NewFiles(&set)
	if err != nil {
		return nil, fmt.Errorf("read recorded schema: %w", err)
	}
	found, err := files.FindDescriptorByName(protoreflect.FullName(r.Message))
	if err != nil {
		return nil, fmt.Errorf("read recorded schema: %w", err)
	}
	desc, ok := found.(protoreflect.MessageDescriptor)
	if !ok {
		return nil, fmt.Errorf("read recorded schema: %s is no message", r.Message)
	}
	return &plan{desc: desc, compiled: compiled, text: text}, nil
}

// canonical makes the canonical forms of one request.
type canonical struct {
	method string
	msg    proto.Message
	header metadata.MD
	plan   *plan
}

// Version is the present version of the canonical form.
func (c canonical) Version() int { return formVersion }

// Form canonicalises the request under a plan's text, which is that of an earlier
// deploy if it is not the method's.
func (c canonical) Form(version int, policy []byte) (onlyonce.Form, error) {
	if version != formVersion {
		return nil, fmt.Errorf("canonicalise request: version %d is not known, only %d is", version, formVersion)
	}
	p, msg := c.plan, c.msg.ProtoReflect()
	if !bytes.Equal(policy, p.text) {
		var err error
		if p, err = readPlan(policy); err != nil {
			return nil, err
		}
		if msg, err = readAs(p.desc, c.msg); err != nil {
			return nil, err
		}
	}
	text, err := appendMessage(nil, msg)
	if err != nil {
		return nil, fmt.Errorf("canonicalise request: %w", err)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	for name, values := range c.header {
		if name != "content-type" {
			addHeader(header, "", metadata.MD{name: values})
		}
	}
	return form{p.compiled.Form(canon.Request{Method: Method, Path: c.method, Header: header, Body: text})}, nil
}

// readAs reads a message again, as one of another schema.
func readAs(desc protoreflect.MessageDescriptor, msg proto.Message) (protoreflect.Message, error) {
	raw, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(msg)
	if err != nil {
		return nil, fmt.Errorf("canonicalise request: %w", err)
	}
	m := dynamicpb.NewMessage(desc)
	if err := (proto.UnmarshalOptions{AllowPartial: true, Resolver: new(protoregistry.Types)}).Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("read request under the recorded schema: %w", err)
	}
	return m, nil
}

// form is a canonical form whose fields are named by their paths.
type form struct{ *canon.Form }

// Differs names what differs: fields as items.0.amount, message for all of it, method,
// and header:NAME for metadata.
func (f form) Differs(recorded []string, same func(i int, sum [32]byte) bool) []string {
	names := f.Form.Differs(recorded, same)
	for i, name := range names {
		switch {
		case name == "path":
			names[i] = "method"
		case name == "body":
			names[i] = "message"
		case strings.HasPrefix(name, "/"):
			names[i] = fieldPath(name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// fieldPath is a JSON Pointer as a path of fields.
func fieldPath(pointer string) string {
	tokens := strings.Split(pointer[1:], "/")
	for i, token := range tokens {
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
	}
	return strings.Join(tokens, ".")
}

// pointer is a path of fields as a JSON Pointer, which may be given instead.
func pointer(path string) string {
	if path == "" || strings.HasPrefix(path, "/") {
		return path
	}
	return "/" + strings.ReplaceAll(strings.ReplaceAll(path, "~", "~0"), ".", "/")
}

// resolve is a policy with its paths as pointers, each of which leads to a field, and
// with the fields that are marked debug_redact as sensitive.
func resolve(p canon.Policy, desc protoreflect.MessageDescriptor) (canon.Policy, error) {
	var errs []error
	for _, list := range []*[]string{&p.Fields, &p.Ignore, &p.Decimal, &p.Upper, &p.Sets, &p.Sensitive} {
		*list = slices.Clone(*list)
		for i, path := range *list {
			(*list)[i] = pointer(path)
			errs = append(errs, leads(desc, (*list)[i]))
		}
	}
	defaults := p.Defaults
	p.Defaults = maps.Clone(defaults)
	for path, value := range defaults {
		delete(p.Defaults, path)
		p.Defaults[pointer(path)] = value
		errs = append(errs, leads(desc, pointer(path)))
	}
	for _, secret := range secrets(desc, "", nil) {
		if !slices.Contains(p.Sensitive, secret) {
			p.Sensitive = append(p.Sensitive, secret)
		}
	}
	return p, errors.Join(errs...)
}

// leads tells why a pointer does not lead to a field.
func leads(desc protoreflect.MessageDescriptor, pointer string) error {
	if pointer == "" {
		return nil
	}
	at, list := desc, false
	tokens := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, token := range tokens {
		last := i == len(tokens)-1
		switch {
		case list && token == "*":
			list = false
			continue
		case list:
			return fmt.Errorf("%s: the items of a repeated field are named by *", pointer)
		case token == unknownName && last && at != nil:
			return nil
		case at == nil:
			return fmt.Errorf("%s: nothing is in %s that could be named", pointer, tokens[i-1])
		}
		field := at.Fields().ByTextName(token)
		if field == nil {
			return fmt.Errorf("%s: %s has no field %q", pointer, at.FullName(), token)
		}
		at, list = field.Message(), field.IsList()
		if field.IsMap() {
			at = nil
		}
	}
	return nil
}

// secrets are pointers to what must not be named when requests differ: fields with the
// option debug_redact, maps with such fields in their values, and, as a type may be in
// itself, what is of a type with such fields for the third time.
func secrets(desc protoreflect.MessageDescriptor, at string, within []protoreflect.FullName) []string {
	within = append(slices.Clip(within), desc.FullName())
	var found []string
	for i := range desc.Fields().Len() {
		field := desc.Fields().Get(i)
		path := at + "/" + field.TextName()
		inner := field.Message()
		switch {
		case redacted(field):
			found = append(found, path)
		case inner == nil || !hasSecrets(inner, map[protoreflect.FullName]bool{}):
		case field.IsMap(), times(within, inner.FullName()) > 1:
			found = append(found, path)
		case field.IsList():
			found = append(found, secrets(inner, path+"/*", within)...)
		default:
			found = append(found, secrets(inner, path, within)...)
		}
	}
	return found
}

// times is how often a type is there.
func times(types []protoreflect.FullName, name protoreflect.FullName) (n int) {
	for _, t := range types {
		if t == name {
			n++
		}
	}
	return n
}

// hasSecrets tells whether a message can hold a field with the option debug_redact.
func hasSecrets(desc protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool) bool {
	if seen[desc.FullName()] {
		return false
	}
	seen[desc.FullName()] = true
	for i := range desc.Fields().Len() {
		field := desc.Fields().Get(i)
		if redacted(field) || field.Message() != nil && hasSecrets(field.Message(), seen) {
			return true
		}
	}
	return false
}

func redacted(field protoreflect.FieldDescriptor) bool {
	options, ok := field.Options().(*descriptorpb.FieldOptions)
	return ok && options.GetDebugRedact()
}
