package sqlitestore

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
)

// plainConn is a connection that takes no hooks.
type plainConn struct {
	driver.Conn
	closed bool
}

func (c *plainConn) Close() error {
	c.closed = true
	return nil
}

// plainConnector connects to nothing.
type plainConnector struct {
	driver.Connector
	conn *plainConn
}

func (c plainConnector) Connect(context.Context) (driver.Conn, error) { return c.conn, nil }

// Without the veto a handler that commits would get its writes in: no
// connection is better than one like that.
func TestConnectionWithoutVetoIsRefused(t *testing.T) {
	t.Parallel()
	conn := &plainConn{}
	got, err := sealable{Connector: plainConnector{conn: conn}, sealed: &atomic.Bool{}}.Connect(t.Context())
	e, ok := errors.AsType[*onlyonce.Error](err)
	if got != nil || !ok || e.Code != onlyonce.CodeConfig || e.Hint == "" {
		t.Errorf("connect: %v, %v", got, err)
	}
	if !conn.closed {
		t.Error("the connection was left open")
	}
}
