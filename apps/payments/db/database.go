package db

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// Database is an open database: the store of keys, and the service's own
// tables beside it. It is safe for concurrent use.
type Database struct {
	keys   Keys
	driver driver
}

// driver is what differs between the two databases.
type driver interface {
	// begin opens a transaction; write says whether it may change anything.
	begin(ctx context.Context, write bool) (transaction, error)
	// again tells whether a transaction failed with nothing done because of a
	// concurrent one.
	again(err error) bool
	// script runs several statements in one transaction, under a lock that keeps
	// other migrations out.
	script(ctx context.Context, fn func(tx Tx, run func(sql string) error) error) error
	ping(ctx context.Context) error
	// tables is a query that counts the tables of a name: 1 or none.
	tables(name string) string
	// clock is the database's own time, in microseconds since 1970.
	clock() string
	migrations() (fs.FS, error)
	keyMigrations() fs.FS
	close() error
}

// transaction is an open transaction and its two ends.
type transaction struct {
	tx       Tx
	commit   func(ctx context.Context) error
	rollback func()
}

// Open opens the database a URL names: sqlite:PATH or postgres://…, and brings
// the tables of the keys up to date. Errors are *onlyonce.Error, with
// CodeConfig where the URL is at fault. Close the database when it is no longer
// used.
func Open(ctx context.Context, url string) (*Database, error) { return open(ctx, url, true) }

// OpenExisting is Open for who only looks: a database without the tables of the
// keys is an error, and is left as it is.
func OpenExisting(ctx context.Context, url string) (*Database, error) {
	d, err := open(ctx, url, false)
	if err != nil {
		return nil, err
	}
	if _, _, err := d.Keys().Get(ctx, onlyonce.Key{Scope: "-", Value: "-"}); err != nil {
		return nil, errors.Join(&onlyonce.Error{
			Code: onlyonce.CodeConfig, Op: "open store", Err: err,
			Hint: "no keys can be read there; is it the database that the service uses? `onlyonce migrate up` makes the tables",
		}, d.Close())
	}
	return d, nil
}

func open(ctx context.Context, url string, migrate bool) (*Database, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "sqlite":
		return openSQLite(ctx, rest, migrate)
	case "postgres", "postgresql":
		return openPostgres(ctx, url, migrate)
	case "memory":
		return nil, storeError("memory: keeps no tables and is gone with the process; use sqlite:PATH or postgres://…")
	default:
		return nil, storeUnknown()
	}
}

// storeUnknown names no scheme: what stands before the colon may be anything.
func storeUnknown() error {
	return storeError("is not one this program knows how to keep payments in: the payments service's own databases are sqlite:PATH or postgres://…; " +
		"keys list, show and settle, sweep, estimate and migrate work on every store of keys")
}

func storeError(text string) error {
	return &onlyonce.Error{Code: onlyonce.CodeConfig, Op: "read store URL", Hint: "the store " + text}
}

// Keys is the store of idempotency keys in this database.
func (d *Database) Keys() Keys { return d.keys }

// WithKeys is the same database with its store of keys wrapped, for tests that
// make the store fail at a certain point. Both must not be closed.
func (d *Database) WithKeys(wrap func(Keys) Keys) *Database {
	return &Database{keys: wrap(d.keys), driver: d.driver}
}

// Ping tells whether the database can be reached.
func (d *Database) Ping(ctx context.Context) error {
	if err := d.driver.ping(ctx); err != nil {
		return fmt.Errorf("reach database: %w", err)
	}
	return nil
}

// Close closes all connections and waits for statements under way.
func (d *Database) Close() error {
	if err := d.driver.close(); err != nil {
		return fmt.Errorf("close database: %w", err)
	}
	return nil
}

// maxTries bounds how often a transaction is repeated.
const maxTries = 8

// Write runs fn in a transaction and commits it; an error of fn rolls it back
// and is returned as it is. fn is run again when the database refused the
// transaction because of a concurrent one, so it must have no other effect. An
// error of the commit leaves open whether it happened: what fn writes must be
// safe to repeat.
func (d *Database) Write(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	for try := 0; ; try++ {
		err := d.once(ctx, true, fn)
		if err == nil || try+1 >= maxTries || !d.driver.again(err) {
			return err
		}
		if !pause(ctx, try) {
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

// Read runs fn on one consistent state of the database, which it cannot change.
func (d *Database) Read(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	return d.once(ctx, false, fn)
}

func (d *Database) once(ctx context.Context, write bool, fn func(ctx context.Context, tx Tx) error) error {
	t, err := d.driver.begin(ctx, write)
	if err != nil {
		return fmt.Errorf("begin transaction: %w", err)
	}
	defer t.rollback()
	if err := fn(ctx, t.tx); err != nil {
		return err
	}
	if !write {
		return nil
	}
	if err := t.commit(ctx); err != nil {
		return fmt.Errorf("commit transaction: %w", err)
	}
	return nil
}

// pause waits a random time that grows with each try; false: ctx ended first.
func pause(ctx context.Context, try int) bool {
	t := time.NewTimer(time.Duration(rand.Int64N(int64(5*time.Millisecond)<<min(try, 6)) + 1))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
