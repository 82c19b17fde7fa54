package payments_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
)

// Who has lost an answer asks by key, and finds the state and the resource; another
// merchant's key is not there. (S1, X4)
func TestLookupByKey(t *testing.T) {
	t.Parallel()
	acmeKey, acmeHash := payments.NewAPIKey()
	evilKey, evilHash := payments.NewAPIKey()
	merchants, err := payments.ParseMerchants(map[string][]string{"acme": {acmeHash}, "evil": {evilHash}})
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{config: payments.Config{Merchants: merchants}})
			send := func(apiKey, method, path, key, body string) reply {
				headers := []string{"Authorization", "Bearer " + apiKey}
				if key != "" {
					headers = append(headers, "Idempotency-Key", key)
				}
				return b.call(t, method, path, body, headers...)
			}
			look := func(apiKey, key string) reply { return send(apiKey, http.MethodGet, "/idempotency-keys/"+key, "", "") }
			send(acmeKey, http.MethodPut, "/orders/o1", "", orderBody("prod_mate", 1)).want(t, 201, "")
			done := send(acmeKey, http.MethodPost, "/charges", `"a/b c?"`, chargeBody(100, "tok_visa")).want(t, 201, "")
			send(acmeKey, http.MethodPost, "/charges", "k2", payBody("o1", "tok_error_after", 1500)).want(t, 409, "outcome_unknown")

			completed := look(acmeKey, "a%2Fb%20c%3F").want(t, 200, "")
			if completed.text(t, "state") != "completed" || completed.text(t, "status") != "201" || completed.text(t, "location") != done.header.Get("Location") {
				t.Errorf("the completed key is %s", completed.body)
			}
			doubt := look(acmeKey, "k2").want(t, 200, "")
			if doubt.text(t, "state") != "in_doubt" || doubt.text(t, "resource") != "order/o1" || doubt.header.Get("Retry-After") == "" {
				t.Errorf("the key in doubt is %v %s", doubt.header, doubt.body)
			}
			if doubt.text(t, "name") != "POST /charges" || doubt.header.Get("Cache-Control") != "no-store" || strings.Contains(doubt.body, "tok_") {
				t.Errorf("the key in doubt is %v %s", doubt.header, doubt.body)
			}
			look(acmeKey, "none").want(t, 404, "key_not_found")
			look(evilKey, "k2").want(t, 404, "key_not_found")
			look("sk_nobody", "k2").want(t, 401, "unauthenticated")
			look(acmeKey, strings.Repeat("k", 256)).want(t, 400, "idempotency_key_invalid")
			ignored := send(acmeKey, http.MethodGet, "/idempotency-keys/k2", "another", "").want(t, 200, "")
			if ignored.header.Get("Idempotency-Status") != "ignored" {
				t.Errorf("a key on the look-up is %q", ignored.header.Get("Idempotency-Status"))
			}
			page := b.get(t, look(acmeKey, "none").text(t, "type"))
			if page.status != 200 || !strings.Contains(page.body, "Key not found") {
				t.Errorf("its documentation: %d %s", page.status, page.body)
			}
			b.once(t, 2, 0)
		})
	}
}
