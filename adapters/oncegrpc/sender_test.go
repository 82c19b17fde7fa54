package oncegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/oncegrpc"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// entry is an operation that charges.
func entry(t *testing.T, body string) onceclient.Entry {
	t.Helper()
	text, err := proto.Marshal(wrapperspb.String(body))
	if err != nil {
		t.Fatal(err)
	}
	return onceclient.Entry{Intent: "order-1", Key: "key-1", Method: oncegrpc.Method, Target: charge, Body: text}
}

// says is an attempt at a server that answers with a status and metadata.
func says(t *testing.T, st *status.Status, header, trailer metadata.MD) onceclient.Reply {
	t.Helper()
	s := serve(t, func(ctx context.Context, _ int, in *text) (*text, error) {
		if err := errors.Join(grpc.SetHeader(ctx, header), grpc.SetTrailer(ctx, trailer)); err != nil {
			t.Error(err)
		}
		return in, st.Err()
	})
	return oncegrpc.NewSender(dial(t, s.addr)).Send(t.Context(), entry(t, "x"))
}

// L2: every code, with and without the server's word on retrying and on having run.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	const (
		again   = "again"
		denied  = "denied"
		before  = "denied, perhaps before the key"
		done    = "done"
		unclear = "unclear"
	)
	// What a code means without a word, and where the server wants no retry.
	for code, want := range map[codes.Code]struct{ plain, no string }{
		codes.OK:                 {done, done},
		codes.Canceled:           {again, unclear},
		codes.Unknown:            {again, unclear},
		codes.InvalidArgument:    {before, before},
		codes.DeadlineExceeded:   {again, unclear},
		codes.NotFound:           {before, before},
		codes.AlreadyExists:      {before, before},
		codes.PermissionDenied:   {before, before},
		codes.ResourceExhausted:  {again, before},
		codes.FailedPrecondition: {before, before},
		codes.Aborted:            {again, before},
		codes.OutOfRange:         {before, before},
		codes.Unimplemented:      {before, before},
		codes.Internal:           {again, unclear},
		codes.Unavailable:        {again, unclear},
		codes.DataLoss:           {again, unclear},
		codes.Unauthenticated:    {before, before},
		codes.Code(99):           {again, unclear},
	} {
		ran := func(verdict string) string {
			switch verdict {
			case before, denied:
				return denied
			default:
				return verdict
			}
		}
		ranNo := ran(want.no)
		if want.plain == again {
			ranNo = done // its own answer, and stays it
		}
		yes := again
		if code == codes.OK {
			yes, ranNo = done, done
		}
		for name, tt := range map[string]struct {
			header, trailer metadata.MD
			want            string
		}{
			"no word":                  {nil, nil, want.plain},
			"yes":                      {nil, metadata.Pairs("x-should-retry", "true"), yes},
			"no":                       {nil, metadata.Pairs("x-should-retry", "false"), want.no},
			"no, in the header":        {metadata.Pairs("x-should-retry", "FALSE "), nil, want.no},
			"no, as Stripe":            {nil, metadata.Pairs("stripe-should-retry", "false"), want.no},
			"no, as gRPC":              {nil, metadata.Pairs("grpc-retry-pushback-ms", "-1"), want.no},
			"neither":                  {nil, metadata.Pairs("x-should-retry", "maybe"), want.plain},
			"ran":                      {nil, metadata.Pairs("idempotency-status", "executed"), ran(want.plain)},
			"ran, yes":                 {nil, metadata.Pairs("idempotency-status", "executed", "x-should-retry", "true"), yes},
			"ran, no":                  {nil, metadata.Pairs("idempotency-status", "executed", "x-should-retry", "false"), ranNo},
			"replayed, no":             {nil, metadata.Pairs("idempotent-replayed", "true", "x-should-retry", "false"), ranNo},
			"ran, no, refused in time": {nil, metadata.Pairs("idempotency-status", "refused", "x-should-retry", "false"), want.no},
		} {
			t.Run(fmt.Sprintf("%s/%s", code, name), func(t *testing.T) {
				t.Parallel()
				r := says(t, status.New(code, "said"), tt.header, tt.trailer)
				got := map[onceclient.Verdict]string{
					onceclient.Again: again, onceclient.Done: done, onceclient.Denied: denied, onceclient.Unclear: unclear, onceclient.Unsent: "unsent",
				}[r.Verdict]
				if r.BeforeKey {
					got += ", perhaps before the key"
				}
				if got != tt.want {
					t.Errorf("%s, want %s: %+v", got, tt.want, r)
				}
				if (r.Err != nil) != (got == again || got == unclear) {
					t.Errorf("error of %s: %v", got, r.Err)
				}
				if r.Answer == nil && (got == done || got == denied || tt.trailer != nil) {
					t.Errorf("%s without an answer", got)
				}
				if r.Replayed != (name == "replayed, no") {
					t.Errorf("replayed: %v", r.Replayed)
				}
			})
		}
	}
}

// L3: the longest wait that the server asks for counts, in each of its forms.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	busy := status.New(codes.Unavailable, "busy")
	info := func(d time.Duration) *status.Status {
		st, err := busy.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	const date, later = "Tue, 01 Dec 2026 10:00:00 GMT", "Tue, 01 Dec 2026 10:00:07 GMT"
	for name, tt := range map[string]struct {
		st   *status.Status
		md   metadata.MD
		want time.Duration
	}{
		"none":          {busy, nil, 0},
		"seconds":       {busy, metadata.Pairs("retry-after", "3"), 3 * time.Second},
		"date":          {busy, metadata.Pairs("retry-after", later, "date", date), 7 * time.Second},
		"date long ago": {busy, metadata.Pairs("retry-after", "Tue, 01 Dec 2020 10:00:00 GMT"), 0},
		"no time":       {busy, metadata.Pairs("retry-after", "soon"), 0},
		"details":       {info(1500 * time.Millisecond), nil, 1500 * time.Millisecond},
		"both":          {info(5 * time.Second), metadata.Pairs("retry-after", "3"), 5 * time.Second},
		"pushback":      {busy, metadata.Pairs("grpc-retry-pushback-ms", "250"), 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := says(t, tt.st, nil, tt.md); r.Verdict != onceclient.Again || r.RetryAfter != tt.want {
				t.Errorf("verdict %d, after %v, want %v", r.Verdict, r.RetryAfter, tt.want)
			}
		})
	}
}

// The server's name for the operation, and that it has forgotten what came of a key.
func TestErrorInfo(t *testing.T) {
	t.Parallel()
	st, err := status.New(codes.FailedPrecondition, "gone").WithDetails(&errdetails.ErrorInfo{
		Reason: string(onlyonce.CodeKeyExpired), Domain: "onlyonce", Metadata: map[string]string{"operation": "op_1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := says(t, st, nil, nil); r.Verdict != onceclient.Unclear || r.Reference != "op_1" {
		t.Errorf("an expired key: %+v", r)
	}
	st, err = status.New(codes.Internal, "no").WithDetails(&errdetails.ErrorInfo{Metadata: map[string]string{"operation": "not\nsafe"}})
	if err != nil {
		t.Fatal(err)
	}
	if r := says(t, st, nil, nil); r.Reference != "" {
		t.Errorf("reference %q", r.Reference)
	}
}

// failing are credentials that cannot be had.
type failing struct{}

func (failing) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return nil, errors.New("no credentials")
}
func (failing) RequireTransportSecurity() bool { return false }

// D3, L2: nothing was sent where the connection never asked for the bytes.
func TestUnsent(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := l.Addr().String()
	l.Close()
	s := serve(t, echo)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	closed := dial(t, s.addr)
	closed.Close()
	drops := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, _ ...grpc.CallOption) error {
		return invoker(ctx, method, req, reply, cc)
	}
	answers := func(context.Context, string, any, any, *grpc.ClientConn, grpc.UnaryInvoker, ...grpc.CallOption) error {
		return nil
	}
	post, short2, broken := entry(t, "x"), entry(t, "x"), entry(t, "x")
	post.Method, short2.Target, broken.Header = "POST", "Charge", map[string][]string{"Trace-Bin": {"?"}}
	for name, tt := range map[string]struct {
		ctx   context.Context //nolint:containedctx // a table of a test
		conn  *grpc.ClientConn
		entry onceclient.Entry
	}{
		"nobody listens":                 {t.Context(), dial(t, nowhere), entry(t, "x")},
		"waits for a connection":         {short, dial(t, nowhere, grpc.WithDefaultCallOptions(grpc.WaitForReady(true))), entry(t, "x")},
		"closed":                         {t.Context(), closed, entry(t, "x")},
		"over":                           {over, dial(t, s.addr), entry(t, "x")},
		"no credentials":                 {t.Context(), dial(t, s.addr, grpc.WithPerRPCCredentials(failing{})), entry(t, "x")},
		"an interceptor drops the codec": {t.Context(), dial(t, s.addr, grpc.WithUnaryInterceptor(drops)), entry(t, "x")},
		"an interceptor answers":         {t.Context(), dial(t, s.addr, grpc.WithUnaryInterceptor(answers)), entry(t, "x")},
		"no gRPC entry":                  {t.Context(), dial(t, s.addr), post},
		"no method":                      {t.Context(), dial(t, s.addr), short2},
		"broken entry":                   {t.Context(), dial(t, s.addr), broken},
	} {
		r := oncegrpc.NewSender(tt.conn).Send(tt.ctx, tt.entry)
		if r.Verdict != onceclient.Unsent || r.Err == nil || r.Answer != nil {
			t.Errorf("%s: %+v", name, r)
		}
		if tt.ctx.Err() != nil && !errors.Is(r.Err, tt.ctx.Err()) {
			t.Errorf("%s: %v, want %v", name, r.Err, tt.ctx.Err())
		}
	}
	if calls := s.seen(); len(calls) > 0 {
		t.Errorf("the server saw %d calls: %+v", len(calls), calls)
	}
}

// L2: what may have been carried out is asked for again, whatever became of the
// connection.
func TestMayHaveBeenSent(t *testing.T) {
	t.Parallel()
	leave, arrived := make(chan struct{}), make(chan struct{})
	defer close(leave)
	var s *ledger
	s = serve(t, func(ctx context.Context, _ int, in *text) (*text, error) {
		switch in.GetValue() {
		case "hang up":
			s.hangUp(ctx)
		case "hang up behind the header":
			// A header of an answer that never comes says nothing of the outcome.
			if err := grpc.SendHeader(ctx, metadata.Pairs("idempotency-status", "executed", "x-should-retry", "false")); err != nil {
				t.Error(err)
			}
			s.hangUp(ctx)
		case "wait":
			close(arrived)
		}
		select {
		case <-leave:
		case <-ctx.Done():
		}
		return in, nil
	})
	if r := oncegrpc.NewSender(dial(t, s.addr)).Send(t.Context(), entry(t, "hang up")); r.Verdict != onceclient.Again || r.Answer != nil || status.Code(r.Err) != codes.Unavailable {
		t.Errorf("hung up: %+v", r)
	}
	if r := oncegrpc.NewSender(dial(t, s.addr)).Send(t.Context(), entry(t, "hang up behind the header")); r.Verdict != onceclient.Again && r.Verdict != onceclient.Unclear {
		t.Errorf("hung up behind the header: %+v", r)
	}
	cause := errors.New("the attempt's time is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		<-arrived
		cancel(cause)
	}()
	// A connection of its own, for that of the others is just being made anew.
	if r := oncegrpc.NewSender(dial(t, s.addr)).Send(ctx, entry(t, "wait")); r.Verdict != onceclient.Again || !errors.Is(r.Err, cause) {
		t.Errorf("took too long: %+v", r)
	}
	if n := len(s.seen()); n != 3 {
		t.Errorf("%d calls, want 3", n)
	}
}

// An interceptor of the connection that retries by itself is stopped at the second try.
func TestRetryingInterceptor(t *testing.T) {
	t.Parallel()
	s := serve(t, func(context.Context, int, *text) (*text, error) { return nil, status.Error(codes.Unavailable, "busy") })
	twice := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		_ = invoker(ctx, method, req, reply, cc, opts...)
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	r := oncegrpc.NewSender(dial(t, s.addr, grpc.WithUnaryInterceptor(twice))).Send(t.Context(), entry(t, "x"))
	if n := len(s.seen()); r.Verdict != onceclient.Again || n != 1 {
		t.Errorf("%d calls, %+v", n, r)
	}
}

// G1, L1: gRPC's own retries are off, and are harmless where they are not: the same key
// and bytes.
func TestServiceConfigRetries(t *testing.T) {
	t.Parallel()
	const policy = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":3,"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`
	for name, tt := range map[string]struct {
		conn  func(addr string) *grpc.ClientConn
		calls int
	}{
		"off": {func(addr string) *grpc.ClientConn { return dial(t, addr, grpc.WithDefaultServiceConfig(policy)) }, 1},
		"on":  {func(addr string) *grpc.ClientConn { return dialPlain(t, addr, grpc.WithDefaultServiceConfig(policy)) }, 3},
	} {
		s := serve(t, func(context.Context, int, *text) (*text, error) { return nil, status.Error(codes.Unavailable, "busy") })
		if r := oncegrpc.NewSender(tt.conn(s.addr)).Send(t.Context(), entry(t, "x")); r.Verdict != onceclient.Again {
			t.Errorf("%s: %+v", name, r)
		}
		calls := s.seen()
		if len(calls) != tt.calls {
			t.Errorf("%s: %d calls, want %d", name, len(calls), tt.calls)
		}
		for _, c := range calls {
			if c.key != "key-1" || c.body != "x" {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
}

// G1: what gRPC repeats by itself where a connection goes away, it has not been seen to
// send: each call comes once, although each connection is given up after a few of them.
func TestGoAway(t *testing.T) {
	t.Parallel()
	const workers, calls = 20, 40
	s := serve(t, echo, grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 5 * time.Millisecond}))
	sender := oncegrpc.NewSender(dial(t, s.addr))
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range calls {
				e := entry(t, "x")
				e.Key = fmt.Sprintf("key-%d-%d", w, i)
				for {
					r := sender.Send(t.Context(), e)
					if r.Verdict == onceclient.Done {
						break
					}
					if r.Verdict != onceclient.Unsent {
						t.Errorf("%s: %+v", e.Key, r)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	times := map[string]int{}
	for _, c := range s.seen() {
		times[c.key]++
		if times[c.key] > 1 {
			t.Errorf("%s came %d times", c.key, times[c.key])
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(times) != workers*calls || len(s.conns) < 2 {
		t.Errorf("%d keys came, over %d connections", len(times), len(s.conns))
	}
}
