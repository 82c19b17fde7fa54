package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
)

// Business tables live in the store's own file, so a business row and the
// answer of its request are committed together. Services use the store through
// an onlyonce.TxEngine, which makes the claim.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "once")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "shop.db"), sqlitestore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	if _, err := store.Writer().ExecContext(ctx, "CREATE TABLE charges (amount INTEGER NOT NULL)"); err != nil {
		fmt.Println(err)
		return
	}
	charge := func(ctx context.Context, tx *sql.Tx) (*onlyonce.Answer, error) {
		if _, err := tx.ExecContext(ctx, "INSERT INTO charges (amount) VALUES (1200)"); err != nil {
			return nil, err
		}
		return &onlyonce.Answer{Status: 201, Body: []byte(`{"id":"ch_1"}`)}, nil
	}
	for range 2 { // the caller sends the request, and sends it again
		claim, _, err := store.Atomic(ctx, onlyonce.ClaimRequest{
			Key: onlyonce.Key{Scope: "merchant_1", Value: "order-17"}, Operation: "POST /charges",
			Attempt: onlyonce.NewToken(), Lease: 30 * time.Second, Retention: 24 * time.Hour, Abandon: onlyonce.AbandonRerun,
		}, charge)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(claim.Verdict, string(claim.Record.Answer.Body))
	}
	var charges int
	if err := store.Reader().QueryRowContext(ctx, "SELECT count(*) FROM charges").Scan(&charges); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("charges:", charges)
	// Output:
	// won {"id":"ch_1"}
	// replay {"id":"ch_1"}
	// charges: 1
}

// A step whose effect is in the store's own file is committed with its record, so
// the attempt after a crash finds the one or neither. Services use it by
// onlyonce.StepTx.
func ExampleStore_StepTx() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "once")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	store, err := sqlitestore.Open(ctx, filepath.Join(dir, "shop.db"), sqlitestore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	if _, err := store.Writer().ExecContext(ctx, "CREATE TABLE reserved (item TEXT NOT NULL)"); err != nil {
		fmt.Println(err)
		return
	}
	claim, err := store.Claim(ctx, onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: "merchant_1", Value: "order-17"}, Operation: "POST /orders", Resource: "order/17",
		Attempt: onlyonce.NewToken(), Lease: 30 * time.Second, Retention: 24 * time.Hour, Abandon: onlyonce.AbandonResume,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 { // the reply was lost, and the attempt repeats it
		result, held, err := store.StepTx(ctx, claim.Record.Owner(), onlyonce.TxStep{Name: "reserve"}, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
			_, err := tx.ExecContext(ctx, "INSERT INTO reserved (item) VALUES ('book')")
			return []byte(`"1 book"`), err
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(held, string(result))
	}
	var reserved int
	if err := store.Reader().QueryRowContext(ctx, "SELECT count(*) FROM reserved").Scan(&reserved); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("reserved:", reserved)
	// Output:
	// true "1 book"
	// true "1 book"
	// reserved: 1
}
