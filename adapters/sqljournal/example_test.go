package sqljournal_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/onlyonce-go/onlyonce/adapters/sqljournal"
	"github.com/onlyonce-go/onlyonce/onceclient"
)

// The order and the charge that goes with it are written in one transaction. Only when
// it has committed is the charge sent, by Do or, if the process dies before, by Resume.
func ExampleJournal_InsertTx() {
	ctx := context.Background()
	db, api, cleanUp := shop()
	defer cleanUp()

	journal, err := sqljournal.New(ctx, db, sqljournal.Config{Dialect: sqljournal.SQLite})
	if err != nil {
		log.Fatal(err)
	}
	client, err := onceclient.New(onceclient.Config{Journal: journal})
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseIdleConnections()

	place := func(order string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", order); err != nil {
			return err
		}
		entry, err := client.Entry(onceclient.Request{
			Intent: order + "/charge", Key: "6ec9b3f0-" + order, // a key is made if there is none
			Method: http.MethodPost, URL: api, Body: []byte(`{"amount":1999}`),
		})
		if err != nil {
			return err
		}
		if err := journal.InsertTx(ctx, tx, entry); err != nil {
			return err
		}
		return tx.Commit()
	}
	if err := place("order-42"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the order and its charge are written, nothing is sent")

	// Another process, after a crash perhaps:
	err = client.Resume(ctx, func(out onceclient.Outcome, err error) {
		fmt.Println(out.Intent, out.Answer.Status, string(out.Answer.Body), err)
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// the order and its charge are written, nothing is sent
	// order-42/charge 201 charged with key 6ec9b3f0-order-42 <nil>
}

// shop is a database with orders, and an API that charges.
func shop() (db *sql.DB, api string, cleanUp func()) {
	dir, err := os.MkdirTemp("", "onlyonce-example-")
	if err != nil {
		log.Fatal(err)
	}
	db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE orders (id TEXT PRIMARY KEY)"); err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "charged with key %s", r.Header.Get("Idempotency-Key"))
	}))
	return db, server.URL, func() {
		server.Close()
		db.Close()
		os.RemoveAll(dir)
	}
}

// The tables can be made by somebody else: these are the statements.
func ExampleStatements() {
	statements, err := sqljournal.Statements(sqljournal.Postgres)
	if err != nil {
		log.Fatal(err)
	}
	for _, statement := range statements {
		fmt.Printf("%.40s…\n", statement)
	}
	// Output:
	// CREATE TABLE IF NOT EXISTS onlyonce_jour…
	// CREATE INDEX IF NOT EXISTS onlyonce_jour…
	// CREATE INDEX IF NOT EXISTS onlyonce_jour…
	// CREATE TABLE IF NOT EXISTS onlyonce_jour…
	// INSERT INTO onlyonce_journal_versions (v…
}
