package memstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// A memory store asks for the word that there is one process.
func ExampleNew() {
	_, err := memstore.New(memstore.Config{})
	fmt.Println(onlyonce.CodeOf(err))

	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(store.Features().Name, store.Features().Durable)
	// Output:
	// invalid_config
	// memory false
}

// Business data beside the store is written when its transaction commits, once
// for all attempts at a key.
func ExampleTx_OnCommit() {
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	owner := onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: "acct_1", Value: "k1"}, Operation: "POST /orders", Attempt: onlyonce.NewToken(),
		Lease: onlyonce.DefaultLease, Retention: onlyonce.DefaultRetention, Abandon: onlyonce.AbandonRerun,
	}
	var orders []string
	for range 2 {
		claim, _, err := store.Atomic(context.Background(), owner, func(_ context.Context, tx *memstore.Tx) (*onlyonce.Answer, error) {
			tx.OnCommit(func() { orders = append(orders, "2 books") })
			return &onlyonce.Answer{Status: 201}, nil
		})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(claim.Verdict, len(orders), "order")
	}
	// Output:
	// won 1 order
	// replay 1 order
}
