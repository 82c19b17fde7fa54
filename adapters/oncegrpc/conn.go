package oncegrpc

import (
	"context"
	"fmt"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/onlyonce-go/onlyonce/onceclient"
)

// Config configures which calls are operations.
type Config struct {
	// Pass tells whether calls of a method, by its full name, go through as they are:
	// reads, and streams. It is asked for every call. nil: none do, so that every
	// unary call is an operation and every stream is refused.
	Pass func(method string) bool
}

func (c Config) passes(ctx context.Context, method string) bool {
	attempt, _ := ctx.Value(attemptKey{}).(bool)
	return attempt || c.Pass != nil && c.Pass(method)
}

// Wrap is a connection for the stubs of a service, whose unary calls client does once.
// The client's Sender is one over the same connection, by itself or behind another. The
// call's intent is that of its context ([onceclient.WithIntent]); its key is made, unless
// its metadata has one. What Wrap returns is as safe for concurrent use as both are, and
// needs no closing.
//
// Options of a call count for the attempts of this process, but a codec or content
// subtype other than protobuf's, which is refused. Header and Trailer are filled from the
// answer, also if it was recorded before; OnFinish is told when the operation ends.
func Wrap(conn grpc.ClientConnInterface, client *onceclient.Client, cfg Config) grpc.ClientConnInterface {
	return &wrapped{conn: conn, client: client, cfg: cfg}
}

type wrapped struct {
	conn   grpc.ClientConnInterface
	client *onceclient.Client
	cfg    Config
}

// Invoke does a call once.
func (w *wrapped) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	if w.cfg.passes(ctx, method) {
		return w.conn.Invoke(ctx, method, args, reply, opts...)
	}
	return do(ctx, w.client, call{method, args, reply, opts})
}

// NewStream opens a stream that passes.
func (w *wrapped) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if w.cfg.passes(ctx, method) {
		return w.conn.NewStream(ctx, desc, method, opts...)
	}
	return nil, refuseStream(method)
}

// UnaryClientInterceptor is [Wrap] as an interceptor, for connections on which others
// have to be in front of it. The client's Sender needs a connection of its own, or one
// that was made before; on the same connection its attempts pass.
func UnaryClientInterceptor(client *onceclient.Client, cfg Config) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if cfg.passes(ctx, method) {
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		return do(ctx, client, call{method, req, reply, opts})
	}
}

// StreamClientInterceptor refuses the streams that do not pass, as [Wrap] does.
func StreamClientInterceptor(cfg Config) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if cfg.passes(ctx, method) {
			return streamer(ctx, desc, cc, method, opts...)
		}
		return nil, refuseStream(method)
	}
}

func refuseStream(method string) error {
	return failed(configError("open stream "+method,
		"a stream cannot be done once; name the method in Config.Pass if it may go through as it is"))
}

// call is one unary call.
type call struct {
	method     string
	req, reply any
	opts       []grpc.CallOption
}

// do does a call once.
func do(ctx context.Context, client *onceclient.Client, c call) (err error) {
	out, opts, err := c.split()
	defer func() {
		for _, f := range out.finish {
			f(err)
		}
	}()
	if err != nil {
		return failed(err)
	}
	body, err := marshal(c.req)
	if err != nil {
		return failed(err)
	}
	reply, err := message(c.reply)
	if err != nil {
		return failed(err)
	}
	done, err := client.Do(context.WithValue(ctx, callOptionsKey{}, opts), onceclient.Request{
		Intent: onceclient.IntentOf(ctx), Method: Method, URL: c.method, Header: header(ctx), Body: body,
	})
	if done.Answer != nil {
		out.fill(done.Answer)
	}
	if err != nil {
		return failed(err)
	}
	return Unmarshal(done.Answer, reply)
}

// wanted is what the options of a call want to be told in the end.
type wanted struct {
	header, trailer []*metadata.MD
	finish          []func(error)
}

func (w wanted) fill(answer *onceclient.Answer) {
	header, trailer := metadataOf(answer)
	for _, md := range w.header {
		*md = header.Copy()
	}
	for _, md := range w.trailer {
		*md = trailer.Copy()
	}
}

// split takes the options apart into those for the operation and those for its attempts.
func (c call) split() (w wanted, attempts []grpc.CallOption, err error) {
	for _, o := range c.opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			w.header = append(w.header, o.HeaderAddr)
		case grpc.TrailerCallOption:
			w.trailer = append(w.trailer, o.TrailerAddr)
		case grpc.OnFinishCallOption:
			w.finish = append(w.finish, o.OnFinish)
		case grpc.ForceCodecCallOption, grpc.ForceCodecV2CallOption, grpc.CustomCodecCallOption:
			err = configError("call "+c.method, "it is to go out in a codec of its own; leave the option away, or name the method in Config.Pass")
		case grpc.ContentSubtypeCallOption:
			if o.ContentSubtype != (rawCodec{}).Name() {
				err = configError("call "+c.method, "it is to go out as "+o.ContentSubtype+"; leave the option away, or name the method in Config.Pass")
			}
		default:
			attempts = append(attempts, o)
		}
	}
	return w, attempts, err
}

// message is a protobuf message of either generation.
func message(v any) (proto.Message, error) {
	switch m := v.(type) {
	case proto.Message:
		return m, nil
	case protoadapt.MessageV1:
		return protoadapt.MessageV2Of(m), nil
	default:
		return nil, configError("make call", fmt.Sprintf("%T is no protobuf message; name the method in Config.Pass", v))
	}
}

// marshal makes the bytes that all attempts send. They are the same for equal messages,
// as far as protobuf can: an intent that is done again compares them.
func marshal(v any) ([]byte, error) {
	m, err := message(v)
	if err != nil {
		return nil, err
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, configError("make call", fmt.Sprintf("the message cannot be marshalled: %v", err))
	}
	return body, nil
}

// header is the metadata of a context as the header of a request.
func header(ctx context.Context) http.Header {
	md, _ := metadata.FromOutgoingContext(ctx)
	h := http.Header{}
	addHeader(h, "", md)
	return h
}
