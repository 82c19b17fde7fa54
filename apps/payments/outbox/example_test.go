package outbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/outbox"
	"github.com/onlyonce-go/onlyonce/inbox"
)

// printer is a broker that confirms what it has printed.
type printer struct{}

func (printer) Publish(_ context.Context, msgs []inbox.Message) error {
	for _, msg := range msgs {
		fmt.Println(msg.ID, string(msg.Payload))
	}
	return nil
}

// An event is written beside what it tells of, and published behind it.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	d, err := db.Open(ctx, "sqlite:"+filepath.Join(dir, "payments.db"))
	if err != nil {
		panic(err)
	}
	defer d.Close()
	if err := d.Migrate(ctx); err != nil {
		panic(err)
	}
	if err := d.Write(ctx, func(ctx context.Context, tx db.Tx) error {
		// … the charge and its transfer, and then:
		return outbox.Add(ctx, tx, numbered(7))
	}); err != nil {
		panic(err)
	}
	relay, err := outbox.New(outbox.Config{DB: d, Publisher: printer{}})
	if err != nil {
		panic(err)
	}
	for range 2 { // a service calls Run instead
		drained, err := relay.Drain(ctx)
		fmt.Println(drained.Published, err)
	}
	// Output:
	// 45592dac-b340-85ed-a7f6-cc52b868404f {"id":"45592dac-b340-85ed-a7f6-cc52b868404f","kind":"charge.succeeded","merchant":"m","amount":8,"currency":"EUR","subject":"ch_7","operation":"op_7","occurred_at":"2023-11-14T22:13:27Z"}
	// 1 <nil>
	// 0 <nil>
}
