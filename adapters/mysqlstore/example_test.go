package mysqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/adapters/mysqlstore"
)

// A store with a pool of its own, and an engine whose handlers share one transaction
// with it.
func ExampleOpen() { //nolint:testableexamples // it wants a server
	ctx := context.Background()
	store, err := mysqlstore.Open(ctx, "mysql://app:secret@db.internal/payments?tls=true", mysqlstore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	engine, err := onlyonce.NewTx[*sql.Tx](store, onlyonce.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = engine.Close(ctx) }()
}

// The migrations, for a tool of one's own.
func ExampleMigrations() {
	files, err := fs.Glob(mysqlstore.Migrations(), "*.sql")
	fmt.Println(files, err)
	// Output: [0001_init.down.sql 0001_init.up.sql] <nil>
}
