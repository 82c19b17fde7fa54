package cachestore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// A cache stands before the store that decides; here one in memory, else a
// database. The engine gets the cache.
func ExampleNew() {
	ctx := context.Background()
	database, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	store, err := cachestore.New(database, cachestore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	req := onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: "acct_1", Value: "k1"}, Operation: "POST /charges", Attempt: onlyonce.NewToken(),
		Lease: onlyonce.DefaultLease, Retention: onlyonce.DefaultRetention,
	}
	claim, err := store.Claim(ctx, req)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := store.Complete(ctx, claim.Record.Owner(), onlyonce.Answer{Status: 201}); err != nil {
		log.Fatal(err)
	}
	for range 3 { // the first retry reads the database
		req.Attempt = onlyonce.NewToken()
		retry, err := store.Claim(ctx, req)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(retry.Verdict, retry.Record.Answer.Status)
	}
	stats := store.Stats()
	fmt.Println(stats.Misses, "asked the database,", stats.Hits, "did not")
	// Output:
	// replay 201
	// replay 201
	// replay 201
	// 2 asked the database, 2 did not
}

// Several processes share their answers in Redis. A Redis that is not there costs
// nothing but speed.
func ExampleShared() {
	database, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	store, err := cachestore.New(database, cachestore.Config{
		ReadBack: true, // the first retry need not read the database either
		Shared: &cachestore.Shared{
			Redis:   &redis.UniversalOptions{Addrs: []string{"redis.internal:6379"}},
			Timeout: 20 * time.Millisecond,
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	fmt.Println(store.Features().Name)
	// Output: cached memory
}
