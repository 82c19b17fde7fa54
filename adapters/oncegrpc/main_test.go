package oncegrpc_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce/adapters/oncegrpc"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	charge = "/test.Ledger/Charge"
	watch  = "/test.Ledger/Watch"
)

// text is a message.
type text = wrapperspb.StringValue

// ledger is a server: what it does with a charge is handle's to say, and it keeps the
// calls that came.
type ledger struct {
	addr   string
	handle func(ctx context.Context, n int, in *text) (*text, error)

	mu    sync.Mutex
	calls []seen
	conns map[string]net.Conn
}

// seen is a call as it came to the server.
type seen struct {
	key, body string
	md        metadata.MD
}

// serve runs a ledger until the test ends. n counts its calls from 1.
func serve(t *testing.T, handle func(ctx context.Context, n int, in *text) (*text, error), opts ...grpc.ServerOption) *ledger {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &ledger{addr: l.Addr().String(), handle: handle, conns: map[string]net.Conn{}}
	g := grpc.NewServer(opts...)
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Ledger", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Charge", Handler: chargeHandler}},
		Streams: []grpc.StreamDesc{{StreamName: "Watch", ServerStreams: true, Handler: watchHandler}},
	}, s)
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(&kept{l, s}) })
	t.Cleanup(wg.Wait)
	t.Cleanup(g.Stop)
	return s
}

func chargeHandler(srv any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	s, in := srv.(*ledger), new(text)
	if err := dec(in); err != nil {
		return nil, err
	}
	md, _ := metadata.FromIncomingContext(ctx)
	c := seen{key: keyOf(ctx), body: in.GetValue(), md: md}
	s.mu.Lock()
	s.calls = append(s.calls, c)
	n := len(s.calls)
	s.mu.Unlock()
	return s.handle(ctx, n, in)
}

// keyOf is the one key of a call; empty if it has none, or several.
func keyOf(ctx context.Context) string {
	if keys := metadata.ValueFromIncomingContext(ctx, "idempotency-key"); len(keys) == 1 {
		return keys[0]
	}
	return ""
}

func watchHandler(_ any, stream grpc.ServerStream) error {
	in := new(text)
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	return stream.SendMsg(in)
}

// kept is a listener whose connections can be broken.
type kept struct {
	net.Listener
	s *ledger
}

func (k *kept) Accept() (net.Conn, error) {
	conn, err := k.Listener.Accept()
	if err == nil {
		k.s.mu.Lock()
		k.s.conns[conn.RemoteAddr().String()] = conn
		k.s.mu.Unlock()
	}
	return conn, err
}

// hangUp breaks the connection that a call came by.
func (s *ledger) hangUp(ctx context.Context) {
	p, _ := peer.FromContext(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[p.Addr.String()].Close()
}

func (s *ledger) seen() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen{}, s.calls...)
}

// dial connects to a ledger as it should be.
func dial(t *testing.T, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return dialPlain(t, addr, append(opts, oncegrpc.DialOptions()...)...)
}

// dialPlain connects as gRPC does by itself.
func dialPlain(t *testing.T, addr string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("passthrough:///"+addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// quick is a configuration whose retries do not wait for long.
func quick(t *testing.T, conn grpc.ClientConnInterface, j onceclient.Journal) onceclient.Config {
	t.Helper()
	budget, err := onceclient.NewBudget(onceclient.BudgetConfig{Least: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	return onceclient.Config{
		Journal: j, Sender: oncegrpc.NewSender(conn), Budget: budget,
		BackoffBase: time.Millisecond, BackoffCap: 20 * time.Millisecond, Attempts: 100,
	}
}

func newClient(t *testing.T, cfg onceclient.Config) *onceclient.Client {
	t.Helper()
	c, err := onceclient.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wrap is a connection to a ledger whose calls are done once.
func wrap(t *testing.T, s *ledger) grpc.ClientConnInterface {
	t.Helper()
	conn := dial(t, s.addr)
	return oncegrpc.Wrap(conn, newClient(t, quick(t, conn, memjournal.New())), oncegrpc.Config{})
}

// invoke charges.
func invoke(ctx context.Context, conn grpc.ClientConnInterface, body string, opts ...grpc.CallOption) (string, error) {
	out := new(text)
	err := conn.Invoke(ctx, charge, wrapperspb.String(body), out, opts...)
	return out.GetValue(), err
}

// echo is a handler that does what it is asked.
func echo(_ context.Context, _ int, in *text) (*text, error) {
	return wrapperspb.String("done: " + in.GetValue()), nil
}

// spread is many connections to a server, taken in turn.
type spread struct {
	conns []*grpc.ClientConn
	next  atomic.Uint64
}

func newSpread(t *testing.T, addr string, n int) *spread {
	t.Helper()
	s := &spread{}
	for range n {
		s.conns = append(s.conns, dial(t, addr))
	}
	return s
}

func (s *spread) conn() *grpc.ClientConn { return s.conns[s.next.Add(1)%uint64(len(s.conns))] }

func (s *spread) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return s.conn().Invoke(ctx, method, args, reply, opts...)
}

func (s *spread) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return s.conn().NewStream(ctx, desc, method, opts...)
}
