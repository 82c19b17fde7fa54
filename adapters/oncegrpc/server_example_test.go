package oncegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/oncegrpc"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// shop is a service with one method, as generated code describes it.
func shop(charge func(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error)) *grpc.ServiceDesc {
	handler := func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := dec(in); err != nil {
			return nil, err
		}
		info := &grpc.UnaryServerInfo{Server: srv, FullMethod: "/shop.Till/Charge"}
		return interceptor(ctx, in, info, func(ctx context.Context, req any) (any, error) {
			return charge(ctx, req.(*wrapperspb.StringValue))
		})
	}
	return &grpc.ServiceDesc{
		ServiceName: "shop.Till", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Charge", Handler: handler}},
	}
}

// merchant is who an interceptor for authentication has found the caller to be.
func merchant(ctx context.Context) (string, error) {
	for _, name := range metadata.ValueFromIncomingContext(ctx, "merchant") {
		return name, nil
	}
	return "", errors.New("nobody has signed in")
}

// newEngineInMemory is an engine whose keys live as long as the process.
func newEngineInMemory() *onlyonce.TxEngine[*memstore.Tx] {
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		panic(err)
	}
	engine, err := onlyonce.NewTx(store, onlyonce.Config{})
	if err != nil {
		panic(err)
	}
	return engine
}

// serveTill serves a till and connects to it.
func serveTill(engine *onlyonce.Engine, method oncegrpc.ServerMethod, charge func(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error)) (conn *grpc.ClientConn, stop func()) {
	once, err := oncegrpc.NewServer(engine, merchant, oncegrpc.ServerConfig{Methods: map[string]oncegrpc.ServerMethod{"/shop.Till/Charge": method}})
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(once.UnaryServerInterceptor()))
	server.RegisterService(shop(charge), nil)
	if err := once.CheckServices(server.GetServiceInfo()); err != nil {
		panic(err) // a method that is not there, or that streams
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	ended := make(chan error)
	go func() { ended <- server.Serve(l) }()
	conn, err = grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	return conn, func() {
		conn.Close()
		server.Stop()
		<-ended
		engine.Close(context.Background())
	}
}

// A call and its retry have one effect and one answer; another call under the same key is
// refused, and told in what it differs.
func ExampleServer() {
	// A key is required, and what fails is held in doubt.
	conn, stop := serveTill(newEngineInMemory().Engine, oncegrpc.ServerMethod{}, func(_ context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		fmt.Println("charging", in.GetValue())
		return wrapperspb.String("receipt for " + in.GetValue()), nil
	})
	defer stop()

	ctx := metadata.AppendToOutgoingContext(context.Background(), "merchant", "acme", "idempotency-key", "order-42")
	for _, amount := range []string{"50.00 EUR", "50.00 EUR", "60.00 EUR"} {
		receipt, header := new(wrapperspb.StringValue), metadata.MD{}
		err := conn.Invoke(ctx, "/shop.Till/Charge", wrapperspb.String(amount), receipt, grpc.Header(&header))
		if err != nil {
			st := status.Convert(err)
			info := st.Details()[0].(*errdetails.ErrorInfo)
			fmt.Println(st.Code(), info.GetReason(), info.GetMetadata()["differs"])
			continue
		}
		fmt.Println(header.Get("idempotency-status"), receipt.GetValue())
	}
	// Output:
	// charging 50.00 EUR
	// [executed] receipt for 50.00 EUR
	// [replayed] receipt for 50.00 EUR
	// FailedPrecondition IDEMPOTENCY_KEY_REUSED value
}

// The effect, the answer and the key are one transaction of the store's database.
func ExampleInTx() {
	engine := newEngineInMemory()
	conn, stop := serveTill(engine.Engine, oncegrpc.ServerMethod{Mode: oncegrpc.InTx(engine)}, func(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		tx, _ := oncegrpc.TxFrom[*memstore.Tx](ctx) // of a database it is what statements are run on
		tx.OnCommit(func() { fmt.Println("booked", in.GetValue()) })
		return wrapperspb.String("receipt"), nil
	})
	defer stop()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "merchant", "acme", "idempotency-key", "order-42")
	for range 2 {
		receipt := new(wrapperspb.StringValue)
		err := conn.Invoke(ctx, "/shop.Till/Charge", wrapperspb.String("50.00 EUR"), receipt)
		fmt.Println(receipt.GetValue(), err)
	}
	// Output:
	// booked 50.00 EUR
	// receipt <nil>
	// receipt <nil>
}

// A handler in steps that fails behind its payment goes on from there when it is retried,
// and ends with its own write and its answer in one transaction.
func ExampleFinish() {
	engine, tries := newEngineInMemory(), 0
	conn, stop := serveTill(engine.Engine, oncegrpc.ServerMethod{Mode: oncegrpc.InSteps()}, func(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		charge, err := onlyonce.Call(ctx, onlyonce.Effect{
			Name: "charge", Provider: "psp", Request: []byte(in.GetValue()),
			Send: func(context.Context, onlyonce.Sending) ([]byte, error) {
				fmt.Println("charging", in.GetValue())
				return []byte("ch_1"), nil
			},
		})
		if err != nil {
			return nil, err
		}
		if tries++; tries == 1 {
			return nil, status.Error(codes.Unavailable, "the warehouse does not answer")
		}
		return oncegrpc.Finish(ctx, engine, func(_ context.Context, tx *memstore.Tx) (*wrapperspb.StringValue, error) {
			tx.OnCommit(func() { fmt.Println("booked") })
			return wrapperspb.String("receipt for " + string(charge)), nil
		})
	})
	defer stop()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "merchant", "acme", "idempotency-key", "order-42")
	for range 2 {
		receipt := new(wrapperspb.StringValue)
		err := conn.Invoke(ctx, "/shop.Till/Charge", wrapperspb.String("50.00 EUR"), receipt)
		fmt.Println(receipt.GetValue(), status.Code(err))
	}
	// Output:
	// charging 50.00 EUR
	//  Unavailable
	// booked
	// receipt for ch_1 OK
}
