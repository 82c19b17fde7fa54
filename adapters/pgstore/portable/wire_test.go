package portable_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
)

// wire is what a test does to a store's connection, and counts of it.
type wire struct {
	// trips counts turns of the conversation: what is sent behind something that was
	// not answered yet is of the same one.
	trips atomic.Int64
	// lose breaks the connection instead of handing on the reply to a COMMIT, which the
	// server has executed; kill breaks it before the COMMIT is sent.
	lose, kill atomic.Bool
}

// commitMessage is how pgx says COMMIT.
const commitMessage = "commit\x00"

type conn struct {
	net.Conn
	w          *wire
	sent, lost atomic.Bool
}

func (c *conn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(commitMessage)) {
		if c.w.kill.CompareAndSwap(true, false) {
			_ = c.Close()
			return 0, io.ErrClosedPipe
		}
		if c.w.lose.CompareAndSwap(true, false) {
			c.lost.Store(true)
		}
	}
	if !c.sent.Swap(true) {
		c.w.trips.Add(1)
	}
	return c.Conn.Write(b)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.sent.Store(false)
	}
	if err == nil && c.lost.Load() {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// wired makes a store whose one connection goes over a wire.
func wired(t *testing.T, dsn string, cfg portable.Config) (*portable.Store, *wire) {
	t.Helper()
	pc, err := pgxpool.ParseConfig(with(t, dsn, "pool_max_conns", "1"))
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{}
	pc.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: nc, w: w}, nil
	}
	pc.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	pool, err := pgxpool.NewWithConfig(t.Context(), pc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return ready(t, pool, cfg), w
}
