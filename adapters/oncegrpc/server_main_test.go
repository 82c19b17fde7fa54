package oncegrpc_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/oncegrpc"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

const refund = "/test.Ledger/Refund"

// handlerFunc is what a bank does with a call.
type handlerFunc func(ctx context.Context, in proto.Message) (proto.Message, error)

// bank is a real server on loopback whose calls are under keys.
type bank struct {
	t      *testing.T
	store  *memstore.Store
	engine *onlyonce.TxEngine[*memstore.Tx]
	addr   string
	conn   *grpc.ClientConn
	runs   atomic.Int64
	ahead  atomic.Int64 // how far the store's clock is ahead
	log    *logBuffer
	server *oncegrpc.Server
	info   map[string]grpc.ServiceInfo
	lines  *ledger // its connections
}

// setup is how a bank is made. Zero: strings, wrapped, a key required.
type setup struct {
	method  oncegrpc.ServerMethod
	config  oncegrpc.ServerConfig // but Methods
	handler handlerFunc
	request func() proto.Message
	losing  int64 // how many answers
	store   *memstore.Store
	before  []grpc.UnaryServerInterceptor
	behind  []grpc.UnaryServerInterceptor
	faults  storefault.Injector
	scope   oncegrpc.ScopeFunc
	// mode makes the method's mode of the bank's engine.
	mode func(e *onlyonce.TxEngine[*memstore.Tx]) oncegrpc.Mode
}

// account is the scope of a call: what stands before the slash in its credential.
func account(ctx context.Context) (string, error) {
	for _, credential := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		name, _, _ := strings.Cut(credential, "/")
		return name, nil
	}
	return "", fmt.Errorf("no credential")
}

func newBank(t *testing.T, s setup) *bank {
	t.Helper()
	b := &bank{t: t, log: &logBuffer{}}
	var err error
	b.store, err = memstore.New(memstore.Config{SingleProcess: true, Now: func() time.Time {
		return time.Now().Add(time.Duration(b.ahead.Load()))
	}})
	if err != nil {
		t.Fatal(err)
	}
	if s.store != nil {
		b.store = s.store
	}
	var store onlyonce.TxStore[*memstore.Tx] = b.store
	if s.faults != nil {
		store = storefault.NewTx(store, s.faults)
	}
	b.engine, err = onlyonce.NewTx(store, onlyonce.Config{SettleTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.engine.Close(context.WithoutCancel(t.Context())) })
	b.protect(s)
	b.serve(s)
	b.conn = dial(t, b.addr)
	return b
}

func (b *bank) protect(s setup) {
	b.t.Helper()
	if s.mode != nil {
		s.method.Mode = s.mode(b.engine)
	}
	if s.scope == nil {
		s.scope = account
	}
	other := s.method
	other.Name = ""
	s.config.Methods = map[string]oncegrpc.ServerMethod{charge: s.method, refund: other}
	s.config.Logger = slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if b.server, err = oncegrpc.NewServer(b.engine.Engine, s.scope, s.config); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bank) serve(s setup) {
	b.t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(b.t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	b.addr = l.Addr().String()
	b.lines = &ledger{conns: map[string]net.Conn{}}
	chain := append(append(append([]grpc.UnaryServerInterceptor{b.losing(s.losing)}, s.before...), b.server.UnaryServerInterceptor()), s.behind...)
	g := grpc.NewServer(grpc.ChainUnaryInterceptor(chain...), grpc.StreamInterceptor(b.server.StreamServerInterceptor()))
	if s.request == nil {
		s.request = func() proto.Message { return new(text) }
	}
	serve := func(method string) func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
		return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := s.request()
			if err := dec(in); err != nil {
				return nil, err
			}
			return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: method}, func(ctx context.Context, req any) (any, error) {
				b.runs.Add(1)
				return s.handler(ctx, req.(proto.Message))
			})
		}
	}
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Ledger", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "Charge", Handler: serve(charge)},
			{MethodName: "Refund", Handler: serve(refund)},
			{MethodName: "Look", Handler: serve("/test.Ledger/Look")},
		},
		Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
			if forged := metadata.ValueFromIncomingContext(stream.Context(), "idempotency-status"); len(forged) > 0 {
				b.t.Errorf("the stream sees %v", forged)
			}
			return watchHandler(srv, stream)
		}}},
	}, b)
	b.info = g.GetServiceInfo()
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(&kept{l, b.lines}) })
	b.t.Cleanup(wg.Wait)
	b.t.Cleanup(g.Stop)
}

// said is what came of a call.
type said struct {
	body            []byte // of the message
	text            string // of a message that is a text
	st              *status.Status
	header, trailer metadata.MD
}

// word is the first value of metadata, of either kind.
func (s said) word(name string) string {
	for _, md := range []metadata.MD{s.header, s.trailer} {
		if values := md.Get(name); len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

// reason is the code of a refusal, in lower case; empty if it is none.
func (s said) reason() string { return strings.ToLower(s.info().GetReason()) }

func (s said) info() *errdetails.ErrorInfo {
	return detailOf[*errdetails.ErrorInfo](s)
}

func detailOf[T proto.Message](s said) (none T) {
	for _, d := range s.st.Details() {
		if found, ok := d.(T); ok {
			return found
		}
	}
	return none
}

// ask is one call. Zero values: Charge by acme with "100".
type ask struct {
	method, body, key, as string
	more                  []string // pairs of metadata
	msg                   proto.Message
	ctx                   context.Context //nolint:containedctx // nil: the test's
	opts                  []grpc.CallOption
}

// rawBytes is a codec for messages as they are on the wire.
type rawBytes struct{}

func (rawBytes) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawBytes) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (rawBytes) Name() string { return "proto" }

// do makes a call as it is, without a client of ours.
func (b *bank) do(a ask) said {
	b.t.Helper()
	if a.method == "" {
		a.method = charge
	}
	if a.as == "" {
		a.as = "acme/1"
	}
	if a.body == "" {
		a.body = "100"
	}
	if a.msg == nil {
		a.msg = wrapperspb.String(a.body)
	}
	if a.ctx == nil {
		a.ctx = b.t.Context()
	}
	md := metadata.Pairs(a.more...)
	if a.key != "" {
		md.Append("idempotency-key", a.key)
	}
	if a.as != "-" {
		md.Set("authorization", a.as)
	}
	in, err := proto.Marshal(a.msg)
	if err != nil {
		b.t.Fatal(err)
	}
	var got said
	opts := append([]grpc.CallOption{grpc.ForceCodecV2(rawBytes{}), grpc.Header(&got.header), grpc.Trailer(&got.trailer)}, a.opts...)
	err = b.conn.Invoke(metadata.NewOutgoingContext(a.ctx, md), a.method, &in, &got.body, opts...)
	got.st = status.Convert(err)
	if err == nil {
		out := new(text)
		if proto.Unmarshal(got.body, out) == nil {
			got.text = out.GetValue()
		}
	}
	return got
}

// want holds what came of a call against a code and the words on it.
func (b *bank) want(got said, code codes.Code, reason, how string) {
	b.t.Helper()
	if got.st.Code() != code || got.reason() != reason || got.word("idempotency-status") != how {
		b.t.Errorf("got %v %q (%s), status %q; want %v %s, status %q",
			got.st.Code(), got.reason(), got.st.Message(), got.word("idempotency-status"), code, reason, how)
	}
}

// wantRuns says how often the handler has to have run.
func (b *bank) wantRuns(n int64) {
	b.t.Helper()
	if got := b.runs.Load(); got != n {
		b.t.Errorf("the handler ran %d times, want %d", got, n)
	}
}

func (b *bank) record(key string) onlyonce.Record {
	b.t.Helper()
	rec, found, err := b.store.Get(b.t.Context(), onlyonce.Key{Scope: "acme", Value: key})
	if err != nil || !found {
		b.t.Fatalf("there is no record of %s: %v", key, err)
	}
	return rec
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// paid is a handler that pays.
func paid(_ context.Context, in proto.Message) (proto.Message, error) {
	return wrapperspb.String("paid " + in.(*text).GetValue()), nil
}
