package onceclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce/onceclient"
	"github.com/onlyonce-go/onlyonce/onceclient/memjournal"
)

// shop is a server that honours keys, and loses its first answer.
func shop() *httptest.Server {
	answers := map[string]string{}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		answer, done := answers[key]
		if !done {
			answer = fmt.Sprintf("charge %d", len(answers)+1)
			answers[key] = answer
		}
		if len(answers) == 1 && !done {
			drop(w)
			return
		}
		fmt.Fprint(w, answer)
	}))
}

// An operation has a name, so that doing it again, by another process too, is safe.
func ExampleClient_Do() {
	server := shop()
	defer server.Close()
	client, err := onceclient.New(onceclient.Config{
		Journal:     memjournal.New(), // a program uses one that survives it
		BackoffBase: time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseIdleConnections()
	for range 2 {
		out, err := client.Do(context.Background(), onceclient.Request{
			Intent: "order-42/charge", Method: http.MethodPost, URL: server.URL + "/charges", Body: []byte(`{"amount":100}`),
		})
		var (
			refused *onceclient.RefusedError
			notSent *onceclient.NotSentError
		)
		switch {
		case err == nil:
			fmt.Printf("%s after %d attempts, recorded: %t\n", out.Answer.Body, out.Attempts, out.Recorded)
		case errors.As(err, &refused):
			fmt.Println("no:", refused.Answer.Status)
		case errors.As(err, &notSent):
			fmt.Println("it may be done again, or not at all")
		default:
			fmt.Println("nobody knows yet; Resume will find out:", err)
		}
	}
	// Output:
	// charge 1 after 2 attempts, recorded: false
	// charge 1 after 2 attempts, recorded: true
}

// What a process left open, the next goes on with, with the same key.
func ExampleClient_Resume() {
	server := shop()
	defer server.Close()
	journal := memjournal.New()
	before, err := onceclient.New(onceclient.Config{Journal: journal, Attempts: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer before.CloseIdleConnections()
	_, err = before.Do(context.Background(), onceclient.Request{Intent: "order-42/charge", Method: http.MethodPost, URL: server.URL})
	var unknown *onceclient.UnknownError
	fmt.Println("unknown:", errors.As(err, &unknown))

	after, err := onceclient.New(onceclient.Config{Journal: journal})
	if err != nil {
		log.Fatal(err)
	}
	defer after.CloseIdleConnections()
	err = after.Resume(context.Background(), func(out onceclient.Outcome, err error) {
		fmt.Printf("%s: %s, %v\n", out.Intent, out.Answer.Body, err)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// unknown: true
	// order-42/charge: charge 1, <nil>
}

// A library that lets its http.Client be set needs no other change.
func ExampleClient_Transport() {
	server := shop()
	defer server.Close()
	client, err := onceclient.New(onceclient.Config{Journal: memjournal.New(), BackoffBase: time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	library := &http.Client{Transport: client.Transport()}
	defer library.CloseIdleConnections()
	ctx := onceclient.WithIntent(context.Background(), "order-42/charge")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, strings.NewReader(`{"amount":100}`))
	if err != nil {
		log.Fatal(err)
	}
	res, err := library.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	fmt.Printf("%d %s %v\n", res.StatusCode, body, err)
	// Output: 200 charge 1 <nil>
}

// Which headers are kept in the journal, and which only sent.
func ExampleIsCredential() {
	for _, name := range []string{"Authorization", "X-Vendor-Token", "Content-Type", "Idempotency-Key"} {
		fmt.Println(name, onceclient.IsCredential(name))
	}
	// Output:
	// Authorization true
	// X-Vendor-Token true
	// Content-Type false
	// Idempotency-Key false
}

// A host is the same however it is written.
func ExampleOrigin() {
	fmt.Println(onceclient.Origin("https://API.example.com/charges"))
	// Output: https://api.example.com:443
}
