package tests_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// The example's answer to errors: a program that cannot be set up ends.
func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// account stands for the authentication of the example's service.
func account(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil }

// Example_readme is the README's code.
func Example_readme() {
	ctx := context.Background()
	mux := http.NewServeMux()
	createCharge := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "charged")
	})
	dir, err := os.MkdirTemp("", "readme")
	check(err)
	back, err := os.Getwd()
	check(err)
	check(os.Chdir(dir))

	store, err := sqlitestore.Open(ctx, "keys.db", sqlitestore.Config{}) // or pgstore.Open
	check(err)
	engine, err := onlyonce.New(store, onlyonce.Config{})
	check(err)
	guard, err := oncehttp.New(engine, account) // whose key is it? the account your authentication found
	check(err)
	charges, err := guard.Wrap(oncehttp.Route{}, createCharge) // any http.Handler
	check(err)
	mux.Handle("POST /charges", charges)

	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(`{"amount":1500}`))
		r.Header.Set("X-Account", "shop")
		r.Header.Set("Idempotency-Key", "order-42")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Body, w.Header().Get("Idempotency-Status"))
	}
	check(engine.Close(ctx))
	check(store.Close())
	check(os.Chdir(back))
	check(os.RemoveAll(dir))
	// Output:
	// 201 charged executed
	// 201 charged replayed
}

// The README's Go code is this file's, line by line.
func TestReadmeIsCompiled(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(root(t), "apps", "tests", "readme_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(readme), "```go\n")
	if len(blocks) < 2 {
		t.Fatal("README.md has no Go code")
	}
	for _, b := range blocks[1:] {
		code, _, _ := strings.Cut(b, "```")
		indented := "\t" + strings.ReplaceAll(strings.TrimSpace(code), "\n", "\n\t")
		if !strings.Contains(string(source), indented) {
			t.Errorf("this code of README.md is not in the example that runs:\n%s", code)
		}
	}
}
