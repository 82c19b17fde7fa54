package oncegrpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

const (
	// expiresName says until when an answer is replayed, as an RFC 9651 Date.
	expiresName = "idempotency-expires"
	// trailerPrefix is before the names of trailers in a stored header.
	trailerPrefix = "Grpc-Trailer-"
)

// ownNames are metadata that speaks of one answer's way through the server.
func ownNames() []string {
	return []string{keyName, idempotentReplay, idempotencyStatus, expiresName}
}

// run is one run of a handler, of whose answer a part is stored.
type run struct {
	c  *serving
	mu sync.Mutex
	// header and trailer are all that the handler has set.
	header, trailer metadata.MD
	ended           bool
	// body is the answer's, also where it is not retained.
	body []byte
}

type runKey struct{}

// handle runs the handler. Its answer is buffered; it gets a request of its own, which it
// may change.
func (c *serving) handle(ctx context.Context) (onlyonce.Answer, error) {
	r := &run{c: c, header: metadata.MD{}, trailer: metadata.MD{}}
	c.run = r
	defer r.end() // also when the handler panics or ends its goroutine
	ctx = grpc.NewContextWithServerTransportStream(context.WithValue(ctx, runKey{}, r), r)
	return r.answer(c.handler(ctx, proto.Clone(c.msg)))
}

// Method is the full name of the method, for grpc.Method.
func (r *run) Method() string { return r.c.full }

// SetHeader is for grpc.SetHeader.
func (r *run) SetHeader(md metadata.MD) error { return r.set(&r.header, md) }

// SendHeader is SetHeader: nothing is sent before it is stored.
func (r *run) SendHeader(md metadata.MD) error { return r.set(&r.header, md) }

// SetTrailer is for grpc.SetTrailer.
func (r *run) SetTrailer(md metadata.MD) error { return r.set(&r.trailer, md) }

var errAnswered = errors.New("set metadata: the handler has returned")

func (r *run) set(to *metadata.MD, md metadata.MD) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return errAnswered
	}
	*to = metadata.Join(*to, md)
	return nil
}

func (r *run) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// answer makes an answer of what a handler returns. An error of the engine, which has no
// status, stays one: it knows more than a status says.
func (r *run) answer(reply any, err error) (onlyonce.Answer, error) {
	if err != nil && onlyonce.CodeOf(err) != "" && !hasStatus(err) {
		return onlyonce.Answer{}, err
	}
	msg, ok := reply.(proto.Message)
	if err == nil && !ok {
		return onlyonce.Answer{}, fmt.Errorf("read answer: %T is no protobuf message", reply)
	}
	answer, err := NewAnswer(msg, err)
	if err != nil {
		return onlyonce.Answer{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.body = answer.Body
	keep := r.c.method
	addHeader(answer.Header, "", only(r.header, keep.KeepHeaders))
	addHeader(answer.Header, trailerPrefix, only(r.trailer, keep.KeepTrailers))
	if len(answer.Body) > keep.MaxAnswer {
		answer.Body, answer.NotRetained = nil, true
	}
	return answer, nil
}

// NewAnswer is an answer as it is stored, for Op.Recover: the message, or, where err is
// one, its status. The answer's Status is an HTTP one that the table of outcomes judges
// alike; the code itself is in its header.
//
// The error is that of a message that cannot be marshalled.
func NewAnswer(reply proto.Message, err error) (onlyonce.Answer, error) {
	if err == nil {
		body, err := proto.MarshalOptions{Deterministic: true}.Marshal(reply)
		if err != nil {
			return onlyonce.Answer{}, fmt.Errorf("marshal answer: %w", err)
		}
		return newAnswer(codes.OK, body), nil
	}
	st := statusOf(err)
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(st)
	if err != nil {
		return onlyonce.Answer{}, fmt.Errorf("marshal status: %w", err)
	}
	return newAnswer(codes.Code(st.GetCode()), body), nil
}

func newAnswer(code codes.Code, body []byte) onlyonce.Answer {
	return onlyonce.Answer{Status: judgedAs(code), Body: body, Header: http.Header{
		"Content-Type": {"application/grpc+proto"},
		statusHeader:   {strconv.FormatUint(uint64(code), 10)},
	}}
}

// statusOf is the status that gRPC makes of an error, with a message that can be stored.
func statusOf(err error) *spb.Status {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	p := st.Proto()
	if p.GetCode() == int32(codes.OK) {
		p = &spb.Status{Code: int32(codes.Unknown), Message: err.Error()}
	}
	p.Message = strings.ToValidUTF8(p.GetMessage(), "�")
	return p
}

// judgedAs is an HTTP status that the engine's table of outcomes judges as a code is to be
// judged (rules O2 to O5): the caller was turned away, the operation failed, or this is
// its answer.
func judgedAs(code codes.Code) int {
	switch code {
	case codes.OK:
		return http.StatusOK
	case codes.InvalidArgument, codes.OutOfRange:
		return http.StatusBadRequest
	case codes.FailedPrecondition:
		return http.StatusUnprocessableEntity
	case codes.NotFound:
		return http.StatusNotFound
	case codes.AlreadyExists:
		return http.StatusConflict
	case codes.Unimplemented:
		return http.StatusMethodNotAllowed
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unavailable, codes.Aborted:
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded, codes.Canceled:
		return http.StatusGatewayTimeout
	case codes.Unknown, codes.Internal, codes.DataLoss:
		return http.StatusInternalServerError
	default:
		return http.StatusInternalServerError
	}
}

// only is the part of metadata that an allow-list names.
func only(md metadata.MD, names []string) metadata.MD {
	kept := metadata.MD{}
	for _, name := range names {
		if values := md.Get(name); len(values) > 0 {
			kept[name] = values
		}
	}
	return kept
}

// without is metadata without what an allow-list names, and without what only the server
// says.
func without(md metadata.MD, names []string) metadata.MD {
	rest := md.Copy()
	for _, name := range append(ownNames(), names...) {
		rest.Delete(name)
	}
	return rest
}

// stored is metadata that was stored under its names with a prefix, as far as today's
// allow-list has it.
func stored(h map[string][]string, prefix string, names []string) metadata.MD {
	md := metadata.MD{}
	for _, name := range names {
		for _, v := range h[prefix+http.CanonicalHeaderKey(name)] {
			if strings.HasSuffix(name, binarySuffix) {
				v = decodeBinary(v)
			}
			md.Append(name, v)
		}
	}
	return md
}

// recorded is what an answer says: a status, or, where that is nil, the bytes of a message.
func recorded(a onlyonce.Answer) (*status.Status, []byte) {
	code, err := strconv.ParseUint(http.Header(a.Header).Get(statusHeader), 10, 32)
	if err != nil {
		return status.New(codes.DataLoss, "The stored answer is none of gRPC's."), nil
	}
	switch p := new(spb.Status); {
	case codes.Code(code) == codes.OK:
		return nil, a.Body
	case a.NotRetained, proto.Unmarshal(a.Body, p) != nil:
		return status.New(codes.Code(code), "The operation ended with this code."), nil
	default:
		return status.FromProto(p), nil
	}
}

// respond sends the answer of a run, or of the run before.
func (c *serving) respond(res onlyonce.Result) (any, error) {
	header := stored(res.Answer.Header, "", c.method.KeepHeaders)
	trailer := stored(res.Answer.Header, trailerPrefix, c.method.KeepTrailers)
	own := c.say(res)
	if res.Status == onlyonce.Replayed {
		c.server.cfg.Logger.LogAttrs(c.ctx, slog.LevelInfo, "answer replayed",
			slog.String("operation", c.key.Operation()), slog.Int64("fence", res.Fence), slog.String("attempt", res.Attempt.String()))
		own.Set(idempotentReplay, "true")
	} else if c.run != nil {
		header = metadata.Join(header, without(c.run.header, c.method.KeepHeaders))
		trailer = metadata.Join(trailer, without(c.run.trailer, c.method.KeepTrailers))
		if res.Answer.NotRetained {
			res.Answer.Body, res.Answer.NotRetained = c.run.body, false
		}
	}
	st, body := recorded(res.Answer)
	if res.Answer.NotRetained {
		st = c.notRetained(st)
	}
	if st == nil {
		return bytesOf(body), c.send(metadata.Join(header, own), trailer)
	}
	if res.State == onlyonce.Completed {
		// It is final: the same call gets it again, whatever else it says.
		delete(header, shouldRetry)
		own.Set(shouldRetry, "false")
	}
	for name := range own {
		delete(trailer, name)
	}
	if err := c.send(header, metadata.Join(trailer, own)); err != nil {
		return nil, err
	}
	return nil, st.Err()
}

// say is what every answer to a key says of it (rule R1). It is in the header of answers
// that are OK, and in the trailer of those that are not, which need no header then.
func (c *serving) say(res onlyonce.Result) metadata.MD {
	own := metadata.Pairs(idempotencyStatus, string(res.Status))
	c.echo(own)
	if !res.ExpiresAt.IsZero() {
		own.Set(expiresName, "@"+strconv.FormatInt(res.ExpiresAt.Unix(), 10))
	}
	return own
}

// echo repeats the key as it was sent.
func (c *serving) echo(own metadata.MD) {
	if sent := c.sentKey(); sent != "" {
		own.Set(keyName, sent)
	} else if c.keyed {
		own.Set(keyName, c.key.Value)
	}
}

// send gives header and trailer to gRPC, which sends them with what is returned. It is
// the call's context that reaches the caller, not the handler's.
func (c *serving) send(header, trailer metadata.MD) error {
	if err := grpc.SetHeader(c.ctx, header); err != nil {
		return fmt.Errorf("set header: %w", err)
	}
	if err := grpc.SetTrailer(c.ctx, trailer); err != nil {
		return fmt.Errorf("set trailer: %w", err)
	}
	return nil
}

// bytesOf is a message that is marshalled to these bytes, whatever type they are of: so
// the first caller gets the bytes that are stored, and every replay the same.
func bytesOf(body []byte) proto.Message {
	m := new(emptypb.Empty)
	m.ProtoReflect().SetUnknown(body)
	return m
}

// notRetained is the status of a replay of which only the code was kept.
func (c *serving) notRetained(st *status.Status) *status.Status {
	code := codes.DataLoss
	if st != nil {
		code = st.Code()
	}
	p := c.problem(&onlyonce.Error{Code: oncehttp.CodeNotRetained, Operation: c.key.Operation()})
	p.code = code
	return p.status()
}
