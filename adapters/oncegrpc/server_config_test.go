package oncegrpc_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/oncegrpc"
	"github.com/onlyonce-go/onlyonce/canon"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// newEngine is an engine over memory; steps tells whether its store keeps steps.
func newEngine(t *testing.T) *onlyonce.TxEngine[*memstore.Tx] {
	t.Helper()
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := onlyonce.NewTx(store, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close(context.WithoutCancel(t.Context())) })
	return engine
}

// poorStore can do nothing but what every store can.
type poorStore struct{ onlyonce.Store }

func (poorStore) Features() onlyonce.Features { return onlyonce.Features{Name: "poor"} }

// A wrong setting is refused at the start, by its name.
func TestServerRefusesBadSettings(t *testing.T) {
	t.Parallel()
	engine, other := newEngine(t), newEngine(t)
	poor, err := onlyonce.New(poorStore{engine.Store()}, onlyonce.Config{Secrets: onlyonce.Keyring{Current: onlyonce.Secret{ID: "a", Key: make([]byte, 32)}}})
	if err != nil {
		t.Fatal(err)
	}
	with := func(m oncegrpc.ServerMethod) oncegrpc.ServerConfig {
		return oncegrpc.ServerConfig{Methods: map[string]oncegrpc.ServerMethod{charge: m}}
	}
	good := with(oncegrpc.ServerMethod{})
	later := good
	later.StoreRetryAfter = time.Millisecond
	named := func(names ...string) oncegrpc.ServerConfig {
		c := good
		c.KeyNames = names
		return c
	}
	op := func(op onlyonce.Op) oncegrpc.ServerConfig { return with(oncegrpc.ServerMethod{Op: op}) }
	resource := func(proto.Message) string { return "" }
	for name, tt := range map[string]struct {
		engine *onlyonce.Engine
		scope  oncegrpc.ScopeFunc
		cfg    oncegrpc.ServerConfig
		want   string
	}{
		"no engine":     {nil, account, good, "engine must not be nil"},
		"no scope":      {engine.Engine, nil, good, "scope must not be nil"},
		"no methods":    {engine.Engine, account, oncegrpc.ServerConfig{}, "must name a method"},
		"a short name":  {engine.Engine, account, oncegrpc.ServerConfig{Methods: map[string]oncegrpc.ServerMethod{"Charge": {}}}, "no full name"},
		"soon":          {engine.Engine, account, later, "StoreRetryAfter must be at least"},
		"upper case":    {engine.Engine, account, named("X-Request-ID"), "KeyNames"},
		"binary":        {engine.Engine, account, named("key-bin"), "KeyNames"},
		"gRPC's":        {engine.Engine, account, named("grpc-key"), "KeyNames"},
		"a space":       {engine.Engine, account, named("a b"), "KeyNames"},
		"a lease":       {engine.Engine, account, op(onlyonce.Op{Lease: time.Nanosecond}), "Op.Lease"},
		"a policy":      {engine.Engine, account, op(onlyonce.Op{Policy: []byte("{}")}), "set ServerMethod.Policy"},
		"a bad policy":  {engine.Engine, account, with(oncegrpc.ServerMethod{Policy: canon.Policy{Fields: []string{"a"}, Ignore: []string{"b"}}}), "exclude each other"},
		"a credential":  {engine.Engine, account, with(oncegrpc.ServerMethod{Policy: canon.Policy{Headers: []string{"authorization"}}}), "credentials"},
		"a mode":        {engine.Engine, account, with(oncegrpc.ServerMethod{Key: oncehttp.Off + 1}), "ServerMethod.Key"},
		"a size":        {engine.Engine, account, with(oncegrpc.ServerMethod{MaxAnswer: -1}), "MaxAnswer"},
		"another's":     {engine.Engine, account, with(oncegrpc.ServerMethod{Mode: oncegrpc.InTx(other)}), "of the engine"},
		"none":          {engine.Engine, account, with(oncegrpc.ServerMethod{Mode: oncegrpc.InTx[*memstore.Tx](nil)}), "of the engine"},
		"tx, optional":  {engine.Engine, account, with(oncegrpc.ServerMethod{Mode: oncegrpc.InTx(engine), Key: oncehttp.Optional}), "must be Required"},
		"tx, resource":  {engine.Engine, account, with(oncegrpc.ServerMethod{Mode: oncegrpc.InTx(engine), Resource: resource}), "lock the business row"},
		"tx, deadline":  {engine.Engine, account, with(oncegrpc.ServerMethod{Mode: oncegrpc.InTx(engine), Op: onlyonce.Op{Deadline: time.Hour}}), "Op.Deadline"},
		"steps":         {engine.Engine, account, with(oncegrpc.ServerMethod{Mode: oncegrpc.InSteps(), Key: oncehttp.Optional}), "must be Required"},
		"poor steps":    {poor, account, with(oncegrpc.ServerMethod{Mode: oncegrpc.InSteps()}), "keeps no steps: poor"},
		"poor resource": {poor, account, with(oncegrpc.ServerMethod{Resource: resource}), "guards resources: poor"},
	} {
		s, err := oncegrpc.NewServer(tt.engine, tt.scope, tt.cfg)
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), tt.want) || s != nil {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
	// O8: what is of one answer only is never stored.
	for _, name := range []string{
		"date", "set-cookie", "traceparent", "x-request-id", "ratelimit-limit", "access-control-allow-origin", "retry-after", "x-should-retry",
		"idempotency-status", "idempotent-replayed", "grpc-status", "content-type", "Location", "", "a:b",
	} {
		for field, m := range map[string]oncegrpc.ServerMethod{"header": {KeepHeaders: []string{name}}, "trailer": {KeepTrailers: []string{name}}} {
			if err := m.Validate(); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
				t.Errorf("%s %q: got %v", field, name, err)
			}
		}
	}
}

// A method that is not there, or that streams, is found before the first call.
func TestServerCheckServices(t *testing.T) {
	t.Parallel()
	b := newBank(t, setup{handler: paid})
	if err := b.server.CheckServices(b.info); err != nil {
		t.Error(err)
	}
	g := grpc.NewServer()
	healthpb.RegisterHealthServer(g, health.NewServer())
	info := g.GetServiceInfo()
	for name, tt := range map[string]struct {
		method oncegrpc.ServerMethod
		want   string
	}{
		"/test.Ledger/Charge":          {want: "not registered"},
		"/grpc.health.v1.Health/Chekc": {want: "no method of its service"},
		"/grpc.health.v1.Health/Watch": {want: "streams"},
		"/grpc.health.v1.Health/Check": {oncegrpc.ServerMethod{Policy: canon.Policy{Ignore: []string{"servise"}}}, `no field "servise"`},
		"/grpc.health.v1.Health/List":  {oncegrpc.ServerMethod{KeyField: "request_id"}, `no field "request_id"`},
	} {
		s, err := oncegrpc.NewServer(newEngine(t).Engine, account, oncegrpc.ServerConfig{Methods: map[string]oncegrpc.ServerMethod{name: tt.method}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.CheckServices(info); onlyonce.CodeOf(err) != onlyonce.CodeConfig || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
	s, err := oncegrpc.NewServer(newEngine(t).Engine, account, oncegrpc.ServerConfig{Methods: map[string]oncegrpc.ServerMethod{
		"/grpc.health.v1.Health/Check": {Policy: canon.Policy{Ignore: []string{"service"}}, KeyField: "service"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CheckServices(info); err != nil {
		t.Error(err)
	}
}

// What no start found is refused with the call: nothing runs unprotected for it.
func TestServerRefusesWhatItCannotProtect(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setup{
		"a policy":      {method: oncegrpc.ServerMethod{Policy: canon.Policy{Ignore: []string{"no_such"}}}},
		"a key's field": {method: oncegrpc.ServerMethod{KeyField: "value.no_such"}},
		"no message":    {before: []grpc.UnaryServerInterceptor{instead("a text")}},
		"an old one":    {before: []grpc.UnaryServerInterceptor{instead((*text)(nil))}},
		"the scope": {scope: func(context.Context) (string, error) {
			return "", &onlyonce.Error{Code: onlyonce.CodeConfig, Err: errors.New("secret")}
		}},
	} {
		s.handler = paid
		b := newBank(t, s)
		got := b.do(ask{key: "k"})
		b.want(got, codes.Internal, "invalid_config", "refused")
		if got.word("x-should-retry") != "false" || strings.Contains(got.st.Message(), "secret") || !strings.Contains(b.log.String(), "level=WARN") {
			t.Errorf("%s: got %v, log %s", name, got.st, b.log)
		}
		b.wantRuns(0)
	}
	// One inside the other.
	inner := newBank(t, setup{handler: paid})
	b := newBank(t, setup{handler: paid, behind: []grpc.UnaryServerInterceptor{inner.server.UnaryServerInterceptor()}})
	if got := b.do(ask{key: "k"}); got.st.Code() != codes.Internal {
		t.Errorf("got %v", got.st)
	}
	b.wantRuns(0)
}

// Section E: what each refusal is over gRPC.
func TestServerRefusals(t *testing.T) {
	t.Parallel()
	said := make(chan error, 1)
	b := newBank(t, setup{handler: paid, scope: func(context.Context) (string, error) { return "", <-said }})
	for code, want := range map[onlyonce.Code]struct {
		code   codes.Code
		reason string
		retry  string
		with   string
		after  string
	}{
		onlyonce.CodeKeyRequired:      {codes.InvalidArgument, "idempotency_key_required", "false", "new_key", ""},
		onlyonce.CodeKeyInvalid:       {codes.InvalidArgument, "idempotency_key_invalid", "false", "new_key", ""},
		onlyonce.CodeInvalidRequest:   {codes.InvalidArgument, "invalid_request", "false", "none", ""},
		onlyonce.CodeUnauthenticated:  {codes.Unauthenticated, "unauthenticated", "false", "none", ""},
		oncehttp.CodeForbidden:        {codes.PermissionDenied, "replay_forbidden", "false", "none", ""},
		onlyonce.CodeInProgress:       {codes.Aborted, "request_in_progress", "true", "same_key", "1"},
		onlyonce.CodeLeaseLost:        {codes.Aborted, "request_in_progress", "true", "same_key", "1"},
		onlyonce.CodeOutcomeUnknown:   {codes.Aborted, "outcome_unknown", "true", "same_key", "5"},
		onlyonce.CodeResourceBusy:     {codes.Aborted, "resource_busy", "true", "same_key", "1"},
		onlyonce.CodeKeyExpired:       {codes.FailedPrecondition, "idempotency_key_expired", "false", "none", ""},
		onlyonce.CodeKeyReused:        {codes.FailedPrecondition, "idempotency_key_reused", "false", "new_key", ""},
		onlyonce.CodeMisdirected:      {codes.Unavailable, "misdirected_request", "true", "same_key", "1"},
		onlyonce.CodeHandlerFailed:    {codes.Internal, "handler_failed", "true", "same_key", ""},
		onlyonce.CodeStoreUnavailable: {codes.Unavailable, "idempotency_store_unavailable", "true", "same_key", "2"},
		onlyonce.CodeUncertain:        {codes.Unavailable, "idempotency_store_unavailable", "true", "same_key", "2"},
		onlyonce.CodeConflict:         {codes.Unavailable, "idempotency_store_unavailable", "true", "same_key", "2"},
		onlyonce.CodeConfig:           {codes.Internal, "invalid_config", "false", "none", ""},
		"no_such_code":                {codes.Internal, "invalid_config", "false", "none", ""},
	} {
		said <- &onlyonce.Error{Code: code, RetryAfter: 8500 * time.Millisecond}
		want9 := want.after
		if want9 != "" {
			want9 = "9" // the error knows better
		}
		if got := b.do(ask{key: "k"}); got.word("retry-after") != want9 {
			t.Errorf("%s: retry after %q, want %q", code, got.word("retry-after"), want9)
		}
		said <- &onlyonce.Error{Code: code, Home: "eu-2", Address: "https://eu-2.example", Err: errors.New("secret cause")}
		got := b.do(ask{key: "k"})
		b.want(got, want.code, want.reason, "refused")
		more := got.info().GetMetadata()
		if got.word("x-should-retry") != want.retry || got.word("retry-after") != want.after || more["retry_with"] != want.with || more["home"] != "eu-2" ||
			got.info().GetDomain() != "onlyonce" || got.st.Message() == "" || strings.Contains(got.st.String(), "secret") {
			t.Errorf("%s: got %v %v", code, got.st, got.trailer)
		}
	}
	b.wantRuns(0)
}

// instead puts another message in the place of a request.
func instead(req any) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return handler(ctx, req)
	}
}

// A stream that is named as a method is refused, also where nobody looked at the start.
func TestServerRefusesStreams(t *testing.T) {
	t.Parallel()
	s, err := oncegrpc.NewServer(newEngine(t).Engine, account, oncegrpc.ServerConfig{Methods: map[string]oncegrpc.ServerMethod{watch: {}}})
	if err != nil {
		t.Fatal(err)
	}
	ledger := serve(t, echo, grpc.StreamInterceptor(s.StreamServerInterceptor()))
	stream, err := dial(t, ledger.addr).NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, watch)
	if err != nil {
		t.Fatal(err)
	}
	got := said{}
	if err := stream.RecvMsg(new(text)); err == nil {
		t.Fatal("it goes through")
	} else if got.st = status.Convert(err); got.st.Code() != codes.Internal || got.reason() != "invalid_config" {
		t.Errorf("got %v", err)
	}
}

// otherCodec is not protobuf, whatever it does.
type otherCodec struct{ encoding.CodecV2 }

func (otherCodec) Name() string { return "json" }

// What is not protobuf can be neither compared nor replayed.
func TestServerTakesProtobufOnly(t *testing.T) {
	t.Parallel()
	b := newBank(t, setup{handler: paid})
	got := b.do(ask{key: "k", opts: []grpc.CallOption{grpc.ForceCodecV2(otherCodec{rawBytes{}})}})
	b.want(got, codes.InvalidArgument, "unsupported_content_encoding", "refused")
	b.wantRuns(0)
}

// Interceptors behind see messages and run once; those before see every call, and the
// headers of both arrive.
func TestServerBetweenInterceptors(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 10)
	note := func(where string) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if method, _ := grpc.Method(ctx); method != charge || info.FullMethod != charge {
				t.Errorf("%s: the method is %s", where, method)
			}
			if err := grpc.SetHeader(ctx, metadata.Pairs(where, "1")); err != nil {
				t.Error(err)
			}
			reply, err := handler(ctx, req)
			raw, _ := proto.Marshal(reply.(proto.Message))
			seen <- where + " " + string(raw)
			return reply, err
		}
	}
	b := newBank(t, setup{
		handler: func(ctx context.Context, _ proto.Message) (proto.Message, error) {
			return wrapperspb.String("x"), ctx.Err()
		},
		before: []grpc.UnaryServerInterceptor{note("before")}, behind: []grpc.UnaryServerInterceptor{note("behind")},
	})
	first, again := b.do(ask{key: "k"}), b.do(ask{key: "k"})
	if got := first.word("before") + first.word("behind") + again.word("before") + again.word("behind"); got != "111" {
		t.Errorf("headers %v and %v", first.header, again.header)
	}
	close(seen)
	var got []string
	for s := range seen {
		got = append(got, s)
	}
	if want := []string{"behind \n\x01x", "before \n\x01x", "before \n\x01x"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// O8: what a handler sets after it has returned goes nowhere, and says so.
func TestServerLateMetadata(t *testing.T) {
	t.Parallel()
	handling := make(chan context.Context, 1)
	b := newBank(t, setup{handler: func(ctx context.Context, in proto.Message) (proto.Message, error) {
		handling <- ctx
		return paid(ctx, in)
	}})
	b.want(b.do(ask{key: "k"}), codes.OK, "", "executed")
	ctx := <-handling
	if grpc.SetHeader(ctx, metadata.Pairs("a", "1")) == nil || grpc.SetTrailer(ctx, metadata.Pairs("a", "1")) == nil {
		t.Error("it is taken")
	}
}
