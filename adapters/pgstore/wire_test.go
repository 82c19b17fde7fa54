package pgstore_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
)

// wire is what a test does to a store's connections.
type wire struct {
	// trips counts turns of the conversation: something was sent that was not
	// sent behind something unanswered. Reads do not count: under load pgx begins
	// one before it has sent anything.
	trips atomic.Int64
	// eat loses the reply to the first message that contains it: the server
	// has done what it was asked, and nobody hears of it.
	eat atomic.Pointer[[]byte]
}

// loseReplyTo arms the wire.
func (w *wire) loseReplyTo(message string) {
	b := []byte(message)
	w.eat.Store(&b)
}

// conn is one connection over a wire. pgx reads and writes one at a time.
type conn struct {
	net.Conn
	w          *wire
	sent, lose atomic.Bool
}

func (c *conn) Write(b []byte) (int, error) {
	if eat := c.w.eat.Load(); eat != nil && bytes.Contains(b, *eat) && c.w.eat.CompareAndSwap(eat, nil) {
		c.lose.Store(true)
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
	if err == nil && c.lose.Load() {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// wired makes a store whose one connection goes over a wire.
func wired(t *testing.T, dsn string, cfg pgstore.Config) (*pgstore.Store, *wire) {
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
