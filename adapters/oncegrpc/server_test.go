package oncegrpc_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/oncegrpc"
	"github.com/onlyonce-go/onlyonce/canon"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/oncehttp"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// C1, C2: of fifty calls at once one runs, and the others are told to come again.
func TestServerOneRunOfFifty(t *testing.T) {
	t.Parallel()
	running, goOn := make(chan struct{}), make(chan struct{})
	b := newBank(t, setup{handler: func(ctx context.Context, in proto.Message) (proto.Message, error) {
		close(running)
		<-goOn
		return paid(ctx, in)
	}})
	results := make(chan said, 50)
	for range 50 {
		go func() { results <- b.do(ask{key: "k"}) }()
	}
	<-running
	for range 49 {
		got := <-results
		b.want(got, codes.Aborted, "request_in_progress", "refused")
		wait := detailOf[*errdetails.RetryInfo](got).GetRetryDelay().AsDuration()
		if got.word("x-should-retry") != "true" || got.word("retry-after") == "" || wait < time.Second || wait > 30*time.Second {
			t.Errorf("retry %q after %q or %v", got.word("x-should-retry"), got.word("retry-after"), wait)
		}
	}
	close(goOn)
	b.want(<-results, codes.OK, "", "executed")
	b.want(b.do(ask{key: "k"}), codes.OK, "", "replayed")
	b.wantRuns(1)
}

// telling is a handler that says a lot around its answer.
func telling(reply func() (proto.Message, error)) handlerFunc {
	return func(ctx context.Context, _ proto.Message) (proto.Message, error) {
		err := errors.Join(
			grpc.SetHeader(ctx, metadata.Pairs("location", "/charges/1", "trace", "t1")),
			grpc.SetHeader(ctx, metadata.Pairs("location", "/charges/2", "id-bin", "\x00\xff")),
			grpc.SendHeader(ctx, metadata.Pairs("late", "1", "idempotency-status", "unprotected", "idempotency-key", "forged")),
			grpc.SetTrailer(ctx, metadata.Pairs("cost", "3", "debug", "d", "idempotent-replayed", "true")),
		)
		if err != nil {
			return nil, err
		}
		return reply()
	}
}

// R1, R2, O8: a replay is the same bytes, status, details and allowed metadata.
func TestServerReplayIsTheSame(t *testing.T) {
	t.Parallel()
	// A map, whose bytes are another time in another order.
	many := map[string]any{"a": 1, "b": "x", "c": nil, "d": []any{true}, "e": 2, "f": 3, "g": 4}
	declined := status.New(codes.FailedPrecondition, "card declined: größer\n%")
	declined, err := declined.WithDetails(&errdetails.ErrorInfo{Reason: "DECLINED", Metadata: map[string]string{"a": "1", "b": "2", "c": "3"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, reply := range map[string]func() (proto.Message, error){
		"message": func() (proto.Message, error) { return structpb.NewStruct(many) },
		"empty":   func() (proto.Message, error) { return &structpb.Struct{}, nil },
		"error":   func() (proto.Message, error) { return nil, declined.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, setup{handler: telling(reply), method: oncegrpc.ServerMethod{
				KeepHeaders: []string{"location", "id-bin"}, KeepTrailers: []string{"cost"},
			}})
			first, again := b.do(ask{key: `"k 1"`}), b.do(ask{key: `"k 1"`})
			b.wantRuns(1)
			if diff := cmp.Diff(first.st.Proto(), again.st.Proto(), protocmp.Transform()); diff != "" || string(first.body) != string(again.body) {
				t.Errorf("the replay is another:\n%s\n%x\n%x", diff, first.body, again.body)
			}
			for _, got := range []said{first, again} {
				kept := []string{
					strings.Join(got.header["location"], " "), strings.Join(got.header["id-bin"], " "), strings.Join(got.trailer["cost"], " "),
					got.word("idempotency-key"),
				}
				if diff := cmp.Diff([]string{"/charges/1 /charges/2", "\x00\xff", "3", `"k 1"`}, kept); diff != "" {
					t.Errorf("metadata (-want +got):\n%s", diff)
				}
				if !strings.HasPrefix(got.word("idempotency-expires"), "@1") {
					t.Errorf("it expires at %q", got.word("idempotency-expires"))
				}
				retry, want := got.word("x-should-retry"), ""
				if name == "error" {
					want = "false"
				}
				if retry != want {
					t.Errorf("retry: %q, want %q", retry, want)
				}
			}
			if got := first.word("trace") + first.word("late") + first.word("debug"); got != "t11d" || again.word("trace")+again.word("debug") != "" {
				t.Errorf("what is not kept is %q, and %q in a replay", got, again.word("trace"))
			}
			if first.word("idempotency-status") != "executed" || first.word("idempotent-replayed") != "" ||
				again.word("idempotency-status") != "replayed" || again.word("idempotent-replayed") != "true" {
				t.Errorf("they say %v %v and %v %v", first.header, first.trailer, again.header, again.trailer)
			}
		})
	}
}

// K1, K2, K3, K4, K6, K7.
func TestServerKeys(t *testing.T) {
	t.Parallel()
	b := newBank(t, setup{handler: paid, config: oncegrpc.ServerConfig{KeyNames: []string{"x-request-id"}, DocsURL: "https://docs.example/"}})
	key := func(values ...string) (pairs []string) {
		for _, v := range values {
			pairs = append(pairs, "idempotency-key", v)
		}
		return pairs
	}
	b.want(b.do(ask{key: "0b1e-uuid"}), codes.OK, "", "executed")
	for name, more := range map[string][]string{
		"quoted": key(`"0b1e-uuid"`), "parameter": key(`"0b1e-uuid";a=1`), "space": key(" 0b1e-uuid "),
		"other name": {"x-request-id", "0b1e-uuid"}, "both": {"x-request-id", "0b1e-uuid", "idempotency-key", `"0b1e-uuid"`},
	} {
		if got := b.do(ask{more: more}); got.word("idempotency-status") != "replayed" {
			t.Errorf("%s: it is another key: %v", name, got.st)
		}
	}
	for name, more := range map[string][]string{
		"twice": key("a", "a"), "list": key("a,b"), "quoted list": key(`"a","b"`), "unterminated": key(`"a`), "bad escape": key(`"\x"`),
		"inner list": key(`("a")`), "empty": key(""), "long": key(strings.Repeat("k", 256)), "space inside": key("a b"),
		"two names": {"x-request-id", "a", "idempotency-key", "b"},
	} {
		got := b.do(ask{more: more})
		b.want(got, codes.InvalidArgument, "idempotency_key_invalid", "refused")
		if violations := detailOf[*errdetails.BadRequest](got).GetFieldViolations(); len(violations) != 1 || violations[0].GetField() != "idempotency-key" {
			t.Errorf("%s: violations %v", name, violations)
		}
	}
	got := b.do(ask{})
	b.want(got, codes.InvalidArgument, "idempotency_key_required", "refused")
	if link := detailOf[*errdetails.Help](got).GetLinks(); got.word("x-should-retry") != "false" || len(link) != 1 || link[0].GetUrl() != "https://docs.example/idempotency_key_required" {
		t.Errorf("retry %q, links %v", got.word("x-should-retry"), link)
	}
	b.wantRuns(1)
}

// K1, K6: strict takes the quoted form only, but of other names what their owners send.
func TestServerStrictKeys(t *testing.T) {
	t.Parallel()
	b := newBank(t, setup{handler: paid, config: oncegrpc.ServerConfig{StrictKeys: true, KeyNames: []string{"x-request-id"}}})
	b.want(b.do(ask{key: `"k"`}), codes.OK, "", "executed")
	b.want(b.do(ask{more: []string{"x-request-id", "k"}}), codes.OK, "", "replayed")
	b.want(b.do(ask{key: "k"}), codes.InvalidArgument, "idempotency_key_invalid", "refused")
}

// K4, K5, K7: an optional key, none, and one that is not honoured.
func TestServerKeyModes(t *testing.T) {
	t.Parallel()
	forged := []string{"idempotent-replayed", "true", "idempotency-status", "replayed", "other", "o"}
	handler := func(ctx context.Context, in proto.Message) (proto.Message, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		if len(md.Get("idempotent-replayed"))+len(md.Get("idempotency-status")) > 0 || len(md.Get("other")) != 1 {
			t.Errorf("the handler sees %v", md)
		}
		return paid(ctx, in)
	}
	for mode, want := range map[oncehttp.KeyMode]struct {
		status string
		runs   int64
	}{oncehttp.Optional: {"executed", 3}, oncehttp.Off: {"ignored", 4}} {
		b := newBank(t, setup{handler: handler, method: oncegrpc.ServerMethod{Key: mode}})
		b.want(b.do(ask{key: "k", more: forged}), codes.OK, "", want.status)
		if got := b.do(ask{key: "k", more: forged}); got.text != "paid 100" || got.word("idempotency-key") != "k" {
			t.Errorf("got %v", got)
		}
		plain := map[oncehttp.KeyMode]string{oncehttp.Optional: "unprotected", oncehttp.Off: ""}[mode]
		b.want(b.do(ask{more: forged}), codes.OK, "", plain)
		b.want(b.do(ask{more: forged}), codes.OK, "", plain)
		b.wantRuns(want.runs)
	}
	b := newBank(t, setup{handler: handler})
	b.want(b.do(ask{method: "/test.Ledger/Look", key: "k", more: forged}), codes.OK, "", "ignored")
	b.want(b.do(ask{method: "/test.Ledger/Look", key: "k", more: forged}), codes.OK, "", "ignored")
	b.want(b.do(ask{method: "/test.Ledger/Look", more: forged}), codes.OK, "", "")
	b.wantRuns(3)
}

// K5: a stream goes through, and says that its key is ignored.
func TestServerStream(t *testing.T) {
	t.Parallel()
	b := newBank(t, setup{handler: paid})
	for _, key := range []string{"k", ""} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "idempotency-status", "replayed")
		want := ""
		if key != "" {
			ctx, want = metadata.AppendToOutgoingContext(ctx, "idempotency-key", key), "ignored"
		}
		stream, err := b.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, watch)
		if err != nil {
			t.Fatal(err)
		}
		out := new(text)
		if err := errors.Join(stream.SendMsg(&text{Value: "x"}), stream.CloseSend(), stream.RecvMsg(out)); err != nil {
			t.Fatal(err)
		}
		md, err := stream.Header()
		if got := strings.Join(md.Get("idempotency-status"), " "); err != nil || got != want || out.GetValue() != "x" {
			t.Errorf("status %q, want %q: %v", got, want, err)
		}
		if err := stream.RecvMsg(out); err == nil {
			t.Error("it does not end")
		}
	}
}

// K6: the key may be in a field.
func TestServerKeyField(t *testing.T) {
	t.Parallel()
	desc := chargeType(t)
	b := newBank(t, setup{
		handler: func(context.Context, proto.Message) (proto.Message, error) { return new(text), nil },
		request: func() proto.Message { return dynamicpb.NewMessage(desc) },
		method:  oncegrpc.ServerMethod{KeyField: "account.sku"},
	})
	with := func(key, field string) said {
		return b.do(ask{key: key, msg: textAs(t, desc, `amount: 1 account { sku: "`+field+`" }`)})
	}
	b.want(with("", "k 1"), codes.OK, "", "executed")
	b.want(with(`"k 1"`, "k 1"), codes.OK, "", "replayed")
	b.want(with("other", "k 1"), codes.InvalidArgument, "idempotency_key_invalid", "refused")
	b.want(with("", strings.Repeat("k", 256)), codes.InvalidArgument, "idempotency_key_invalid", "refused")
	b.want(with("", ""), codes.InvalidArgument, "idempotency_key_required", "refused")
	b.want(b.do(ask{msg: dynamicpb.NewMessage(desc)}), codes.InvalidArgument, "idempotency_key_required", "refused")
	b.want(with("only-metadata", ""), codes.OK, "", "executed")
	b.wantRuns(2)
}

// S1, S2, S3: a key is its account's, whatever the credential.
func TestServerScope(t *testing.T) {
	t.Parallel()
	b := newBank(t, setup{handler: paid})
	b.want(b.do(ask{key: "k", as: "acme/1"}), codes.OK, "", "executed")
	b.want(b.do(ask{key: "k", as: "zeta/1", body: "7"}), codes.OK, "", "executed")
	b.want(b.do(ask{key: "k", as: "acme/2"}), codes.OK, "", "replayed")
	for _, nobody := range []string{"-", "/1"} {
		got := b.do(ask{key: "k", as: nobody})
		b.want(got, codes.Unauthenticated, "unauthenticated", "refused")
		if strings.Contains(got.st.Message(), "no credential") {
			t.Errorf("it tells the cause: %s", got.st.Message())
		}
	}
	b.wantRuns(2)
	// What a ScopeFunc answers itself is answered.
	b = newBank(t, setup{handler: paid, scope: func(context.Context) (string, error) {
		return "", status.Error(codes.PermissionDenied, "suspended")
	}})
	if got := b.do(ask{key: "k"}); got.st.Code() != codes.PermissionDenied || got.st.Message() != "suspended" || got.word("idempotency-status") != "refused" {
		t.Errorf("got %v", got)
	}
	b.wantRuns(0)
}

// F4, F6, S4: what differs is named by its path, never by its value, and refused.
func TestServerMismatch(t *testing.T) {
	t.Parallel()
	desc := chargeType(t, "secret", "counts")
	b := newBank(t, setup{
		handler: func(context.Context, proto.Message) (proto.Message, error) { return new(text), nil },
		request: func() proto.Message { return dynamicpb.NewMessage(desc) },
		method:  oncegrpc.ServerMethod{Policy: canon.Policy{Ignore: []string{"client_ts", "items.*.seen"}}},
	})
	with := func(method, msg string) said {
		return b.do(ask{method: method, key: "k", msg: textAs(t, desc, msg)})
	}
	b.want(with(charge, `amount: 5 client_ts: 1 items { sku: "a" }`), codes.OK, "", "executed")
	b.want(with(charge, `amount: 5 client_ts: 2 items { sku: "a" seen: true }`), codes.OK, "", "replayed")
	for msg, want := range map[string]string{
		`amount: 6 items { sku: "a" }`:    "amount",
		`amount: 5 items { sku: "4242" }`: "items.0.sku",
		`amount: 7 items { sku: "a" } labels { key: "x" value: "y" } account { sku: "private" pin: "" }`: "account,amount,labels",
	} {
		if msg == `amount: 5 items { sku: "4242" }` {
			want = "items.0" // for a pin is in it
		}
		got := with(charge, msg)
		b.want(got, codes.FailedPrecondition, "idempotency_key_reused", "refused")
		var subjects []string
		for _, v := range detailOf[*errdetails.PreconditionFailure](got).GetViolations() {
			subjects = append(subjects, v.GetSubject())
		}
		if got.info().GetMetadata()["differs"] != want || strings.Join(subjects, ",") != want || got.word("x-should-retry") != "false" {
			t.Errorf("differs %q, %v, want %q", got.info().GetMetadata()["differs"], subjects, want)
		}
		if said := got.st.Proto().String(); strings.Contains(said, "4242") || strings.Contains(said, "private") {
			t.Errorf("it tells values: %s", said)
		}
	}
	got := with(refund, `amount: 5 client_ts: 1 items { sku: "a" }`)
	b.want(got, codes.FailedPrecondition, "idempotency_key_reused", "refused")
	if got.info().GetMetadata()["differs"] != "method,operation" {
		t.Errorf("differs in %v", got.info().GetMetadata())
	}
	b.wantRuns(1)
}

// F7: a deploy with another schema and policy makes no other request of a retry.
func TestServerAfterDeploy(t *testing.T) {
	t.Parallel()
	before, after := chargeType(t, "secret", "counts", "currency", "weight"), chargeType(t, "secret", "counts")
	version := func(desc protoreflect.MessageDescriptor, store *memstore.Store, policy canon.Policy) *bank {
		return newBank(t, setup{
			store: store, handler: func(context.Context, proto.Message) (proto.Message, error) { return new(text), nil },
			request: func() proto.Message { return dynamicpb.NewMessage(desc) }, method: oncegrpc.ServerMethod{Policy: policy},
		})
	}
	old := version(before, nil, canon.Policy{Ignore: []string{"client_ts"}})
	now := version(after, old.store, canon.Policy{})
	with := func(b *bank, key, msg string) said {
		return b.do(ask{key: key, msg: textAs(t, after, msg)})
	}
	first := `amount: 5 currency: "EUR" weight: 1 client_ts: 1`
	old.want(with(old, "k", first), codes.OK, "", "executed")
	now.want(with(now, "k", first), codes.OK, "", "replayed")
	now.want(with(now, "k", `amount: 5 currency: "EUR" weight: 1 client_ts: 2`), codes.OK, "", "replayed")
	now.want(with(now, "k", `amount: 5 currency: "USD" weight: 1`), codes.FailedPrecondition, "idempotency_key_reused", "refused")
	got := with(now, "k", `amount: 6 currency: "EUR" weight: 1`)
	if now.want(got, codes.FailedPrecondition, "idempotency_key_reused", "refused"); got.info().GetMetadata()["differs"] != "amount" {
		t.Errorf("differs in %v", got.info().GetMetadata())
	}
	// And back again, while both run.
	now.want(with(now, "k2", first), codes.OK, "", "executed")
	old.want(with(old, "k2", first), codes.OK, "", "replayed")
	if old.runs.Load() != 1 || now.runs.Load() != 1 {
		t.Errorf("%d and %d runs", old.runs.Load(), now.runs.Load())
	}
}

// S5, F6: who may not see a record sees neither its answer nor what differs.
func TestServerAuthorize(t *testing.T) {
	t.Parallel()
	b := newBank(t, setup{handler: paid, method: oncegrpc.ServerMethod{Authorize: func(ctx context.Context, rec onlyonce.Record) error {
		switch {
		case rec.Key.Scope != "acme":
			return errors.New("another's")
		case slices.Contains(metadata.ValueFromIncomingContext(ctx, "authorization"), "acme/guest"):
			return errors.New("no guests")
		case slices.Contains(metadata.ValueFromIncomingContext(ctx, "authorization"), "acme/late"):
			return status.Error(codes.NotFound, "gone")
		}
		return nil
	}}})
	b.want(b.do(ask{key: "k", as: "acme/guest"}), codes.OK, "", "executed")
	got := b.do(ask{key: "k", as: "acme/guest"})
	b.want(got, codes.PermissionDenied, "replay_forbidden", "refused")
	if strings.Contains(got.st.Message(), "guests") || len(got.body) > 0 {
		t.Errorf("it tells %v", got)
	}
	if got := b.do(ask{key: "k", as: "acme/late"}); got.st.Message() != "gone" || got.st.Code() != codes.NotFound {
		t.Errorf("got %v", got.st)
	}
	b.want(b.do(ask{key: "k"}), codes.OK, "", "replayed")
	other := ask{key: "k", body: "999"}
	got = b.do(other)
	b.want(got, codes.FailedPrecondition, "idempotency_key_reused", "refused")
	if got.info().GetMetadata()["differs"] != "value" {
		t.Errorf("it does not say what differs: %v", got.info())
	}
	other.as = "acme/guest"
	got = b.do(other)
	b.want(got, codes.FailedPrecondition, "idempotency_key_reused", "refused")
	if len(got.info().GetMetadata()["differs"])+len(detailOf[*errdetails.PreconditionFailure](got).GetViolations()) > 0 {
		t.Errorf("it says what differs: %v", got.info())
	}
	b.wantRuns(1)
}

// S5: a record that is gone by the time it is to be shown is still that of the replay, and
// of a mismatch nothing is told any more.
func TestServerAuthorizeGone(t *testing.T) {
	t.Parallel()
	var b *bank
	var asked atomic.Int64
	sweep := func(ctx context.Context) {
		b.ahead.Store(int64(48 * time.Hour))
		if _, err := b.store.Sweep(ctx, onlyonce.SweepRequest{Limit: 10}); err != nil {
			t.Error(err)
		}
	}
	b = newBank(t, setup{handler: paid, faults: func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
		if m == storefault.Get {
			return storefault.Fault{Hold: sweep}
		}
		return storefault.Fault{}
	}, method: oncegrpc.ServerMethod{Authorize: func(_ context.Context, rec onlyonce.Record) error {
		asked.Add(1)
		if rec.Answer == nil || rec.State != onlyonce.Completed || rec.Operation != charge || rec.Key.Value != "k" {
			t.Errorf("it is asked about %+v", rec)
		}
		return nil
	}}})
	b.want(b.do(ask{key: "k"}), codes.OK, "", "executed")
	b.want(b.do(ask{key: "k"}), codes.OK, "", "replayed")
	if asked.Load() != 1 {
		t.Errorf("it was asked %d times", asked.Load())
	}
	b.want(b.do(ask{key: "k"}), codes.OK, "", "executed") // a new life
	b.ahead.Store(0)
}

// O1: pure syntax leaves no trace, and does not refuse what was once accepted.
func TestServerSyntax(t *testing.T) {
	t.Parallel()
	strict := make(chan struct{})
	b := newBank(t, setup{handler: paid, method: oncegrpc.ServerMethod{Key: oncehttp.Optional, CheckSyntax: func(_ context.Context, req proto.Message) error {
		switch body := req.(*text).GetValue(); body {
		case "status":
			return status.Error(codes.OutOfRange, "too much")
		case "100":
			select {
			case <-strict:
				return errors.New("100 is not taken any more")
			default:
			}
		case "bad":
			return errors.New("secret cause")
		}
		return nil
	}}})
	got := b.do(ask{key: "k", body: "bad"})
	b.want(got, codes.InvalidArgument, "invalid_request", "refused")
	if strings.Contains(got.st.Message(), "secret") {
		t.Errorf("it tells the cause: %s", got.st.Message())
	}
	b.want(b.do(ask{body: "bad"}), codes.InvalidArgument, "invalid_request", "refused")
	if got := b.do(ask{key: "k", body: "status"}); got.st.Code() != codes.OutOfRange || got.st.Message() != "too much" {
		t.Errorf("got %v", got.st)
	}
	b.want(b.do(ask{key: "k"}), codes.OK, "", "executed")
	close(strict)
	b.want(b.do(ask{key: "k"}), codes.OK, "", "replayed")
	b.want(b.do(ask{key: "new"}), codes.InvalidArgument, "invalid_request", "refused")
	b.want(b.do(ask{key: "k", body: "bad"}), codes.FailedPrecondition, "idempotency_key_reused", "refused")
	b.wantRuns(1)
}
