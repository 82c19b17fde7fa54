package oncegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/oncegrpc"
	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// losing breaks the connection instead of giving every third answer, a number of times.
func (b *bank) losing(times int64) grpc.UnaryServerInterceptor {
	var n atomic.Int64
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		reply, err := handler(ctx, req)
		if i := n.Add(1); i%3 == 0 && i <= 3*times {
			b.lines.hangUp(ctx)
		}
		return reply, err
	}
}

// signedIn sends credentials with every attempt.
type signedIn string

func (s signedIn) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(s)}, nil
}
func (signedIn) RequireTransportSecurity() bool { return false }

// asClient is the bank's connection as a client of ours has it.
func (b *bank) asClient(opts ...func(*onceclient.Config)) grpc.ClientConnInterface {
	b.t.Helper()
	conn := dial(b.t, b.addr, grpc.WithPerRPCCredentials(signedIn("acme/1")))
	cfg := quick(b.t, conn, memjournal.New())
	for _, o := range opts {
		o(&cfg)
	}
	return oncegrpc.Wrap(conn, newClient(b.t, cfg), oncegrpc.Config{})
}

// L1, L2, C1: both ends together, while every third answer is lost: one effect an
// operation, and its own answer to every caller.
func TestServerAndClient(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	effects := map[string]int{}
	op := onlyonce.Op{Lease: 4 * time.Second} // for a quarter of it callers wait
	b := newBank(t, setup{losing: 20, method: oncegrpc.ServerMethod{Op: op}, handler: func(ctx context.Context, in proto.Message) (proto.Message, error) {
		mu.Lock()
		defer mu.Unlock()
		body := in.(*text).GetValue()
		effects[body]++
		if body[0] == '7' {
			return nil, status.Error(codes.FailedPrecondition, "declined "+body)
		}
		return paid(ctx, in)
	}})
	conn := b.asClient()
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			body := fmt.Sprint(i)
			got, err := invoke(t.Context(), conn, body)
			if body[0] == '7' {
				if st := status.Convert(err); st.Code() != codes.FailedPrecondition || st.Message() != "declined "+body {
					t.Errorf("%s: got %v", body, err)
				}
			} else if err != nil || got != "paid "+body {
				t.Errorf("%s: got %q, %v", body, got, err)
			}
		})
	}
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	for body, n := range effects {
		if n != 1 {
			t.Errorf("%s had %d effects", body, n)
		}
	}
	if len(effects) != 60 {
		t.Errorf("%d operations of 60", len(effects))
	}
}

// L2, L4: what our server refuses is what our client takes it for.
func TestServerRefusalsAtClient(t *testing.T) {
	t.Parallel()
	running, refused, slow := make(chan struct{}), make(chan struct{}, 100), make(chan struct{})
	tell := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		reply, err := handler(ctx, req)
		if status.Code(err) == codes.Aborted {
			refused <- struct{}{}
		}
		return reply, err
	}
	// Callers are told to come again after a quarter of a lease.
	op := onlyonce.Op{Lease: 4 * time.Second}
	b := newBank(t, setup{method: oncegrpc.ServerMethod{Op: op}, before: []grpc.UnaryServerInterceptor{tell}, handler: func(ctx context.Context, in proto.Message) (proto.Message, error) {
		switch in.(*text).GetValue() {
		case "slow":
			close(running)
			<-slow
		case "failing":
			return nil, status.Error(codes.Internal, "failed")
		case "turned away":
			return nil, status.Error(codes.PermissionDenied, "suspended")
		}
		return paid(ctx, in)
	}})
	few := func(c *onceclient.Config) { c.Attempts = 1 }
	keyed := func(key string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", key)
	}

	// A key that was used for another request: nothing of this one was done.
	b.want(b.do(ask{key: "used"}), codes.OK, "", "executed")
	_, err := invoke(keyed("used"), b.asClient(few), "other")
	if refused, ok := errors.AsType[*onceclient.RefusedError](err); !ok || status.Code(err) != codes.FailedPrecondition {
		t.Errorf("reused: got %v, %v", err, refused)
	}
	// Turned away by the operation itself.
	_, err = invoke(t.Context(), b.asClient(few), "turned away")
	if _, ok := errors.AsType[*onceclient.RefusedError](err); !ok || status.Code(err) != codes.PermissionDenied {
		t.Errorf("turned away: got %v", err)
	}
	// In doubt: unknown in the end, with the reference to ask by.
	b.want(b.do(ask{key: "doubt", body: "failing"}), codes.Internal, "", "executed")
	_, err = invoke(keyed("doubt"), b.asClient(few), "failing")
	unknown, ok := errors.AsType[*onceclient.UnknownError](err)
	if !ok || unknown.Key != "doubt" || status.Code(err) != codes.Unknown {
		t.Fatalf("doubt: got %v", err)
	}
	if want := (onlyonce.Key{Scope: "acme", Value: "doubt"}).Operation(); unknown.Reference != want {
		t.Errorf("the reference is %q, want %q", unknown.Reference, want)
	}
	// In progress: asked again until it is done.
	for len(refused) > 0 {
		<-refused
	}
	first := make(chan said)
	go func() { first <- b.do(ask{key: "slow", body: "slow"}) }()
	<-running
	patient, answered := b.asClient(), make(chan string)
	go func() {
		got, err := invoke(keyed("slow"), patient, "slow")
		answered <- fmt.Sprint(got, err)
	}()
	<-refused
	close(slow)
	if got := <-answered; got != "paid slow<nil>" {
		t.Errorf("slow: got %s", got)
	}
	b.want(<-first, codes.OK, "", "executed")
}

// A finished operation is replayed to a client whose answer was lost, with its metadata.
func TestServerReplayAtClient(t *testing.T) {
	t.Parallel()
	var lost atomic.Bool
	b := newBank(t, setup{
		method: oncegrpc.ServerMethod{KeepHeaders: []string{"location"}, KeepTrailers: []string{"cost"}},
		before: []grpc.UnaryServerInterceptor{func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			reply, err := handler(ctx, req)
			if lost.CompareAndSwap(false, true) {
				return nil, status.Error(codes.Unavailable, "lost")
			}
			return reply, err
		}},
		handler: telling(func() (proto.Message, error) { return wrapperspb.String("made"), nil }),
	})
	var header, trailer metadata.MD
	got, err := invoke(t.Context(), b.asClient(), "x", grpc.Header(&header), grpc.Trailer(&trailer))
	if err != nil || got != "made" {
		t.Fatalf("got %q, %v", got, err)
	}
	if len(header["location"]) != 2 || len(trailer["cost"]) != 1 || len(header["idempotent-replayed"]) != 1 {
		t.Errorf("metadata %v and %v", header, trailer)
	}
	b.wantRuns(1)
}
