package dynamostore_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/dynamostore"
)

// withBusiness is a store beside a table of business data.
func withBusiness(t *testing.T) (*dynamostore.Store, *tables) {
	t.Helper()
	s, tb := migrated(t, dynamostore.Config{})
	tb.addBusiness(t)
	return s, tb
}

// O: a condition of the caller's own that fails rolls everything back, says which it
// was, and leaves the key free.
func TestRefusedByTheCallersCondition(t *testing.T) {
	t.Parallel()
	s, tb := withBusiness(t)
	if _, _, err := s.Atomic(t.Context(), request("first"), answering(func(tx *dynamostore.Tx) error { return tx.Put(tb.putOnce("seat 1")) })); err != nil {
		t.Fatal(err)
	}
	req := request("second")
	_, settled, err := s.Atomic(t.Context(), req, answering(func(tx *dynamostore.Tx) error {
		return errors.Join(tx.Put(tb.put("second")), tx.Put(tb.putOnce("seat 1")))
	}))
	refused, ok := errors.AsType[*dynamostore.RefusedError](err)
	if !ok || settled.Held || len(refused.Reasons) != 2 {
		t.Fatalf("atomic: %+v, %v", settled, err)
	}
	if a, b := aws.ToString(refused.Reasons[0].Code), aws.ToString(refused.Reasons[1].Code); a != "None" || b != "ConditionalCheckFailed" || !strings.Contains(err.Error(), b) {
		t.Errorf("reasons %s and %s: %v", a, b, err)
	}
	if _, ok := errors.AsType[*types.TransactionCanceledException](err); !ok {
		t.Errorf("DynamoDB's own error is not in the chain: %v", err)
	}
	if _, found, err := s.Get(t.Context(), req.Key); found || err != nil {
		t.Errorf("the key is not free: %v, %v", found, err)
	}
	if n := tb.rows(t, "second"); n != 0 {
		t.Errorf("%d rows of what was rolled back", n)
	}
	c, settled, err := s.Atomic(t.Context(), req, answering(func(tx *dynamostore.Tx) error { return tx.Put(tb.putOnce("seat 2")) }))
	if err != nil || c.Verdict != onlyonce.Won || !settled.Held {
		t.Errorf("the next attempt: %v, %+v, %v", c.Verdict, settled, err)
	}
}

// C1: a duplicate whose business condition fails because the first has committed is a
// replay, not a refusal, also when the server names only the business condition.
func TestDuplicateWithUniqueBusinessRow(t *testing.T) {
	t.Parallel()
	s, tb := withBusiness(t)
	for _, named := range []string{"both", "business only"} {
		req := request(named)
		write := answering(func(tx *dynamostore.Tx) error { return tx.Put(tb.putOnce(named)) })
		c, settled, err := s.Atomic(t.Context(), req, func(ctx context.Context, tx *dynamostore.Tx) (*onlyonce.Answer, error) {
			if _, settled, err := s.Atomic(ctx, again(req), write); err != nil || !settled.Held {
				t.Errorf("%s: the other: %+v, %v", named, settled, err)
			}
			if named != "both" {
				tb.add(fault{
					op: "TransactWriteItems", times: 1, before: true, status: http.StatusBadRequest,
					answer: cancellation(map[string]any{"Code": "ConditionalCheckFailed"}, map[string]any{"Code": "None"}),
				})
			}
			return write(ctx, tx)
		})
		if err != nil || settled.Held || c.Verdict != onlyonce.Replay || string(c.Record.Answer.Body) != "done" {
			t.Errorf("%s: %v, %+v, %v; want a replay", named, c.Verdict, settled, err)
		}
		if n := tb.rows(t, named); n != 1 {
			t.Errorf("%s: %d rows, want 1", named, n)
		}
	}
}

// C6: the checks of a caller are part of the transaction; updates and deletes are
// rolled back with it.
func TestEveryKindOfWrite(t *testing.T) {
	t.Parallel()
	s, tb := withBusiness(t)
	id := func(name string) map[string]types.AttributeValue {
		return map[string]types.AttributeValue{"id": str(name)}
	}
	change := func(tx *dynamostore.Tx, holds string) error {
		return errors.Join(
			tx.Update(&types.Update{
				TableName: aws.String(tb.business()), Key: id("stock"), UpdateExpression: aws.String("ADD units :n"),
				ExpressionAttributeValues: map[string]types.AttributeValue{":n": &types.AttributeValueMemberN{Value: "-1"}},
			}),
			tx.Delete(&types.Delete{TableName: aws.String(tb.business()), Key: id("cart")}),
			tx.Check(&types.ConditionCheck{TableName: aws.String(tb.business()), Key: id("open"), ConditionExpression: aws.String(holds)}),
			tx.Append(types.TransactWriteItem{Put: tb.put("order")}),
		)
	}
	must := func(fn func(*dynamostore.Tx) error) {
		t.Helper()
		if err := s.Do(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	must(func(tx *dynamostore.Tx) error {
		return errors.Join(tx.Put(tb.putOnce("cart")), tx.Put(tb.putOnce("stock")))
	})
	o := owner(t, s, request("k"))
	_, err := s.Finish(t.Context(), o, answering(func(tx *dynamostore.Tx) error { return change(tx, "attribute_exists(id)") }))
	if _, ok := errors.AsType[*dynamostore.RefusedError](err); !ok {
		t.Errorf("finish: %v, want refused", err)
	}
	if tb.rows(t, "cart") != 1 || tb.rows(t, "order") != 0 {
		t.Error("a refused transaction left something")
	}
	settled, err := s.Finish(t.Context(), o, answering(func(tx *dynamostore.Tx) error { return change(tx, "attribute_not_exists(id)") }))
	hold(t, settled.Held, err)
	if tb.rows(t, "cart") != 0 || tb.rows(t, "order") != 1 || tb.rows(t, "") != 0 {
		t.Error("the transaction was not carried out")
	}
}

// The limits of a transaction are told clearly, and nothing is done.
func TestLimitsOfATransaction(t *testing.T) {
	t.Parallel()
	s, tb := withBusiness(t)
	many := func(n, size int) onlyonce.TxFunc[*dynamostore.Tx] {
		return answering(func(tx *dynamostore.Tx) error {
			for i := range n {
				p := tb.put("many")
				p.Item["fill"] = str(strings.Repeat("x", size))
				if err := tx.Put(p); err != nil {
					return fmt.Errorf("write %d: %w", i, err)
				}
			}
			return nil
		})
	}
	twice := tb.putOnce("one")
	for name, fn := range map[string]onlyonce.TxFunc[*dynamostore.Tx]{
		"97 writes":     many(97, 0),
		"over 4 MB":     many(20, 300_000),
		"an item twice": answering(func(tx *dynamostore.Tx) error { return errors.Join(tx.Put(twice), tx.Put(twice)) }),
	} {
		req := request(name)
		_, settled, err := s.Atomic(t.Context(), req, fn)
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || settled.Held {
			t.Errorf("%s: %+v, %v; want a configuration error", name, settled, err)
		}
		if _, found, err := s.Get(t.Context(), req.Key); found || err != nil {
			t.Errorf("%s: it left a record: %v, %v", name, found, err)
		}
	}
	if _, settled, err := s.Atomic(t.Context(), request("96 writes"), many(96, 1000)); err != nil || !settled.Held {
		t.Errorf("96 writes: %+v, %v", settled, err)
	}
	if n := tb.rows(t, "many"); n != 96 {
		t.Errorf("%d rows, want 96", n)
	}
	_, _, err := s.Atomic(t.Context(), request("large item"), many(1, 500_000))
	if refused, ok := errors.AsType[*dynamostore.RefusedError](err); !ok || aws.ToString(refused.Reasons[0].Code) != "ValidationError" {
		t.Errorf("an item over 400 KB: %v", err)
	}
}

// fn must not keep its transaction, nor complete in one that is not its own.
func TestMisuseOfATransaction(t *testing.T) {
	t.Parallel()
	s, tb := withBusiness(t)
	o := owner(t, s, request("k"))
	var kept *dynamostore.Tx
	if _, _, err := s.Atomic(t.Context(), request("a"), func(ctx context.Context, tx *dynamostore.Tx) (*onlyonce.Answer, error) {
		kept = tx
		if _, err := s.CompleteTx(ctx, tx, o, answerOf("x")); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("complete in the store's transaction: %v", err)
		}
		a := answerOf("a")
		return &a, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := kept.Put(tb.put("late")); !errors.Is(err, onlyonce.ErrTxEnded) {
		t.Errorf("a write after the end: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, settled, err := s.Atomic(ctx, request("b"), func(_ context.Context, tx *dynamostore.Tx) (*onlyonce.Answer, error) {
		cancel()
		a := answerOf("b")
		return &a, tx.Put(tb.put("b"))
	})
	if !errors.Is(err, context.Canceled) || settled.Held || tb.rows(t, "b") != 0 {
		t.Errorf("a context that ended inside fn: %+v, %v", settled, err)
	}
	for name, req := range map[string]onlyonce.ClaimRequest{"resource": on("r", "c"), "keep": stepsOf("d")} {
		if _, _, err := s.Atomic(t.Context(), req, tb.writes("c")); onlyonce.CodeOf(err) != onlyonce.CodeConfig {
			t.Errorf("%s in a transaction: %v", name, err)
		}
	}
	if err := s.Do(t.Context(), func(tx *dynamostore.Tx) error { kept = tx; return nil }); err != nil {
		t.Errorf("an empty transaction: %v", err)
	}
	if settled, err := s.CompleteTx(t.Context(), kept, o, onlyonce.Answer{Status: 200, Body: large(20_000)}); !errors.Is(err, onlyonce.ErrTxEnded) || settled.Held {
		t.Errorf("a completion after the end: %+v, %v", settled, err)
	}
	if n := len(tb.items(t, "value#")); n != 0 {
		t.Errorf("%d parts of an answer that was refused", n)
	}
}

// increment adds to a row each time it is carried out.
func (tb *tables) increment() *types.Update {
	return &types.Update{
		TableName: aws.String(tb.business()), Key: map[string]types.AttributeValue{"id": str("balance")},
		UpdateExpression:          aws.String("ADD amount :n"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":n": &types.AttributeValueMemberN{Value: "1"}},
	}
}

// balance is how often increment was carried out.
func (tb *tables) balance(t *testing.T) string {
	t.Helper()
	out, err := tb.connect(t).GetItem(t.Context(), &dynamodb.GetItemInput{
		TableName: aws.String(tb.business()), Key: map[string]types.AttributeValue{"id": str("balance")}, ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item["amount"].(*types.AttributeValueMemberN).Value
}

// Two transactions that write the same are two: the server's ten minutes are for
// repeats of one.
func TestTwoTransactionsThatWriteTheSame(t *testing.T) {
	t.Parallel()
	s, tb := withBusiness(t)
	for range 3 {
		tb.add(fault{op: "TransactWriteItems", times: 1}) // carried out; the SDK repeats it
		if err := s.Do(t.Context(), func(tx *dynamostore.Tx) error { return tx.Update(tb.increment()) }); err != nil {
			t.Fatal(err)
		}
	}
	if got := tb.balance(t); got != "3" {
		t.Errorf("carried out %s times, want 3", got)
	}
}

// C10: a caller who repeats a transaction whose commit's reply was lost is told that it
// is there, and writes nothing again.
func TestCompleteTxAfterALostCommit(t *testing.T) {
	t.Parallel()
	base, tb := withBusiness(t)
	s := tb.open(t, dynamostore.Config{}, once)
	o := owner(t, base, request("k"))
	run := func() (settled onlyonce.Settled, err error) {
		err = s.Do(t.Context(), func(tx *dynamostore.Tx) error {
			if settled, err = s.CompleteTx(t.Context(), tx, o, answerOf("done")); err != nil || !settled.Held {
				return errors.Join(err, errEarlier)
			}
			return tx.Update(tb.increment())
		})
		return settled, err
	}
	tb.add(fault{op: "TransactWriteItems", times: 1})
	first, err := run()
	if !errors.Is(err, onlyonce.ErrUncertain) {
		t.Fatalf("do: %v, want uncertain", err)
	}
	want := onlyonce.Settled{Earlier: true, ExpiresAt: first.ExpiresAt}
	if settled, err := run(); settled != want || !errors.Is(err, errEarlier) {
		t.Errorf("repeated: %+v, %v; want %+v", settled, err, want)
	}
	if got := tb.balance(t); got != "1" {
		t.Errorf("carried out %s times, want once", got)
	}
}

// C5: the engine renews while the last transaction is on its way; that is no reason to
// run the handler again.
func TestRenewalBesideTransactions(t *testing.T) {
	t.Parallel()
	s, tb := withBusiness(t)
	renew := func(ctx context.Context, o onlyonce.Owner) {
		t.Helper()
		held, err := s.Renew(ctx, o, lease)
		hold(t, held, err)
	}
	o := owner(t, s, stepsOf("k"))
	runs := 0
	_, held, err := s.StepTx(t.Context(), o, onlyonce.TxStep{Name: "reserve"}, func(ctx context.Context, tx *dynamostore.Tx) ([]byte, error) {
		runs++
		renew(ctx, o)
		return nil, tx.Put(tb.put("step"))
	})
	hold(t, held, err)
	settled, err := s.Finish(t.Context(), o, func(ctx context.Context, tx *dynamostore.Tx) (*onlyonce.Answer, error) {
		runs++
		renew(ctx, o)
		a := answerOf("done")
		return &a, tx.Put(tb.put("finish"))
	})
	hold(t, settled.Held, err)
	own := owner(t, s, request("own"))
	err = s.Do(t.Context(), func(tx *dynamostore.Tx) error {
		runs++
		settled, err := s.CompleteTx(t.Context(), tx, own, answerOf("done"))
		renew(t.Context(), own)
		return errors.Join(must(settled.Held, err), tx.Put(tb.put("do")))
	})
	if err != nil || runs != 3 {
		t.Errorf("do: %v; %d runs, want 3", err, runs)
	}
	for _, name := range []string{"step", "finish", "do"} {
		if n := tb.rows(t, name); n != 1 {
			t.Errorf("%s: %d rows, want 1", name, n)
		}
	}
}

// A caller's transaction completes several keys, or none of them.
func TestDoCompletesSeveral(t *testing.T) {
	t.Parallel()
	s, tb := withBusiness(t)
	other := tb.open(t, dynamostore.Config{})
	a, b := owner(t, s, on("order/1", "a")), owner(t, s, request("b"))
	both := func(tx *dynamostore.Tx) error {
		for _, o := range []onlyonce.Owner{a, a, b} { // of two for one key the first stands
			settled, err := s.CompleteTx(t.Context(), tx, o, onlyonce.Answer{Status: 200, Body: large(20_000)})
			if err := must(settled.Held, err); err != nil {
				return err
			}
		}
		return tx.Put(tb.put("both"))
	}
	errFirst := errors.New("first")
	if err := s.Do(t.Context(), func(tx *dynamostore.Tx) error { return errors.Join(both(tx), errFirst) }); !errors.Is(err, errFirst) {
		t.Errorf("do: %v", err)
	}
	if n := len(tb.items(t, "value#")); n != 0 {
		t.Errorf("%d parts of answers that were not stored", n)
	}
	if err := s.Do(t.Context(), func(tx *dynamostore.Tx) error {
		if err := both(tx); err != nil {
			return err
		}
		held, err := other.Release(t.Context(), b, "meanwhile")
		return must(held, err)
	}); !errors.Is(err, onlyonce.ErrConflict) {
		t.Errorf("do: %v, want a conflict", err)
	}
	if n := tb.rows(t, "both"); n != 0 {
		t.Errorf("%d rows of what was rolled back", n)
	}
	b = want(t, s, request("b"), onlyonce.Resumed).Record.Owner()
	if err := s.Do(t.Context(), both); err != nil {
		t.Errorf("do: %v", err)
	}
	for _, o := range []onlyonce.Owner{a, b} {
		if rec, _, err := s.Get(t.Context(), o.Key); err != nil || rec.State != onlyonce.Completed || len(rec.Answer.Body) != 20_000 {
			t.Errorf("%s: %q, %v", o.Key.Value, rec.State, err)
		}
	}
	want(t, s, on("order/1", "c"), onlyonce.Won)
	if n := tb.rows(t, "both"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

// C12: a freed key that had a resource runs in a transaction only when nobody else
// holds it.
func TestAtomicMindsTheResource(t *testing.T) {
	t.Parallel()
	c := newClock()
	s, tb := migrated(t, dynamostore.Config{Now: c.Now})
	tb.addBusiness(t)
	first := on("order/1", "first")
	held, err := s.Release(t.Context(), owner(t, s, first), "r")
	hold(t, held, err)
	second := owner(t, s, on("order/1", "second"))
	bare := again(first)
	bare.Resource = ""
	if claim, settled, err := s.Atomic(t.Context(), bare, tb.writes("first")); err != nil || settled.Held || claim.Verdict != onlyonce.ResourceBusy {
		t.Errorf("atomic: %v, %+v, %v", claim.Verdict, settled, err)
	}
	held, err = s.Release(t.Context(), second, "r")
	hold(t, held, err)
	_, settled, err := s.Atomic(t.Context(), bare, func(ctx context.Context, tx *dynamostore.Tx) (*onlyonce.Answer, error) {
		second = want(t, s, again(on("order/1", "second")), onlyonce.Resumed).Record.Owner()
		a := answerOf("x")
		return &a, tx.Put(tb.put("first"))
	})
	if !errors.Is(err, onlyonce.ErrConflict) || settled.Held {
		t.Errorf("taken meanwhile: %+v, %v; want a conflict", settled, err)
	}
	complete(t, s, second, "done")
	if _, settled, err := s.Atomic(t.Context(), bare, tb.writes("first")); err != nil || !settled.Held {
		t.Errorf("free: %+v, %v", settled, err)
	}
	if n := tb.rows(t, "first"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}
