package balances_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments/balances"
	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/event"
)

// A broker delivers a charge twice: it counts once.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "balances")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	d, err := db.Open(ctx, "sqlite:"+filepath.Join(dir, "balances.db"))
	if err != nil {
		panic(err)
	}
	defer d.Close()
	keeper, err := balances.NewKeeper(ctx, balances.Config{DB: d})
	if err != nil {
		panic(err)
	}
	defer keeper.Close(ctx)
	msg, err := event.Event{
		ID: event.IDOf(event.ChargeSucceeded, "op_7f"), Kind: event.ChargeSucceeded, Merchant: "acme", Amount: 1500, Currency: "EUR",
		Subject: "ch_1", Operation: "op_7f", OccurredAt: time.Now(),
	}.Message()
	if err != nil {
		panic(err)
	}
	for range 2 {
		verdict, err := keeper.Process(ctx, msg)
		fmt.Println(verdict, err)
	}
	all, err := balances.List(ctx, d, "")
	fmt.Println(all, err)
	// Output:
	// handled <nil>
	// duplicate <nil>
	// [{acme EUR 1500}] <nil>
}
