package tests_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
	"github.com/onlyonce-go/onlyonce/adapters/sqlitestore"
	"github.com/onlyonce-go/onlyonce/apps/payments/processor"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
	"github.com/onlyonce-go/onlyonce/oncehttp"
	"github.com/onlyonce-go/onlyonce/provider"
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

// purchase is what the steps' handler is asked for.
type purchase struct {
	Source string `json:"source"`
}

// tryLater is the answer when it is proved that nothing happened.
func tryLater() (onlyonce.Answer, error) {
	return onlyonce.Answer{Status: http.StatusServiceUnavailable, Outcome: onlyonce.NotApplied}, nil
}

// notPaid is the answer when the card or the request was refused.
func notPaid(out provider.Outcome) (onlyonce.Answer, error) {
	return oncehttp.JSON(http.StatusPaymentRequired, out), nil
}

// book writes what was paid.
func book(ctx context.Context, tx pgx.Tx, out provider.Outcome) (onlyonce.Answer, error) {
	if _, err := tx.Exec(ctx, "INSERT INTO sales (charge, amount) VALUES ($1, $2)", out.ID, out.Amount); err != nil {
		return onlyonce.Answer{}, err
	}
	return oncehttp.JSON(http.StatusCreated, out), nil
}

// takeMoney is the README's handler in steps.
func takeMoney(ctx context.Context, engine *onlyonce.TxEngine[pgx.Tx], stripe provider.Provider, in purchase) (onlyonce.Answer, error) {
	out, err := provider.Charge(ctx, stripe, "charge", provider.ChargeRequest{Amount: 1500, Currency: "EUR", Source: in.Source})
	if onlyonce.IsNotApplied(err) {
		return tryLater() // proved: nothing happened; the key is free again
	}
	if err != nil {
		return onlyonce.Answer{}, err // in doubt: return it as it is
	}
	if out.Status != provider.Succeeded {
		return notPaid(out) // declined, or the request refused: an answer such as 402, stored and replayed
	}
	return engine.Finish(ctx, func(ctx context.Context, tx pgx.Tx) (onlyonce.Answer, error) {
		return book(ctx, tx, out) // business write and answer in one transaction
	})
}

// The README's handler in steps works as it stands: a card is charged once, and the
// sale written once, though the first answer is lost.
func TestReadmeTakesMoney(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testserver.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := pgstore.New(pool, pgstore.Config{})
	if err == nil {
		err = store.Migrate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	engine, err := onlyonce.NewTx[pgx.Tx](store, onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(engine.Close(context.WithoutCancel(t.Context())), store.Close()); err != nil {
			t.Error(err)
		}
	})
	if _, err := pool.Exec(t.Context(), "CREATE TABLE sales (charge text, amount bigint)"); err != nil {
		t.Fatal(err)
	}
	remote, err := processor.NewServer(processor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(remote)
	t.Cleanup(func() { server.Close(); _ = remote.Close() })
	stripe := &processor.Provider{Client: &processor.Client{BaseURL: server.URL, HTTP: newClient(t)}, Promises: provider.Traits{Memory: time.Hour, Lookup: true}}
	guard, err := oncehttp.New(engine.Engine, account)
	if err != nil {
		t.Fatal(err)
	}
	handler, err := oncehttp.Steps(guard, oncehttp.StepsRoute[purchase]{
		Decode: func(_ *http.Request, body []byte) (purchase, error) {
			var in purchase
			err := json.Unmarshal(body, &in)
			return in, err
		},
		Handle: func(ctx context.Context, in purchase) (onlyonce.Answer, error) {
			return takeMoney(ctx, engine, stripe, in)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{http.StatusConflict, http.StatusCreated, http.StatusCreated} {
		r := httptest.NewRequest(http.MethodPost, "/sales", strings.NewReader(`{"source":"tok_error_after"}`))
		r.Header.Set("X-Account", "shop")
		r.Header.Set("Idempotency-Key", "sale-1")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("attempt %d: %d %s", i+1, w.Code, w.Body)
		}
	}
	var sales int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM sales").Scan(&sales); err != nil || sales != 1 {
		t.Errorf("%d sales are written, %v", sales, err)
	}
	if stats := remote.Stats(); stats.Charges != 1 {
		t.Errorf("the card was charged %d times", stats.Charges)
	}
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
