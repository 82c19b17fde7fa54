package portable_test

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore/portable"
)

// A store for an engine of several nodes, on the pool that the business data uses, and
// an engine whose handlers share one transaction with it. Neither connects before it is
// used.
func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@cockroach.internal:26257/payments")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	store, err := portable.New(pool, portable.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := onlyonce.NewTx[pgx.Tx](store, onlyonce.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = engine.Close(ctx) }()
	f := engine.Store().Features()
	fmt.Println(f.Name, f.Observes, f.CommitDecides)
	// Output: postgres-portable true true
}

// The migration, for a tool of one's own.
func ExampleMigrations() {
	files, err := fs.Glob(portable.Migrations(), "*.sql")
	fmt.Println(files, err)
	// Output: [0001_init.down.sql 0001_init.up.sql] <nil>
}
