package filejournal_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/filejournal"
)

// A journal is made for a client, which does all of this by itself. Here is what it
// does: the entry is on disk before anything is sent, and one at a time works on it.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "onlyonce-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	journal, err := filejournal.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	entry := onceclient.Entry{
		Intent: "order-42/charge", Key: "8e03978e-40d5-43dd-bc93-6894a57f9324",
		Method: "POST", Target: "https://api.example.com/charges", Body: []byte(`{"amount":1999}`), CreatedAt: time.Now(),
	}
	if _, _, err := journal.Begin(ctx, entry); err != nil {
		log.Fatal(err)
	}
	lock, entry, err := journal.Lock(ctx, "order-42/charge")
	if err != nil {
		log.Fatal(err)
	}
	_, _, err = journal.Lock(ctx, "order-42/charge")
	fmt.Println(errors.Is(err, onceclient.ErrLocked))

	entry.State, entry.EndedAt, entry.Attempts = onceclient.Answered, time.Now(), 1
	entry.Answer = &onceclient.Answer{Status: 201, Body: []byte(`{"id":"ch_1"}`)}
	if err := errors.Join(lock.Save(ctx, entry), lock.Unlock()); err != nil {
		log.Fatal(err)
	}

	entry.Key = "another key" // as a caller would who does not know that it was done
	stands, made, err := journal.Begin(ctx, entry)
	fmt.Println(made, stands.Key, string(stands.Answer.Body), err)
	// Output:
	// true
	// false 8e03978e-40d5-43dd-bc93-6894a57f9324 {"id":"ch_1"} <nil>
}
