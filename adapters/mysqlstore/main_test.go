package mysqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
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

// open opens a store and makes its tables, as Open does by itself.
func open(t *testing.T, dsn string, cfg mysqlstore.Config) *mysqlstore.Store {
	t.Helper()
	s, err := mysqlstore.Open(t.Context(), dsn, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// admin is a pool beside the store, to look at the tables with.
func admin(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	return pool(t, dsn, true)
}

// pool is one that is not Open's. Without interpolation every statement is prepared.
func pool(t *testing.T, dsn string, interpolate bool) *sql.DB {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.DBName = "tcp", u.Host, u.User.Username(), u.Path[1:]
	cfg.Passwd, _ = u.User.Password()
	cfg.InterpolateParams, cfg.Logger = interpolate, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(8)
	t.Cleanup(func() { db.Close() })
	return db
}

func exec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// one reads one value.
func one[T any](t *testing.T, db *sql.DB, query string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
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
	u.RawQuery = q.Encode()
	return u.String()
}

// anyIsolation stands for isolationName.
const anyIsolation = "any_isolation"

// isolationName is what a server calls the isolation of its sessions.
func isolationName(t *testing.T, dsn string) string {
	t.Helper()
	if strings.Contains(one[string](t, admin(t, dsn), `SELECT VERSION()`), "MariaDB") {
		return "tx_isolation"
	}
	return "transaction_isolation"
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
func want(t *testing.T, s onlyonce.Store, req onlyonce.ClaimRequest, verdict onlyonce.Verdict) onlyonce.Claim {
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

func complete(t *testing.T, s onlyonce.Store, owner onlyonce.Owner) {
	t.Helper()
	if settled, err := s.Complete(t.Context(), owner, created()); err != nil || !settled.Held {
		t.Fatalf("complete: %+v, %v", settled, err)
	}
}

// answers is a handler that writes nothing.
func answers(context.Context, *sql.Tx) (*onlyonce.Answer, error) {
	a := created()
	return &a, nil
}
