package cachestore_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/cachestore"
	"github.com/onlyonce-go/onlyonce/oncehttp"
	"github.com/onlyonce-go/onlyonce/storefault"
)

// S1, S5, F6, R1: a caller is told the same by a cache as by the store: a replay is
// marked, today's caller may be refused it, another scope and another request do
// not get it.
func TestCallersOfACache(t *testing.T) {
	t.Parallel()
	c := newCounting(t)
	engine, err := onlyonce.New(c.cache(t, cachestore.Config{}), onlyonce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := oncehttp.New(engine, func(r *http.Request) (string, error) { return r.Header.Get("X-Account"), nil })
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	charges, err := guard.Wrap(oncehttp.Route{Authorize: func(r *http.Request, _ onlyonce.Record) error {
		if r.Header.Get("X-Role") == "clerk" {
			return errors.New("clerks may not")
		}
		return nil
	}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ran++
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "charged") // to a recorder
	}))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(account, role, body string, status int, replayed string) {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", strings.NewReader(body))
		for name, v := range map[string]string{"X-Account": account, "X-Role": role, "Idempotency-Key": "k1", "Content-Type": "application/json"} {
			r.Header.Set(name, v)
		}
		w := httptest.NewRecorder()
		charges.ServeHTTP(w, r)
		if w.Code != status || w.Header().Get("Idempotent-Replayed") != replayed || (status == http.StatusCreated) != (w.Body.String() == "charged") {
			t.Errorf("%s, %s, %s: %d %v %s", account, role, body, w.Code, w.Header(), w.Body)
		}
	}
	const pay = `{"amount":100}`
	ask("acct_1", "owner", pay, http.StatusCreated, "")
	ask("acct_1", "owner", pay, http.StatusCreated, "true")
	claims := c.asked(storefault.Claim)
	ask("acct_1", "owner", `{ "amount": 1e2 }`, http.StatusCreated, "true")
	ask("acct_1", "clerk", pay, http.StatusForbidden, "")
	if c.asked(storefault.Claim) != claims {
		t.Error("these were to be hits")
	}
	ask("acct_1", "owner", `{"amount":101}`, http.StatusUnprocessableEntity, "")
	ask("acct_2", "owner", pay, http.StatusCreated, "")
	if ran != 2 {
		t.Errorf("the handler ran %d times for two keys", ran)
	}
}
