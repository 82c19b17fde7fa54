package portable_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// The three schemes name the same database.
func TestOpenBySchemes(t *testing.T) {
	t.Parallel()
	_, rest, _ := strings.Cut(testserver.Postgres(t), "://")
	req := request("k")
	for i, scheme := range []string{"postgres", "postgresql", "postgres+portable"} {
		s := migrated(t, scheme+"://"+rest, portable.Config{})
		if i == 0 {
			complete(t, s, want(t, s, req, onlyonce.Won).Record.Owner())
		}
		want(t, s, again(req), onlyonce.Replay)
	}
}

// A URL that the driver would take for something else, and connect to wherever its
// defaults say, is refused. No error tells the password.
func TestOpenRefusesOtherURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "postgres", "POSTGRES://u:s3cret@127.0.0.1:1/d", "mysql://u:s3cret@127.0.0.1:1/d", "postgres+other://u:s3cret@127.0.0.1:1/d?a=b",
		"host=127.0.0.1 port=1 user=u password=s3cret", "postgres:s3cret", " postgres://u:s3cret@127.0.0.1:1/d",
		"postgres://u:s3cret@h:port/d", "postgres+portable://u:s3cret@h:1/d?connect_timeout=x", "postgres://u:s3%cret@h/d",
	} {
		s, err := portable.Open(t.Context(), url, portable.Config{})
		if onlyonce.CodeOf(err) != onlyonce.CodeConfig || s != nil {
			t.Fatalf("%q: %v", url, err)
		}
		for e := err; e != nil; {
			if strings.Contains(e.Error(), "cret") {
				t.Errorf("%q: the error tells the password: %v", url, e)
			}
			u, _ := e.(interface{ Unwrap() error })
			if u == nil {
				break
			}
			e = u.Unwrap()
		}
	}
}

// What is confirmed is durable, though the sessions would do without: each of our
// transactions waits for its commit, and leaves the session as it was. Other ways of
// waiting are the session's.
func TestDurableInAsynchronousSessions(t *testing.T) {
	t.Parallel()
	dsn := testserver.Postgres(t)
	migrated(t, dsn, portable.Config{})
	for session, inside := range map[string]string{"off": "on", "on": "on", "local": "local", "remote_apply": "remote_apply"} {
		for _, mode := range []string{"cache_statement", "simple_protocol"} {
			s := migrated(t, with(t, dsn, "synchronous_commit", session, "pool_max_conns", "1", "default_query_exec_mode", mode), portable.Config{})
			for i := range 2 { // the second time it has been asked
				owner := want(t, s, request(fmt.Sprint(session, mode, i)), onlyonce.Won).Record.Owner()
				_, err := s.Finish(t.Context(), owner, func(ctx context.Context, tx pgx.Tx) (*onlyonce.Answer, error) {
					var got string
					if err := tx.QueryRow(ctx, `SHOW synchronous_commit`).Scan(&got); err != nil || got != inside {
						t.Errorf("session %s, %s: %q in a transaction, %v; want %s", session, mode, got, err, inside)
					}
					return answers(ctx, tx)
				})
				if err != nil {
					t.Error(err)
				}
				if got := one[string](t, portable.PoolOf(s), `SHOW synchronous_commit`); got != session {
					t.Errorf("a session that was %s is left with %s", session, got)
				}
			}
			if !s.Features().Durable {
				t.Error("not durable")
			}
			s.Close()
		}
	}
}

// deaf is a connection to an engine that does not know how it commits.
type deaf struct {
	net.Conn
	asked *atomic.Int64
}

func (c deaf) Write(b []byte) (int, error) {
	const known, unknown = "SHOW synchronous_commit", "SHOW synchronous_nothing"
	if bytes.Contains(b, []byte(known)) {
		c.asked.Add(1)
		b = bytes.ReplaceAll(b, []byte(known), []byte(unknown[:len(known)]))
	}
	return c.Conn.Write(b)
}

// An engine that does not know the parameter refuses to tell it: it is asked once a
// connection, and all goes on.
func TestEngineWithoutAsynchronousCommits(t *testing.T) {
	t.Parallel()
	pc, err := pgxpool.ParseConfig(with(t, testserver.Postgres(t), "pool_max_conns", "1"))
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	pc.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return deaf{nc, &asked}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), pc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := ready(t, pool, portable.Config{})
	for i := range 3 {
		complete(t, s, want(t, s, request(fmt.Sprint(i)), onlyonce.Won).Record.Owner())
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}
