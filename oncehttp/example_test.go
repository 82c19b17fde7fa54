package oncehttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// Protect your own handler: a store, an engine, and whose key a key is.
func Example() {
	mux := http.NewServeMux()
	createCharge := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "charged")
	}

	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := onlyonce.New(store, onlyonce.Config{})
	if err != nil {
		log.Fatal(err)
	}
	guard, err := oncehttp.New(engine, func(r *http.Request) (string, error) {
		return r.Header.Get("X-Account"), nil // whom your authentication has found
	})
	if err != nil {
		log.Fatal(err)
	}
	charges, err := guard.Wrap(oncehttp.Route{}, http.HandlerFunc(createCharge))
	if err != nil {
		log.Fatal(err)
	}
	mux.Handle("POST /charges", charges)

	post(mux, "", `{"amount":100}`)
	post(mux, "k1", `{"amount":100}`)
	post(mux, "k1", `{"amount":100}`)
	post(mux, "k1", `{"amount":200}`)
	// Output:
	// 400 refused idempotency_key_required
	// 201 executed charged
	// 201 replayed charged
	// 422 refused idempotency_key_reused
}

// A handler that knows of nothing tells the guard more than a status can: here
// that a failure came before anything was done.
func ExampleGuard_Wrap() {
	guard, _, err := newGuard()
	if err != nil {
		log.Fatal(err)
	}
	stock := 0
	orders, err := guard.Wrap(oncehttp.Route{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if stock == 0 {
			onlyonce.Declare(r.Context(), onlyonce.NotApplied) // the key is free again
			http.Error(w, "sold out", http.StatusServiceUnavailable)
			return
		}
		stock--
		io.WriteString(w, "sold")
	}))
	if err != nil {
		log.Fatal(err)
	}

	post(orders, "k1", `{}`)
	stock = 5
	post(orders, "k1", `{}`)
	post(orders, "k1", `{}`)
	fmt.Println("left:", stock)
	// Output:
	// 503 executed sold out
	// 200 executed sold
	// 200 replayed sold
	// left: 4
}

// The charge is a recorded step: when the run fails behind it, the retry
// resumes there, and the bank is not asked again.
func ExampleSteps() {
	guard, _, err := newGuard()
	if err != nil {
		log.Fatal(err)
	}
	mailServer := errors.New("mail server is down")
	charges, err := oncehttp.Steps(guard, oncehttp.StepsRoute[order]{
		Decode: decodeOrder,
		Handle: func(ctx context.Context, in order) (onlyonce.Answer, error) {
			id, err := onlyonce.Call(ctx, onlyonce.Effect{
				Name: "charge", Provider: "bank", Request: fmt.Append(nil, in.Amount),
				Send: func(context.Context, onlyonce.Sending) ([]byte, error) {
					fmt.Println("bank: charge", in.Amount)
					return []byte("ch_1"), nil
				},
			})
			if err != nil {
				return onlyonce.Answer{}, err
			}
			if err := mailServer; err != nil {
				mailServer = nil
				return onlyonce.Answer{}, err
			}
			return oncehttp.JSON(http.StatusCreated, map[string]string{"id": string(id)}), nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	post(charges, "k1", `{"amount":100}`)
	post(charges, "k1", `{"amount":100}`)
	post(charges, "k1", `{"amount":100}`)
	// Output:
	// bank: charge 100
	// 500 executed handler_failed
	// 201 executed {"id":"ch_1"}
	// 201 replayed {"id":"ch_1"}
}

// The booking and its answer are one transaction. A refusal is an answer, and
// is replayed like one.
func ExampleAtomic() {
	guard, engine, err := newGuard()
	if err != nil {
		log.Fatal(err)
	}
	balance := 120
	bookings, err := oncehttp.Atomic(guard, engine, oncehttp.AtomicRoute[*memstore.Tx, order]{
		Decode: decodeOrder,
		Handle: func(_ context.Context, tx *memstore.Tx, in order) (onlyonce.Answer, error) {
			if in.Amount > balance {
				p := &oncehttp.Problem{Status: http.StatusPaymentRequired, Code: "insufficient_funds", RetryWith: oncehttp.NewKey}
				return p.Answer(), nil
			}
			tx.OnCommit(func() { balance -= in.Amount })
			return oncehttp.JSON(http.StatusCreated, map[string]int{"booked": in.Amount}), nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	post(bookings, "k1", `{"amount":100}`)
	post(bookings, "k1", `{"amount":100}`)
	post(bookings, "k2", `{"amount":100}`)
	post(bookings, "k2", `{"amount":100}`)
	fmt.Println("balance:", balance)
	// Output:
	// 201 executed {"booked":100}
	// 201 replayed {"booked":100}
	// 402 executed insufficient_funds
	// 402 replayed insufficient_funds
	// balance: 20
}

type order struct {
	Amount int `json:"amount"`
}

func decodeOrder(_ *http.Request, body []byte) (order, error) {
	var in order
	return in, json.Unmarshal(body, &in)
}

// newGuard is what the examples share: an engine on a store in memory.
func newGuard() (*oncehttp.Guard, *onlyonce.TxEngine[*memstore.Tx], error) {
	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		return nil, nil, err
	}
	engine, err := onlyonce.NewTx(store, onlyonce.Config{})
	if err != nil {
		return nil, nil, err
	}
	guard, err := oncehttp.New(engine.Engine, func(r *http.Request) (string, error) {
		return r.Header.Get("X-Account"), nil
	})
	return guard, engine, err
}

// post sends a request under a key and prints status, Idempotency-Status, and
// the body or a problem's code.
func post(h http.Handler, key, body string) {
	r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Account", "acme")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	shown := strings.TrimSpace(w.Body.String())
	var problem struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(w.Body.Bytes(), &problem) == nil && problem.Error != "" {
		shown = problem.Error
	}
	fmt.Println(w.Code, w.Header().Get("Idempotency-Status"), shown)
}
