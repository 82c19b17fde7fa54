package watermillinbox_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/watermillinbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// balances is an inbox; in production its store is the database of the balances.
func balances() (*inbox.TxInbox[*memstore.Tx], func()) {
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := onlyonce.NewTx(store, onlyonce.Config{})
	if err != nil {
		log.Fatal(err)
	}
	box, err := inbox.NewTx(engine, inbox.Config{Consumer: "balances"})
	if err != nil {
		log.Fatal(err)
	}
	return box, func() { engine.Close(context.Background()) }
}

// A handler that writes in the inbox's transaction. The router is given it by
// AddConsumerHandler.
func ExampleHandler() {
	box, done := balances()
	defer done()
	credit := func(_ context.Context, tx *memstore.Tx, msg inbox.Message) error {
		tx.OnCommit(func() { fmt.Println("credit", msg.ID) })
		return nil
	}
	handler, err := watermillinbox.Handler(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		return box.Process(ctx, msg, credit)
	}, watermillinbox.Config{
		Observe: func(msg inbox.Message, verdict inbox.Verdict, _ error) { fmt.Println(msg.ID, verdict) },
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 { // the broker delivers, and delivers again
		if err := handler(message.NewMessage("pay_1", []byte("1200"))); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// credit pay_1
	// pay_1 handled
	// pay_1 duplicate
}

// A handler that exists gets an inbox before it, and its transaction by the message's
// context. The router is given the middleware last, so that it stands next to the handler.
func ExampleMiddleware() {
	box, done := balances()
	defer done()
	middleware, err := watermillinbox.Middleware(func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
		return box.Process(ctx, msg, watermillinbox.NextTx[*memstore.Tx])
	}, watermillinbox.Config{})
	if err != nil {
		log.Fatal(err)
	}
	handler := middleware(func(msg *message.Message) ([]*message.Message, error) {
		tx, ok := watermillinbox.TxFrom[*memstore.Tx](msg.Context())
		if !ok {
			return nil, fmt.Errorf("message %s has no transaction", msg.UUID)
		}
		tx.OnCommit(func() { fmt.Println("credit", msg.UUID) })
		return nil, nil
	})
	for range 2 {
		if _, err := handler(message.NewMessage("pay_1", []byte("1200"))); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// credit pay_1
}
