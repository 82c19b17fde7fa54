package event_test

import (
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce/apps/payments/event"
)

// A refund is published, and read by a consumer.
func Example() {
	msg, err := event.Event{
		ID: event.IDOf(event.RefundSucceeded, "op_7f"), Kind: event.RefundSucceeded, Merchant: "acme", Amount: 250, Currency: "EUR",
		Subject: "re_1", Operation: "op_7f", OccurredAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}.Message()
	if err != nil {
		fmt.Println(err)
		return
	}
	e, err := event.Read(msg)
	fmt.Println(e.Kind, e.Merchant, e.Kind.Sign()*e.Amount, e.Currency, err)
	// Output: refund.succeeded acme -250 EUR <nil>
}
