package oncecall_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/memstore"
	"github.com/onlyonce-go/onlyonce/oncecall"
)

// A client library that knows nothing of onlyonce is given the transport: what it
// sends in Effect.Send bears the derived key, and what it sends elsewhere in the
// operation is refused.
func ExampleTransport() {
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path, r.Header.Get("Idempotency-Key"))
		w.WriteHeader(http.StatusCreated)
	}))
	defer provider.Close()
	client := oncecall.NewClient(&oncecall.Transport{})
	defer client.CloseIdleConnections()
	post := func(ctx context.Context, path string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, provider.URL+path, strings.NewReader(`{"amount":100}`))
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}

	store, err := memstore.New(memstore.Config{SingleProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	engine, err := onlyonce.New(store, onlyonce.Config{})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer engine.Close(ctx)
	_, err = engine.Steps(ctx, onlyonce.Op{Name: "POST /charges"}, request("key-1"), func(ctx context.Context) (onlyonce.Answer, error) {
		_, err := onlyonce.Call(ctx, onlyonce.Effect{
			Name: "charge", Provider: "acme",
			Send: func(ctx context.Context, _ onlyonce.Sending) ([]byte, error) { return nil, post(ctx, "/v1/charges") },
		})
		fmt.Println("in Send:", err)
		fmt.Println("elsewhere:", errors.Is(post(ctx, "/v1/receipts"), oncecall.ErrWithoutKey))
		return onlyonce.Answer{Status: http.StatusCreated}, err
	})
	fmt.Println("operation:", err)
	// Output:
	// POST /v1/charges e688300d-0eb0-8854-9942-168397b7c069
	// in Send: <nil>
	// elsewhere: true
	// operation: <nil>
}
