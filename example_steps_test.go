package onlyonce_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// A provider that remembers keys is sent the same bytes again under the same key
// when it cannot be asked: whatever became of the first send, the money moves
// once.
func ExampleEffect_memory() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	charges := map[string]string{} // at the provider, by derived key
	sends := 0
	charge := onlyonce.Effect{
		Name: "charge", Provider: "acme", Request: []byte(`{"amount":100}`),
		Memory: 24 * time.Hour,
		Send: func(_ context.Context, s onlyonce.Sending) ([]byte, error) {
			sends++
			if charges[s.Key] == "" {
				charges[s.Key] = fmt.Sprint("ch_", len(charges)+1)
			}
			if sends == 1 {
				return nil, errors.New("connection reset")
			}
			return []byte(charges[s.Key]), nil
		},
	}
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		id, err := onlyonce.Call(ctx, charge)
		return onlyonce.Answer{Status: 201, Body: id}, err
	}
	op := onlyonce.Op{Name: "POST /charges"}
	show(engine.Steps(context.Background(), op, keyed("k1", "100 EUR"), handler))
	show(engine.Steps(context.Background(), op, keyed("k1", "100 EUR"), handler))
	fmt.Println(sends, "sends,", len(charges), "charge")
	// Output:
	// refused: outcome_unknown
	// executed 201 ch_1
	// 2 sends, 1 charge
}

// Rows that have to stand before the money moves are a step too: they and the
// step's result are one transaction, and a retry finds them.
func ExampleStepTx() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	stock := 3
	up := false
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		left, err := onlyonce.StepTx(ctx, engine, "reserve", func(_ context.Context, tx *memstore.Tx) (int, error) {
			if stock == 0 {
				return 0, errors.New("sold out") // rolls back
			}
			tx.OnCommit(func() { stock-- })
			return stock - 1, nil
		})
		if err != nil {
			return onlyonce.Answer{}, err
		}
		if !up {
			return onlyonce.Answer{}, errors.New("the provider is down")
		}
		return onlyonce.Answer{Status: 201, Body: fmt.Appendf(nil, "yours, %d left", left)}, nil
	}
	op := onlyonce.Op{Name: "POST /orders"}
	show(engine.Steps(context.Background(), op, keyed("k1", "1 book"), handler))
	up = true
	show(engine.Steps(context.Background(), op, keyed("k1", "1 book"), handler))
	fmt.Println("stock", stock)
	// Output:
	// refused: handler_failed
	// executed 201 yours, 2 left
	// stock 2
}

// One order is paid under one key at a time, whatever keys its caller makes up.
func ExampleRequest_resource() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	op := onlyonce.Op{Name: "POST /orders/{id}/pay"}
	pay := func(key string) onlyonce.Request {
		req := keyed(key, "order 7")
		req.Resource = "order/7"
		return req
	}
	lost := func(context.Context) (onlyonce.Answer, error) { return onlyonce.Answer{}, errors.New("timeout") }
	show(engine.Wrap(context.Background(), op, pay("first click"), lost))
	show(engine.Wrap(context.Background(), op, pay("after a reload"), lost))
	// Output:
	// refused: outcome_unknown
	// refused: resource_busy
}

// The caller has gone after its charge was made and before it was told. A
// recoverer brings the operation to its end; the answer waits for the caller. A
// server runs Recoverer.Start, then Recoverer.Run on a goroutine of its own.
func ExampleRecoverer() {
	clock := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	store, err := memstore.New(memstore.Config{SingleProcess: true, Now: func() time.Time { return clock }})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := onlyonce.New(store, onlyonce.Config{})
	if err != nil {
		log.Fatal(err)
	}
	op := onlyonce.Op{Name: "POST /charges"}
	charges, up := 0, false
	handle := func(amount string) onlyonce.HandlerFunc {
		return func(ctx context.Context) (onlyonce.Answer, error) {
			id, err := onlyonce.Step(ctx, "charge", func(context.Context) (int, error) { charges++; return charges, nil })
			if err != nil {
				return onlyonce.Answer{}, err
			}
			if !up {
				return onlyonce.Answer{}, errors.New("the receipt could not be written")
			}
			return onlyonce.Answer{Status: 201, Body: fmt.Appendf(nil, "charge %d of %s", id, amount)}, nil
		}
	}
	request := func(key, amount string) onlyonce.Request {
		req := keyed(key, amount)
		req.Keep = []byte(amount) // all that is needed to run it again
		return req
	}
	show(engine.Steps(context.Background(), op, request("k1", "100 EUR"), handle("100 EUR")))

	up = true
	clock = clock.Add(time.Hour)
	recoverer := onlyonce.Recoverer{
		Engine: engine,
		Resume: map[string]onlyonce.ResumeFunc{op.Name: func(ctx context.Context, due onlyonce.Due) (onlyonce.Result, error) {
			amount := string(due.Keep)
			return engine.Steps(ctx, op, request(due.Record.Key.Value, amount), handle(amount))
		}},
		Recovered: func(_ context.Context, turn onlyonce.Recovery) {
			fmt.Println("turn", turn.Due.Turn, "of", turn.Due.Record.Operation, turn.Result.State)
		},
	}
	sum, err := recoverer.Once(context.Background())
	fmt.Println(sum.Completed, "completed", err)
	show(engine.Steps(context.Background(), op, request("k1", "100 EUR"), handle("100 EUR")))
	// Output:
	// refused: handler_failed
	// turn 1 of POST /charges completed
	// 1 completed <nil>
	// replayed 201 charge 1 of 100 EUR
}

// The provider's report shows a charge whose answer was lost. A person records it
// as the step's result; the operation's own handler makes the answer of it.
func ExampleSettlement_results() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	op := onlyonce.Op{Name: "POST /charges"}
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		id, err := onlyonce.Call(ctx, onlyonce.Effect{
			Name: "charge", Provider: "acme",
			Send: func(context.Context, onlyonce.Sending) ([]byte, error) { return nil, errors.New("timeout") },
		})
		return onlyonce.Answer{Status: 201, Body: id}, err
	}
	show(engine.Steps(context.Background(), op, keyed("k1", "100 EUR"), handler))
	record, err := engine.Settle(context.Background(), onlyonce.Settlement{
		Key:     onlyonce.Key{Scope: "acct", Value: "k1"},
		Results: []onlyonce.StepResult{{Name: "charge", Result: []byte("ch_77")}},
		Actor:   "ann", Reason: "charge ch_77 is in acme's report of 3 May",
	})
	fmt.Println(record.State, err)
	show(engine.Steps(context.Background(), op, keyed("k1", "100 EUR"), handler))
	// Output:
	// refused: outcome_unknown
	// failed_retryable <nil>
	// executed 201 ch_77
}

// A handler whose call had no effect may say so, or go elsewhere.
func ExampleIsNotApplied() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	call := func(provider string, err error) onlyonce.Effect {
		return onlyonce.Effect{Name: "charge at " + provider, Provider: provider, Send: func(context.Context, onlyonce.Sending) ([]byte, error) {
			return []byte("charged by " + provider), err
		}}
	}
	show(engine.Steps(context.Background(), onlyonce.Op{Name: "POST /charges"}, keyed("k1", "100 EUR"), func(ctx context.Context) (onlyonce.Answer, error) {
		id, err := onlyonce.Call(ctx, call("acme", onlyonce.NotAppliedError(errors.New("connection refused"))))
		if onlyonce.IsNotApplied(err) {
			id, err = onlyonce.Call(ctx, call("other", nil))
		}
		return onlyonce.Answer{Status: 201, Body: id}, err
	}))
	// Output:
	// executed 201 charged by other
}

// A request that has to name itself gets its reference before the call.
func ExampleReferenceFor() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	show(engine.Steps(context.Background(), onlyonce.Op{Name: "POST /charges"}, keyed("k1", "100 EUR"), func(ctx context.Context) (onlyonce.Answer, error) {
		reference := onlyonce.ReferenceFor(ctx, "charge", "acme")
		id, err := onlyonce.Call(ctx, onlyonce.Effect{
			Name: "charge", Provider: "acme", Request: fmt.Appendf(nil, `{"amount":100,"reference":%q}`, reference),
			Send: func(_ context.Context, s onlyonce.Sending) ([]byte, error) {
				return []byte("charged"), nil
			},
		})
		fmt.Println(reference)
		return onlyonce.Answer{Status: 201, Body: id}, err
	}))
	// Output:
	// oo_e23f6ad7f897c83b5e2f5bfba967
	// executed 201 charged
}
