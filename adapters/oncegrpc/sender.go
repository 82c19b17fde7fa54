package oncegrpc

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// Method is the Entry.Method of operations that go over gRPC. Their Target is the full
// name of the method, as /package.Service/Method.
const Method = "GRPC"

// keyName is the metadata that carries the key.
const keyName = "idempotency-key"

// DialOptions are those that a connection should have beside its own: gRPC's own
// retries are off.
func DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithDisableRetry()}
}

// Sender makes attempts over a gRPC connection. It is safe for concurrent use, and
// leaves the connection to its owner.
type Sender struct {
	conn grpc.ClientConnInterface
	now  func() time.Time // against which dates are taken
}

// NewSender is a sender over a connection, which should be made with [DialOptions] and
// not be nil.
//
// An attempt's reply is judged by code:
//
//	Again    Unknown, DeadlineExceeded, ResourceExhausted, Aborted, Internal,
//	         Unavailable, DataLoss, Canceled and codes without a name: it may have had
//	         an effect, or the server asks to wait
//	Denied   InvalidArgument, NotFound, AlreadyExists, PermissionDenied,
//	         FailedPrecondition, OutOfRange, Unimplemented, Unauthenticated
//
// A denial proves nothing of earlier attempts (Reply.BeforeKey), for it may be of somebody
// who never looked at the key, and what exists already may be of such an attempt, unless
// the server says by idempotency-status: executed or replayed that it did look.
//
// The server's word on retrying wins over the code: x-should-retry (or
// stripe-should-retry) true or false, and a grpc-retry-pushback-ms that is no time, which
// means no. When it wants no retry, its answer counts as the operation's if it says that
// the operation has run; otherwise Internal and its like leave the outcome unknown.
// The longest of retry-after, grpc-retry-pushback-ms and RetryInfo is the least time to
// the next attempt.
func NewSender(conn grpc.ClientConnInterface) *Sender {
	return &Sender{conn: conn, now: time.Now}
}

// attemptKey marks the context of an attempt, which an interceptor on the same
// connection has to let pass, and holds the options of the call that it is made for.
type attemptKey struct{}

// callOptionsKey holds the options of a call while its operation is done.
type callOptionsKey struct{}

// Send makes one attempt.
func (s *Sender) Send(ctx context.Context, entry onceclient.Entry) onceclient.Reply {
	if entry.Method != Method || !isMethod(entry.Target) {
		return onceclient.Reply{Verdict: onceclient.Unsent, Err: configError("send "+entry.Method,
			fmt.Sprintf("the entry %q is no gRPC call; keep operations over gRPC in a journal of their own", entry.Intent))}
	}
	md, err := outgoing(entry)
	if err != nil {
		return onceclient.Reply{Verdict: onceclient.Unsent, Err: err}
	}
	options, _ := ctx.Value(callOptionsKey{}).([]grpc.CallOption)
	ctx = context.WithValue(metadata.NewOutgoingContext(ctx, md), attemptKey{}, true)
	out, in := &frame{body: entry.Body}, &frame{}
	a := arrived{now: s.now}
	// An attempt's own options come last, so that no others replace them.
	options = append(slices.Clip(options),
		grpc.ForceCodecV2(rawCodec{}), grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	err = s.conn.Invoke(ctx, entry.Target, out, in, options...)
	a.status, a.body = status.Convert(err), in.body
	if !out.taken.Load() {
		if err == nil {
			err = errNotAsked
		}
		return onceclient.Reply{Verdict: onceclient.Unsent, Err: because(ctx, err)}
	}
	return a.reply(ctx, err)
}

var errNotAsked = errors.New("an interceptor has answered in the server's place")

// outgoing is the metadata of an attempt.
func outgoing(entry onceclient.Entry) (metadata.MD, error) {
	md := metadata.MD{}
	for name, values := range entry.Header {
		name = strings.ToLower(name)
		for _, v := range values {
			if strings.HasSuffix(name, binarySuffix) {
				raw, err := base64.StdEncoding.DecodeString(v)
				if err != nil {
					return nil, configError("send "+entry.Method, fmt.Sprintf("the entry's header %s is not base64", name))
				}
				v = string(raw)
			}
			md[name] = append(md[name], v)
		}
	}
	md[keyName] = []string{entry.Key}
	return md, nil
}

// binarySuffix marks metadata that may have any bytes. In entries and answers they are
// in base64, as on the wire.
const binarySuffix = "-bin"

// addHeader adds metadata to a header, under its names with a prefix.
func addHeader(h http.Header, prefix string, md metadata.MD) {
	for name, values := range md {
		at := prefix + http.CanonicalHeaderKey(name)
		for _, v := range values {
			if strings.HasSuffix(name, binarySuffix) {
				v = base64.StdEncoding.EncodeToString([]byte(v))
			}
			h[at] = append(h[at], v)
		}
	}
}

// isMethod tells whether a name is the full one of a method.
func isMethod(name string) bool {
	service, method, ok := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	return ok && strings.HasPrefix(name, "/") && service != "" && method != ""
}

// because says why the context has ended, where that is why an attempt has failed.
func because(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

func configError(op, hint string) error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: op, Hint: hint}
}
