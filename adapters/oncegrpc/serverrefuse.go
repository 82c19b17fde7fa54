package oncegrpc

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// codeEncoding: the call is not in protobuf.
const codeEncoding = oncehttp.CodeEncoding

// kind is what is the same for all refusals of one code (section E).
type kind struct {
	reason onlyonce.Code
	code   codes.Code
	with   oncehttp.RetryWith
	// later is the least time to the next attempt where the error names none; 0: none.
	later time.Duration
	// text is for people, where the error has no hint.
	text string
}

// kinds is the table of all refusals. A refusal that the same call may follow has a code
// that clients retry by themselves if they retry anything: Aborted, where something else
// is in the way, and Unavailable. All others have codes that nobody retries.
func kinds() []kind {
	same, other, none := oncehttp.SameKey, oncehttp.NewKey, oncehttp.NoRetry
	return []kind{
		{onlyonce.CodeKeyRequired, codes.InvalidArgument, other, 0, "The operation needs a key."},
		{onlyonce.CodeKeyInvalid, codes.InvalidArgument, other, 0, "The key is malformed."},
		{onlyonce.CodeInvalidRequest, codes.InvalidArgument, none, 0, "The request is malformed."},
		{codeEncoding, codes.InvalidArgument, none, 0, "The request is not in protobuf."},
		{onlyonce.CodeUnauthenticated, codes.Unauthenticated, none, 0, "The call names no account."},
		{oncehttp.CodeForbidden, codes.PermissionDenied, none, 0, "The caller may not see the stored answer of this key."},
		{onlyonce.CodeInProgress, codes.Aborted, same, time.Second, "The first call with this key is still running."},
		{onlyonce.CodeOutcomeUnknown, codes.Aborted, same, 5 * time.Second, "Whether the operation took effect is not known yet."},
		{onlyonce.CodeResourceBusy, codes.Aborted, same, time.Second, "Another operation on the same resource is running, or its outcome is not known yet."},
		{onlyonce.CodeKeyExpired, codes.FailedPrecondition, none, 0, "The key was used and its answer is no longer kept."},
		{onlyonce.CodeKeyReused, codes.FailedPrecondition, other, 0, "The key was used for another request."},
		{onlyonce.CodeMisdirected, codes.Unavailable, same, time.Second, "The key lives in another region or on another shard; nothing was run here."},
		{onlyonce.CodeHandlerFailed, codes.Internal, same, 0, "The operation failed and left no effect."},
		{onlyonce.CodeStoreUnavailable, codes.Unavailable, same, 2 * time.Second, "The store of keys cannot be reached, or cannot judge this key now."},
		{oncehttp.CodeNotRetained, codes.DataLoss, none, 0, "The operation was carried out, once, and its answer was too large to be kept. Look the result up."},
		{onlyonce.CodeConfig, codes.Internal, none, 0, "The service is not set up right; its operators find the reason in its log."},
	}
}

// kindOf finds what is answered for a code. Codes that stay inside a service are answered
// as what they mean to a caller.
func kindOf(code onlyonce.Code) kind {
	switch code {
	case onlyonce.CodeLeaseLost:
		code = onlyonce.CodeInProgress
	case onlyonce.CodeConflict, onlyonce.CodeUncertain, onlyonce.CodeUnreachable:
		code = onlyonce.CodeStoreUnavailable
	default:
	}
	all := kinds()
	if i := slices.IndexFunc(all, func(k kind) bool { return k.reason == code }); i >= 0 {
		return all[i]
	}
	return kindOf(onlyonce.CodeConfig)
}

// problem is a refusal on its way to a caller.
type problem struct {
	kind
	message string
	wait    time.Duration
	details []proto.Message
}

// problem is what a caller is told of an error: its kind and hint, never its cause.
func (c *serving) problem(err error) problem {
	e, ok := errors.AsType[*onlyonce.Error](err)
	if !ok {
		e = &onlyonce.Error{Code: onlyonce.CodeConfig}
	}
	k := kindOf(e.Code)
	p := problem{kind: k, message: sentence(e.Hint), wait: k.later}
	if e.RetryAfter > 0 && k.later > 0 {
		p.wait = e.RetryAfter
	}
	if k.reason == onlyonce.CodeStoreUnavailable {
		p.wait = max(e.RetryAfter, c.server.cfg.StoreRetryAfter)
	}
	if p.message == "" || k.reason == onlyonce.CodeConfig {
		p.message = k.text
	}
	info := &errdetails.ErrorInfo{
		Reason: strings.ToUpper(string(k.reason)), Domain: c.server.cfg.Domain,
		Metadata: map[string]string{"retry_with": string(k.with)},
	}
	if e.Operation != "" {
		info.Metadata["operation"] = e.Operation
	} else if c.keyed && c.key.Scope != "" {
		info.Metadata["operation"] = c.key.Operation()
	}
	for name, value := range map[string]string{"home": e.Home, "address": e.Address, "differs": strings.Join(e.Differs, ",")} {
		if value != "" {
			info.Metadata[name] = value
		}
	}
	p.details = append([]proto.Message{info}, p.fitting(e)...)
	if p.wait > 0 {
		p.details = append(p.details, &errdetails.RetryInfo{RetryDelay: durationpb.New(p.wait)})
	}
	if docs := c.server.cfg.DocsURL; docs != "" {
		p.details = append(p.details, &errdetails.Help{Links: []*errdetails.Help_Link{{
			Description: k.text, Url: docs + string(k.reason),
		}}})
	}
	return p
}

// fitting are the details that gRPC has for some refusals.
func (p problem) fitting(e *onlyonce.Error) []proto.Message {
	switch p.reason {
	case onlyonce.CodeKeyRequired, onlyonce.CodeKeyInvalid:
		return []proto.Message{&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{
			Field: keyName, Description: p.message,
		}}}}
	case onlyonce.CodeKeyReused:
		failure := &errdetails.PreconditionFailure{}
		for _, name := range e.Differs {
			failure.Violations = append(failure.Violations, &errdetails.PreconditionFailure_Violation{
				Type: strings.ToUpper(string(p.reason)), Subject: name, Description: "differs",
			})
		}
		return []proto.Message{failure}
	default:
		return nil
	}
}

// status is the problem as a status.
func (p problem) status() *status.Status {
	st := &spb.Status{Code: int32(p.code), Message: p.message}
	for _, detail := range p.details {
		// No error: they are messages of ours, and valid.
		packed, err := anypb.New(detail)
		if err == nil {
			st.Details = append(st.Details, packed)
		}
	}
	return status.FromProto(st)
}

// refuse answers with a problem. how is what the engine says of a run that gave no
// answer; empty: the call was refused.
func (c *serving) refuse(how string, err error) (any, error) {
	own := metadata.MD{}
	var st *status.Status
	if onlyonce.CodeOf(err) == "" && hasStatus(err) {
		st = status.Convert(err)
	} else {
		p := c.problem(err)
		c.log(c.ctx, p, err)
		st = p.status()
		own.Set(shouldRetry, strconv.FormatBool(p.with == oncehttp.SameKey))
		if p.wait > 0 {
			own.Set(retryAfterName, strconv.FormatInt(int64((p.wait+time.Second-1)/time.Second), 10))
		}
	}
	if how == "" {
		how = oncehttp.StatusRefused
	}
	own.Set(idempotencyStatus, how)
	c.echo(own)
	if err := c.send(nil, own); err != nil {
		return nil, err
	}
	return nil, st.Err()
}

// log writes what callers must not see: the causes of refusals. A caller's own mistakes
// are of interest only to who looks for them.
func (c *serving) log(ctx context.Context, p problem, err error) {
	level := slog.LevelDebug
	switch {
	case p.code == codes.Internal, p.code == codes.Unavailable, p.reason == onlyonce.CodeOutcomeUnknown:
		level = slog.LevelWarn
	}
	attrs := []slog.Attr{slog.String("error", err.Error()), slog.String("code", string(p.reason)), slog.String("method", c.full)}
	if c.keyed && c.key.Scope != "" {
		attrs = append(attrs, slog.String("operation", c.key.Operation()))
	}
	if crash, ok := errors.AsType[*onlyonce.PanicError](err); ok {
		level = slog.LevelError
		attrs = append(attrs, slog.String("stack", string(crash.Stack)))
	}
	c.server.cfg.Logger.LogAttrs(ctx, level, "call not answered by its handler", attrs...)
}

// sentence makes a hint, which reads like an error's text, one for people.
func sentence(hint string) string {
	if hint == "" || strings.HasSuffix(hint, ".") {
		return hint
	}
	return strings.ToUpper(hint[:1]) + hint[1:] + "."
}

// decodeBinary is a value of binary metadata as it was before it was stored.
func decodeBinary(v string) string {
	raw, err := base64.StdEncoding.DecodeString(v)
	if err != nil {
		return v
	}
	return string(raw)
}
