package oncegrpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/oncegrpc"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// L1: one key and the same bytes on every attempt, until the answer has come; then it
// is the journal's.
func TestDoneOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, func(ctx context.Context, n int, in *text) (*text, error) {
		if n < 4 {
			return nil, status.Error(codes.Unavailable, "busy")
		}
		if err := errors.Join(grpc.SetHeader(ctx, metadata.Pairs("region", "eu", "raw-bin", "\x00\xff")), grpc.SetTrailer(ctx, metadata.Pairs("cost", "1"))); err != nil {
			t.Error(err)
		}
		return echo(ctx, n, in)
	})
	conn := wrap(t, s)
	ctx := metadata.AppendToOutgoingContext(onceclient.WithIntent(t.Context(), "order-1"), "tenant", "acme", "trace-bin", "\x01\xfe")
	for range 2 {
		var header, trailer metadata.MD
		finished := 0
		got, err := invoke(ctx, conn, "50 EUR", grpc.Header(&header), grpc.Trailer(&trailer), grpc.OnFinish(func(err error) { finished++ }))
		if err != nil || got != "done: 50 EUR" || finished != 1 {
			t.Fatalf("%q, %v, finished %d times", got, err, finished)
		}
		if !slices.Equal(header["region"], []string{"eu"}) || !slices.Equal(header["raw-bin"], []string{"\x00\xff"}) || !slices.Equal(trailer["cost"], []string{"1"}) {
			t.Errorf("header %v, trailer %v", header, trailer)
		}
	}
	calls := s.seen()
	if len(calls) != 4 {
		t.Fatalf("%d calls, want 4", len(calls))
	}
	for _, c := range calls {
		if c.key == "" || c.key != calls[0].key || c.body != "50 EUR" || !slices.Equal(c.md["tenant"], []string{"acme"}) || !slices.Equal(c.md["trace-bin"], []string{"\x01\xfe"}) {
			t.Errorf("a call: %+v", c)
		}
	}
	if _, err := invoke(ctx, conn, "60 EUR"); onlyonce.CodeOf(err) != onceclient.CodeIntentReused || status.Code(err) != codes.FailedPrecondition {
		t.Errorf("another message under the same intent: %v", err)
	}
}

// L4: errors say what is known, by type and by status, and never invite to call again
// what may have been done.
func TestErrors(t *testing.T) {
	t.Parallel()
	s := serve(t, func(ctx context.Context, _ int, in *text) (*text, error) {
		switch in.GetValue() {
		case "deny":
			return nil, status.Error(codes.NotFound, "no such account")
		case "fail for good":
			_ = grpc.SetTrailer(ctx, metadata.Pairs("x-should-retry", "false"))
			return nil, status.Error(codes.Unavailable, "gone")
		default:
			_ = grpc.SetTrailer(ctx, metadata.Pairs("x-should-retry", "false", "idempotency-status", "executed"))
			return nil, status.Error(codes.Internal, "it broke")
		}
	})
	conn := wrap(t, s)
	_, err := invoke(t.Context(), conn, "deny")
	refused, ok := errors.AsType[*onceclient.RefusedError](err)
	if !ok || refused.Answer.Status != 404 || refused.Key == "" {
		t.Fatalf("denied: %v", err)
	}
	if st, ok := status.FromError(err); !ok || st.Code() != codes.NotFound || st.Message() != "no such account" {
		t.Errorf("denied: status %v", st)
	}
	_, err = invoke(t.Context(), conn, "fail for good")
	if unknown, ok := errors.AsType[*onceclient.UnknownError](err); !ok || unknown.Answer.Status != 503 || !errors.Is(err, onlyonce.ErrOutcomeUnknown) {
		t.Errorf("unclear: %v", err)
	}
	if status.Code(err) != codes.Unknown {
		t.Errorf("unclear: status %v", status.Convert(err))
	}
	// The operation has run and its answer is an error: that is its answer, now and later.
	ctx := onceclient.WithIntent(t.Context(), "broken")
	for range 2 {
		if _, err = invoke(ctx, conn, "break"); status.Code(err) != codes.Internal || status.Convert(err).Message() != "it broke" {
			t.Errorf("its own failure: %v", err)
		}
	}
	if n := len(s.seen()); n != 3 {
		t.Errorf("%d calls, want 3", n)
	}
}

// L4: a server that is not there was not asked; doing it again is safe.
func TestNotSent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	conn := dial(t, l.Addr().String())
	cfg := quick(t, conn, memjournal.New())
	cfg.Attempts = 3
	once := oncegrpc.Wrap(conn, newClient(t, cfg), oncegrpc.Config{})
	_, err = invoke(t.Context(), once, "x")
	if _, ok := errors.AsType[*onceclient.NotSentError](err); !ok || status.Code(err) != codes.Unavailable {
		t.Errorf("nobody listens: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = invoke(over, once, "x")
	if !errors.Is(err, context.Canceled) || status.Code(err) != codes.Canceled {
		t.Errorf("over before it began: %v", err)
	}
}

// Equal messages make equal bytes, whatever the order of their maps.
func TestEqualMessages(t *testing.T) {
	t.Parallel()
	conn := wrap(t, serve(t, echo))
	fields := map[string]any{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		fields[name] = name
	}
	for range 10 {
		m, err := structpb.NewStruct(fields)
		if err != nil {
			t.Fatal(err)
		}
		err = conn.Invoke(onceclient.WithIntent(t.Context(), "order-1"), "/test.Ledger/None", m, new(emptypb.Empty))
		if onlyonce.CodeOf(err) == onceclient.CodeIntentReused || status.Code(err) != codes.Unimplemented {
			t.Fatalf("the same message: %v", err)
		}
	}
}

// What is no operation goes through as it is; a stream that is not named is refused.
func TestPass(t *testing.T) {
	t.Parallel()
	s := serve(t, echo)
	conn := dial(t, s.addr)
	client := newClient(t, quick(t, conn, memjournal.New()))
	once := oncegrpc.Wrap(conn, client, oncegrpc.Config{})
	all := oncegrpc.Config{Pass: func(string) bool { return true }}
	stream := func(conn grpc.ClientConnInterface) error {
		st, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, watch)
		if err != nil {
			return err
		}
		in := new(text)
		if err := errors.Join(st.SendMsg(wrapperspb.String("x")), st.CloseSend(), st.RecvMsg(in)); err != nil || in.GetValue() != "x" {
			t.Errorf("stream: %v, %v", in, err)
		}
		if err := st.RecvMsg(in); !errors.Is(err, io.EOF) {
			t.Errorf("end of stream: %v", err)
		}
		return nil
	}
	if err := stream(once); onlyonce.CodeOf(err) != onlyonce.CodeConfig || status.Code(err) != codes.InvalidArgument {
		t.Errorf("a stream: %v", err)
	}
	if err := stream(oncegrpc.Wrap(conn, client, all)); err != nil {
		t.Error(err)
	}
	if _, err := invoke(t.Context(), oncegrpc.Wrap(conn, client, all), "read"); err != nil || s.seen()[0].key != "" {
		t.Errorf("a read: %v, %+v", err, s.seen())
	}
	intercepted := dial(t, s.addr, grpc.WithUnaryInterceptor(oncegrpc.UnaryClientInterceptor(client, all)), grpc.WithStreamInterceptor(oncegrpc.StreamClientInterceptor(all)))
	if _, err := invoke(t.Context(), intercepted, "read"); err != nil || s.seen()[1].key != "" {
		t.Errorf("a read through the interceptor: %v, %+v", err, s.seen())
	}
	if err := stream(intercepted); err != nil {
		t.Error(err)
	}
	if err := stream(dial(t, s.addr, grpc.WithStreamInterceptor(oncegrpc.StreamClientInterceptor(oncegrpc.Config{})))); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("a stream through the interceptor: %v", err)
	}
}

// The interceptor does calls once, behind others that see messages; on the attempts'
// own connection it lets them pass.
func TestInterceptor(t *testing.T) {
	t.Parallel()
	s := serve(t, echo)
	var client *onceclient.Client
	late := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return oncegrpc.UnaryClientInterceptor(client, oncegrpc.Config{})(ctx, method, req, reply, cc, invoker, opts...)
	}
	messages := 0
	first := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if _, ok := req.(*text); ok {
			messages++
		}
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	conn := dial(t, s.addr, grpc.WithChainUnaryInterceptor(first, late))
	client = newClient(t, quick(t, conn, memjournal.New()))
	for range 2 {
		if got, err := invoke(onceclient.WithIntent(t.Context(), "order-1"), conn, "x"); err != nil || got != "done: x" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if n := len(s.seen()); n != 1 || messages != 2 {
		t.Errorf("%d calls, %d messages; want 1 and 2", n, messages)
	}
}

// L1: credentials go with the attempt and not into the journal; a key of the caller's
// own is taken.
func TestMetadata(t *testing.T) {
	t.Parallel()
	s := serve(t, echo)
	conn, j := dial(t, s.addr), memjournal.New()
	once := oncegrpc.Wrap(conn, newClient(t, quick(t, conn, j)), oncegrpc.Config{})
	ctx := onceclient.WithIntent(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret", "idempotency-key", "my-key"), "order-1")
	if _, err := invoke(ctx, once, "x"); err != nil {
		t.Fatal(err)
	}
	if c := s.seen()[0]; c.key != "my-key" || !slices.Equal(c.md["authorization"], []string{"Bearer secret"}) {
		t.Errorf("sent: %+v", c)
	}
	lock, e, err := j.Lock(t.Context(), "order-1")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	if e.Method != oncegrpc.Method || e.Target != charge || e.Key != "my-key" || len(e.Header["Authorization"]) > 0 {
		t.Errorf("journaled: %+v", e)
	}
}

// Calls that cannot be kept as protobuf are refused, and nothing is sent.
func TestForeignCodec(t *testing.T) {
	t.Parallel()
	s := serve(t, echo)
	conn := wrap(t, s)
	for name, opt := range map[string]grpc.CallOption{
		"codec":     grpc.ForceCodecV2(encoding.GetCodecV2("proto")),
		"old codec": grpc.ForceCodec(jsonCodec{}),
		"subtype":   grpc.CallContentSubtype("json"),
	} {
		if _, err := invoke(t.Context(), conn, "x", opt); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := invoke(t.Context(), conn, "x", grpc.CallContentSubtype("proto"), grpc.WaitForReady(true)); err != nil {
		t.Errorf("protobuf's subtype: %v", err)
	}
	if err := conn.Invoke(t.Context(), charge, "no message", new(text)); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("no message: %v", err)
	}
	if err := conn.Invoke(t.Context(), charge, new(text), "no message"); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("no reply: %v", err)
	}
	if n := len(s.seen()); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

// jsonCodec is some other codec.
type jsonCodec struct{}

func (jsonCodec) Marshal(any) ([]byte, error) { return nil, errors.New("not to be asked") }
func (jsonCodec) Unmarshal([]byte, any) error { return errors.New("not to be asked") }
func (jsonCodec) Name() string                { return "json" }

// Answers that are none of gRPC's, or of another message, are told from failures.
func TestUnmarshal(t *testing.T) {
	t.Parallel()
	ok := func(body string) *onceclient.Answer {
		return &onceclient.Answer{Status: 200, Header: map[string][]string{"Grpc-Status": {"0"}}, Body: []byte(body)}
	}
	for name, a := range map[string]*onceclient.Answer{"none": nil, "of HTTP": {Status: 200, Body: []byte("{}")}, "of another message": ok("\xff")} {
		if err := oncegrpc.Unmarshal(a, new(text)); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
	failed := ok("no status")
	failed.Header["Grpc-Status"] = []string{"7"}
	if err := oncegrpc.Unmarshal(failed, new(text)); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a status without words: %v", err)
	}
	if err := oncegrpc.Unmarshal(ok(""), new(text)); err != nil {
		t.Errorf("an empty message: %v", err)
	}
}
