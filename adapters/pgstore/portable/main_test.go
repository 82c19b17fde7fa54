package portable_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
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

// patient is a wait for other transactions that a loaded machine does not cut short.
const patient = 2 * time.Second

// migrated opens a store and makes its tables, as Open does by itself.
func migrated(t *testing.T, dsn string, cfg portable.Config) *portable.Store {
	t.Helper()
	s, err := portable.Open(t.Context(), dsn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// admin is a pool beside the store, to look at the tables with.
func admin(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func exec(t *testing.T, p *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := p.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// one reads one value.
func one[T any](t *testing.T, p *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := p.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// with sets parameters of a URL.
func with(t *testing.T, dsn string, pairs ...string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for i := 0; i < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // the driver takes a plus for a plus
	return u.String()
}

// request is a claim that no other test makes.
func request(value string) onlyonce.ClaimRequest {
	fp := onlyonce.Fingerprint{Version: onlyonce.FingerprintVersion{Form: 1, Secret: "s1", Policy: "0011223344556677"}, Parts: make([]byte, 96)}
	copy(fp.Sum[:], "sum of "+value)
	return onlyonce.ClaimRequest{
		Key: onlyonce.Key{Scope: "acct_1", Value: value}, Operation: "POST /charges", Fingerprint: fp,
		Attempt: onlyonce.NewToken(), Lease: 30 * time.Second, Retention: 24 * time.Hour, Abandon: onlyonce.AbandonRerun,
	}
}

// again is the same request by another attempt.
func again(req onlyonce.ClaimRequest) onlyonce.ClaimRequest {
	req.Attempt = onlyonce.NewToken()
	return req
}

func created() onlyonce.Answer {
	return onlyonce.Answer{
		Status: 201, Header: map[string][]string{"Content-Type": {"application/json"}},
		Body: []byte(`{"id":"ch_3PqRs7Tu9VwX","object":"charge","amount":1999,"currency":"eur","status":"succeeded"}`),
	}
}

// want claims and checks the verdict.
func want(t *testing.T, s *portable.Store, req onlyonce.ClaimRequest, verdict onlyonce.Verdict) onlyonce.Claim {
	t.Helper()
	c, err := s.Claim(t.Context(), req)
	if err != nil {
		t.Fatalf("claim %s: %v", req.Key.Value, err)
	}
	if c.Verdict != verdict {
		t.Fatalf("claim %s: %v, want %v", req.Key.Value, c.Verdict, verdict)
	}
	return c
}

func complete(t *testing.T, s *portable.Store, owner onlyonce.Owner) {
	t.Helper()
	if settled, err := s.Complete(t.Context(), owner, created()); err != nil || !settled.Held {
		t.Fatalf("complete: %+v, %v", settled, err)
	}
}

// answers is a handler that writes nothing.
func answers(context.Context, pgx.Tx) (*onlyonce.Answer, error) {
	a := created()
	return &a, nil
}
