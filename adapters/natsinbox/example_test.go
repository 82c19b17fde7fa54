package natsinbox_test

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/natsinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// A consumer whose handler books in the transaction in which the message is recorded.
// Messages without an id are handled too, each as often as the publisher sends it. Here
// no server listens.
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
	process := func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		return balances.Process(ctx, msg, func(_ context.Context, _ *memstore.Tx, msg inbox.Message) error {
			fmt.Printf("book %s\n", msg.Payload)
			return nil
		})
	}

	conn, err := nats.Connect("nats://127.0.0.1:1", nats.MaxReconnects(-1))
	if err != nil {
		fmt.Println("connect:", err)
		return
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		fmt.Println(err)
		return
	}
	consumer, err := natsinbox.New(natsinbox.Config{
		JetStream: js, Stream: "PAYMENTS", Durable: "balances", Process: process, WithoutID: process,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(consumer.Run(context.Background()))
	// Output: connect: nats: no servers available for connection
}

// Settings are checked before the server is asked anything.
func ExampleConfig_Validate() {
	js, err := jetstream.New(&nats.Conn{})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = natsinbox.Config{JetStream: js, Stream: "PAYMENTS", Process: handled, WithoutID: handled}.Validate()
	fmt.Println(err)
	// Output: configure natsinbox: invalid_config: Durable must name an existing consumer of the stream
}
