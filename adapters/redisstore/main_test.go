package redisstore_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/redisstore"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestMain(m *testing.M) {
	code := testserver.Run(m)
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// openAt opens a store and closes it with the test.
func openAt(t *testing.T, url string, cfg redisstore.Config) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func keyOf(value string) onlyonce.Key { return onlyonce.Key{Scope: "acct", Value: value} }

// claimOf is a claim by a new attempt.
func claimOf(value string) onlyonce.ClaimRequest {
	return onlyonce.ClaimRequest{
		Key: keyOf(value), Operation: "POST /charges",
		Fingerprint: onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: 1, Secret: "s", Policy: "p"}, Sum: [32]byte{1}},
		Attempt:     onlyonce.NewToken(), Lease: 30 * time.Second, Retention: time.Hour, Abandon: onlyonce.AbandonRerun,
	}
}

// anotherOf is the same request by another attempt.
func anotherOf(req onlyonce.ClaimRequest) onlyonce.ClaimRequest {
	req.Attempt = onlyonce.NewToken()
	return req
}

func answerOf(body string) onlyonce.Answer { return onlyonce.Answer{Status: 201, Body: []byte(body)} }

func mustClaim(t *testing.T, s onlyonce.Store, req onlyonce.ClaimRequest, want onlyonce.Verdict) onlyonce.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), req)
	if err != nil || c.Verdict != want {
		t.Fatalf("claim %s: %v, %v; want %v", req.Key.Value, c.Verdict, err, want)
	}
	return c
}

func complete(t *testing.T, s onlyonce.Store, req onlyonce.ClaimRequest, body string) {
	t.Helper()
	owner := mustClaim(t, s, req, onlyonce.Won).Record.Owner()
	if settled, err := s.Complete(t.Context(), owner, answerOf(body)); !settled.Held || err != nil {
		t.Fatalf("complete %s: %+v, %v", req.Key.Value, settled, err)
	}
}
