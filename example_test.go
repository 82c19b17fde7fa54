package onlyonce_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// newExampleEngine is an engine on an empty memory store.
func newExampleEngine(cfg onlyonce.Config) (*onlyonce.TxEngine[*memstore.Tx], *memstore.Store) {
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := onlyonce.NewTx(store, cfg)
	if err != nil {
		log.Fatal(err)
	}
	return engine, store
}

// show prints how a request was answered.
func show(res onlyonce.Result, err error) {
	if err != nil {
		fmt.Println("refused:", onlyonce.CodeOf(err))
		return
	}
	fmt.Println(strings.TrimSpace(fmt.Sprintf("%s %d %s", res.Status, res.Answer.Status, res.Answer.Body)))
}

// Run any handler at most once per key: the second attempt gets the stored
// answer, and another request under the same key is refused.
func ExampleNew() {
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := onlyonce.New(store, onlyonce.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close(context.Background()) // waits for answers that are still being stored

	charged := 0
	handler := func(context.Context) (onlyonce.Answer, error) {
		charged++
		return onlyonce.Answer{Status: 201, Body: fmt.Appendf(nil, "charge %d", charged)}, nil
	}
	op := onlyonce.Op{Name: "POST /charges"}
	for _, body := range []string{"100 EUR", "100 EUR", "200 EUR"} {
		show(engine.Wrap(context.Background(), op, keyed("k1", body), handler))
	}
	// Output:
	// executed 201 charge 1
	// replayed 201 charge 1
	// refused: idempotency_key_reused
}

// What a failed handler may have done is unknown, so its key is held in doubt:
// the operation is not run again until somebody knows.
func ExampleEngine_Wrap() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	op := onlyonce.Op{Name: "POST /charges"}
	fails := func(context.Context) (onlyonce.Answer, error) {
		return onlyonce.Answer{}, errors.New("connection reset after the request was sent")
	}
	show(engine.Wrap(context.Background(), op, keyed("k1", "100 EUR"), fails))
	show(engine.Wrap(context.Background(), op, keyed("k1", "100 EUR"), fails))
	// Output:
	// refused: outcome_unknown
	// refused: outcome_unknown
}

// Find out what became of a crashed or doubtful run, instead of holding it.
func ExampleOp_recover() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	op := onlyonce.Op{
		Name: "POST /emails",
		Recover: func(_ context.Context, record onlyonce.Record) (onlyonce.Answer, error) {
			// Ask the provider by something that was sent along, here the key.
			return onlyonce.Answer{Status: 202, Body: []byte("found: " + record.Key.Value), Outcome: onlyonce.Final}, nil
		},
	}
	handler := func(context.Context) (onlyonce.Answer, error) { return onlyonce.Answer{}, errors.New("timeout") }
	show(engine.Wrap(context.Background(), op, keyed("k1", "hello"), handler))
	show(engine.Wrap(context.Background(), op, keyed("k1", "hello"), handler))
	// Output:
	// refused: outcome_unknown
	// executed 202 found: k1
}

// Do two things at two places, each at most once: a retry resumes behind the
// last finished step.
func ExampleEngine_Steps() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	op := onlyonce.Op{Name: "POST /orders"}
	mailServerUp := false
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		number, err := onlyonce.Step(ctx, "reserve", func(context.Context) (int, error) {
			fmt.Println("reserving")
			return 42, nil
		})
		if err != nil {
			return onlyonce.Answer{}, err
		}
		if !mailServerUp {
			return onlyonce.Answer{Status: 503, Body: []byte("later")}, nil
		}
		return onlyonce.Answer{Status: 201, Body: fmt.Appendf(nil, "order %d", number)}, nil
	}
	show(engine.Steps(context.Background(), op, keyed("k1", "2 books"), handler))
	mailServerUp = true
	show(engine.Steps(context.Background(), op, keyed("k1", "2 books"), handler))
	// Output:
	// reserving
	// executed 503 later
	// executed 201 order 42
}

// Call another service: the intent is stored before the first byte leaves, the
// derived key stops a second effect there, and Check asks what became of a call
// whose reply was lost.
func ExampleCall() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	booked := map[string]string{} // at the provider, by our reference
	charge := onlyonce.Effect{
		Name: "charge", Provider: "acme", Request: []byte(`{"amount":100}`),
		Memory:  24 * time.Hour,  // acme remembers idempotency keys for a day
		Visible: 2 * time.Minute, // and may take that long to show a charge
		Send: func(_ context.Context, s onlyonce.Sending) ([]byte, error) {
			fmt.Println("sent under a key of", len(s.Key), "characters")
			booked[s.Reference] = "ch_1"
			return nil, errors.New("reply lost") // an error means: unknown
		},
		Check: func(_ context.Context, s onlyonce.Sending) ([]byte, bool, error) {
			id, found := booked[s.Reference]
			return []byte(id), found, nil
		},
	}
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		id, err := onlyonce.Call(ctx, charge)
		if err != nil {
			return onlyonce.Answer{}, err // as it is: the key goes in doubt
		}
		return onlyonce.Answer{Status: 201, Body: id}, nil
	}
	op := onlyonce.Op{Name: "POST /charges"}
	show(engine.Steps(context.Background(), op, keyed("k1", "100 EUR"), handler))
	show(engine.Steps(context.Background(), op, keyed("k1", "100 EUR"), handler))
	// Output:
	// sent under a key of 36 characters
	// refused: outcome_unknown
	// executed 201 ch_1
}

// A function of our own as a step, whose result is kept as JSON.
func ExampleStep() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	type seat struct{ Row, Number int }
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		s, err := onlyonce.Step(ctx, "reserve seat", func(context.Context) (seat, error) { return seat{Row: 7, Number: 12}, nil })
		if err != nil {
			return onlyonce.Answer{}, err
		}
		return onlyonce.Answer{Status: 201, Body: fmt.Appendf(nil, "row %d, seat %d", s.Row, s.Number)}, nil
	}
	show(engine.Steps(context.Background(), onlyonce.Op{Name: "POST /seats"}, keyed("k1", "any"), handler))
	// Output:
	// executed 201 row 7, seat 12
}

// A provider's documented refusal, or proof that no byte left, frees the step:
// the next attempt sends again, under a new derived key.
func ExampleNotAppliedError() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	up := false
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		_, err := onlyonce.Call(ctx, onlyonce.Effect{Name: "charge", Provider: "acme", Send: func(context.Context, onlyonce.Sending) ([]byte, error) {
			if !up {
				return nil, onlyonce.NotAppliedError(errors.New("dial: connection refused"))
			}
			return []byte("ch_1"), nil
		}})
		return onlyonce.Answer{Status: 201}, err
	}
	op := onlyonce.Op{Name: "POST /charges"}
	show(engine.Steps(context.Background(), op, keyed("k1", "100 EUR"), handler))
	up = true
	show(engine.Steps(context.Background(), op, keyed("k1", "100 EUR"), handler))
	// Output:
	// refused: handler_failed
	// executed 201
}

// Where all effects are rows of one database, they and the answer share one
// transaction: a failure leaves nothing behind.
func ExampleTxEngine_Atomic() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	balance := 100
	withdraw := func(amount int) onlyonce.TxHandlerFunc[*memstore.Tx] {
		return func(_ context.Context, tx *memstore.Tx) (onlyonce.Answer, error) {
			tx.OnCommit(func() { balance -= amount })
			if amount > 100 {
				return onlyonce.Answer{}, errors.New("the ledger is locked") // rolls back
			}
			return onlyonce.Answer{Status: 201, Body: []byte("withdrawn")}, nil
		}
	}
	op := onlyonce.Op{Name: "POST /withdrawals"}
	show(engine.Atomic(context.Background(), op, keyed("k1", "30"), withdraw(30)))
	show(engine.Atomic(context.Background(), op, keyed("k1", "30"), withdraw(30)))
	show(engine.Atomic(context.Background(), op, keyed("k2", "500"), withdraw(500)))
	fmt.Println("balance", balance)
	// Output:
	// executed 201 withdrawn
	// replayed 201 withdrawn
	// refused: handler_failed
	// balance 70
}

// The last step of an operation that calls other services: its business write
// and its answer in one transaction.
func ExampleTxEngine_Finish() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	var orders []string
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		charge, err := onlyonce.Step(ctx, "charge", func(context.Context) (string, error) { return "ch_1", nil })
		if err != nil {
			return onlyonce.Answer{}, err
		}
		return engine.Finish(ctx, func(_ context.Context, tx *memstore.Tx) (onlyonce.Answer, error) {
			tx.OnCommit(func() { orders = append(orders, charge) })
			return onlyonce.Answer{Status: 201, Body: []byte("paid by " + charge)}, nil
		})
	}
	op := onlyonce.Op{Name: "POST /orders"}
	show(engine.Steps(context.Background(), op, keyed("k1", "2 books"), handler))
	show(engine.Steps(context.Background(), op, keyed("k1", "2 books"), handler))
	fmt.Println(len(orders), "order")
	// Output:
	// executed 201 paid by ch_1
	// replayed 201 paid by ch_1
	// 1 order
}

// A person who has seen in the provider's report that a doubtful charge was
// made says so, with name and reason.
func ExampleEngine_Settle() {
	engine, store := newExampleEngine(onlyonce.Config{})
	op := onlyonce.Op{Name: "POST /charges"}
	handler := func(context.Context) (onlyonce.Answer, error) { return onlyonce.Answer{}, errors.New("timeout") }
	show(engine.Wrap(context.Background(), op, keyed("k1", "100 EUR"), handler))

	key := onlyonce.Key{Scope: "acct", Value: "k1"}
	record, err := engine.Settle(context.Background(), onlyonce.Settlement{
		Key: key, Applied: &onlyonce.Answer{Status: 201, Body: []byte("ch_77")},
		Actor: "ann", Reason: "charge ch_77 is in acme's report of 3 May",
	})
	fmt.Println(record.State, err)
	show(engine.Wrap(context.Background(), op, keyed("k1", "100 EUR"), handler))

	audit, err := store.Audit(context.Background(), key)
	fmt.Println(len(audit), audit[0].Action, "by", audit[0].Actor, err)
	// Output:
	// refused: outcome_unknown
	// completed <nil>
	// replayed 201 ch_77
	// 1 settle applied by ann <nil>
}

// Answer a late retry from its record although today's validation would refuse
// the request; nothing is run.
func ExampleEngine_Peek() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	op := onlyonce.Op{Name: "POST /charges"}
	_, found, err := engine.Peek(context.Background(), op, keyed("k1", "100 EUR"))
	fmt.Println(found, err)

	show(engine.Wrap(context.Background(), op, keyed("k1", "100 EUR"), responds(201, "charged")))
	res, found, err := engine.Peek(context.Background(), op, keyed("k1", "100 EUR"))
	fmt.Println(found)
	show(res, err)
	// Output:
	// false <nil>
	// executed 201 charged
	// true
	// replayed 201 charged
}

// Delete what has expired. A server runs Sweeper.Run on a goroutine of its own
// instead.
func ExampleSweeper_Once() {
	clock := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	store, err := memstore.New(memstore.Config{SingleProcess: true, Now: func() time.Time { return clock }})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := onlyonce.New(store, onlyonce.Config{})
	if err != nil {
		log.Fatal(err)
	}
	show(engine.Wrap(context.Background(), onlyonce.Op{Name: "POST /charges", Retention: time.Hour}, keyed("k1", "x"), responds(201, "charged")))
	sweeper := onlyonce.Sweeper{Store: store}
	for range 2 {
		result, err := sweeper.Once(context.Background())
		fmt.Println(result.Deleted, "deleted", err)
		clock = clock.Add(time.Hour)
	}
	// Output:
	// executed 201 charged
	// 0 deleted <nil>
	// 1 deleted <nil>
}

// A handler that has no Answer to say it with tells what its run leaves behind.
func ExampleDeclare() {
	engine, store := newExampleEngine(onlyonce.Config{})
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		onlyonce.Declare(ctx, onlyonce.NotApplied) // refused before anything was done
		return onlyonce.Answer{Status: 503, Body: []byte("sold out")}, nil
	}
	show(engine.Wrap(context.Background(), onlyonce.Op{Name: "POST /orders"}, keyed("k1", "2 books"), handler))
	record, _, err := store.Get(context.Background(), onlyonce.Key{Scope: "acct", Value: "k1"})
	fmt.Println(record.State, err)
	// Output:
	// executed 503 sold out
	// failed_retryable <nil>
}

// A handler finds out whom it runs for, say to guard writes of its own by the
// fence.
func ExampleAttemptFrom() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	show(engine.Wrap(context.Background(), onlyonce.Op{Name: "POST /orders"}, keyed("k1", "x"), func(ctx context.Context) (onlyonce.Answer, error) {
		attempt := onlyonce.AttemptFrom(ctx)
		fmt.Println(attempt.Operation(), attempt.Owner().Fence > 0)
		return onlyonce.Answer{Status: 204}, nil
	}))
	// Output:
	// op_1216a7411f54ce8d36bede26eb68214c true
	// executed 204
}

// Zero fields are the careful choices.
func ExampleOp_WithDefaults() {
	op := onlyonce.Op{Name: "POST /charges"}.WithDefaults()
	fmt.Println(op.Lease, op.Deadline, op.Retention, op.FailOpen)
	// Output:
	// 30s 2m0s 24h0m0s false
}

// All that is wrong is said at once, by field.
func ExampleOp_Validate() {
	fmt.Println(onlyonce.Op{Lease: time.Millisecond, Retention: -time.Hour}.Validate())
	// Output:
	// check configuration: invalid_config: Op.Name must have 1 to 255 printable characters
	// check configuration: invalid_config: Op.Lease must be between 100 ms and 24 h, got 1ms
	// check configuration: invalid_config: Op.Retention must be between 0 (default) and ten years, got -1h0m0s
}

// A store of your own asks Judge what a claim on a key with a record becomes,
// and writes only when told to.
func ExampleJudge() {
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	record := onlyonce.Record{
		State: onlyonce.InProgress, LeaseEnd: noon, Abandon: onlyonce.AbandonRerun,
		Fence: 7, Origin: 7, Attempt: onlyonce.NewToken(),
	}
	claim := onlyonce.ClaimRequest{Attempt: onlyonce.NewToken(), Abandon: onlyonce.AbandonRerun}
	fmt.Println(onlyonce.Judge(record, claim, noon.Add(-time.Second)))
	fmt.Println(onlyonce.Judge(record, claim, noon))
	// Output:
	// busy false
	// resumed true
}

// A fence follows the store's clock, and rises even when the clock does not.
func ExampleNextFence() {
	clock := time.UnixMicro(1_000_000)
	first := onlyonce.NextFence(0, clock)
	second := onlyonce.NextFence(first, clock)
	third := onlyonce.NextFence(second, clock.Add(-time.Hour))
	fmt.Println(first, second, third)
	// Output:
	// 1000000 1000001 1000002
}

// Derive the key and the reference that Call sends to a provider, say to look
// for a charge in its report.
func ExampleDerivation() {
	d := onlyonce.Derivation{Key: onlyonce.Key{Scope: "acct_1", Value: "k1"}, Step: "charge", Provider: "acme"}
	fmt.Println(d.DerivedKey())
	fmt.Println(d.Reference())
	d.Epoch = 1 // after proof that the first send was not applied
	fmt.Println(d.DerivedKey())
	fmt.Println(d.Reference())
	// Output:
	// f8e2a2d8-7d63-8e47-9bae-a9f0599638bf
	// oo_2e23ced706afa35981499004c2a6
	// 350afad4-474e-859e-87fc-9a7578d0602f
	// oo_2e23ced706afa35981499004c2a6
}

// Name a key in a log without giving it away.
func ExampleKey_Operation() {
	fmt.Println(onlyonce.Key{Scope: "acct_1", Value: "k1"}.Operation())
	// Output:
	// op_01acdcdbb8de0fd95ce841f436bc108b
}

// Check a key before it is used.
func ExampleKey_Validate() {
	fmt.Println(onlyonce.Key{Scope: "acct_1", Value: "k1"}.Validate())
	fmt.Println(onlyonce.Key{Value: "k1"}.Validate())
	// Output:
	// <nil>
	// check key: unauthenticated: the scope is empty: authenticate the caller first
}

// Decide whether to send the same request again under the same key.
func ExampleSafeToRetry() {
	engine, _ := newExampleEngine(onlyonce.Config{})
	op := onlyonce.Op{Name: "POST /charges"}
	handler := func(ctx context.Context) (onlyonce.Answer, error) {
		_, err := engine.Wrap(ctx, op, keyed("k1", "100 EUR"), nil) // the first is still running
		fmt.Println(onlyonce.CodeOf(err), onlyonce.SafeToRetry(err))
		return onlyonce.Answer{Status: 201}, nil
	}
	show(engine.Wrap(context.Background(), op, keyed("k1", "100 EUR"), handler))
	_, err := engine.Wrap(context.Background(), op, keyed("k1", "200 EUR"), handler)
	fmt.Println(onlyonce.CodeOf(err), onlyonce.SafeToRetry(err))
	// Output:
	// request_in_progress true
	// executed 201
	// idempotency_key_reused false
}

// Read what an error says to its caller: its code, and what differs.
func ExampleCodeOf() {
	err := fmt.Errorf("charge: %w", &onlyonce.Error{Code: onlyonce.CodeKeyReused, Differs: []string{"/amount"}})
	fmt.Println(onlyonce.CodeOf(err))
	if e, ok := errors.AsType[*onlyonce.Error](err); ok {
		fmt.Println(e.Differs)
	}
	// Output:
	// idempotency_key_reused
	// [/amount]
}

// A store keeps headers as one text.
func ExampleEncodeHeader() {
	text := onlyonce.EncodeHeader(map[string][]string{"Location": {"/charges/1"}, "Content-Type": {"text/plain"}})
	fmt.Printf("%s", text)
	// Output:
	// Content-Type: text/plain
	// Location: /charges/1
}

// Read the headers back.
func ExampleDecodeHeader() {
	header, err := onlyonce.DecodeHeader([]byte("Link: </a>\nLink: </b>\n"))
	fmt.Println(header, err)
	_, err = onlyonce.DecodeHeader([]byte("garbage"))
	fmt.Println(err)
	// Output:
	// map[Link:[</a> </b>]] <nil>
	// decode stored headers: a line of 7 bytes has no name
}

// Rotate the fingerprint secret: what was written under the old one is still
// recognised for as long as that is kept.
func ExampleKeyring() {
	old := onlyonce.Secret{ID: "2025", Key: []byte("a secret of at least 16 bytes")}
	next := onlyonce.Secret{ID: "2026", Key: []byte("another secret, from a vault")}
	before, store := newExampleEngine(onlyonce.Config{Secrets: onlyonce.Keyring{Current: old}})
	op := onlyonce.Op{Name: "POST /charges"}
	show(before.Wrap(context.Background(), op, keyed("k1", "100 EUR"), responds(201, "charged")))

	for _, keyring := range []onlyonce.Keyring{{Current: next, Old: []onlyonce.Secret{old}}, {Current: next}} {
		after, err := onlyonce.New(store, onlyonce.Config{Secrets: keyring})
		if err != nil {
			log.Fatal(err)
		}
		show(after.Wrap(context.Background(), op, keyed("k1", "100 EUR"), responds(201, "charged again")))
	}
	// Output:
	// executed 201 charged
	// replayed 201 charged
	// refused: idempotency_store_unavailable
}

// Count and log what happens to keys.
func ExampleObserverFunc() {
	engine, _ := newExampleEngine(onlyonce.Config{
		Observer: onlyonce.ObserverFunc(func(_ context.Context, e onlyonce.Event) { fmt.Printf("%s: %s %q\n", e.Op, e.Kind, e.Code) }),
	})
	op := onlyonce.Op{Name: "charge"}
	for _, body := range []string{"100 EUR", "100 EUR", "200 EUR"} {
		_, err := engine.Wrap(context.Background(), op, keyed("k1", body), responds(201, "charged"))
		if err != nil && !errors.Is(err, &onlyonce.Error{Code: onlyonce.CodeKeyReused}) {
			log.Fatal(err)
		}
	}
	// Output:
	// charge: claimed ""
	// charge: completed ""
	// charge: replayed ""
	// charge: refused "idempotency_key_reused"
}
