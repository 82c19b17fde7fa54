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

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// The caller has gone between its charge and its answer. The request is kept, so
// that a recoverer can bring it to its end, here at once because a person asks for
// it; the answer waits for the caller.
func ExampleGuard_Resumers() {
	guard, engine, err := newGuard()
	if err != nil {
		log.Fatal(err)
	}
	ledger := errors.New("the ledger is locked")
	charges, err := oncehttp.Steps(guard, oncehttp.StepsRoute[order]{
		Route:       oncehttp.Route{Op: onlyonce.Op{Name: "POST /charges"}},
		Recoverable: true,
		Decode:      decodeOrder,
		Handle: func(ctx context.Context, in order) (onlyonce.Answer, error) {
			id, err := onlyonce.Call(ctx, onlyonce.Effect{
				Name: "charge", Provider: "bank", Request: fmt.Append(nil, in.Amount),
				Send: func(context.Context, onlyonce.Sending) ([]byte, error) {
					fmt.Println("bank: charge", in.Amount)
					return []byte("ch_1"), nil
				},
			})
			if err != nil || ledger != nil {
				return onlyonce.Answer{}, errors.Join(err, ledger)
			}
			return oncehttp.JSON(http.StatusCreated, map[string]string{"id": string(id)}), nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	post(charges, "k1", `{"amount":100}`)

	ledger = nil
	recoverer := onlyonce.Recoverer{Engine: engine.Engine, Resume: guard.Resumers()}
	res, err := recoverer.Key(context.Background(), onlyonce.Key{Scope: "acme", Value: "k1"})
	fmt.Println("recovered:", res.State, err)
	post(charges, "k1", `{"amount":100}`)
	// Output:
	// bank: charge 100
	// 500 executed handler_failed
	// recovered: completed <nil>
	// 201 replayed {"id":"ch_1"}
}

// A client that lost an answer asks where its key stands instead of sending again.
func ExampleGuard_LookupHandler() {
	guard, _, err := newGuard()
	if err != nil {
		log.Fatal(err)
	}
	charges, err := guard.Wrap(oncehttp.Route{Op: onlyonce.Op{Name: "charge"}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/charges/1")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "charged")
	}))
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /idempotency-keys/{key}", guard.LookupHandler(nil))
	post(charges, "k1", `{"amount":100}`)
	for _, key := range []string{"k1", "k2"} {
		r := httptest.NewRequest(http.MethodGet, "/idempotency-keys/"+key, http.NoBody)
		r.Header.Set("X-Account", "acme")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		var state struct{ State, Location, Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &state); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s%s %s\n", w.Code, state.State, state.Error, state.Location)
	}
	// Output:
	// 201 executed charged
	// 200 completed /charges/1
	// 404 key_not_found
}
