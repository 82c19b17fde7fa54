package oncegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/oncegrpc"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// What a run leaves behind.
const (
	completed = onlyonce.Completed
	freed     = onlyonce.FailedRetryable
	doubtful  = onlyonce.InDoubt
)

// O2, O3, O4, O5: what a code leaves behind in each mode, and what the next call gets.
func TestServerOutcomes(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]struct{ wrap, release onlyonce.State }{
		codes.OK:                 {completed, completed},
		codes.InvalidArgument:    {completed, completed},
		codes.NotFound:           {completed, completed},
		codes.AlreadyExists:      {completed, completed},
		codes.FailedPrecondition: {completed, completed},
		codes.OutOfRange:         {completed, completed},
		codes.Unimplemented:      {completed, completed},
		codes.Unauthenticated:    {freed, freed},
		codes.PermissionDenied:   {freed, freed},
		codes.ResourceExhausted:  {freed, freed},
		codes.Unknown:            {doubtful, freed},
		codes.Internal:           {doubtful, freed},
		codes.Unavailable:        {doubtful, freed},
		codes.DeadlineExceeded:   {doubtful, freed},
		codes.Canceled:           {doubtful, freed},
		codes.DataLoss:           {doubtful, freed},
		codes.Aborted:            {doubtful, freed},
		codes.Code(99):           {doubtful, freed},
	} {
		for mode, state := range map[string]onlyonce.State{"wrap": want.wrap, "release": want.release, "steps": want.release, "tx": want.release} {
			t.Run(fmt.Sprintf("%s/%s", code, mode), func(t *testing.T) {
				t.Parallel()
				s := setup{handler: func(_ context.Context, in proto.Message) (proto.Message, error) {
					return in, status.Error(code, "said")
				}}
				switch mode {
				case "release":
					s.method.On5xx = onlyonce.ReleaseKey
				case "steps":
					s.method.Mode = oncegrpc.InSteps()
				case "tx":
					s.mode = oncegrpc.InTx[*memstore.Tx]
				}
				b := newBank(t, s)
				first := b.do(ask{key: "k"})
				// The handler's own answer, whatever becomes of the key.
				if first.st.Code() != code || code != codes.OK && first.st.Message() != "said" || first.word("idempotency-status") != "executed" {
					t.Errorf("got %v %v", first.st, first.trailer)
				}
				if got := b.record("k").State; got != state {
					t.Fatalf("the key is %s, want %s", got, state)
				}
				again := b.do(ask{key: "k"})
				switch state {
				case completed:
					if again.st.Code() != code || again.word("idempotency-status") != "replayed" {
						t.Errorf("got %v", again.st)
					}
					b.wantRuns(1)
				case freed:
					b.wantRuns(2)
				default:
					b.want(again, codes.Aborted, "outcome_unknown", "refused")
					b.wantRuns(1)
				}
			})
		}
	}
}

// O2–O5: failures that are no status, and what a handler declares.
func TestServerFailures(t *testing.T) {
	t.Parallel()
	parked := &onlyonce.Error{Code: onlyonce.CodeOutcomeUnknown, Op: "call provider", Hint: "secret cause"}
	for name, tt := range map[string]struct {
		handler handlerFunc
		code    codes.Code
		reason  string
		state   onlyonce.State
	}{
		"panic":      {func(context.Context, proto.Message) (proto.Message, error) { panic("secret cause") }, codes.Aborted, "outcome_unknown", doubtful},
		"no answer":  {func(context.Context, proto.Message) (proto.Message, error) { return nil, nil }, codes.Aborted, "outcome_unknown", doubtful},
		"unreadable": {func(context.Context, proto.Message) (proto.Message, error) { return wrapperspb.String("\xff"), nil }, codes.Aborted, "outcome_unknown", doubtful},
		"the engine": {func(context.Context, proto.Message) (proto.Message, error) { return nil, fmt.Errorf("pay: %w", parked) }, codes.Aborted, "outcome_unknown", doubtful},
		"an error":   {func(context.Context, proto.Message) (proto.Message, error) { return nil, errors.New("plain") }, codes.Unknown, "", doubtful},
		"a context":  {func(context.Context, proto.Message) (proto.Message, error) { return nil, context.DeadlineExceeded }, codes.DeadlineExceeded, "", doubtful},
		"a bad text": {func(context.Context, proto.Message) (proto.Message, error) {
			return nil, status.Error(codes.NotFound, "\xff")
		}, codes.NotFound, "", completed},
		"OK as error": {func(context.Context, proto.Message) (proto.Message, error) { return nil, okError{} }, codes.Unknown, "", doubtful},
		"not applied": {func(ctx context.Context, _ proto.Message) (proto.Message, error) {
			onlyonce.Declare(ctx, onlyonce.NotApplied)
			return nil, status.Error(codes.Internal, "x")
		}, codes.Internal, "", freed},
		"final": {func(ctx context.Context, _ proto.Message) (proto.Message, error) {
			onlyonce.Declare(ctx, onlyonce.Final)
			return nil, status.Error(codes.Internal, "x")
		}, codes.Internal, "", completed},
		"unknown": {func(ctx context.Context, _ proto.Message) (proto.Message, error) {
			onlyonce.Declare(ctx, onlyonce.Unknown)
			return new(text), nil
		}, codes.OK, "", doubtful},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBank(t, setup{handler: tt.handler})
			got := b.do(ask{key: "k"})
			b.want(got, tt.code, tt.reason, "executed")
			if strings.Contains(got.st.String(), "secret") && name != "the engine" {
				t.Errorf("it tells the cause: %v", got.st)
			}
			if state := b.record("k").State; state != tt.state {
				t.Errorf("the key is %s, want %s", state, tt.state)
			}
			if name == "panic" && !strings.Contains(b.log.String(), "stack=") {
				t.Error("the log has no stack")
			}
		})
	}
}

// okError is an error that says that there is none.
type okError struct{}

func (okError) Error() string              { return "odd" }
func (okError) GRPCStatus() *status.Status { return status.New(codes.OK, "") }

// C8: a caller that goes away does not end a claimed operation.
func TestServerCallerGone(t *testing.T) {
	t.Parallel()
	running, goOn := make(chan context.Context, 1), make(chan struct{})
	b := newBank(t, setup{handler: func(ctx context.Context, in proto.Message) (proto.Message, error) {
		running <- ctx
		<-goOn
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return paid(ctx, in)
	}, method: oncegrpc.ServerMethod{Op: onlyonce.Op{Wait: time.Minute}}})
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan said)
	go func() { gone <- b.do(ask{key: "k", ctx: ctx}) }()
	handling := <-running
	leave()
	if got := <-gone; got.st.Code() != codes.Canceled {
		t.Errorf("got %v", got.st)
	}
	if end, ok := handling.Deadline(); !ok || time.Until(end) < time.Minute {
		t.Errorf("the handler has until %v, of the operation's two minutes", end)
	}
	close(goOn)
	// It waits for the first one, which goes on.
	b.want(b.do(ask{key: "k"}), codes.OK, "", "replayed")
	b.wantRuns(1)
}

// C6, C7, O5: what a crash leaves behind is held, or found out about by Recover.
func TestServerCrash(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		found  error
		answer string
		after  onlyonce.AfterCrash
		use    bool // Recover
		code   codes.Code
		reason string
		how    string
		runs   int64
	}{
		"held":             {code: codes.Aborted, reason: "outcome_unknown", how: "refused", runs: 1},
		"run again":        {after: onlyonce.Rerun, code: codes.OK, how: "executed", runs: 2},
		"recovered":        {use: true, answer: "found", code: codes.OK, how: "executed", runs: 1},
		"recovered, error": {use: true, found: status.Error(codes.FailedPrecondition, "declined"), code: codes.FailedPrecondition, how: "executed", runs: 1},
		"not found out":    {use: true, found: status.Error(codes.Unavailable, "down"), code: codes.Aborted, reason: "outcome_unknown", how: "executed", runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			running, goOn := make(chan struct{}, 2), make(chan struct{}, 2)
			op := onlyonce.Op{AfterCrash: tt.after}
			if tt.use {
				op.Recover = func(context.Context, onlyonce.Record) (onlyonce.Answer, error) {
					return oncegrpc.NewAnswer(wrapperspb.String(tt.answer), tt.found)
				}
			}
			b := newBank(t, setup{handler: func(ctx context.Context, in proto.Message) (proto.Message, error) {
				running <- struct{}{}
				<-goOn
				return paid(ctx, in)
			}, method: oncegrpc.ServerMethod{Op: op}})
			first := make(chan said)
			go func() { first <- b.do(ask{key: "k"}) }()
			<-running
			// To the store it is as if the process had died: nobody renews its lease.
			b.ahead.Store(int64(time.Hour))
			second := make(chan said)
			go func() { second <- b.do(ask{key: "k"}) }()
			if tt.after == onlyonce.Rerun {
				<-running
				goOn <- struct{}{}
				goOn <- struct{}{}
			}
			got := <-second
			b.want(got, tt.code, tt.reason, tt.how)
			if tt.answer != "" && got.text != tt.answer {
				t.Errorf("got %q", got.text)
			}
			if tt.after != onlyonce.Rerun {
				goOn <- struct{}{}
			}
			late := <-first
			// Parking leaves the key to whom it was taken from; looking after it does not.
			if parked := name == "held"; parked != (late.text == "paid 100" && late.word("idempotency-status") == "executed") {
				t.Errorf("whose key was taken gets %v, %v", late.st, late.header)
			}
			b.wantRuns(tt.runs)
		})
	}
}

// C11, O6: the store is out of reach before the claim, and after the run.
func TestServerStoreDown(t *testing.T) {
	t.Parallel()
	down := storefault.Fault{Before: storefault.ErrDown}
	always := func(m storefault.Method) storefault.Injector {
		return func(method storefault.Method, _ onlyonce.Key) storefault.Fault {
			if method == m {
				return down
			}
			return storefault.Fault{}
		}
	}
	config := oncegrpc.ServerConfig{StoreRetryAfter: 7 * time.Second}
	b := newBank(t, setup{handler: paid, faults: always(storefault.Claim), config: config})
	got := b.do(ask{key: "k"})
	b.want(got, codes.Unavailable, "idempotency_store_unavailable", "refused")
	if wait := detailOf[*errdetails.RetryInfo](got).GetRetryDelay().AsDuration(); wait != 7*time.Second || got.word("retry-after") != "7" || got.word("x-should-retry") != "true" {
		t.Errorf("retry %q after %q or %v", got.word("x-should-retry"), got.word("retry-after"), wait)
	}
	b.wantRuns(0)

	b = newBank(t, setup{handler: paid, faults: always(storefault.Claim), method: oncegrpc.ServerMethod{Op: onlyonce.Op{FailOpen: true}}})
	if got := b.do(ask{key: "k"}); got.text != "paid 100" || got.word("idempotency-status") != "unprotected" {
		t.Errorf("got %v", got)
	}

	// Nothing is sent that is not stored; the retry gets it once it is.
	healed := make(chan struct{})
	b = newBank(t, setup{handler: paid, faults: func(m storefault.Method, _ onlyonce.Key) storefault.Fault {
		select {
		case <-healed:
		default:
			if m == storefault.Complete {
				return down
			}
		}
		return storefault.Fault{}
	}, method: oncegrpc.ServerMethod{Op: onlyonce.Op{Wait: time.Minute}}})
	got = b.do(ask{key: "k"})
	b.want(got, codes.Unavailable, "idempotency_store_unavailable", "refused")
	if len(got.body) > 0 {
		t.Errorf("it sends what is not stored: %x", got.body)
	}
	close(healed)
	b.want(b.do(ask{key: "k"}), codes.OK, "", "replayed")
	b.wantRuns(1)
}

// D4: a run in steps that failed on its way goes on behind the finished ones.
func TestServerSteps(t *testing.T) {
	t.Parallel()
	var sends, tries atomic.Int64
	pay := func(ctx context.Context) ([]byte, error) {
		return onlyonce.Call(ctx, onlyonce.Effect{
			Name: "pay", Provider: "psp", Request: []byte("100"),
			Send: func(context.Context, onlyonce.Sending) ([]byte, error) {
				sends.Add(1)
				return []byte("ch_1"), nil
			},
		})
	}
	b := newBank(t, setup{mode: func(*onlyonce.TxEngine[*memstore.Tx]) oncegrpc.Mode { return oncegrpc.InSteps() }, handler: func(ctx context.Context, _ proto.Message) (proto.Message, error) {
		charge, err := pay(ctx)
		if err != nil {
			return nil, err
		}
		if tries.Add(1) == 1 {
			return nil, status.Error(codes.Unavailable, "the mail server is down")
		}
		return wrapperspb.String(string(charge)), nil
	}})
	b.want(b.do(ask{key: "k"}), codes.Unavailable, "", "executed")
	got := b.do(ask{key: "k"})
	b.want(got, codes.OK, "", "executed")
	if got.text != "ch_1" || sends.Load() != 1 {
		t.Errorf("got %q after %d sends", got.text, sends.Load())
	}
	b.want(b.do(ask{key: "k"}), codes.OK, "", "replayed")
	b.wantRuns(2)

	// A step whose end is not known is not sent again, nor can it be declared away.
	var lost atomic.Int64
	b = newBank(t, setup{mode: func(*onlyonce.TxEngine[*memstore.Tx]) oncegrpc.Mode { return oncegrpc.InSteps() }, handler: func(ctx context.Context, _ proto.Message) (proto.Message, error) {
		_, err := onlyonce.Call(ctx, onlyonce.Effect{
			Name: "pay", Provider: "psp", Request: []byte("100"),
			Send: func(context.Context, onlyonce.Sending) ([]byte, error) {
				lost.Add(1)
				return nil, errors.New("connection reset")
			},
		})
		onlyonce.Declare(ctx, onlyonce.NotApplied)
		return nil, err
	}})
	b.want(b.do(ask{key: "k"}), codes.Aborted, "outcome_unknown", "executed")
	b.want(b.do(ask{key: "k"}), codes.Aborted, "outcome_unknown", "executed")
	if lost.Load() != 1 {
		t.Errorf("it was sent %d times", lost.Load())
	}
}

// O2, C3: in a transaction a failure leaves nothing, and an answer comes with the effect.
func TestServerInTx(t *testing.T) {
	t.Parallel()
	var effects, tries atomic.Int64
	b := newBank(t, setup{mode: oncegrpc.InTx[*memstore.Tx], handler: func(ctx context.Context, in proto.Message) (proto.Message, error) {
		tx, ok := oncegrpc.TxFrom[*memstore.Tx](ctx)
		if !ok {
			t.Error("there is no transaction")
			return nil, errors.New("none")
		}
		tx.OnCommit(func() { effects.Add(1) })
		switch tries.Add(1) {
		case 1:
			return nil, status.Error(codes.Internal, "failed")
		case 2: // the database wants it once more, with what came, not with what is left of it
			in.(*text).Value = "changed"
			return nil, onlyonce.ErrConflict
		}
		return paid(ctx, in)
	}})
	b.want(b.do(ask{key: "k"}), codes.Internal, "", "executed")
	if effects.Load() != 0 {
		t.Error("a failure has an effect")
	}
	if got := b.do(ask{key: "k"}); got.text != "paid 100" {
		t.Errorf("got %v", got)
	}
	b.want(b.do(ask{key: "k"}), codes.OK, "", "replayed")
	if effects.Load() != 1 || tries.Load() != 3 {
		t.Errorf("%d effects of %d tries", effects.Load(), tries.Load())
	}
	if _, ok := oncegrpc.TxFrom[*memstore.Tx](t.Context()); ok {
		t.Error("there is a transaction outside of a handler")
	}
}

// C6, O2: Finish commits write and answer together.
func TestServerFinish(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err     error
		large   bool
		faults  storefault.Injector
		state   onlyonce.State
		code    codes.Code
		effects int64
	}{
		"answer":          {nil, false, nil, completed, codes.OK, 1},
		"refusal":         {status.Error(codes.FailedPrecondition, "declined"), false, nil, completed, codes.FailedPrecondition, 1},
		"failure":         {status.Error(codes.Internal, "failed"), false, nil, freed, codes.Internal, 0},
		"large":           {nil, true, nil, completed, codes.OK, 1},
		"lost the commit": {nil, false, storefault.Script(map[storefault.Method][]storefault.Fault{storefault.Finish: {{After: onlyonce.ErrUncertain}}}), completed, codes.OK, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var effects atomic.Int64
			var engine *onlyonce.TxEngine[*memstore.Tx]
			b := newBank(t, setup{
				mode:   func(e *onlyonce.TxEngine[*memstore.Tx]) oncegrpc.Mode { engine = e; return oncegrpc.InSteps() },
				faults: tt.faults,
				handler: func(ctx context.Context, _ proto.Message) (proto.Message, error) {
					if err := grpc.SetHeader(ctx, metadata.Pairs("location", "/1")); err != nil {
						return nil, err
					}
					return oncegrpc.Finish(ctx, engine, func(_ context.Context, tx *memstore.Tx) (*text, error) {
						tx.OnCommit(func() { effects.Add(1) })
						if tt.err != nil {
							return nil, tt.err
						}
						if tt.large {
							return wrapperspb.String(strings.Repeat("x", 200)), nil
						}
						return wrapperspb.String("finished"), nil
					})
				},
				method: oncegrpc.ServerMethod{KeepHeaders: []string{"location"}, MaxAnswer: 100},
			})
			first := b.do(ask{key: "k"})
			if first.st.Code() != tt.code || first.word("location") != "/1" || tt.code == codes.OK && len(first.text) < 8 {
				t.Errorf("got %v %q", first.st, first.text)
			}
			if state := b.record("k").State; state != tt.state || effects.Load() != tt.effects {
				t.Errorf("the key is %s after %d effects", state, effects.Load())
			}
			if again := b.do(ask{key: "k"}); tt.state == completed && !tt.large && (string(again.body) != string(first.body) || again.word("location") != "/1" || again.st.Message() != first.st.Message()) {
				t.Errorf("the replay is another: %v", again)
			}
		})
	}
	_, err := oncegrpc.Finish(t.Context(), nil, func(context.Context, *memstore.Tx) (*text, error) { return nil, nil })
	if onlyonce.CodeOf(err) != onlyonce.CodeConfig {
		t.Errorf("outside of a handler: %v", err)
	}
}

// C12: another key does not get what is in doubt.
func TestServerResource(t *testing.T) {
	t.Parallel()
	b := newBank(t, setup{handler: func(context.Context, proto.Message) (proto.Message, error) {
		return nil, status.Error(codes.Internal, "failed")
	}, method: oncegrpc.ServerMethod{Resource: func(req proto.Message) string { return "order " + req.(*text).GetValue() }}})
	b.want(b.do(ask{key: "k1", body: "7"}), codes.Internal, "", "executed")
	b.want(b.do(ask{key: "k2", body: "7"}), codes.Aborted, "resource_busy", "refused")
	b.want(b.do(ask{key: "k3", body: "8"}), codes.Internal, "", "executed")
	b.wantRuns(2)
}

// O9: an answer that is not kept goes to the first caller whole, and is not made again.
func TestServerNotRetained(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 500)
	for name, tt := range map[string]struct {
		err  error
		code codes.Code
	}{"message": {nil, codes.DataLoss}, "status": {status.Error(codes.NotFound, long), codes.NotFound}} {
		b := newBank(t, setup{handler: func(ctx context.Context, _ proto.Message) (proto.Message, error) {
			if err := grpc.SetHeader(ctx, metadata.Pairs("location", "/1")); err != nil {
				return nil, err
			}
			return wrapperspb.String(long), tt.err
		}, method: oncegrpc.ServerMethod{MaxAnswer: 100, KeepHeaders: []string{"location"}}})
		first, again := b.do(ask{key: "k"}), b.do(ask{key: "k"})
		if first.text+first.st.Message() != long || first.word("idempotency-status") != "executed" {
			t.Errorf("%s: the first caller gets %v", name, first)
		}
		b.want(again, tt.code, "answer_not_retained", "replayed")
		if again.word("location") != "/1" || again.word("x-should-retry") != "false" {
			t.Errorf("%s: it says %v %v", name, again.header, again.trailer)
		}
		b.wantRuns(1)
	}
}
