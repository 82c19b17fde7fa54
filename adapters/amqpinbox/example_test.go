package amqpinbox_test

import (
	"context"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/amqpinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// A consumer of the queue "payments", whose handler books in the transaction in which the
// message is recorded. Here no broker listens, and Run tries until its context ends.
func Example() {
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := onlyonce.NewTx(store, onlyonce.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close(context.Background())
	balances, err := inbox.NewTx(engine, inbox.Config{Consumer: "balances"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	consumer, err := amqpinbox.New(amqpinbox.Config{
		URL:   "amqp://guest:guest@127.0.0.1:1/",
		Queue: "payments",
		Process: func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
			return balances.Process(ctx, msg, func(_ context.Context, _ *memstore.Tx, msg inbox.Message) error {
				fmt.Printf("book %s\n", msg.Payload)
				return nil
			})
		},
		Observe: func(e amqpinbox.Event) {
			fmt.Println(e.Kind)
			cancel()
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ended:", consumer.Run(ctx))
	// Output:
	// lost
	// ended: <nil>
}

// Settings are checked before anything is connected to.
func ExampleConfig_Validate() {
	err := amqpinbox.Config{URL: "amqp://127.0.0.1/", Queue: "payments", Prefetch: 4}.Validate()
	fmt.Println(err)
	// Output:
	// configure amqpinbox: invalid_config: Process must be set: a closure over the inbox's Process and the handler
	// configure amqpinbox: invalid_config: Prefetch must be from Concurrency (8) to 65535, got 4
}
