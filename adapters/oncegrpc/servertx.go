package oncegrpc

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/onlyonce-go/onlyonce"
)

// InTx is for handlers whose effects all live in the database of the store: key,
// business writes and answer are one transaction, which the handler gets by [TxFrom]. It
// must not commit, keep it, or call anything outside the database. It may run more than
// once, each time with a request of its own; only one run is committed. A failure, and
// what turns the caller away, rolls everything back and frees the key. engine is the one
// that the Server is made with. The key must be Required.
func InTx[Tx any](engine *onlyonce.TxEngine[Tx]) Mode { return txMode[Tx]{engine} }

type txMode[Tx any] struct{ engine *onlyonce.TxEngine[Tx] }

func (t txMode[Tx]) check(e *onlyonce.Engine, m ServerMethod) error {
	if t.engine == nil || t.engine.Engine != e {
		return badSetting("ServerMethod.Mode", "must be of the engine that the Server is made with")
	}
	if m.Resource != nil {
		return badSetting("ServerMethod.Resource", "is not for transactions: lock the business row instead")
	}
	if err := m.ValidateAtomic(); err != nil {
		return err //nolint:wrapcheck // it names the field
	}
	return checkRequired(m)
}

func (t txMode[Tx]) run(ctx context.Context, _ *onlyonce.Engine, j job) (onlyonce.Result, error) {
	return t.engine.Atomic(ctx, j.op, j.req, func(ctx context.Context, tx Tx) (onlyonce.Answer, error) {
		return j.handle(context.WithValue(ctx, txKey[Tx]{}, tx))
	})
}

type txKey[Tx any] struct{}

// TxFrom is the transaction of a handler that is run [InTx]; false outside of one.
func TxFrom[Tx any](ctx context.Context) (Tx, bool) {
	tx, ok := ctx.Value(txKey[Tx]{}).(Tx)
	return tx, ok
}

// Finish is the last step of a handler that is run in steps or wrapped: its business
// write and its answer in one transaction. fn may run more than once. The handler returns
// what Finish returns. An error of fn that completes the key, as FailedPrecondition, is
// committed; any other rolls the transaction back. When another attempt owns the key,
// everything is rolled back and the error is onlyonce.ErrLeaseLost. Metadata that the
// handler sets afterwards is not replayed.
func Finish[Tx any, M proto.Message](ctx context.Context, engine *onlyonce.TxEngine[Tx], fn func(ctx context.Context, tx Tx) (M, error)) (M, error) {
	var none, reply M
	run, _ := ctx.Value(runKey{}).(*run)
	if run == nil || engine == nil {
		return none, configError("finish", "it needs an engine, and a handler that runs under a key")
	}
	answer, err := engine.Finish(ctx, func(ctx context.Context, tx Tx) (onlyonce.Answer, error) {
		m, err := fn(ctx, tx)
		reply = m
		return run.answer(m, err)
	})
	if err != nil {
		return none, err //nolint:wrapcheck // the engine's own, which the handler returns
	}
	st, body := recorded(answer)
	if st != nil {
		return none, st.Err()
	}
	if answer.NotRetained {
		return reply, nil
	}
	if any(reply) == nil {
		return none, configError("finish", "its type must be that of a message, not proto.Message")
	}
	m, ok := reply.ProtoReflect().Type().New().Interface().(M)
	if !ok {
		return none, configError("finish", "the type of its message cannot be made anew")
	}
	if err := proto.Unmarshal(body, m); err != nil {
		return none, configError("finish", "the answer is of another message")
	}
	return m, nil
}
