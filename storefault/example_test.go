package storefault_test

import (
	"context"
	"fmt"
	"log"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// Lose the reply of the first claim after it has happened, and see that the
// second, with the same token, finds it.
func ExampleScript() {
	mem, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	store := storefault.New(mem, storefault.Script(map[storefault.Method][]storefault.Fault{
		storefault.Claim: {{After: onlyonce.ErrUncertain}},
	}))
	req := onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: "acct_1", Value: "k1"}, Attempt: onlyonce.NewToken(),
		Lease: onlyonce.DefaultLease, Retention: onlyonce.DefaultRetention,
	}
	for range 2 {
		claim, err := store.Claim(context.Background(), req)
		fmt.Println(claim.Verdict, err)
	}
	// Output:
	// none store_outcome_unknown
	// won <nil>
}

// An injector of your own decides call by call: here one tenant's store is
// down.
func ExampleNew() {
	mem, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	store := storefault.New(mem, func(_ storefault.Method, key onlyonce.Key) storefault.Fault {
		if key.Scope == "unlucky" {
			return storefault.Fault{Before: storefault.ErrDown}
		}
		return storefault.Fault{}
	})
	for _, scope := range []string{"lucky", "unlucky"} {
		_, found, err := store.Get(context.Background(), onlyonce.Key{Scope: scope, Value: "k1"})
		fmt.Println(found, err)
	}
	// Output:
	// false <nil>
	// false call store: store_unreachable: storefault: the store is down
}
