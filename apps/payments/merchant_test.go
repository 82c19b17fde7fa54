package payments_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/apps/internal/apptest"
	"github.com/onlyonce-go/onlyonce/apps/payments"
)

// A replaced API key finds the answers that were given to the old one. (S3)
func TestRotatedKeyStillReplays(t *testing.T) {
	t.Parallel()
	oldKey, oldHash := payments.NewAPIKey()
	newKey, newHash := payments.NewAPIKey()
	merchants := func(hashes ...string) payments.Merchants {
		m, err := payments.ParseMerchants(map[string][]string{"acme": hashes})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for name, open := range apptest.Stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, open(t), options{config: payments.Config{Merchants: merchants(oldHash, newHash)}})
			charge := func(auth ...string) reply {
				return b.call(t, http.MethodPost, "/charges", chargeBody(1500, "tok_visa"), append(auth, "Idempotency-Key", "k1")...)
			}
			first := charge("Authorization", "Bearer "+oldKey).want(t, 201, "")
			again := charge("Authorization", "bearer "+newKey).want(t, 201, "")
			if !again.replayed() || again.body != first.body {
				t.Errorf("the new key gets %s, the old one got %s", again.body, first.body)
			}
			for _, auth := range []string{"", "Bearer", "Bearer ", "Bearer sk_wrong", "Basic " + oldKey, "Bearer " + oldHash, "Bearer " + strings.TrimPrefix(oldKey, "sk_")} {
				r := charge("Authorization", auth).want(t, 401, "unauthenticated")
				if r.header.Get("WWW-Authenticate") == "" {
					t.Error("a 401 without WWW-Authenticate")
				}
			}
			b.get(t, "/charges").want(t, 401, "unauthenticated")
			b.get(t, "/healthz").want(t, 200, "")
			b.once(t, 1, 0)
			if strings.Contains(b.log.String(), "sk_") {
				t.Error("the log holds an API key")
			}
		})
	}
}

func TestParseMerchantsRefuses(t *testing.T) {
	t.Parallel()
	_, hash := payments.NewAPIKey()
	for name, stored := range map[string]map[string][]string{
		"a name with spaces": {"a b": {hash}},
		"a plain key":        {"acme": {"sk_secret"}},
		"a short hash":       {"acme": {"sha256:abcd"}},
		"no prefix":          {"acme": {strings.TrimPrefix(hash, "sha256:")}},
		"one key for two":    {"acme": {hash}, "evil": {hash}},
	} {
		if _, err := payments.ParseMerchants(stored); err == nil {
			t.Errorf("%s was accepted", name)
		} else if strings.Contains(err.Error(), "sk_secret") {
			t.Errorf("the error tells the key: %v", err)
		}
	}
}
