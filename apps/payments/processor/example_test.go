package processor_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
)

// A charge whose answer is lost is repeated with the same key and the same
// bytes; the card is charged once.
func ExampleClient_Charge() {
	server, err := processor.NewServer(processor.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	listener := httptest.NewServer(server)
	defer listener.Close()
	client := processor.Client{BaseURL: listener.URL, HTTP: listener.Client()}

	ctx := context.Background()
	body := processor.ChargeRequest{
		Amount: 1500, Currency: "ARS", Source: "tok_error_after", Reference: "order-1",
	}.Encode()
	_, err = client.Charge(ctx, "key-1", body)
	fmt.Println(err)

	charge, err := client.Charge(ctx, "key-1", body)
	fmt.Println(charge.Status, charge.Replayed, err)
	fmt.Println(server.Stats().ChargesByReference)
	// Output:
	// create charge: status 500: internal_error: something broke: effect unknown
	// succeeded true <nil>
	// map[order-1:1]
}

// Whoever cannot repeat asks by reference.
func ExampleClient_FindCharge() {
	server, err := processor.NewServer(processor.Config{IgnoreKeys: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	listener := httptest.NewServer(server)
	defer listener.Close()
	client := processor.Client{BaseURL: listener.URL, HTTP: listener.Client()}

	ctx := context.Background()
	_, err = client.Charge(ctx, "", processor.ChargeRequest{
		Amount: 1500, Currency: "ARS", Source: "tok_reset_after", Reference: "order-1",
	}.Encode())
	fmt.Println("charge:", processor.FateOf(err))

	charge, found, err := client.FindCharge(ctx, "order-1")
	fmt.Println(found, charge.Succeeded(), err)
	// Output:
	// charge: unknown
	// true true <nil>
}

func ExampleFateOf() {
	client := processor.Client{BaseURL: "http://127.0.0.1:1"}
	_, err := client.Charge(context.Background(), "a key with spaces", []byte("{}"))
	fmt.Println(processor.FateOf(err))
	// Output: not sent
}
