package oncegrpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// serving is one call at the server.
type serving struct {
	server  *Server
	method  *method
	ctx     context.Context //nolint:containedctx // the call's own
	req     any
	msg     proto.Message
	handler grpc.UnaryHandler
	full    string // name of the method
	key     onlyonce.Key
	keyed   bool
	// run is the last run of the handler; nil: it did not run.
	run *run
}

// enter decides whether the call's key counts.
func (c *serving) enter() (any, error) {
	c.method = c.server.methods[c.full]
	if c.method == nil || c.method.Key == oncehttp.Off {
		return c.unprotected(oncehttp.StatusIgnored, c.sentKey() != "")
	}
	req, plan, err := c.identify()
	if err == nil && !c.keyed {
		// Its syntax is checked all the same: leaving the key out lifts no limit.
		if err = c.checkSyntax(); err == nil {
			return c.unprotected(oncehttp.StatusUnprotected, true)
		}
	}
	var res onlyonce.Result
	if err == nil {
		res, err = c.do(plan, req)
	}
	if err != nil {
		return c.refuse(string(res.Status), err)
	}
	return c.respond(res)
}

// unprotected runs the handler as if there were no server of ours.
func (c *serving) unprotected(how string, say bool) (any, error) {
	if say {
		own := metadata.Pairs(idempotencyStatus, how)
		if sent := c.sentKey(); sent != "" {
			own.Set(keyName, sent)
		}
		if err := grpc.SetHeader(c.ctx, own); err != nil {
			return nil, err
		}
	}
	return c.handler(c.ctx, c.req)
}

// sentKey is the key as it was sent, if it was sent well; else empty.
func (c *serving) sentKey() string {
	for _, name := range c.server.names {
		values := metadata.ValueFromIncomingContext(c.ctx, name)
		if _, err := oncehttp.ParseKey(values, false); err == nil {
			return strings.Trim(values[0], " \t")
		}
	}
	return ""
}

// identify decides whose call it is and under which key, in the order of rule O1. With an
// optional key a call may turn out to have none.
func (c *serving) identify() (onlyonce.Request, *plan, error) {
	var none onlyonce.Request
	if onlyonce.AttemptFrom(c.ctx) != nil {
		return none, nil, configError("serve "+c.full, "the interceptor is inside another protected handler; protect an operation once")
	}
	if err := c.readMessage(); err != nil {
		return none, nil, err
	}
	plan, err := c.method.planFor(c.msg.ProtoReflect().Descriptor())
	if err != nil {
		return none, nil, err
	}
	if err := c.readKey(); err != nil {
		return none, nil, err
	}
	if !c.keyed {
		if c.method.Key == oncehttp.Optional {
			return none, nil, nil
		}
		return none, nil, keyRequired()
	}
	scope, err := c.server.scope(c.ctx)
	if err != nil {
		return none, nil, unauthenticated(err)
	}
	c.key.Scope = scope
	md, _ := metadata.FromIncomingContext(c.ctx)
	req := onlyonce.Request{Key: c.key, Canonical: canonical{method: c.full, msg: c.msg, header: md, plan: plan}}
	if c.method.Resource != nil {
		req.Resource = c.method.Resource(c.msg)
	}
	return req, plan, c.key.Validate()
}

// readMessage refuses what is not protobuf: it could be neither compared nor replayed.
func (c *serving) readMessage() error {
	for _, kind := range metadata.ValueFromIncomingContext(c.ctx, "content-type") {
		sub := strings.TrimPrefix(strings.TrimPrefix(kind, "application/grpc"), "+")
		sub, _, _ = strings.Cut(sub, ";")
		if sub != "" && sub != (rawCodec{}).Name() {
			return &onlyonce.Error{Code: codeEncoding, Op: "read request", Hint: "The operation takes protobuf only. The key was not used."}
		}
	}
	msg, ok := c.req.(proto.Message)
	if !ok || !msg.ProtoReflect().IsValid() {
		return configError("serve "+c.full, fmt.Sprintf("%T is no protobuf message; leave the method out, or put the interceptor first", c.req))
	}
	c.msg = msg
	return nil
}

// readKey finds the key in the metadata and the field that may carry it (rule K6).
func (c *serving) readKey() error {
	for _, name := range c.server.names {
		values := metadata.ValueFromIncomingContext(c.ctx, name)
		if len(values) == 0 {
			continue
		}
		value, err := oncehttp.ParseKey(values, c.server.cfg.StrictKeys && name == keyName)
		if err == nil {
			err = c.carries(value, name)
		}
		if err != nil {
			return err
		}
	}
	if c.method.KeyField == "" {
		return nil
	}
	way, err := keyField(c.msg.ProtoReflect().Descriptor(), c.method.KeyField)
	if err != nil {
		return err
	}
	value := textAt(c.msg.ProtoReflect(), way)
	if value == "" {
		return nil
	}
	if err := onlyonce.ValidateKeyValue(value); err != nil {
		return err //nolint:wrapcheck // it is the answer
	}
	return c.carries(value, "the field "+c.method.KeyField)
}

// carries notes a key that was found somewhere.
func (c *serving) carries(value, where string) error {
	if c.keyed && c.key.Value != value {
		return &onlyonce.Error{
			Code: onlyonce.CodeKeyInvalid, Op: "parse key",
			Hint: where + " holds another key than what came before it.",
		}
	}
	c.key.Value, c.keyed = value, true
	return nil
}

// textAt follows a way to a text.
func textAt(m protoreflect.Message, way []protoreflect.FieldDescriptor) string {
	for _, field := range way[:len(way)-1] {
		m = m.Get(field).Message()
	}
	return m.Get(way[len(way)-1]).String()
}

func keyRequired() error {
	return &onlyonce.Error{
		Code: onlyonce.CodeKeyRequired, Op: "parse key",
		Hint: "This operation needs " + keyName + " in its metadata: make one value for each operation, and send the same value with every retry of it.",
	}
}

// unauthenticated keeps what a ScopeFunc says of its error, if it says any.
func unauthenticated(err error) error {
	if onlyonce.CodeOf(err) != "" || hasStatus(err) {
		return err
	}
	return &onlyonce.Error{
		Code: onlyonce.CodeUnauthenticated, Op: "find scope", Err: err,
		Hint: "The call names no account. Its key was not used.",
	}
}

// hasStatus tells whether an error is a status of gRPC.
func hasStatus(err error) bool {
	st, ok := status.FromError(err)
	return ok && st.Err() != nil
}

// do checks the syntax, then runs the operation under its key.
func (c *serving) do(plan *plan, req onlyonce.Request) (onlyonce.Result, error) {
	engine, op := c.server.engine, c.method.Op
	op.Policy = plan.text
	if malformed := c.checkSyntax(); malformed != nil {
		// A late retry is answered by its record, not by a stricter deploy.
		res, found, err := engine.Peek(c.ctx, op, req)
		if err != nil || found {
			return c.vet(res, err)
		}
		return onlyonce.Result{}, malformed
	}
	res, err := c.method.Mode.run(c.ctx, engine, job{op, req, c.handle})
	if res.State == onlyonce.InDoubt {
		c.server.cfg.Logger.LogAttrs(c.ctx, slog.LevelWarn, "key is in doubt: whether the operation took effect is not known",
			slog.String("method", c.full), slog.String("operation", c.key.Operation()))
	}
	return c.vet(res, err)
}

func (c *serving) checkSyntax() error {
	if c.method.CheckSyntax == nil {
		return nil
	}
	err := c.method.CheckSyntax(c.ctx, c.msg)
	if err == nil || hasStatus(err) {
		return err
	}
	return &onlyonce.Error{
		Code: onlyonce.CodeInvalidRequest, Op: "check syntax", Err: err,
		Hint: "The request is not one this operation understands. Its key was not used: a corrected request may use it.",
	}
}

// vet holds back what today's caller may not see: a stored answer, or in what the request
// differs from the recorded one (rules S5, F6).
func (c *serving) vet(res onlyonce.Result, err error) (onlyonce.Result, error) {
	e, failed := errors.AsType[*onlyonce.Error](err)
	reused := failed && e.Code == onlyonce.CodeKeyReused
	if c.method.Authorize == nil || !reused && (err != nil || res.Status != onlyonce.Replayed) {
		return res, err
	}
	denied := c.authorize(res)
	switch {
	case denied == nil:
		return res, err
	case reused:
		hidden := *e
		hidden.Differs = nil
		return res, &hidden
	default:
		return onlyonce.Result{}, denied
	}
}

// authorize asks the method's hook. The record is read anew. That of another run is not
// the one behind a replay, for the key may have expired and begun a new life meanwhile:
// then what the result says stands for it. A mismatch names no run; where there is no
// record any more, nobody may see it.
func (c *serving) authorize(res onlyonce.Result) error {
	ctx := context.WithoutCancel(c.ctx)
	record, found, err := c.server.engine.Store().Get(ctx, c.key)
	replayed := res.Status == onlyonce.Replayed
	switch {
	case err != nil:
		return &onlyonce.Error{Code: onlyonce.CodeStoreUnavailable, Op: "authorize replay", Operation: c.key.Operation(), Err: err}
	case replayed && (!found || record.Fence != res.Fence || record.Attempt != res.Attempt):
		record = onlyonce.Record{
			Key: c.key, Operation: c.method.Name, State: res.State, Fence: res.Fence,
			Attempt: res.Attempt, Answer: &res.Answer, ExpiresAt: res.ExpiresAt,
		}
	case !found:
		return c.forbidden(nil)
	}
	if err := c.method.Authorize(c.ctx, record); err != nil {
		if hasStatus(err) {
			return err
		}
		return c.forbidden(err)
	}
	return nil
}

func (c *serving) forbidden(err error) error {
	return &onlyonce.Error{
		Code: oncehttp.CodeForbidden, Op: "authorize replay", Operation: c.key.Operation(), Err: err,
		Hint: "The caller may not see the stored answer of this key.",
	}
}
