package mysqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
)

// wire is what a test does to a store's connections.
type wire struct {
	// trips counts messages that were sent.
	trips atomic.Int64
	// eat loses the reply to the first message that contains it: the server has done
	// what it was asked, and nobody hears of it.
	eat atomic.Pointer[[]byte]
}

// loseReplyTo arms the wire.
func (w *wire) loseReplyTo(message string) {
	b := []byte(message)
	w.eat.Store(&b)
}

// wireConn is one connection over a wire.
type wireConn struct {
	net.Conn
	w    *wire
	lose atomic.Bool
}

func (c *wireConn) Write(b []byte) (int, error) {
	if eat := c.w.eat.Load(); eat != nil && bytes.Contains(b, *eat) && c.w.eat.CompareAndSwap(eat, nil) {
		c.lose.Store(true)
	}
	c.w.trips.Add(1)
	return c.Conn.Write(b)
}

func (c *wireConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.lose.Load() {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// wired makes a store whose one connection goes over a wire. Its sessions are as
// Open's are.
func wired(t *testing.T, dsn string) (*mysqlstore.Store, *wire) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{}
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.User, cfg.DBName = "tcp", u.Host, u.User.Username(), u.Path[1:]
	cfg.Passwd, _ = u.User.Password()
	cfg.InterpolateParams, cfg.Logger = true, &mysql.NopLogger{}
	cfg.Params = map[string]string{isolationName(t, dsn): "'READ-COMMITTED'"}
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wireConn{Conn: nc, w: w}, nil
	}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return ready(t, db, mysqlstore.Config{}), w
}
