package routestore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/routestore"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// A process of the region eu: scopes of the table live in us, all others here.
func Example() {
	here, err := memstore.New(memstore.Config{SingleProcess: true}) // a pgstore.Store, in earnest
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := routestore.New(routestore.Config{
		Homes: []routestore.Home{
			{Name: "eu", Store: here},
			{Name: "us", Address: "https://us.pay.example"},
		},
		Map: routestore.Map{Version: 1, Homes: []string{"eu"}, Table: map[string]string{"acct_us": "us"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, scope := range []string{"acct_eu", "acct_us"} {
		key := onlyonce.Key{Scope: scope, Value: "order-7"}
		home, local := store.HomeOf(key)
		fmt.Println(scope, "lives in", home.Name, local)
		req := request(key.Value)
		req.Key = key
		claim, err := store.Claim(context.Background(), req)
		if elsewhere, ok := errors.AsType[*onlyonce.Error](err); ok {
			fmt.Println(elsewhere.Code, elsewhere.Address)
			continue
		}
		fmt.Println(claim.Verdict)
	}
	// Output:
	// acct_eu lives in eu true
	// won
	// acct_us lives in us false
	// misdirected_request https://us.pay.example
}

// A tenant moves from one home to another. The map before is kept until nothing is
// left at the old home.
func ExampleConfig() {
	var homes []routestore.Home
	for _, name := range []string{"shard-1", "shard-2"} {
		s, err := memstore.New(memstore.Config{SingleProcess: true})
		if err != nil {
			fmt.Println(err)
			return
		}
		homes = append(homes, routestore.Home{Name: name, Store: s})
	}
	ctx := context.Background()
	before := routestore.Map{Version: 1, Homes: []string{"shard-1"}}
	store, err := routestore.New(routestore.Config{Homes: homes, Map: before})
	if err != nil {
		fmt.Println(err)
		return
	}
	first, err := store.Claim(ctx, request("order-7"))
	fmt.Println(first.Verdict, err)

	store, err = routestore.New(routestore.Config{
		Homes: homes, Previous: &before,
		Map: routestore.Map{Version: 2, Homes: []string{"shard-1"}, Table: map[string]string{"acct": "shard-2"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	again, err := store.Claim(ctx, request("order-7"))
	fmt.Println(again.Verdict, err) // its record keeps it where it is
	left, err := store.Left(ctx, 10)
	fmt.Println(len(left), "left", err)
	// Output:
	// won <nil>
	// busy <nil>
	// 1 left <nil>
}
