package mysqlstore

import (
	"context"
	"database/sql/driver"
	"strings"
)

// pooledConnector makes the connections of Open's pool.
type pooledConnector struct{ driver.Connector }

// Connect connects, once.
func (c pooledConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	whole, ok := conn.(driverConn)
	if !ok {
		return conn, nil // cannot be: it is the driver's own
	}
	return &pooled{driverConn: whole}, nil
}

// driverConn is all that a connection of the driver's can do.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// pooled is a connection of Open's pool. When a statement on it may have changed the
// session, or begun a transaction that nobody ends, it is closed instead of given back:
// what the store writes next would not be committed, or not be what it says.
type pooled struct {
	driverConn
	changed bool
}

// IsValid tells whether the connection may be given back to the pool.
func (c *pooled) IsValid() bool { return !c.changed && c.driverConn.IsValid() }

// see looks at what is sent.
func (c *pooled) see(query string) { c.changed = c.changed || !leavesSession(query) }

// ExecContext runs a statement.
func (c *pooled) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.see(query)
	return c.driverConn.ExecContext(ctx, query, args)
}

// QueryContext runs a statement that gives rows.
func (c *pooled) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.see(query)
	return c.driverConn.QueryContext(ctx, query, args)
}

// PrepareContext prepares a statement.
func (c *pooled) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.see(query)
	return c.driverConn.PrepareContext(ctx, query)
}

// BeginTx begins a transaction.
func (c *pooled) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.driverConn.BeginTx(ctx, opts)
	if err != nil {
		c.changed = true
		return nil, err
	}
	return &pooledTx{tx, c}, nil
}

// pooledTx is a transaction. One whose end is refused may still be open.
type pooledTx struct {
	driver.Tx
	on *pooled
}

// Commit commits.
func (tx *pooledTx) Commit() error { return tx.ended(tx.Tx.Commit()) }

// Rollback rolls back.
func (tx *pooledTx) Rollback() error { return tx.ended(tx.Tx.Rollback()) }

func (tx *pooledTx) ended(err error) error {
	tx.on.changed = tx.on.changed || err != nil
	return err
}

// leavesSession tells of a statement, by its first word, that it leaves the session as
// it is. Transactions that are begun with BeginTx do not come by here.
func leavesSession(query string) bool {
	query = strings.TrimSpace(query)
	if end := strings.IndexFunc(query, func(r rune) bool { return (r|0x20) < 'a' || (r|0x20) > 'z' }); end >= 0 {
		query = query[:end]
	}
	switch strings.ToUpper(query) {
	case "SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "SHOW", "EXPLAIN", "SAVEPOINT", "RELEASE":
		return true
	default:
		return false
	}
}
