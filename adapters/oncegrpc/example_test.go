package oncegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce/adapters/oncegrpc"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// serveTills is a server that knows what it did for a key, and that once breaks off
// before it has answered.
func serveTills() (address string, stop func()) {
	done := map[string]bool{}
	charge := func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := dec(in); err != nil {
			return nil, err
		}
		md, _ := metadata.FromIncomingContext(ctx)
		if key := md.Get("idempotency-key")[0]; !done[key] {
			done[key] = true
			fmt.Println("server: charging", in.GetValue())
			return nil, status.Error(codes.Unavailable, "the answer is lost")
		}
		return wrapperspb.String("receipt for " + in.GetValue()), nil
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "shop.Till", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Charge", Handler: charge}},
	}, nil)
	ended := make(chan error)
	go func() { ended <- server.Serve(l) }()
	return l.Addr().String(), func() { server.Stop(); <-ended }
}

// A call through a wrapped connection is done once: the lost answer is asked for under
// the same key, and a second run of the same intent finds it in the journal.
func ExampleWrap() {
	address, stop := serveTills()
	defer stop()
	conn, err := grpc.NewClient("passthrough:///"+address, append(oncegrpc.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	client, err := onceclient.New(onceclient.Config{Journal: memjournal.New(), Sender: oncegrpc.NewSender(conn), BackoffBase: 1})
	if err != nil {
		panic(err)
	}
	// A generated stub takes what Wrap returns as its connection.
	till := oncegrpc.Wrap(conn, client, oncegrpc.Config{})

	ctx := onceclient.WithIntent(context.Background(), "order-42/charge")
	for range 2 {
		receipt := new(wrapperspb.StringValue)
		err = till.Invoke(ctx, "/shop.Till/Charge", wrapperspb.String("50.00 EUR"), receipt)
		if unknown, ok := errors.AsType[*onceclient.UnknownError](err); ok {
			fmt.Println("ask again later:", unknown.Key)
		}
		fmt.Println(receipt.GetValue(), err)
	}
	// Output:
	// server: charging 50.00 EUR
	// receipt for 50.00 EUR <nil>
	// receipt for 50.00 EUR <nil>
}
