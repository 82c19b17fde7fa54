package pgstore_test

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/pgstore"
)

// A store on the pool that the business data uses, and an engine whose handlers
// share one transaction with it. Neither connects before it is used.
func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db.internal/payments")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	store, err := pgstore.New(pool, pgstore.Config{Schema: "onlyonce"})
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
	fmt.Println(engine.Store().Features().Name)
	// Output: postgres
}

// The migrations, for a tool of one's own.
func ExampleMigrations() {
	files, err := fs.Glob(pgstore.Migrations(), "*.sql")
	fmt.Println(files, err)
	// Output: [0001_init.down.sql 0001_init.up.sql 0002_resource_recovery.down.sql 0002_resource_recovery.up.sql 0003_due_by_operation.down.sql 0003_due_by_operation.up.sql] <nil>
}
