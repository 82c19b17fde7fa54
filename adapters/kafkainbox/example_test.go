package kafkainbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/kafkainbox"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// A consumer credits each payment once, although its producer has sent one twice. In
// production the store is the database of the balances.
func Example() {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "payments"))
	if err != nil {
		log.Fatal(err)
	}
	defer kafka.Close()
	produce(kafka.ListenAddrs(), "pay_1", "pay_2", "pay_1")

	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := onlyonce.NewTx(store, onlyonce.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close(context.Background())
	box, err := inbox.NewTx(engine, inbox.Config{Consumer: "balances"})
	if err != nil {
		log.Fatal(err)
	}
	credit := func(_ context.Context, tx *memstore.Tx, msg inbox.Message) error {
		tx.OnCommit(func() { fmt.Println("credit", msg.ID) })
		return nil
	}
	malformed := func(context.Context, *memstore.Tx, inbox.Message) error {
		return errors.New("the record has no message-id") // parked after a few tries
	}

	ctx, cancel := context.WithCancel(context.Background())
	consumer, err := kafkainbox.New(kafkainbox.Config{
		Group: "balances", Topics: []string{"payments"},
		Options: []kgo.Opt{kgo.SeedBrokers(kafka.ListenAddrs()...)},
		Process: func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
			return box.Process(ctx, msg, credit)
		},
		WithoutID: func(ctx context.Context, msg inbox.Message) (inbox.Verdict, error) {
			return box.Process(ctx, msg, malformed)
		},
		Observe: func(e kafkainbox.Event) {
			if e.Kind != kafkainbox.EventProcessed {
				return
			}
			fmt.Println(e.Offset, e.Verdict)
			if e.Offset == 2 {
				cancel() // a service runs until it is told to end
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := consumer.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// credit pay_1
	// 0 handled
	// credit pay_2
	// 1 handled
	// 2 duplicate
}

// produce sends a payment an id.
func produce(brokers []string, ids ...string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for _, id := range ids {
		record := &kgo.Record{
			Topic: "payments", Value: []byte(`{"amount":1200}`),
			Headers: []kgo.RecordHeader{{Key: kafkainbox.DefaultHeader, Value: []byte(id)}},
		}
		if err := client.ProduceSync(context.Background(), record).FirstErr(); err != nil {
			log.Fatal(err)
		}
	}
}
