package inbox_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/memstore"
)

// engine is one on a memory store; services have theirs on a database.
func engine() *onlyonce.TxEngine[*memstore.Tx] {
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	e, err := onlyonce.NewTx[*memstore.Tx](store, onlyonce.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return e
}

// A message that comes twice changes the balance once: what the handler writes and the
// mark that it was handled are one transaction.
func ExampleTxInbox_Process() {
	ctx := context.Background()
	e := engine()
	defer e.Close(ctx)
	in, err := inbox.NewTx(e, inbox.Config{Consumer: "balances"})
	if err != nil {
		log.Fatal(err)
	}
	balance := 0
	add := func(_ context.Context, tx *memstore.Tx, _ inbox.Message) error {
		tx.OnCommit(func() { balance += 5 })
		return nil
	}
	msg := inbox.Message{ID: "evt_1", Payload: []byte(`{"amount":5}`)}
	for range 2 {
		verdict, err := in.Process(ctx, msg, add)
		fmt.Println(verdict, verdict.Ack(), err, balance)
	}
	// The same id with another payload is not skipped silently.
	msg.Payload = []byte(`{"amount":500}`)
	verdict, err := in.Process(ctx, msg, add)
	fmt.Println(verdict, onlyonce.CodeOf(err), balance)
	// Output:
	// handled true <nil> 5
	// duplicate true <nil> 5
	// parked idempotency_key_reused 5
}

// A handler that calls others does so in steps: a redelivery goes on behind those that
// are done.
func ExampleInbox_Process() {
	ctx := context.Background()
	e := engine()
	defer e.Close(ctx)
	in, err := inbox.New(e.Engine, inbox.Config{Consumer: "mails"})
	if err != nil {
		log.Fatal(err)
	}
	printer := errors.New("the printer is off")
	handle := func(ctx context.Context, msg inbox.Message) error {
		_, err := onlyonce.Call(ctx, onlyonce.Effect{
			Name: "mail", Provider: "mailer", Request: msg.Payload,
			Send: func(_ context.Context, s onlyonce.Sending) ([]byte, error) {
				fmt.Println("a mail is sent")
				return []byte("sent"), nil
			},
		})
		if err != nil {
			return err
		}
		return printer
	}
	msg := inbox.Message{ID: "evt_1", Payload: []byte("hello")}
	verdict, err := in.Process(ctx, msg, handle)
	fmt.Println(verdict, errors.Is(err, printer))
	printer = nil
	verdict, err = in.Process(ctx, msg, handle)
	fmt.Println(verdict, err)
	// Output:
	// a mail is sent
	// again true
	// handled <nil>
}

// What fails each time is parked with its payload. A person looks, mends what was wrong
// and asks for another try, which the consumer's Recoverer makes.
func ExampleRetry() {
	ctx := context.Background()
	e := engine()
	defer e.Close(ctx)
	in, err := inbox.NewTx(e, inbox.Config{Consumer: "balances", MaxTries: 2})
	if err != nil {
		log.Fatal(err)
	}
	closed := errors.New("the account is closed")
	handle := func(context.Context, *memstore.Tx, inbox.Message) error { return closed }
	msg := inbox.Message{ID: "evt_1", Payload: []byte("5")}
	for range 2 {
		verdict, _ := in.Process(ctx, msg, handle)
		fmt.Println(verdict)
	}
	page, err := inbox.List(ctx, e.Store(), "balances", "")
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range page.Entries {
		fmt.Println(m.Message.ID, string(m.Message.Payload), m.Error)
	}

	closed = nil
	_, err = inbox.Retry(ctx, e.Store(), inbox.Act{Consumer: "balances", ID: "evt_1", Actor: "ana", Reason: "it is open again"})
	if err != nil {
		log.Fatal(err)
	}
	sum, err := in.Recoverer(handle).Once(ctx) // a service lets Run do this
	fmt.Println(sum.Completed, err)
	// Output:
	// again
	// parked
	// evt_1 5 the account is closed
	// 1 <nil>
}

// An event is kept before its sender is answered, and handled behind the answer. It comes
// twice here, and somebody who does not know the secret sends another.
func ExampleTxInbox_Webhook() {
	ctx := context.Background()
	e := engine()
	defer e.Close(ctx)
	in, err := inbox.NewTx(e, inbox.Config{Consumer: "payment events"})
	if err != nil {
		log.Fatal(err)
	}
	verify, err := inbox.HMACSignature(inbox.HMACConfig{Header: "X-Signature", Prefix: "sha256=", Secrets: []string{"s3cret"}})
	if err != nil {
		log.Fatal(err)
	}
	id, err := inbox.IDFromJSON("/id")
	if err != nil {
		log.Fatal(err)
	}
	hook, err := in.Webhook(inbox.WebhookConfig{Verify: verify, EventID: id}, func(_ context.Context, tx *memstore.Tx, msg inbox.Message) error {
		tx.OnCommit(func() { fmt.Println("handled", msg.ID) })
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	send := func(secret string) {
		const body = `{"id":"evt_1"}`
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		r := httptest.NewRequest(http.MethodPost, "/hooks/payments", strings.NewReader(body))
		r.Header.Set("X-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		answer := httptest.NewRecorder()
		hook.ServeHTTP(answer, r)
		fmt.Println(answer.Code)
	}
	send("s3cret")
	if err := hook.Close(ctx); err != nil { // waits for what is being handled
		log.Fatal(err)
	}
	hook, err = in.Webhook(inbox.WebhookConfig{Verify: verify, EventID: id}, func(context.Context, *memstore.Tx, inbox.Message) error {
		fmt.Println("handled again")
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	defer hook.Close(ctx)
	send("s3cret")
	send("guess")
	// Unordered output:
	// 200
	// handled evt_1
	// 200
	// 401
}
